//! The state of the log that a replica tracks, in either role.

use ottla_types::{LeaderEpoch, Offset};

/// The state of the log that a replica tracks.
#[derive(Debug)]
pub(crate) struct LogState {
    /// Exclusive end of the file; advanced by `LogWritten`.
    pub(crate) log_end_offset: Offset,
    /// Exclusive end of what consumers may read.
    pub(crate) high_watermark: Offset,
    /// Exclusive end of the records known to be on disk; advanced by `Flushed`, lowered by a
    /// truncation.
    pub(crate) flushed_end: Offset,
    /// The latest epoch in the leader epoch checkpoint.
    pub(crate) latest_epoch: Option<LeaderEpoch>,
    /// A crash may have taken records from this offset on, though later ones are there; `i64::MAX`
    /// without doubt.
    pub(crate) doubtful_from: Offset,
}

impl LogState {
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubtful_from < self.log_end_offset
    }

    /// Where a follower fetches next, and the epoch before it, which the leader compares. In doubt,
    /// that is where records may be missing: the leader must not count this replica as having them.
    pub(crate) fn fetch_position(&self) -> (Offset, Option<LeaderEpoch>) {
        match self.is_in_doubt() {
            true => (self.doubtful_from, None),
            false => (self.log_end_offset, self.latest_epoch),
        }
    }
}
