//! What a console reads from the broker beside which it runs. Kafka's protocol has none of it, so a
//! console of another cluster has no source for it.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// A request latency at this moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Latency {
    /// What is measured, as a plot names it: `Produce p99`.
    pub name: &'static str,
    pub ms: f64,
}

/// The connections and the requests of the broker at this moment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Activity {
    #[serde(skip)]
    pub broker_id: i32,
    pub connections: Vec<ListenerConnections>,
    pub requests: Vec<RequestTimes>,
    /// The slowest requests of the last minutes, the slowest first.
    pub slow_requests: Vec<SlowRequest>,
}

/// The open connections of a listener.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ListenerConnections {
    pub listener: String,
    pub open: usize,
}

/// The requests of one API: their number since the start, and how long those of the last minutes
/// took.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RequestTimes {
    pub api: &'static str,
    pub count: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Without the time in which a request waits for data, for other members or for other brokers.
    pub own_p99_ms: f64,
}

/// A single slow request.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SlowRequest {
    pub api: &'static str,
    pub api_version: i16,
    /// When its response was sent, in milliseconds since 1970.
    pub sent: i64,
    /// Empty if there is none.
    pub client_id: String,
    pub principal: String,
    /// Address and port of the client, or of the broker that has forwarded the request.
    pub peer: String,
    /// The first error code of the response.
    pub error: Option<&'static str>,
    pub total_ms: f64,
    /// The broker processed the request.
    pub local_ms: f64,
    /// It waited for other brokers, for data, or for other members.
    pub remote_ms: f64,
    /// The response was complete, but not sent.
    pub response_send_ms: f64,
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
