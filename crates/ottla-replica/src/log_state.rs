//! What a replica knows of its log, in either role.

use ottla_types::{LeaderEpoch, Offset};

/// What the replica knows of its log.
#[derive(Debug)]
pub(crate) struct LogState {
    /// Exclusive end of what the file holds; moved by `LogWritten`.
    pub(crate) log_end_offset: Offset,
    /// Exclusive end of what consumers may read.
    pub(crate) high_watermark: Offset,
    /// Exclusive end of what is known to be on the disk; moved by `Flushed`, and back by a truncation.
    pub(crate) flushed_end: Offset,
    /// The last entry of the leader epoch checkpoint.
    pub(crate) latest_epoch: Option<LeaderEpoch>,
}
