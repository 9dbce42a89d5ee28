//! The counters and the lag of tiered storage, for each tiered topic and for all.
//!
//! The counters of a topic are kept while one of its partitions has a role here. They are added to
//! once a segment or a read, so a lock is cheap enough.
//!
//! Kafka: `RemoteStorageMetrics`, `BrokerTopicMetrics`, `BrokerTopicAggregatedMetric`.

use std::collections::BTreeMap;

use ottla_metrics::complaints::Complaints;
use ottla_sync::Mutex;
use ottla_sync::atomic::{AtomicU64, Ordering};
use ottla_tiered::{CopyLag, DeleteLag, RemoteLogStats};
use ottla_types::{Offset, TopicIdPartition, TopicName, TopicPartition, named_enum};

named_enum! {
    /// A counter, by Kafka's name without the `PerSec` suffix.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub enum TierCounter {
        CopyBytes => "RemoteCopyBytes",
        CopyRequests => "RemoteCopyRequests",
        CopyErrors => "RemoteCopyErrors",
        FetchBytes => "RemoteFetchBytes",
        FetchRequests => "RemoteFetchRequests",
        FetchErrors => "RemoteFetchErrors",
        DeleteRequests => "RemoteDeleteRequests",
        DeleteErrors => "RemoteDeleteErrors",
        BuildStateRequests => "BuildRemoteLogAuxStateRequests",
        BuildStateErrors => "BuildRemoteLogAuxStateErrors",
    }
}

impl TierCounter {
    pub fn help(self) -> &'static str {
        match self {
            TierCounter::CopyBytes => "Bytes of segments that were copied to remote storage",
            TierCounter::CopyRequests => "Segments whose copy to remote storage was begun",
            TierCounter::CopyErrors => "Segments whose copy to remote storage failed",
            TierCounter::FetchBytes => "Bytes of records read from remote storage for consumers",
            TierCounter::FetchRequests => "Reads of partitions from remote storage",
            TierCounter::FetchErrors => "Reads of partitions from remote storage that failed",
            TierCounter::DeleteRequests => "Segments whose deletion in remote storage was begun",
            TierCounter::DeleteErrors => "Segments whose deletion in remote storage failed",
            TierCounter::BuildStateRequests => {
                "Times that a follower began to fetch the state before its leader's local log"
            }
            TierCounter::BuildStateErrors => {
                "Times that a follower failed to fetch the state before its leader's local log"
            }
        }
    }
}

pub type TierCounts = [u64; TierCounter::ALL.len()];

/// The numbers of a partition that this broker leads, or sums of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TierGauges {
    pub copy_lag: CopyLag,
    pub delete_lag: DeleteLag,
    pub log: RemoteLogStats,
    /// How long the last run of the decisions took, which find the size.
    pub size_computation_ms: u64,
}

impl TierGauges {
    fn add(&mut self, other: &TierGauges) {
        self.copy_lag.bytes += other.copy_lag.bytes;
        self.copy_lag.segments += other.copy_lag.segments;
        self.delete_lag.bytes += other.delete_lag.bytes;
        self.delete_lag.segments += other.delete_lag.segments;
        self.log.segments += other.log.segments;
        self.log.size_bytes += other.log.size_bytes;
        self.log.finished_bytes += other.log.finished_bytes;
        self.size_computation_ms += other.size_computation_ms;
    }
}

/// How much of its limits a partition takes that this broker leads, in percent; 0 without a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RetentionUse {
    /// Of `retention.bytes`, in both tiers.
    pub percent: u64,
    /// Of `local.retention.bytes`.
    pub local_percent: u64,
}

impl RetentionUse {
    pub fn of(bytes: u64, limit: i64, local_bytes: u64, local_limit: i64) -> RetentionUse {
        let percent = |bytes: u64, limit: i64| match u64::try_from(limit) {
            Ok(limit) if limit > 0 => bytes.saturating_mul(100) / limit,
            _ => 0,
        };
        RetentionUse {
            percent: percent(bytes, limit),
            local_percent: percent(local_bytes, local_limit),
        }
    }
}

/// The numbers of a topic, or of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TierNumbers {
    pub counts: TierCounts,
    pub gauges: TierGauges,
}

#[derive(Debug, Default)]
struct State {
    /// Includes topics that are gone.
    all: TierCounts,
    topics: BTreeMap<TopicName, OfTopic>,
    partitions: BTreeMap<TopicIdPartition, OfPartition>,
}

#[derive(Debug)]
struct OfPartition {
    topic: TopicName,
    gauges: TierGauges,
    /// Only of a leader.
    retention: Option<RetentionUse>,
}

#[derive(Debug, Default)]
struct OfTopic {
    counts: TierCounts,
    /// Its partitions with a role here.
    partitions: usize,
}

#[derive(Debug, Default)]
pub struct TierMetrics {
    state: Mutex<State>,
    complaints: Complaints,
    /// Failed reads since the last line of the log about them.
    unreported_reads: AtomicU64,
    /// Fetches whose wait ended before all their reads.
    pub expired_fetches: AtomicU64,
    /// Searches by time that took too long.
    pub expired_searches: AtomicU64,
}

impl TierMetrics {
    pub fn add(&self, topic: &TopicName, counter: TierCounter, count: u64) {
        let mut state = self.state.lock();
        state.all[counter as usize] += count;
        if let Some(of_topic) = state.topics.get_mut(topic) {
            of_topic.counts[counter as usize] += count;
        }
    }

