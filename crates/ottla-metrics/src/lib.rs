//! What a node counts, and how it is exposed.
//!
//! Counting must not cost what is counted: a counter is one relaxed atomic per core ([`sharded`]), takes no lock and
//! orders nothing. Reading sums the cores up. The broker collects these counters with the gauges of its parts and gives
//! both the names that Kafka's JMX metrics have under the usual rules of the JMX exporter.
//!
//! Also here: rate-limited log lines ([`complaints`]) and the trace of stalled threads ([`stalls`]).

// Tests make files and threads of their own.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod cleaner;
pub mod complaints;
pub mod family;
pub mod flush_stats;
pub mod histogram;
pub mod openmetrics;
pub mod process;
pub mod request_metrics;
pub mod sharded;
pub mod stalls;
pub mod topic_metrics;
pub mod worker_idle;

use std::time::Duration;

use cleaner::CleanerMetrics;
use request_metrics::RequestMetrics;
use sharded::Counters;
use topic_metrics::AllTopicsMetrics;
use worker_idle::WorkerIdle;

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
    /// Those that were closed because their address opens too many.
    ConnectionsThrottled,
    ConnectionsClosed,
    /// Times that a listener has stopped accepting for want of room for a connection, or of a file handle.
    AcceptsPaused,
    /// Connections closed after `connections.max.idle.ms`.
    ConnectionsIdle,
    /// Connections closed because they held memory that others waited for, and did nothing with it.
    ConnectionsClosedForMemory,
    /// New members, producer IDs and transactional IDs refused because the heap was full.
    RefusedForMemory,
    /// Connections closed because what came was no request.
    MalformedRequests,
    /// Peers that were not let in over TLS or SASL.
    FailedAuthentications,
    /// Logins with SASL.
    SuccessfulAuthentications,
    /// Those of clients that cannot begin a session anew on their connection.
    SuccessfulAuthenticationsWithoutReauth,
    SuccessfulReauthentications,
    FailedReauthentications,
    /// Connections closed because a request came after their session had expired.
    ExpiredConnectionsKilled,
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
    pub worker_idle: WorkerIdle,
    pub cleaner: CleanerMetrics,
}

impl Metrics {
    pub fn add(&self, metric: Metric, count: u64) {
        self.counters.add(metric as usize, count);
    }

    pub fn get(&self, metric: Metric) -> u64 {
        self.counters.get(metric as usize)
    }

    pub fn requests(&self) -> &RequestMetrics {
        &self.requests
    }

    /// The counters of all topics together, and of each.
    pub fn topics(&self) -> &AllTopicsMetrics {
        &self.topics
    }
}

/// Advances the time windows of histograms and of thread idleness, until it is dropped.
pub async fn advance_windows(metrics: &Metrics) {
    loop {
        for _ in 0..LOOKS_IN_WINDOW {
            metrics.worker_idle.look();
            ottla_sync::time::sleep(LOOK).await;
        }
        metrics.requests.on_window_ended();
        flush_stats::on_window_ended();
    }
}
