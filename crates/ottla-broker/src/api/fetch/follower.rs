//! Fetch requests of replicas: before anything is read, the leader decides under the run token of
//! each partition whether it serves the follower, and records the follower's position.
//!
//! Kafka: `Partition.fetchRecords` with `FetchParams.isFromFollower`.

use std::sync::Arc;

use ottla_protocol::Records;
use ottla_protocol::messages::FetchRequest;
use ottla_protocol::messages::fetch_response::PartitionData;
use ottla_replica::{FetchRefusal, FollowerFetch};
use ottla_types::{BrokerEpoch, BrokerId, LeaderEpoch, Offset};

use super::read::{Wanted, error_answer};
use crate::Broker;
use ottla_partition::partition::{FollowerFetches, FollowerVerdict};

/// Another broker that fetches for its replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Follower {
    pub(super) replica_id: BrokerId,
    /// `BrokerEpoch::UNKNOWN` if the version of the request has no broker epoch.
    broker_epoch: BrokerEpoch,
}

impl Follower {
    /// The replica that sent the request, if any. Versions from 15 on have a separate field for it.
    pub(super) fn of(request: &FetchRequest) -> Option<Follower> {
        let state = &request.replica_state;
        if state.replica_id >= 0 {
            return Some(Follower {
                replica_id: BrokerId(state.replica_id),
                broker_epoch: BrokerEpoch(state.replica_epoch),
            });
        }
        (request.replica_id >= 0).then_some(Follower {
            replica_id: BrokerId(request.replica_id),
            broker_epoch: BrokerEpoch::UNKNOWN,
        })
    }

    /// Reports the follower's position to the leaders of the partitions. Partitions that reject the
    /// follower get their error.
    pub(super) async fn announce(
        self,
        broker: &Arc<Broker>,
        targets: &mut [Wanted],
        received_at_ms: u64,
    ) {
        let served: Vec<usize> = (0..targets.len())
            .filter(|&index| targets[index].target.is_ok())
            .collect();
        let fetches: Vec<_> = served
            .iter()
            .filter_map(|&index| {
                let partition = targets[index].target.as_ref().ok()?;
                let fetch = self.fetch(&targets[index], received_at_ms);
                Some((Arc::clone(partition), fetch))
            })
            .collect();
        let verdicts = FollowerFetches::decide(&broker.host, fetches).await;
        for (index, verdict) in served.into_iter().zip(verdicts) {
            let wanted = &mut targets[index];
            match verdict {
                FollowerVerdict::Served { is_in_sync } => {
                    wanted.is_held_back = is_held_back(broker, wanted, is_in_sync);
                }
                FollowerVerdict::Undecided(before) => wanted.undecided = Some(before),
                // The read detects the divergence too, and returns its offset.
                FollowerVerdict::Refused(FetchRefusal::Diverging(_)) => {}
                FollowerVerdict::Refused(FetchRefusal::Error(code)) => {
                    let answer = error_answer(wanted.requested.partition, code);
                    wanted.target = Err(Box::new(answer));
                }
            }
        }
    }

    fn fetch(self, wanted: &Wanted, now_ms: u64) -> FollowerFetch {
        let requested = &wanted.requested;
        let epoch = |epoch: i32| Some(LeaderEpoch(epoch)).filter(|epoch| epoch.0 >= 0);
        FollowerFetch {
            replica_id: self.replica_id,
            broker_epoch: self.broker_epoch,
            leader_epoch: epoch(requested.current_leader_epoch),
            fetch_offset: Offset(requested.fetch_offset),
            last_fetched_epoch: epoch(requested.last_fetched_epoch),
            log_start_offset: Offset(requested.log_start_offset),
            now_ms,
            // Determined by the holder of the run token.
            end_of_last_fetched_epoch: None,
            leader_log_start_offset: Offset::ZERO,
        }
    }
}

/// Whether a lagging follower gets no records now because replication to throttled replicas exceeds
/// its quota.
fn is_held_back(broker: &Broker, wanted: &Wanted, is_in_sync: bool) -> bool {
    let Ok(partition) = &wanted.target else {
        return false;
    };
    let config = broker.config();
    let quota = config.leader_replication_throttled_rate;
    let (throttle, now_ms) = (&broker.replication.leader_throttle, broker.now_ms());
    partition.settings().is_throttled_as_leader
        && throttle.holds_back(&config, is_in_sync, quota, now_ms)
}

/// Counts the bytes sent to throttled replicas.
pub(super) fn count_throttled(broker: &Broker, targets: &[Wanted], answers: &[PartitionData]) {
    for (wanted, answer) in targets.iter().zip(answers) {
        if let Ok(partition) = &wanted.target
            && partition.settings().is_throttled_as_leader
        {
            let bytes = answer.records.as_ref().map_or(0, Records::len);
            let throttle = &broker.replication.leader_throttle;
            throttle.record(&broker.config(), bytes, broker.now_ms());
        }
    }
}
