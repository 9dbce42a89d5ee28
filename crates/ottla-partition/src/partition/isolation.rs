//! Up to where readers of a log may read.

use ottla_log::LogReader;
use ottla_types::Offset;

/// Up to where a reader may read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    HighWatermark,
    /// Up to the first open transaction, with the aborted ones named.
    LastStableOffset,
    /// Everything: for other replicas.
    LogEnd,
}

impl Isolation {
    /// Exclusive.
    pub fn upper_bound(self, reader: &LogReader) -> Offset {
        match self {
            Isolation::HighWatermark => reader.high_watermark(),
            Isolation::LastStableOffset => reader.last_stable_offset(),
            Isolation::LogEnd => reader.log_end_offset(),
        }
    }
}
