//! The one place that slows clients down that ask for too much.
//!
//! Every request passes here after it was handled. Without quotas nobody is slowed down; with them, this
//! is where a connection learns how long it is not to be read.

use std::time::Duration;

use ottla_net::RequestContext;

/// Decides how long a connection pauses. Never.
#[derive(Debug, Default)]
pub struct Throttle;

impl Throttle {
    /// How long the connection is not to be read after this request of so many bytes.
    pub fn pause_after(&self, _context: &RequestContext, _request_bytes: usize) -> Duration {
        Duration::ZERO
    }
}
