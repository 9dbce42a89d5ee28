//! What a console reads from the broker beside which it runs. Kafka's protocol has none of it, so a
//! console of another cluster has no source for it.

use std::fmt;
use std::sync::Arc;

/// A request latency at this moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Latency {
    /// What is measured, as a plot names it: `Produce p99`.
    pub name: &'static str,
    pub ms: f64,
}

/// Where a console reads values of its broker. It is called whenever they are needed, and never before
/// somebody opens the page.
#[derive(Clone)]
pub struct FromBroker<T>(Arc<dyn Fn() -> Vec<T> + Send + Sync>);

impl<T> FromBroker<T> {
    pub fn new(read: impl Fn() -> Vec<T> + Send + Sync + 'static) -> FromBroker<T> {
        FromBroker(Arc::new(read))
    }

    pub(crate) fn read(&self) -> Vec<T> {
        (self.0)()
    }
}

impl<T> fmt::Debug for FromBroker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromBroker")
    }
}
