//! The dead letters of share groups whose partitions this broker leads:
//! `kafka.server:type=ShareGroupMetrics`. Only these metrics of the type exist. Kafka:
//! `ShareGroupMetrics`.

use crate::Broker;
use ottla_metrics::family::Family;

pub(super) fn collect(broker: &Broker, families: &mut Vec<Family>) {
    let counter = |name: &str, help| {
        let name = format!("kafka_server_sharegroupmetrics_deadletterqueue{name}");
        Family::counter(name, help)
    };
    let mut records = counter("recordcount", "Records written to dead-letter queues");
    let mut requests = counter(
        "totalproducerequests",
        "Batches sent to dead-letter queues, including further attempts",
    );
    let mut failed = counter(
        "failedproducerequests",
        "Batches that could not be written, so their records are in no dead-letter queue",
    );
    for (group, counts) in broker.share_groups.partitions.dead_letters().counts() {
        let label = || [("group", group.to_string())];
        records.push(label(), counts.records as f64);
        requests.push(label(), counts.produce_requests as f64);
        failed.push(label(), counts.failed_produce_requests as f64);
    }
    families.extend([records, requests, failed]);
}
