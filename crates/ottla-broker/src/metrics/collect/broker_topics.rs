//! `kafka.server:type=BrokerTopicMetrics`: for all topics together, and for each topic with a
//! partition on this broker.

use crate::Broker;
use ottla_metrics::family::Family;
use ottla_metrics::topic_metrics::TopicMetric;

pub(super) fn collect(broker: &Broker, families: &mut Vec<Family>) {
    let all = broker.context.metrics.topics();
    let topics = all.topics();
    for metric in TopicMetric::ALL {
        let name = metric.name().to_lowercase();
        let mut family = Family::counter(
            format!("kafka_server_brokertopicmetrics_{name}"),
            help(metric),
        )
        .value(all.get(metric) as f64);
        for (topic, metrics) in &topics {
            family.push([("topic", topic.to_string())], metrics.get(metric) as f64);
        }
        families.push(family);
    }
}

fn help(metric: TopicMetric) -> &'static str {
    match metric {
        TopicMetric::MessagesIn => "Records from producers that were appended",
        TopicMetric::BytesIn => "Bytes of record batches from producers that were appended",
        TopicMetric::BytesOut => "Bytes of record batches sent to consumers",
        TopicMetric::BytesRejected => "Bytes of batches that were refused for their size",
        TopicMetric::FailedProduceRequests => {
            "Partitions of Produce requests that were answered with an error"
        }
        TopicMetric::FailedFetchRequests => {
            "Partitions of Fetch requests that were answered with an error"
        }
        TopicMetric::TotalProduceRequests => "Partitions of Produce requests",
        TopicMetric::TotalFetchRequests => "Partitions of Fetch requests",
        TopicMetric::InvalidMessageCrcRecords => "Batches that were refused for their checksum",
    }
}
