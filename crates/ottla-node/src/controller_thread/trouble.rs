//! Why the quorum is not followed, and when people were told of it.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytestring::ByteString;

/// Trouble is told of once in this time.
const TELL_AGAIN: Duration = Duration::from_secs(10);
/// Why the quorum is not followed, as far as is known.
#[derive(Default)]
pub struct Trouble {
    pub reason: Option<String>,
    /// Those of the nodes that this one was given to ask that say they belong to another cluster.
    pub foreign: HashSet<(ByteString, u16)>,
    /// When something was told last.
    told: Option<Instant>,
}

impl Trouble {
    /// Says it, unless something of the kind was said a moment ago: while nobody leads, every node that is asked
    /// has a reason of its own, many times a second.
    pub fn report(&mut self, reason: &str) {
        if self
            .told
            .is_none_or(|at| ottla_sync::time::now() - at >= TELL_AGAIN)
        {
            tracing::warn!("the metadata quorum: {reason}");
            self.told = Some(ottla_sync::time::now());
        }
    }

    /// Notes it, for those who ask why.
    pub fn set(&mut self, reason: String) {
        self.reason = Some(reason);
    }

    pub fn forget(&mut self) {
        self.reason = None;
    }
}
