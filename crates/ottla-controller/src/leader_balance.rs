//! Periodically moves leadership back to the preferred replicas, for example after a rolling
//! restart (`auto.leader.rebalance.enable`, `leader.imbalance.check.interval.seconds`).
//!
//! A check lists the partitions that are not led by their preferred replica. Their elections follow
//! in batches, so that the controller can serve requests in between. A preferred replica that
//! cannot lead is skipped until the next check. Times are milliseconds of a monotonic clock of the
//! caller.
//!
//! In Kafka: `ReplicationControlManager.maybeBalancePartitionLeaders`, and the task `electPreferred` of
//! `QuorumController`. Kafka 4 has no `leader.imbalance.per.broker.percentage`.

use std::collections::VecDeque;

use ottla_protocol::metadata_records::MetadataRecord;
use ottla_types::{PartitionIndex, Uuid};

use crate::decision::ControllerContext;
use crate::elect_leaders::elect_preferred;

/// The maximum number of elections in one batch, as in Kafka.
const MAX_ELECTIONS: usize = 1_000;

/// The time of the next check, and the partitions that still need an election.
#[derive(Debug)]
pub struct LeaderBalance {
    /// `None` if automatic rebalancing is disabled.
    interval_ms: Option<u64>,
    /// `None` while this node is not the active controller.
    next_check_at_ms: Option<u64>,
    imbalanced: VecDeque<(Uuid, PartitionIndex)>,
}

impl LeaderBalance {
    pub fn new(is_enabled: bool, check_interval_seconds: i64) -> LeaderBalance {
        let seconds = u64::try_from(check_interval_seconds).unwrap_or_default();
        LeaderBalance {
            interval_ms: is_enabled.then_some(seconds.max(1).saturating_mul(1_000)),
            next_check_at_ms: None,
            imbalanced: VecDeque::new(),
        }
    }

    /// Called when this controller becomes active.
    pub fn begin(&mut self, now_ms: u64) {
        self.imbalanced.clear();
        let interval_ms = self.interval_ms;
        self.next_check_at_ms = interval_ms.map(|interval_ms| now_ms.saturating_add(interval_ms));
    }

    /// Called when this controller is no longer active.
    pub fn end(&mut self) {
        self.imbalanced.clear();
        self.next_check_at_ms = None;
    }

    /// When [`elections`](Self::elections) must be called next.
    pub fn wake_at_ms(&self) -> Option<u64> {
        match self.imbalanced.is_empty() {
            true => self.next_check_at_ms,
            false => Some(0),
        }
    }

    /// The next batch of elections.
    pub fn elections(
        &mut self,
        context: &ControllerContext<'_>,
        now_ms: u64,
    ) -> Vec<MetadataRecord> {
        if self.imbalanced.is_empty() && self.is_check_due(now_ms) {
            self.begin(now_ms);
            self.imbalanced.extend(imbalanced(context));
        }
        let mut records = Vec::new();
        while records.len() < MAX_ELECTIONS
            && let Some((topic, index)) = self.imbalanced.pop_front()
        {
            records.extend(elect_preferred(context, topic, index));
        }
        records
    }

    fn is_check_due(&self, now_ms: u64) -> bool {
        self.next_check_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }
}

/// The partitions that are not led by their preferred replica although it could lead.
fn imbalanced(context: &ControllerContext<'_>) -> impl Iterator<Item = (Uuid, PartitionIndex)> {
    let topics = context.image.topics.iter();
    topics.flat_map(|topic| {
        let partitions = topic.partitions();
        let imbalanced = partitions.filter(|(_, partition)| {
            let preferred = partition.preferred_replica();
            partition.leader != preferred && context.image.cluster.is_broker_active(preferred)
        });
        imbalanced.map(|(index, _)| (topic.id, index))
    })
}

#[cfg(test)]
mod tests {
    use ottla_protocol::metadata_records::{PartitionRecord, TopicRecord};

    use super::*;
    use crate::test_support::{Cluster, directory};

    const TOPIC: Uuid = Uuid::from_u128(1001);

    /// A topic whose partitions are all led by broker 2 and have broker 1 as preferred replica.
    fn led_by_another(partitions: i32, isr: &[i32]) -> Cluster {
        let mut cluster = Cluster::with_brokers(&[1, 2]);
        cluster.apply(&[MetadataRecord::Topic(TopicRecord {
            name: "orders".into(),
            topic_id: TOPIC,
            ..Default::default()
        })]);
        let partition = |partition_id| {
            MetadataRecord::Partition(PartitionRecord {
                topic_id: TOPIC,
                partition_id,
                replicas: vec![1, 2],
                isr: isr.to_vec(),
                leader: 2,
                leader_epoch: 0,
                partition_epoch: 0,
                directories: vec![directory(1), directory(2)],
                ..Default::default()
            })
        };
        let records: Vec<_> = (0..partitions).map(partition).collect();
        cluster.apply(&records);
        cluster
    }

    fn leaders(records: &[MetadataRecord]) -> Vec<(i32, i32)> {
        let change = |record: &MetadataRecord| match record {
            MetadataRecord::PartitionChange(change) => (change.partition_id, change.leader),
            other => panic!("{other:?}"),
        };
        records.iter().map(change).collect()
    }

    #[test]
    fn leaders_return_to_the_preferred_replica_at_the_next_check() {
        let mut cluster = led_by_another(2, &[1, 2]);
        let mut balance = LeaderBalance::new(true, 300);
        assert_eq!(balance.wake_at_ms(), None, "the controller is not active");
        balance.begin(1_000);
        assert_eq!(balance.wake_at_ms(), Some(301_000));
        assert_eq!(balance.elections(&cluster.context(), 300_999), []);
        let records = balance.elections(&cluster.context(), 301_000);
        assert_eq!(leaders(&records), [(0, 1), (1, 1)]);
        cluster.apply(&records);
        assert_eq!(balance.wake_at_ms(), Some(601_000));
        assert_eq!(balance.elections(&cluster.context(), 601_000), []);
    }

    #[test]
    fn a_preferred_replica_that_cannot_lead_is_not_elected() {
        let mut balance = LeaderBalance::new(true, 1);
        balance.begin(0);
        let mut out_of_sync = led_by_another(1, &[2]);
        assert_eq!(balance.elections(&out_of_sync.context(), 1_000), []);
        let mut fenced = led_by_another(1, &[1, 2]).fence(1);
        assert_eq!(balance.elections(&fenced.context(), 2_000), []);
        assert_eq!(balance.wake_at_ms(), Some(3_000));
    }

    #[test]
    fn elections_are_batched() {
        let mut cluster = led_by_another(2_500, &[1, 2]);
        let mut balance = LeaderBalance::new(true, 1);
        balance.begin(0);
        for expected in [1_000, 1_000, 500] {
            let records = balance.elections(&cluster.context(), 1_000);
            assert_eq!(records.len(), expected);
            cluster.apply(&records);
            assert_eq!(
                balance.wake_at_ms(),
                Some(if expected == 500 { 2_000 } else { 0 })
            );
        }
        balance.end();
        assert_eq!(balance.wake_at_ms(), None);
    }

    #[test]
    fn leaders_stay_if_the_setting_is_off() {
        let mut cluster = led_by_another(1, &[1, 2]);
        let mut balance = LeaderBalance::new(false, 300);
        balance.begin(0);
        assert_eq!(balance.wake_at_ms(), None);
        assert_eq!(balance.elections(&cluster.context(), u64::MAX), []);
    }
}
