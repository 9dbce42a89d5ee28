//! Replication: ISR changes of `ReplicaManager`, `ReplicaFetcherManager`, `FetcherLagMetrics`,
//! `FetcherStats`, and the replication bytes of `BrokerTopicMetrics`.

use std::sync::Arc;

use super::counted::counted;
use crate::Broker;
use ottla_metrics::Metric;
use ottla_metrics::family::Family;

pub(super) fn collect(broker: &Arc<Broker>, families: &mut Vec<Family>) {
    #[rustfmt::skip]
    let counters = [
        (Metric::IsrExpands, "kafka_server_replicamanager_isrexpands", "Replicas that joined the ISR of led partitions"),
        (Metric::IsrShrinks, "kafka_server_replicamanager_isrshrinks", "Replicas that left the ISR of led partitions"),
        (Metric::FailedIsrUpdates, "kafka_server_replicamanager_failedisrupdates", "ISR changes that failed"),
        (Metric::ReplicationBytesIn, "kafka_server_brokertopicmetrics_replicationbytesin", "Bytes of record batches received from leaders on other brokers"),
        (Metric::ReplicationBytesOut, "kafka_server_brokertopicmetrics_replicationbytesout", "Bytes of record batches sent to followers on other brokers"),
    ];
    families.extend(counted(broker, counters));
    lags(broker, families);
    fetchers(broker, families);
}

/// The lag of followers relative to the high watermark of their leaders.
fn lags(broker: &Arc<Broker>, families: &mut Vec<Family>) {
    let mut lags = Family::gauge(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "Committed records of the leader that the replica lacks",
    );
    let mut max_lag = 0;
    let mut failed = 0;
    let image = broker.metadata();
    for partition in broker.partitions.load().iter() {
        failed += usize::from(partition.has_failed_fetching());
        let Some(lag) = partition.fetch_lag() else {
            continue;
        };
        let index = partition.topic_partition.partition;
        let topic = image.topics.by_id(partition.topic_id);
        let Some(registration) = topic.and_then(|topic| topic.partition(index)) else {
            continue;
        };
        max_lag = max_lag.max(lag);
        let fetchers = &broker.replication.fetchers;
        let number = fetchers.number_of(&broker.context, &partition.topic_partition);
        let [topic, partition] =
            super::labels::partition_labels(&partition.topic_partition.topic, index.0);
        let client_id = client_id(number, registration.leader.0);
        lags.push([("clientId", client_id), topic, partition], lag as f64);
    }
    families.push(lags);
    #[rustfmt::skip]
    let gauges = [
        ("maxlag", "Records that the replica with the largest lag lacks", max_lag),
        ("failedpartitionscount", "Replicas that wait for metadata of a newer leader epoch", failed as i64),
    ];
    families.extend(gauges.map(|(name, help, value)| {
        let name = format!("kafka_server_replicafetchermanager_{name}");
        Family::gauge(name, help).sample([("clientId", "Replica".to_owned())], value as f64)
    }));
}

/// The requests and bytes of each fetcher since it started.
fn fetchers(broker: &Arc<Broker>, families: &mut Vec<Family>) {
    let mut requests = Family::counter(
        "kafka_server_fetcherstats_requests",
        "Fetch requests of the fetcher",
    );
    let mut bytes = Family::counter(
        "kafka_server_fetcherstats_bytes",
        "Bytes of record batches that the fetcher received",
    );
    let image = broker.metadata();
    let listener = &broker.config().inter_broker_listener_name;
    for fetcher in broker.replication.fetchers.all() {
        let (leader, number) = fetcher.key();
        let registration = image.cluster.broker(leader);
        let endpoint = registration.and_then(|registration| registration.listener(listener));
        let (host, port) = endpoint.map_or((String::new(), String::new()), |endpoint| {
            (endpoint.host.to_string(), endpoint.port.to_string())
        });
        let labels = [
            ("brokerHost", host),
            ("brokerPort", port),
            ("clientId", client_id(number, leader.0)),
        ];
        let (asked, given) = fetcher.counts();
        requests.push(labels.clone(), asked as f64);
        bytes.push(labels, given as f64);
    }
    families.extend([requests, bytes]);
}

/// The name of the corresponding thread in Kafka.
fn client_id(fetcher: u32, leader: i32) -> String {
    format!("ReplicaFetcherThread-{fetcher}-{leader}")
}
