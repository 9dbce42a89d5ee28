//! Maintenance work of a log that has come up and not been handed out.

use std::sync::Arc;

use ottla_types::Offset;

use crate::jobs::DeleteJob;
use crate::producer_state::PendingSnapshot;
use crate::segment::Segment;
use crate::spare::SpareSegment;
use crate::swap::Swap;

#[derive(Default)]
pub(super) struct PendingJobs {
    /// Counts changes of the epochs; see [`Flushed`](crate::reader::Flushed).
    pub(super) epochs_version: u64,
    /// Taken, and when last looked at not written.
    pub(super) snapshots: Vec<Arc<PendingSnapshot>>,
    pub(super) deletions: Vec<DeleteJob>,
    /// Segments that are no longer listed and whose files may not be renamed yet.
    pub(super) retired: Vec<Arc<Segment>>,
    /// Cleaned segments on their way into their places.
    pub(super) swaps: Vec<Arc<Swap>>,
    /// Segments below this offset were sealed and are to be flushed.
    pub(super) flush_below: Option<Offset>,
    /// Counts creations and renames of files; see [`Flushed`](crate::reader::Flushed).
    pub(super) dir_version: u64,
    pub(super) spare: Spare,
    /// Position in the active segment up to which writeback has been started.
    pub(super) written_back: u64,
}

#[derive(Default)]
pub(super) enum Spare {
    #[default]
    None,
    Ordered,
    /// Could not be made.
    Refused,
    Ready(SpareSegment),
}
