//! Requests that wait long for their answer, for programs that report them to a user meanwhile.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::ApiKey;

/// A request without an answer so far.
///
/// ```no_run
/// # fn example(config: &mut ottla_client::ClientConfig) {
/// use std::time::Duration;
/// use ottla_client::{SlowRequest, SlowRequestListener};
///
/// let tell = |slow: &SlowRequest| eprintln!("{slow}");
/// config.slow_requests = Some(SlowRequestListener::new(Duration::from_secs(5), tell));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SlowRequest {
    /// `host:port` of the node.
    pub address: String,
    pub api: ApiKey,
    /// When it was sent.
    pub since: Instant,
    /// How long the client waits in all.
    pub limit: Duration,
}

/// `127.0.0.1:9092 has not answered CreateTopics for 5 s; waiting 30 s at most`
impl fmt::Display for SlowRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waited = ottla_sync::time::elapsed(self.since).as_secs();
        let (address, api) = (&self.address, self.api);
        write!(f, "{address} has not answered {api} for {waited} s")?;
        if api.is_forwardable() {
            f.write_str(" (brokers pass this request to the active controller)")?;
        }
        write!(f, "; waiting {} s at most", self.limit.as_secs())
    }
}

/// Called once for each request that is slow, on the task that waits, so it must not block.
///
/// ```no_run
/// # fn example(config: &mut ottla_client::ClientConfig) {
/// use std::time::Duration;
/// use ottla_client::SlowRequestListener;
///
/// let after = Duration::from_secs(5);
/// let listener = SlowRequestListener::new(after, |slow| eprintln!("{} is slow", slow.address));
/// config.slow_requests = Some(listener);
/// # }
/// ```
#[derive(Clone)]
pub struct SlowRequestListener {
    after: Duration,
    tell: Arc<dyn Fn(&SlowRequest) + Send + Sync>,
}

impl SlowRequestListener {
    /// A request is slow after this time. Requests that a broker may delay get their delay in addition.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ottla_client::SlowRequestListener;
    ///
    /// let listener = SlowRequestListener::new(Duration::from_secs(5), |slow| eprintln!("{slow}"));
    /// # assert!(format!("{listener:?}").contains("5s"));
    /// ```
    pub fn new(
        after: Duration,
        tell: impl Fn(&SlowRequest) + Send + Sync + 'static,
    ) -> SlowRequestListener {
        SlowRequestListener {
            after,
            tell: Arc::new(tell),
        }
    }

    pub(crate) fn after(&self) -> Duration {
        self.after
    }

    pub(crate) fn tell(&self, slow: &SlowRequest) {
        (self.tell)(slow);
    }
}

impl fmt::Debug for SlowRequestListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlowRequestListener({:?})", self.after)
    }
}
