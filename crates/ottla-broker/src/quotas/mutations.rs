//! `controller_mutation_rate`: the number of partitions that a client may create and delete,
//! charged where the controller processes the request (KIP-599).

use std::fmt;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_context::NodeContext;
use ottla_net::RequestContext;
use ottla_security::quota::{MutationQuota, QuotaExceeded, Rate, TokenBucket, Windows};
use ottla_sync::atomic::{AtomicU64, Ordering};

use super::client_quota::ClientQuota;

/// The windows of the exported rate: Kafka's defaults for metrics. They have no effect on limits.
pub(crate) const SHOWN: Windows = Windows {
    count: 2,
    length_ms: 30_000,
};

/// The usage of one client.
#[derive(Debug, Default)]
pub(crate) struct MutationUsage {
    pub(crate) bucket: TokenBucket,
    pub(crate) rate: Rate,
}

/// The quota that one request is charged to.
pub(crate) struct Mutations {
    quota: Arc<ClientQuota<MutationUsage>>,
    context: Arc<NodeContext>,
    user: ByteString,
    client_id: ByteString,
    is_strict: bool,
    /// On the node's monotonic clock.
    throttled_until_ms: AtomicU64,
}

impl Mutations {
    pub(crate) fn new(
        quota: &Arc<ClientQuota<MutationUsage>>,
        node: &Arc<NodeContext>,
        context: &RequestContext,
        is_strict: bool,
    ) -> Mutations {
        let (user, client_id) = context.quota_entity();
        Mutations {
            quota: Arc::clone(quota),
            context: Arc::clone(node),
            user: user.into(),
            client_id: client_id.into(),
            is_strict,
            throttled_until_ms: AtomicU64::new(0),
        }
    }
}

impl MutationQuota for Mutations {
    fn record(&self, partitions: usize) -> Result<(), QuotaExceeded> {
        let (windows, now_ms) = (self.quota.windows(), self.context.now_ms());
        let is_strict = self.is_strict;
        let (user, client_id) = (&self.user, &self.client_id);
        let counted = self
            .quota
            .with_usage(user, client_id, now_ms, |usage, limit| {
                let MutationUsage { bucket, rate } = &mut usage.usage;
                let before = limit.map_or(0, |limit| bucket.throttle_ms(windows, limit, now_ms));
                if is_strict && before > 0 {
                    return (Err(QuotaExceeded), before);
                }
                rate.record(SHOWN, partitions as f64, now_ms);
                let Some(limit) = limit else {
                    return (Ok(()), 0);
                };
                bucket.take(windows, limit, partitions as f64, now_ms);
                match is_strict {
                    // The next request is throttled for it.
                    true => (Ok(()), 0),
                    false => (Ok(()), bucket.throttle_ms(windows, limit, now_ms)),
                }
            });
        let (outcome, throttle_ms) = counted.unwrap_or((Ok(()), 0));
        if throttle_ms > 0 {
            let until_ms = now_ms.saturating_add(throttle_ms);
            self.throttled_until_ms.store(until_ms, Ordering::Relaxed);
        }
        outcome
    }

    fn throttle_time_ms(&self) -> u64 {
        let until_ms = self.throttled_until_ms.load(Ordering::Relaxed);
        until_ms.saturating_sub(self.context.now_ms())
    }
}

impl fmt::Debug for Mutations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mutations({}, {})", self.user, self.client_id)
    }
}
