//! The upper bounds for readers of a log.

use ottla_log::LogReader;
use ottla_sync::planted::has;
use ottla_types::Offset;

/// The isolation level of a read, including that of replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    HighWatermark,
    /// Up to the first unstable offset; aborted transactions are returned with the records.
    LastStableOffset,
    /// Up to the log end offset: for other replicas.
    LogEnd,
}

impl Isolation {
    /// Exclusive.
    pub fn upper_bound(self, reader: &LogReader) -> Offset {
        match self {
            Isolation::HighWatermark if has("a consumer reads what is not committed") => {
                reader.log_end_offset()
            }
            Isolation::LastStableOffset if has("read_committed reads what is not decided") => {
                reader.high_watermark()
            }
            Isolation::HighWatermark => reader.high_watermark(),
            Isolation::LastStableOffset => reader.last_stable_offset(),
            Isolation::LogEnd => reader.log_end_offset(),
        }
    }
}
