//! The leader's state of a follower: its fetch position, when it last caught up, and its broker's
//! registration.
//!
//! Times are milliseconds of the caller's monotonic clock, which may start at 0: "never" is `None`,
//! earlier than everything.
//!
//! Kafka: `org.apache.kafka.server.replica.Replica`, `ReplicaState`.

use ottla_types::{BrokerEpoch, BrokerId, Offset};

use crate::planted::{self, Bug};
use crate::{FollowerFetch, ReplicaBroker};

#[derive(Debug)]
pub(crate) struct RemoteReplica {
    pub(crate) broker_id: BrokerId,
    /// Its log start offset; -1 until its first fetch.
    pub(crate) log_start_offset: Offset,
    /// Its log end offset, exclusive; -1 until its first fetch.
    pub(crate) log_end_offset: Offset,
    /// The broker epoch of its last fetch; `None` before the first, `BrokerEpoch::UNKNOWN` if the
    /// fetch had none.
    fetched_in: Option<BrokerEpoch>,
    /// The leader's log end offset at its last fetch.
    last_fetch_leader_log_end_offset: Offset,
    last_fetch_ms: Option<u64>,
    /// When it last had everything that the leader had.
    last_caught_up_ms: Option<u64>,
    registration: Option<ReplicaBroker>,
}

impl RemoteReplica {
    /// A replica that has not fetched from this leader. A member of the ISR counts as caught up at
    /// the election, so that it has time to fetch.
    pub(crate) fn new(broker_id: BrokerId, is_in_sync: bool, now_ms: u64) -> RemoteReplica {
        RemoteReplica {
            broker_id,
            log_start_offset: Offset::UNKNOWN,
            log_end_offset: Offset::UNKNOWN,
            fetched_in: None,
            last_fetch_leader_log_end_offset: Offset::UNKNOWN,
            last_fetch_ms: None,
            last_caught_up_ms: is_in_sync.then_some(now_ms),
            registration: None,
        }
    }

    /// Re-election of the same leader with this log end offset. The replica's fetch position is
    /// kept.
    pub(crate) fn on_leader_reelected(
        &mut self,
        log_end_offset: Offset,
        is_in_sync: bool,
        now_ms: u64,
    ) {
        self.last_fetch_leader_log_end_offset = log_end_offset;
        self.last_fetch_ms = is_in_sync.then_some(now_ms);
        self.last_caught_up_ms = is_in_sync.then_some(now_ms);
    }

    pub(crate) fn set_registration(&mut self, brokers: &[ReplicaBroker]) {
        let mut brokers = brokers.iter();
        self.registration = brokers
            .find(|broker| broker.broker_id == self.broker_id)
            .copied();
    }

    /// Whether a fetch is from an earlier process of the broker.
    pub(crate) fn is_stale(&self, broker_epoch: BrokerEpoch) -> bool {
        let alive = self.registration.filter(|broker| !broker.is_fenced);
        broker_epoch != BrokerEpoch::UNKNOWN
            && !planted::has(Bug::IgnoreBrokerEpoch)
            && alive.is_some_and(|broker| broker.broker_epoch > broker_epoch)
    }

    /// Records a fetch. The replica is caught up now if it fetches at the leader's log end offset;
    /// it was caught up at its previous fetch if it has everything the leader had then. Without the
    /// second rule, a follower that is always one small batch behind would never count as caught
    /// up.
    pub(crate) fn on_fetch(&mut self, fetch: &FollowerFetch, leader_log_end_offset: Offset) {
        if fetch.fetch_offset >= leader_log_end_offset {
            self.last_caught_up_ms = self.last_caught_up_ms.max(Some(fetch.now_ms));
        } else if fetch.fetch_offset >= self.last_fetch_leader_log_end_offset {
            self.last_caught_up_ms = self.last_caught_up_ms.max(self.last_fetch_ms);
        }
        self.log_start_offset = fetch.log_start_offset;
        self.log_end_offset = fetch.fetch_offset;
        self.fetched_in = Some(fetch.broker_epoch);
        self.last_fetch_leader_log_end_offset = self
            .last_fetch_leader_log_end_offset
            .max(leader_log_end_offset);
        self.last_fetch_ms = Some(fetch.now_ms);
    }

    pub(crate) fn is_caught_up(
        &self,
        leader_log_end_offset: Offset,
        now_ms: u64,
        replica_lag_time_max_ms: u64,
    ) -> bool {
        self.log_end_offset == leader_log_end_offset
            || self
                .ms_since_caught_up(now_ms)
                .is_some_and(|since| since <= replica_lag_time_max_ms)
    }

    pub(crate) fn ms_since_caught_up(&self, now_ms: u64) -> Option<u64> {
        let caught_up_ms = self.last_caught_up_ms?;
        Some(now_ms.saturating_sub(caught_up_ms))
    }

