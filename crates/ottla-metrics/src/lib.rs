//! Counters and histograms of a node, and their exposition.
//!
//! Counting must be cheap: a counter is one relaxed atomic per core ([`sharded`]), takes no lock
//! and orders nothing. Reading sums over the cores. The broker collects these counters together
//! with the gauges of its parts, and exposes both under the names that Kafka's JMX metrics have
//! with the usual rules of the JMX exporter.
//!
//! Also here: rate-limited log lines ([`complaints`], [`line_limit`]) and the trace of stalled threads
//! ([`stalls`]).

// Tests create files and threads.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod cleaner;
pub mod complaints;
pub mod family;
pub mod flush_stats;
pub mod histogram;
pub mod line_limit;
pub mod openmetrics;
pub mod process;
pub mod request_metrics;
pub mod sharded;
pub mod slow_requests;
pub mod stalls;
pub mod topic_metrics;
pub mod worker_idle;

use std::sync::OnceLock;
use std::time::Duration;

use cleaner::CleanerMetrics;
use histogram::{Histogram, Summary};
use request_metrics::RequestMetrics;
use sharded::Counters;
use topic_metrics::AllTopicsMetrics;
use worker_idle::WorkerIdle;

/// Sampling interval of thread idleness.
const LOOK: Duration = Duration::from_secs(30);
/// Window length in sampling intervals. Quantiles cover one to two windows.
const LOOKS_IN_WINDOW: usize = 5;

/// Broker-wide counters that are neither per API nor per topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Metric {
    /// Accepted connections.
    ConnectionsAccepted,
    /// Connections rejected by a connection limit.
    ConnectionsRefused,
    /// Connections delayed by `max.connection.creation.rate`.
    ConnectionsDelayed,
    /// Connections closed because their IP address exceeded its connection rate.
    ConnectionsThrottled,
    ConnectionsClosed,
    /// Times that a listener paused accepting because no connection slot or file handle was free.
    AcceptsPaused,
    /// Connections closed after `connections.max.idle.ms`.
    ConnectionsIdle,
    /// Connections closed because they held request memory without progress while others waited for
    /// it.
    ConnectionsClosedForMemory,
    /// New state that clients asked for, rejected because the heap limit was reached.
    RefusedForMemory,
    /// Connections closed after a malformed request.
    MalformedRequests,
    /// Failed TLS handshakes and SASL authentications.
    FailedAuthentications,
    /// Successful SASL authentications.
    SuccessfulAuthentications,
    /// Successful SASL authentications of clients that do not support reauthentication (KIP-368).
    SuccessfulAuthenticationsWithoutReauth,
    SuccessfulReauthentications,
    FailedReauthentications,
    /// Connections closed because a request arrived after their session had expired (KIP-368).
    ExpiredConnectionsKilled,
    /// Requests that failed with an unexpected server error.
    ServerErrors,
    BytesReceived,
    BytesSent,
    /// Appends on which the kernel blocked.
    StalledAppends,
    /// Fetched regions that were not in the page cache.
    ColdReads,
    /// Fetches whose offset lookup needed the disk: neither memory nor the page cache held the
    /// index.
    ColdLookups,
    /// Bytes of pages that were dropped from the page cache after they had been appended.
    PageCacheDropped,
    /// Bytes of records that were read where such pages had been dropped.
    PageCacheReread,
    /// Bytes of records fetched from leaders by this broker's followers.
    ReplicationBytesIn,
    /// Bytes of records sent to followers.
    ReplicationBytesOut,
    /// ISR expansions of partitions led by this broker.
    IsrExpands,
    IsrShrinks,
    /// AlterPartition proposals that failed.
    FailedIsrUpdates,
}

const METRICS: usize = Metric::FailedIsrUpdates as usize + 1;

/// All counters of a broker.
#[derive(Debug, Default)]
pub struct Metrics {
    counters: Counters<METRICS>,
    requests: RequestMetrics,
    topics: AllTopicsMetrics,
    /// Made by the first use: most brokers have no remote storage.
    remote_reads: OnceLock<Histogram>,
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

    /// The counters of each topic and of all topics together.
    pub fn topics(&self) -> &AllTopicsMetrics {
        &self.topics
    }

    /// A partition was read from remote storage, or could not be read.
    pub fn on_remote_read(&self, took: Duration) {
        self.remote_reads
            .get_or_init(Histogram::default)
            .record(took);
    }

    pub fn remote_reads(&self) -> Summary {
        self.remote_reads.get_or_init(Histogram::default).summary()
    }
}

/// Advances the windows of the histograms and of thread idleness. Never returns; cancel by dropping
/// the future.
pub async fn advance_windows(metrics: &Metrics) {
    loop {
        for _ in 0..LOOKS_IN_WINDOW {
            metrics.worker_idle.look();
            ottla_sync::time::sleep(LOOK).await;
        }
        metrics.requests.on_window_ended();
        flush_stats::on_window_ended();
        if let Some(remote_reads) = metrics.remote_reads.get() {
            remote_reads.on_window_ended();
        }
    }
}
