//! All metrics of a broker under the names that dashboards for Kafka use.
//!
//! The names are those of Kafka's MBeans under the usual rules of the JMX exporter
//! (`kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=x` is
//! `kafka_server_brokertopicmetrics_bytesin_total{topic="x"}`). Metrics that only Ottla has start
//! with `ottla_`. Metrics of parts that Ottla does not have (a Java virtual machine, a request
//! queue, a Produce purgatory) are omitted. A constant could be mistaken for a measurement.

mod broker_topics;
mod client_telemetry;
mod cluster;
mod counted;
mod groups;
mod labels;
mod logs;
mod network;
mod quotas;
mod replication;
mod requests;
mod share_groups;
mod tiered_storage;
mod timed;

use std::sync::Arc;

use crate::Broker;
pub(crate) use client_telemetry::CLIENT_METRIC_PREFIX;
use ottla_metrics::family::Family;
use ottla_metrics::process;

/// The current value of every metric. Iterates over all partitions, so it must not run on a thread
/// that serves connections.
pub(crate) fn collect(broker: &Arc<Broker>) -> Vec<Family> {
    let mut families = Vec::with_capacity(160);
    cluster::collect(broker, &mut families);
    broker_topics::collect(broker, &mut families);
    tiered_storage::collect(broker, &mut families);
    requests::collect(broker, &mut families);
    network::collect(broker, &mut families);
    quotas::collect(broker, &mut families);
    replication::collect(broker, &mut families);
    logs::collect(broker, &mut families);
    groups::collect(broker, &mut families);
    share_groups::collect(broker, &mut families);
    client_telemetry::collect(broker, &mut families);
    process::collect(&mut families);
    families
}
