//! Counters per topic. Kafka: `BrokerTopicMetrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use ottla_sync::Mutex;
use ottla_types::{TopicName, named_enum};

use crate::sharded::Counters;

named_enum! {
    /// A counter of a topic, summed over its partitions on this broker. The names are Kafka's
    /// without the `PerSec` suffix.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub enum TopicMetric {
        MessagesIn => "MessagesIn",
        BytesIn => "BytesIn",
        BytesOut => "BytesOut",
        /// Bytes of batches rejected as too large.
        BytesRejected => "BytesRejected",
        FailedProduceRequests => "FailedProduceRequests",
        FailedFetchRequests => "FailedFetchRequests",
        /// Incremented once per partition of a request, as in Kafka.
        TotalProduceRequests => "TotalProduceRequests",
        TotalFetchRequests => "TotalFetchRequests",
        InvalidMessageCrcRecords => "InvalidMessageCrcRecords",
    }
}

type TopicCounters = Counters<{ TopicMetric::ALL.len() }>;

/// The counters of one topic. Adding to them also adds to the counters of all topics.
#[derive(Debug)]
pub struct TopicMetrics {
    topic: TopicCounters,
    all_topics: Arc<TopicCounters>,
}

impl TopicMetrics {
    pub fn add(&self, metric: TopicMetric, count: u64) {
        self.topic.add(metric as usize, count);
        self.all_topics.add(metric as usize, count);
    }

    pub fn get(&self, metric: TopicMetric) -> u64 {
        self.topic.get(metric as usize)
    }
}

/// The counters of all topics together, and of each topic that has a partition on this broker.
#[derive(Debug, Default)]
pub struct AllTopicsMetrics {
    all_topics: Arc<TopicCounters>,
    /// A topic's counters live as long as one of its partitions holds them.
    topics: Mutex<BTreeMap<TopicName, Weak<TopicMetrics>>>,
}

impl AllTopicsMetrics {
    pub fn get(&self, metric: TopicMetric) -> u64 {
        self.all_topics.get(metric as usize)
    }

    /// The counters of a topic, to be held by one of its partitions.
    pub fn of_topic(&self, topic: &TopicName) -> Arc<TopicMetrics> {
        let mut topics = self.topics.lock();
        if let Some(known) = topics.get(topic).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(TopicMetrics {
            topic: TopicCounters::default(),
            all_topics: Arc::clone(&self.all_topics),
        });
        topics.insert(topic.clone(), Arc::downgrade(&new));
        new
    }

    /// Adds to the counters of a topic that may have no partition on this broker.
    pub fn add_for(&self, topic: &str, metric: TopicMetric, count: u64) {
        let known = self.topics.lock().get(topic).and_then(Weak::upgrade);
        match known {
            Some(known) => known.add(metric, count),
            None => self.all_topics.add(metric as usize, count),
        }
    }

    /// The topics with a partition on this broker, sorted by name.
    pub fn topics(&self) -> Vec<(TopicName, Arc<TopicMetrics>)> {
        let mut topics = self.topics.lock();
        topics.retain(|_, metrics| metrics.strong_count() > 0);
        topics
            .iter()
            .filter_map(|(name, metrics)| Some((name.clone(), metrics.upgrade()?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_topic_stays_in_the_sum_of_all() {
        let all = AllTopicsMetrics::default();
        let orders = all.of_topic(&"orders".into());
        let again = all.of_topic(&"orders".into());
        orders.add(TopicMetric::BytesIn, 5);
        again.add(TopicMetric::BytesIn, 7);
        assert_eq!(orders.get(TopicMetric::BytesIn), 12);
        assert_eq!(all.topics().len(), 1);
        drop((orders, again));
        assert_eq!(all.topics().len(), 0);
        assert_eq!(all.get(TopicMetric::BytesIn), 12);
    }

    #[test]
    fn each_metric_has_its_own_index() {
        for (place, metric) in TopicMetric::ALL.into_iter().enumerate() {
            assert_eq!(metric as usize, place, "{}", metric.name());
        }
    }
}
