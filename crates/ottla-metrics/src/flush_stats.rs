//! How often segments are forced to disk, and how long that takes: `kafka.log:type=LogFlushStats`.
//!
//! Of all logs of the process, as in Kafka, the metadata log included: which broker a log is of, a flush does not know.

use std::sync::LazyLock;
use std::time::Duration;

use crate::histogram::{Histogram, Summary};

static FLUSHES: LazyLock<Histogram> = LazyLock::new(Histogram::default);

/// A flush has ended after `took`.
pub fn record(took: Duration) {
    FLUSHES.record(took);
}

pub(super) fn on_window_ended() {
    FLUSHES.on_window_ended();
}

pub fn summary() -> Summary {
    FLUSHES.summary()
}