    /// Whether it may be in the ISR: its broker is registered, neither fenced nor shutting down,
    /// and the registration is that of the process that fetched (KIP-841, KIP-903).
    pub(crate) fn is_isr_eligible(&self) -> bool {
        let (Some(broker), Some(fetched_in)) = (self.registration, self.fetched_in) else {
            return false;
        };
        let is_same_instance = fetched_in == BrokerEpoch::UNKNOWN
            || fetched_in == broker.broker_epoch
            || planted::has(Bug::IgnoreBrokerEpoch);
        !broker.is_fenced && !broker.is_in_controlled_shutdown && is_same_instance
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.registration.is_some_and(|broker| !broker.is_fenced)
    }

    /// Its broker epoch in a proposed ISR.
    pub(crate) fn broker_epoch(&self) -> BrokerEpoch {
        if planted::has(Bug::IgnoreBrokerEpoch) {
            return self
                .registration
                .map_or(BrokerEpoch::UNKNOWN, |broker| broker.broker_epoch);
        }
        self.fetched_in.unwrap_or(BrokerEpoch::UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(fetch_offset: i64, now_ms: u64) -> FollowerFetch {
        FollowerFetch {
            replica_id: BrokerId(2),
            broker_epoch: BrokerEpoch(7),
            leader_epoch: None,
            fetch_offset: Offset(fetch_offset),
            last_fetched_epoch: None,
            end_of_last_fetched_epoch: None,
            log_start_offset: Offset(0),
            leader_log_start_offset: Offset(0),
            now_ms,
        }
    }

    fn registration(broker_epoch: i64) -> ReplicaBroker {
        ReplicaBroker {
            broker_id: BrokerId(2),
            broker_epoch: BrokerEpoch(broker_epoch),
            is_fenced: false,
            is_in_controlled_shutdown: false,
        }
    }

    #[test]
    fn a_replica_one_batch_behind_has_caught_up_at_its_last_fetch() {
        let mut replica = RemoteReplica::new(BrokerId(2), false, 0);
        assert!(!replica.is_caught_up(Offset(10), 0, 30));
        replica.on_fetch(&fetch(5, 100), Offset(10));
        assert_eq!(replica.ms_since_caught_up(100), None);
        replica.on_fetch(&fetch(10, 110), Offset(12));
        assert_eq!(replica.ms_since_caught_up(110), Some(10));
        replica.on_fetch(&fetch(11, 120), Offset(14));
        assert_eq!(replica.ms_since_caught_up(120), Some(20));
        assert!(replica.is_caught_up(Offset(14), 130, 30));
        assert!(!replica.is_caught_up(Offset(14), 131, 30));
        assert!(replica.is_caught_up(Offset(11), 131, 30));
    }

    #[test]
    fn never_is_longer_ago_than_the_clock_has_run() {
        let replica = RemoteReplica::new(BrokerId(2), false, 0);
        assert!(!replica.is_caught_up(Offset(10), 5, 30_000));
        let replica = RemoteReplica::new(BrokerId(2), true, 0);
        assert!(replica.is_caught_up(Offset(10), 30_000, 30_000));
        assert!(!replica.is_caught_up(Offset(10), 30_001, 30_000));
    }

    #[test]
    fn eligibility_for_the_isr() {
        let table: [(&str, Option<ReplicaBroker>, bool); 6] = [
            ("the one that fetched", Some(registration(7)), true),
            ("started anew since", Some(registration(8)), false),
            ("the metadata is older", Some(registration(6)), false),
            ("not registered", None, false),
            (
                "fenced",
                Some(ReplicaBroker {
                    is_fenced: true,
                    ..registration(7)
                }),
                false,
            ),
            (
                "shutting down",
                Some(ReplicaBroker {
                    is_in_controlled_shutdown: true,
                    ..registration(7)
                }),
                false,
            ),
        ];
        for (what, registration, is_eligible) in table {
            let mut replica = RemoteReplica::new(BrokerId(2), false, 0);
            replica.set_registration(registration.as_slice());
            assert!(!replica.is_isr_eligible(), "{what}, before it fetched");
            replica.on_fetch(&fetch(0, 0), Offset(0));
            assert_eq!(replica.is_isr_eligible(), is_eligible, "{what}");
        }
    }

    #[test]
    fn a_fetch_without_a_broker_epoch_is_not_checked() {
        let mut replica = RemoteReplica::new(BrokerId(2), false, 0);
        replica.set_registration(&[registration(7)]);
        assert!(!replica.is_stale(BrokerEpoch::UNKNOWN));
        assert!(replica.is_stale(BrokerEpoch(6)));
        assert!(!replica.is_stale(BrokerEpoch(7)));
        let mut unnamed = fetch(0, 0);
        unnamed.broker_epoch = BrokerEpoch::UNKNOWN;
        replica.on_fetch(&unnamed, Offset(0));
        assert!(replica.is_isr_eligible());
        assert_eq!(replica.broker_epoch(), BrokerEpoch::UNKNOWN);
    }
}
