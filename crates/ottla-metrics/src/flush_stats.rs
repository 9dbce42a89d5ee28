//! Rate and duration of log flushes: `kafka.log:type=LogFlushStats`.
//!
//! The histogram covers all logs of the process, the metadata log included, as in Kafka. A flush
//! does not know which broker its log belongs to.

use std::sync::LazyLock;
use std::time::Duration;

use crate::histogram::{Histogram, Summary};

static FLUSHES: LazyLock<Histogram> = LazyLock::new(Histogram::default);

/// Records a flush that took `took`.
pub fn record(took: Duration) {
    FLUSHES.record(took);
}

pub(super) fn on_window_ended() {
    FLUSHES.on_window_ended();
}

pub fn summary() -> Summary {
    FLUSHES.summary()
}
