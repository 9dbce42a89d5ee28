//! The usage of a quota by each client. Clients that were idle for an hour are dropped, as in
//! Kafka, and the number of clients is bounded, because clients choose their IDs and could
//! otherwise exhaust the memory.
//!
//! Kafka: the sensors of `ClientQuotaManager`.

use std::collections::BTreeMap;

use bytestring::ByteString;

use super::limits::Applied;
use super::windows::{WindowedSum, Windows};

/// Kafka: `ClientQuotaManager.INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS`.
const IDLE_MS: u64 = 60 * 60 * 1_000;
/// How often idle clients are searched for.
const SWEEP_MS: u64 = 60 * 1_000;
/// The share of the clients that is dropped at once where there is no room. To search for the one that was
/// idle longest for each new client would take time that grows with their number.
const DROPPED_SHARE: usize = 16;
/// The windows of the average throttle time: Kafka's defaults for metrics.
const AVERAGE: Windows = Windows {
    count: 2,
    length_ms: 30_000,
};

/// One client's usage of a quota.
#[derive(Debug)]
pub struct ClientUsage<U> {
    pub user: ByteString,
    pub client_id: ByteString,
    pub usage: U,
    throttle_sum: WindowedSum,
    throttle_count: WindowedSum,
    last_used_ms: u64,
}

impl<U> ClientUsage<U> {
    pub fn on_throttled(&mut self, throttle_ms: u64, now_ms: u64) {
        self.throttle_sum
            .record(AVERAGE, throttle_ms as f64, now_ms);
        self.throttle_count.record(AVERAGE, 1.0, now_ms);
    }

    /// The average throttle time of the client; `None` if it was not throttled recently.
    pub fn average_throttle_ms(&mut self, now_ms: u64) -> Option<f64> {
        let count = self.throttle_count.sum(AVERAGE, now_ms);
        (count > 0.0).then(|| self.throttle_sum.sum(AVERAGE, now_ms) / count)
    }
}

/// The usage of one quota by all clients, or by some of them.
#[derive(Debug)]
pub struct Ledger<U> {
    /// By user and client ID. A part that does not distinguish clients is empty.
    users: BTreeMap<ByteString, BTreeMap<ByteString, ClientUsage<U>>>,
    len: usize,
    max_clients: usize,
    swept_ms: u64,
}

impl<U: Default> Ledger<U> {
    pub fn new(max_clients: usize) -> Ledger<U> {
        Ledger {
            users: BTreeMap::new(),
            len: 0,
            max_clients,
            swept_ms: 0,
        }
    }

    /// The usage that a request is charged to.
    pub fn usage(
        &mut self,
        applied: Applied,
        user: &str,
        client_id: &str,
        now_ms: u64,
    ) -> &mut ClientUsage<U> {
        let user = if applied.by_user { user } else { "" };
        let client_id = if applied.by_client_id { client_id } else { "" };
        let of_user = self.users.get(user);
        if of_user.is_none_or(|clients| !clients.contains_key(client_id)) {
            self.make_room(now_ms);
            self.len += 1;
            let of_user = self.users.entry(user.into()).or_default();
            let usage = ClientUsage {
                user: user.into(),
                client_id: client_id.into(),
                usage: U::default(),
                throttle_sum: WindowedSum::default(),
                throttle_count: WindowedSum::default(),
                last_used_ms: now_ms,
            };
            of_user.insert(client_id.into(), usage);
        }
        let of_user = self.users.get_mut(user);
        let usage = of_user.and_then(|clients| clients.get_mut(client_id));
        let usage = usage.expect("it existed, or was just inserted");
        usage.last_used_ms = now_ms;
        usage
    }

    /// In the order of their names.
    pub fn all(&mut self, now_ms: u64) -> impl Iterator<Item = &mut ClientUsage<U>> {
        self.forget_idle(now_ms);
        let users = self.users.values_mut();
        users.flat_map(|clients| clients.values_mut())
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops all usage because no limit is set any more.
    pub fn clear(&mut self) {
        self.users.clear();
        self.len = 0;
    }

    fn make_room(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.swept_ms) >= SWEEP_MS {
            self.forget_idle(now_ms);
        }
        if self.len < self.max_clients {
            return;
        }
        let all = self.users.values().flat_map(BTreeMap::values);
        let mut last_used_ms: Vec<u64> = all.map(|usage| usage.last_used_ms).collect();
        if last_used_ms.is_empty() {
            return;
        }
        let mut to_drop = (last_used_ms.len() / DROPPED_SHARE).max(1);
        let (_, latest_dropped_ms, _) = last_used_ms.select_nth_unstable(to_drop - 1);
        let latest_dropped_ms = *latest_dropped_ms;
        self.retain(|usage| {
            let is_dropped = to_drop > 0 && usage.last_used_ms <= latest_dropped_ms;
            to_drop -= usize::from(is_dropped);
            !is_dropped
        });
    }

