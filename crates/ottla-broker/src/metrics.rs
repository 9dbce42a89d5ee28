//! What the broker counts, and how it is shown.
//!
//! Counting must not cost what is counted: a counter is a relaxed atomic for each core ([`sharded`]), adds to
//! no lock and orders nothing. Looking sums them up, asks the rest of the broker for what it is now, and gives
//! both the names that Kafka's JMX metrics have after the usual rules of the JMX exporter, so that dashboards
//! made for Kafka work ([`collect`]). Who looks: the HTTP listener, and the reporter that writes files.

mod cleaner;
mod collect;
mod family;
pub(crate) mod flush_stats;
mod histogram;
mod openmetrics;
mod process;
mod reporter;
mod request_metrics;
mod sharded;
mod topic_metrics;
mod worker_idle;

use std::sync::Arc;
use std::time::Duration;

use crate::Broker;
use request_metrics::RequestMetrics;
use sharded::Counters;
use topic_metrics::AllTopicsMetrics;
use worker_idle::WorkerIdle;

pub(crate) use cleaner::{CleanerGauge, CleanerMetrics};
pub(crate) use collect::collect;
pub(crate) use openmetrics::{CONTENT_TYPE, to_openmetrics};
pub(crate) use reporter::report_to_files;
pub(crate) use request_metrics::RequestTimes;
pub(crate) use topic_metrics::{TopicMetric, TopicMetrics};

/// How often the idleness of threads is looked at.
const LOOK: Duration = Duration::from_secs(30);
/// Quantiles look back over one to two times so many looks.
const LOOKS_IN_WINDOW: usize = 5;

/// What the broker counts besides requests and what belongs to a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Metric {
    /// Connections let in.
    ConnectionsAccepted,
    /// Connections turned away over a limit.
    ConnectionsRefused,
    /// Connections that had to wait over `max.connection.creation.rate`.
    ConnectionsDelayed,
    ConnectionsClosed,
    /// Connections closed after `connections.max.idle.ms`.
    ConnectionsIdle,
    /// Connections closed because what came was no request.
    MalformedRequests,
    /// Requests that failed over something that should not happen.
    ServerErrors,
    BytesReceived,
    BytesSent,
    /// Appends that the kernel made wait.
    StalledAppends,
    /// Fetched regions that were not in the page cache.
    ColdReads,
    /// Fetches whose positions could not be told from memory and the page cache.
    ColdLookups,
    /// Bytes of records that leaders gave to the replicas here.
    ReplicationBytesIn,
    /// Bytes of records that followers were given.
    ReplicationBytesOut,
    /// The controller has added a replica to the ISR of a partition that is led here.
    IsrExpands,
    IsrShrinks,
    /// Proposals of another ISR that came to nothing.
    FailedIsrUpdates,
}

const METRICS: usize = Metric::FailedIsrUpdates as usize + 1;

/// All counters of a broker.
#[derive(Debug, Default)]
pub struct Metrics {
    counters: Counters<METRICS>,
    requests: RequestMetrics,
    topics: AllTopicsMetrics,
    pub(crate) worker_idle: WorkerIdle,
    pub(crate) cleaner: CleanerMetrics,
}

impl Metrics {
    pub fn add(&self, metric: Metric, count: u64) {
        self.counters.add(metric as usize, count);
    }

    pub fn get(&self, metric: Metric) -> u64 {
        self.counters.get(metric as usize)
    }

    pub(crate) fn requests(&self) -> &RequestMetrics {
        &self.requests
    }

    /// The counters of all topics together, and of each.
    pub(crate) fn topics(&self) -> &AllTopicsMetrics {
        &self.topics
    }
}

/// Keeps up what looks back over the last minutes, until the broker stops.
pub(crate) async fn look_again_and_again(broker: Arc<Broker>) {
    let metrics = &broker.metrics;
    loop {
        for _ in 0..LOOKS_IN_WINDOW {
            metrics.worker_idle.look();
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = broker.stopping() => return,
            }
        }
        metrics.requests.on_window_ended();
        flush_stats::on_window_ended();
    }
}