    /// Counts a read that failed. A store that is away would fill the disk if each were logged.
    pub fn on_failed_read(
        &self,
        partition: &TopicPartition,
        offset: Offset,
        error: &dyn std::fmt::Display,
    ) {
        self.add(&partition.topic, TierCounter::FetchErrors, 1);
        self.unreported_reads.fetch_add(1, Ordering::Relaxed);
        self.complaints.say(|| {
            let failed = self.unreported_reads.swap(0, Ordering::Relaxed);
            tracing::warn!(
                %partition, %offset, failed,
                "cannot be read from remote storage: {error}"
            );
        });
    }

    /// A partition has a role from now on.
    pub fn on_begun(&self, partition: TopicIdPartition, topic: &TopicName) {
        let mut state = self.state.lock();
        let entry = OfPartition {
            topic: topic.clone(),
            gauges: TierGauges::default(),
            retention: None,
        };
        if state.partitions.insert(partition, entry).is_none() {
            state.topics.entry(topic.clone()).or_default().partitions += 1;
        }
    }

    pub fn set_gauges(
        &self,
        partition: TopicIdPartition,
        gauges: TierGauges,
        retention: Option<RetentionUse>,
    ) {
        if let Some(of_partition) = self.state.lock().partitions.get_mut(&partition) {
            of_partition.gauges = gauges;
            of_partition.retention = retention;
        }
    }

    /// How much of their limits the partitions take that this broker leads.
    pub fn retention(&self) -> Vec<(TopicPartition, RetentionUse)> {
        let state = self.state.lock();
        let partitions = state.partitions.iter();
        let of_leaders = partitions.filter_map(|(key, of_partition)| {
            let name = TopicPartition {
                topic: of_partition.topic.clone(),
                partition: key.partition,
            };
            Some((name, of_partition.retention?))
        });
        of_leaders.collect()
    }

    /// A partition has no role any more.
    pub fn on_ended(&self, partition: TopicIdPartition) {
        let mut state = self.state.lock();
        let Some(OfPartition { topic, .. }) = state.partitions.remove(&partition) else {
            return;
        };
        if let Some(of_topic) = state.topics.get_mut(&topic) {
            of_topic.partitions -= 1;
            if of_topic.partitions == 0 {
                state.topics.remove(&topic);
            }
        }
    }

    /// The numbers of all topics together, and of each topic with a partition that has a role here.
    pub fn numbers(&self) -> (TierNumbers, BTreeMap<TopicName, TierNumbers>) {
        let state = self.state.lock();
        let mut all = TierNumbers {
            counts: state.all,
            gauges: TierGauges::default(),
        };
        let mut topics: BTreeMap<TopicName, TierNumbers> = BTreeMap::new();
        for (topic, of_topic) in &state.topics {
            let numbers = topics.entry(topic.clone()).or_default();
            numbers.counts = of_topic.counts;
        }
        for OfPartition { topic, gauges, .. } in state.partitions.values() {
            all.gauges.add(gauges);
            topics.entry(topic.clone()).or_default().gauges.add(gauges);
        }
        (all, topics)
    }
}

#[cfg(test)]
mod tests {
    use ottla_types::{PartitionIndex, Uuid};

    use super::*;

    fn partition(index: i32) -> TopicIdPartition {
        TopicIdPartition {
            topic_id: Uuid::from_u128(7),
            partition: PartitionIndex(index),
        }
    }

    #[test]
    fn a_topic_has_numbers_while_a_partition_has_a_role() {
        let metrics = TierMetrics::default();
        let topic = TopicName::from("tiered");
        metrics.on_begun(partition(0), &topic);
        metrics.on_begun(partition(1), &topic);
        metrics.add(&topic, TierCounter::CopyBytes, 10);
        metrics.add(&"other".into(), TierCounter::CopyBytes, 1);
        for index in [0, 1] {
            let mut gauges = TierGauges::default();
            gauges.copy_lag.bytes = 5;
            let retention = (index == 1).then(|| RetentionUse::of(50, 200, 50, -1));
            metrics.set_gauges(partition(index), gauges, retention);
        }
        let retention = RetentionUse {
            percent: 25,
            local_percent: 0,
        };
        let leads = TopicPartition::new("tiered", 1);
        assert_eq!(metrics.retention(), [(leads, retention)]);
        let (all, topics) = metrics.numbers();
        assert_eq!(all.counts[TierCounter::CopyBytes as usize], 11);
        assert_eq!(topics.len(), 1);
        assert_eq!(topics[&topic].counts[TierCounter::CopyBytes as usize], 10);
        assert_eq!(topics[&topic].gauges.copy_lag.bytes, 10);
        assert_eq!(all.gauges, topics[&topic].gauges);

        metrics.on_ended(partition(0));
        let (all, topics) = metrics.numbers();
        assert_eq!((all.gauges.copy_lag.bytes, topics.len()), (5, 1));
        metrics.on_ended(partition(1));
        let (all, topics) = metrics.numbers();
        assert_eq!(all.counts[TierCounter::CopyBytes as usize], 11);
        assert!(topics.is_empty());
    }

    #[test]
    fn each_counter_has_its_own_index() {
        for (place, counter) in TierCounter::ALL.into_iter().enumerate() {
            assert_eq!(counter as usize, place, "{}", counter.name());
        }
    }

    #[test]
    fn failed_reads_are_counted_and_not_each_logged() {
        let metrics = TierMetrics::default();
        let partition = TopicPartition::new("tiered", 0);
        for _ in 0..5 {
            metrics.on_failed_read(&partition, Offset(3), &"the store is away");
        }
        assert_eq!(metrics.unreported_reads.load(Ordering::Relaxed), 4);
        let (all, _) = metrics.numbers();
        assert_eq!(all.counts[TierCounter::FetchErrors as usize], 5);
    }
}
