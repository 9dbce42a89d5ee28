//! One kind of quota: the limits, and the usage of each client.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use ottla_net::RequestContext;
use ottla_security::quota::{Applied, ClientLimits, ClientUsage, Ledger, Rate, Windows};
use ottla_sync::atomic::{AtomicBool, Ordering};
use ottla_sync::{ArcSwap, Mutex};

/// The number of locks that clients are distributed over.
const SHARDS: usize = 16;
/// The maximum number of clients per shard. The client that was idle longest is dropped.
const CLIENTS_PER_SHARD: usize = 1_000;

/// `U` is the type of the usage.
#[derive(Debug)]
pub(crate) struct ClientQuota<U> {
    /// Whether any client has such a quota. If not, nothing else is accessed.
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

    /// Accesses the usage of a client and its limit, if it has one. `None` if no client has such a
    /// quota.
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
        // With fixed keys, so that simulations are reproducible.
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((user, client_id));
        &self.shards[hash as usize % SHARDS]
    }

    /// Adds a throttle time to the average, unless it is zero.
    pub(crate) fn on_throttled(&self, context: &RequestContext, throttle_ms: u64, now_ms: u64) {
        if throttle_ms > 0 {
            let (user, client_id) = context.quota_entity();
            self.with_usage(user, client_id, now_ms, |usage, _| {
                usage.on_throttled(throttle_ms, now_ms);
            });
        }
    }

    /// Accesses every client and its limit.
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
    /// Records usage of a client. Returns its throttle time.
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

    /// The maximum that an idle client may use at once without being throttled. `None` if it has no
    /// limit.
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
    fn without_a_quota_no_lock_is_taken_and_no_state_kept() {
        let quota = ClientQuota::<Rate>::new(Windows::new(11, 1));
        let context = client_context(ApiKey::Produce, 9);
        // A thread that tried to take one of these locks would block forever.
        let locked: Vec<_> = quota.shards.iter().map(Mutex::lock).collect();
        assert_eq!(quota.record(&context, 1e9, 0), 0);
        assert_eq!(quota.most_at_once(&context), None);
        quota.take_back(&context, 1e9, 0);
        quota.on_throttled(&context, 5, 0);
        drop(locked);
        assert_eq!(count(&quota), 0);
    }

    #[test]
    fn usage_is_kept_as_long_as_there_is_a_quota() {
        let quota = ClientQuota::<Rate>::new(Windows::new(11, 1));
        let mut limits = ClientLimits::default();
        limits.set(None, Some(QuotaPart::Default), 100.0);
        quota.set(limits);
        let context = client_context(ApiKey::Produce, 9);
        assert_eq!(quota.record(&context, 1.0, 0), 0);
        assert_eq!(quota.most_at_once(&context), Some(1_000.0));
        assert_eq!(count(&quota), 1);
        // Without a quota, usage is dropped.
        quota.set(ClientLimits::default());
        assert_eq!(count(&quota), 0);
    }
}
