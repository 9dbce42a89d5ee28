//! What the broker counts. Counters are relaxed atomics: they order nothing and nothing waits for them.

use std::sync::atomic::{AtomicU64, Ordering};

use ottla_protocol::ApiKey;

/// API numbers run below this.
const APIS: usize = 128;

macro_rules! metrics {
    ($( $(#[$doc:meta])* $name:ident = $text:literal, )*) => {
        /// One counter.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Metric {
            $( $(#[$doc])* $name, )*
        }

        impl Metric {
            pub const ALL: &'static [Metric] = &[$( Metric::$name, )*];

            /// The name under which it is shown.
            pub const fn name(self) -> &'static str {
                match self { $( Metric::$name => $text, )* }
            }
        }
    };
}

metrics! {
    /// Connections let in.
    ConnectionsAccepted = "connections_accepted",
    /// Connections turned away over a limit.
    ConnectionsRefused = "connections_refused",
    ConnectionsClosed = "connections_closed",
    /// Connections closed after `connections.max.idle.ms`.
    ConnectionsIdle = "connections_idle",
    /// Connections closed because what came was no request.
    MalformedRequests = "malformed_requests",
    /// Requests that failed over something that should not happen.
    ServerErrors = "server_errors",
    BytesReceived = "bytes_received",
    BytesSent = "bytes_sent",
    /// Bytes of record batches appended for producers.
    BytesProduced = "bytes_produced",
    RecordsProduced = "records_produced",
    /// Bytes of record batches given to consumers.
    BytesFetched = "bytes_fetched",
    /// Partitions of Produce requests that were answered with an error.
    FailedProduces = "failed_produces",
    /// Partitions of Fetch requests that were answered with an error.
    FailedFetches = "failed_fetches",
    /// Appends that the kernel made wait.
    StalledAppends = "stalled_appends",
    /// Fetched regions that were not in the page cache.
    ColdReads = "cold_reads",
}

/// All counters of a broker.
#[derive(Debug)]
pub struct Metrics {
    counters: [AtomicU64; Metric::ALL.len()],
    requests: [AtomicU64; APIS],
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            counters: [const { AtomicU64::new(0) }; Metric::ALL.len()],
            requests: [const { AtomicU64::new(0) }; APIS],
        }
    }
}

impl Metrics {
    pub fn add(&self, metric: Metric, count: u64) {
        self.counters[metric as usize].fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self, metric: Metric) -> u64 {
        self.counters[metric as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn count_request(&self, api_key: ApiKey) {
        self.requests[api_key.code() as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Requests of this API since the start.
    pub fn requests(&self, api_key: ApiKey) -> u64 {
        self.requests[api_key.code() as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_has_a_counter() {
        let metrics = Metrics::default();
        for &api_key in ApiKey::ALL {
            metrics.count_request(api_key);
            assert_eq!(metrics.requests(api_key), 1);
        }
        for &metric in Metric::ALL {
            metrics.add(metric, 2);
            assert_eq!(metrics.get(metric), 2, "{}", metric.name());
        }
    }
}
