//! One kind of quota: the limits of all clients, and what each has used.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use ottla_net::RequestContext;
use ottla_security::quota::{Applied, ClientLimits, ClientUsage, Ledger, Rate, Windows};
use ottla_sync::atomic::{AtomicBool, Ordering};
use ottla_sync::{ArcSwap, Mutex};

/// Clients are spread over so many locks.
const SHARDS: usize = 16;
/// The most clients that are counted for in a shard. The one that has been idle longest makes room.
const CLIENTS_PER_SHARD: usize = 1_000;

/// The usage is `U`.
#[derive(Debug)]
pub(crate) struct ClientQuota<U> {
    /// Whether anybody has such a quota: nothing else is looked at otherwise.
    is_set: AtomicBool,
    limits: ArcSwap<ClientLimits>,
    windows: Windows,
    shards: [Mutex<Ledger<U>>; SHARDS],
}

impl<U: Default> ClientQuota<U> {
    pub(crate) fn new(windows: Windows) -> ClientQuota<U> {
        ClientQuota {
            is_set: AtomicBool::new(false),
            limits: ArcSwap::default(),
            windows,
            shards: std::array::from_fn(|_| Mutex::new(Ledger::new(CLIENTS_PER_SHARD))),
        }
    }

    pub(crate) fn set(&self, limits: ClientLimits) {
        let is_set = limits.is_set();
        self.limits.store(limits.into());
        self.is_set.store(is_set, Ordering::Release);
        if !is_set {
            for shard in &self.shards {
                shard.lock().clear();
            }
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    pub(crate) fn windows(&self) -> Windows {
        self.windows
    }

    /// Looks at the usage of a client and at its limit, if it has one. `None` where nobody has such a quota.
    pub(crate) fn with_usage<R>(
        &self,
        user: &str,
        client_id: &str,
        now_ms: u64,
        look: impl FnOnce(&mut ClientUsage<U>, Option<f64>) -> R,
    ) -> Option<R> {
        if !self.is_set() {
            return None;
        }
        let applied = self.limits.load().applied(user, client_id);
        let mut shard = self.shard(applied, user, client_id).lock();
        let usage = shard.usage(applied, user, client_id, now_ms);
        Some(look(usage, applied.limit))
    }

    fn shard(&self, applied: Applied, user: &str, client_id: &str) -> &Mutex<Ledger<U>> {
        let user = applied.by_user.then_some(user);
        let client_id = applied.by_client_id.then_some(client_id);
        // With fixed keys, for the same run of a simulation each time.
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((user, client_id));
        &self.shards[hash as usize % SHARDS]
    }

    /// Counts a pause towards the average. One of no length is none.
    pub(crate) fn on_throttled(&self, context: &RequestContext, throttle_ms: u64, now_ms: u64) {
        if throttle_ms > 0 {
            let (user, client_id) = context.quota_entity();
            self.with_usage(user, client_id, now_ms, |usage, _| {
                usage.on_throttled(throttle_ms, now_ms);
            });
        }
    }

    /// Looks at every client with its limit.
    pub(crate) fn for_each(
        &self,
        now_ms: u64,
        mut look: impl FnMut(&mut ClientUsage<U>, Option<f64>),
    ) {
        let limits = self.limits.load();
        for shard in &self.shards {
            for usage in shard.lock().all(now_ms) {
                let limit = limits.applied(&usage.user, &usage.client_id).limit;
                look(usage, limit);
            }
        }
    }
}

impl ClientQuota<Rate> {
    /// Counts what a client has used, and says how long it has to pause.
    pub(crate) fn record(&self, context: &RequestContext, value: f64, now_ms: u64) -> u64 {
        let windows = self.windows;
        let (user, client_id) = context.quota_entity();
        let recorded = self.with_usage(user, client_id, now_ms, |usage, limit| {
            let rate = &mut usage.usage;
            rate.record(windows, value, now_ms);
            limit.map_or(0, |limit| rate.throttle_ms(windows, limit, now_ms))
        });
        recorded.unwrap_or(0)
    }

    pub(crate) fn take_back(&self, context: &RequestContext, value: f64, now_ms: u64) {
        let (user, client_id) = context.quota_entity();
        self.with_usage(user, client_id, now_ms, |usage, _| {
            usage.usage.record(self.windows, -value, now_ms);
        });
    }

    /// The most that a client may use at once without a pause, if it has used nothing lately. `None` for anything.
    pub(crate) fn most_at_once(&self, context: &RequestContext) -> Option<f64> {
        if !self.is_set() {
            return None;
        }
        let (user, client_id) = context.quota_entity();
        let limit = self.limits.load().applied(user, client_id).limit?;
        let windows = self.windows.span_ms() - self.windows.length_ms;
        Some(limit * windows as f64 / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use ottla_protocol::ApiKey;
    use ottla_security::quota::QuotaPart;
    use ottla_testkit::peer::client_context;

    use super::*;

    fn count(quota: &ClientQuota<Rate>) -> usize {
        let mut clients = 0;
        quota.for_each(0, |_, _| clients += 1);
        clients
    }

    #[test]
    fn without_a_quota_nothing_is_locked_and_nothing_kept() {
        let quota = ClientQuota::<Rate>::new(Windows::new(11, 1));
        let context = client_context(ApiKey::Produce, 9);
        // Whoever wanted one of the locks would wait for ever.
        let locked: Vec<_> = quota.shards.iter().map(Mutex::lock).collect();
        assert_eq!(quota.record(&context, 1e9, 0), 0);
        assert_eq!(quota.most_at_once(&context), None);
        quota.take_back(&context, 1e9, 0);
        quota.on_throttled(&context, 5, 0);
        drop(locked);
        assert_eq!(count(&quota), 0);
    }

    #[test]
    fn what_is_used_is_kept_as_long_as_there_is_a_quota() {
        let quota = ClientQuota::<Rate>::new(Windows::new(11, 1));
        let mut limits = ClientLimits::default();
        limits.set(None, Some(QuotaPart::Default), 100.0);
        quota.set(limits);
        let context = client_context(ApiKey::Produce, 9);
        assert_eq!(quota.record(&context, 1.0, 0), 0);
        assert_eq!(quota.most_at_once(&context), Some(1_000.0));
        assert_eq!(count(&quota), 1);
        // Without the quota, what was used is forgotten.
        quota.set(ClientLimits::default());
        assert_eq!(count(&quota), 0);
    }
}
