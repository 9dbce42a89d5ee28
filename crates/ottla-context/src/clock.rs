//! The clocks of a node: a monotonic clock that starts with the node, and the wall clock.

use std::time::{Instant, UNIX_EPOCH};

use ottla_types::Timestamp;

#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            started: ottla_sync::time::now(),
        }
    }

    /// Milliseconds since the node started.
    pub(crate) fn now_ms(&self) -> u64 {
        self.ms_at(ottla_sync::time::now())
    }

    /// Milliseconds from the start of the node to `instant`.
    pub(crate) fn ms_at(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.started).as_millis() as u64
    }

    /// Milliseconds since 1970, UTC.
    pub(crate) fn timestamp(&self) -> Timestamp {
        time_of_day()
    }
}

/// The wall clock, in milliseconds since 1970 UTC, for code that runs without a node, such as
/// formatting.
pub fn time_of_day() -> Timestamp {
    let since_epoch = ottla_sync::time::wall_clock().duration_since(UNIX_EPOCH);
    Timestamp(since_epoch.map_or(0, |elapsed| elapsed.as_millis() as i64))
}
