//! Why this node cannot follow the quorum, and when that was last logged.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytestring::ByteString;

/// The minimum interval between two log messages.
const TELL_AGAIN: Duration = Duration::from_secs(10);
/// Why this node cannot follow the quorum, as far as is known.
#[derive(Default)]
pub struct Trouble {
    pub reason: Option<String>,
    /// Bootstrap servers that have answered that they belong to another cluster.
    pub foreign: HashSet<(ByteString, u16)>,
    /// When a message was last logged.
    told: Option<Instant>,
}

impl Trouble {
    /// Logs the reason, unless a message was logged recently. While there is no leader, each node
    /// that is asked gives a different reason many times a second.
    pub fn report(&mut self, reason: &str) {
        if self
            .told
            .is_none_or(|at| ottla_sync::time::now() - at >= TELL_AGAIN)
        {
            tracing::warn!("the metadata quorum: {reason}");
            self.told = Some(ottla_sync::time::now());
        }
    }

    /// Stores the reason for the status.
    pub fn set(&mut self, reason: String) {
        self.reason = Some(reason);
    }

    pub fn forget(&mut self) {
        self.reason = None;
    }
}