    fn forget_idle(&mut self, now_ms: u64) {
        self.swept_ms = now_ms;
        self.retain(|usage| now_ms.saturating_sub(usage.last_used_ms) < IDLE_MS);
    }

    fn retain(&mut self, mut is_kept: impl FnMut(&ClientUsage<U>) -> bool) {
        self.users.retain(|_, clients| {
            clients.retain(|_, usage| is_kept(usage));
            !clients.is_empty()
        });
        self.len = self.users.values().map(BTreeMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: Applied = Applied {
        limit: Some(1.0),
        by_user: true,
        by_client_id: true,
    };

    fn count(ledger: &mut Ledger<u32>, applied: Applied, client_id: &str, now_ms: u64) -> u32 {
        let usage = ledger.usage(applied, "u", client_id, now_ms);
        usage.usage += 1;
        usage.usage
    }

    #[test]
    fn clients_without_distinct_quotas_share_one() {
        let mut ledger = Ledger::new(10);
        let of_user = Applied {
            by_client_id: false,
            ..EACH
        };
        assert_eq!(count(&mut ledger, EACH, "a", 0), 1);
        assert_eq!(count(&mut ledger, EACH, "b", 0), 1);
        assert_eq!(count(&mut ledger, of_user, "a", 0), 1);
        assert_eq!(count(&mut ledger, of_user, "b", 0), 2);
        assert_eq!(ledger.len(), 3);
    }

    #[test]
    fn a_client_that_is_known_costs_no_allocation() {
        let mut ledger = Ledger::new(10);
        count(&mut ledger, EACH, "a", 0);
        let counted = allocation_counter::measure(|| {
            assert_eq!(count(&mut ledger, EACH, "a", 1), 2);
        });
        assert_eq!(counted.count_total, 0);
    }

    #[test]
    fn the_idle_are_forgotten_and_the_number_is_bounded() {
        let mut ledger = Ledger::new(3);
        for client_id in 0..100 {
            count(&mut ledger, EACH, &client_id.to_string(), client_id);
            assert!(ledger.len() <= 3);
        }
        // The client that was idle longest was dropped.
        assert_eq!(count(&mut ledger, EACH, "99", 100), 2);
        assert_eq!(count(&mut ledger, EACH, "98", 100), 2);
        assert_eq!(ledger.all(100 + IDLE_MS - 1).count(), 2);
        assert_eq!(ledger.all(100 + IDLE_MS).count(), 0);
    }

    #[test]
    fn a_full_ledger_is_not_searched_for_each_new_client() {
        let mut ledger = Ledger::new(160);
        let name = |number: u64| format!("{number:03}");
        for number in 0..160 {
            count(&mut ledger, EACH, &name(number), number);
        }
        // It is used again, and is no longer among the entries that were idle longest.
        count(&mut ledger, EACH, &name(0), 160);
        count(&mut ledger, EACH, &name(160), 161);
        assert_eq!(ledger.len(), 151);
        let left = ledger.all(161).map(|it| it.client_id.to_string());
        let expected = std::iter::once(0).chain(11..=160).map(name);
        assert_eq!(left.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        // All were used at the same time.
        let mut ledger = Ledger::new(32);
        for number in 0..33 {
            count(&mut ledger, EACH, &name(number), 7);
        }
        assert_eq!(ledger.len(), 31);
    }

    #[test]
    fn throttle_times_are_averaged() {
        let mut ledger = Ledger::<u32>::new(3);
        let usage = ledger.usage(EACH, "u", "c", 0);
        assert_eq!(usage.average_throttle_ms(0), None);
        usage.on_throttled(100, 0);
        usage.on_throttled(200, 10);
        assert_eq!(usage.average_throttle_ms(20), Some(150.0));
        assert_eq!(usage.average_throttle_ms(60_010), None);
    }
}
