//! The request latencies of the broker in whose process a console runs. Kafka's protocol has none,
//! so a console of another cluster has no source for them.

use std::fmt;
use std::sync::Arc;

/// A latency at this moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Latency {
    /// The name of the measurement in a plot: `Produce p99`.
    pub name: &'static str,
    pub ms: f64,
}

/// Where a console reads the latencies of its broker. It is called with each sample, and not before
/// the page is first opened.
#[derive(Clone)]
pub struct BrokerLatencies(Arc<dyn Fn() -> Vec<Latency> + Send + Sync>);

impl BrokerLatencies {
    pub fn new(read: impl Fn() -> Vec<Latency> + Send + Sync + 'static) -> BrokerLatencies {
        BrokerLatencies(Arc::new(read))
    }

    pub(crate) fn read(&self) -> Vec<Latency> {
        (self.0)()
    }
}

impl fmt::Debug for BrokerLatencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BrokerLatencies")
    }
}
