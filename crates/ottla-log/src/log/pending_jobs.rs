//! Maintenance work of a log that is due and not handed out yet.

use std::sync::Arc;

use ottla_types::Offset;

use crate::jobs::DeleteJob;
use crate::producer_state::PendingSnapshot;
use crate::segment::Segment;
use crate::spare::SpareSegment;
use crate::swap::Swap;

#[derive(Default)]
pub(super) struct PendingJobs {
    /// Version of the leader epochs; see [`Flushed`](crate::reader::Flushed).
    pub(super) epochs_version: u32,
    /// `None` while there are none: most logs are idle.
    pub(super) rare: Option<Box<RareJobs>>,
    /// Sealed segments below this offset must be flushed.
    pub(super) flush_below: Option<Offset>,
    /// Version of the directory: counts file creations and renames; see
    /// [`Flushed`](crate::reader::Flushed).
    pub(super) dir_version: u32,
    pub(super) spare: Spare,
    /// Position in the active segment up to which writeback has been started.
    pub(super) written_back: u64,
}

/// Jobs of a log that takes producer snapshots, or from which segments are removed.
#[derive(Default)]
pub(super) struct RareJobs {
    /// Producer snapshots taken and not known to be written.
    pub(super) snapshots: Vec<Arc<PendingSnapshot>>,
    pub(super) deletions: Vec<DeleteJob>,
    /// Segments that are no longer listed and whose files may not be renamed yet.
    pub(super) retired: Vec<Arc<Segment>>,
    /// Cleaned segments whose swap is not finished.
    pub(super) swaps: Vec<Arc<Swap>>,
}

impl PendingJobs {
    pub(super) fn rare(&mut self) -> &mut RareJobs {
        self.rare.get_or_insert_default()
    }

    pub(super) fn snapshots(&self) -> &[Arc<PendingSnapshot>] {
        match &self.rare {
            Some(rare) => &rare.snapshots,
            None => &[],
        }
    }

    pub(super) fn add_snapshots(&mut self, snapshots: impl IntoIterator<Item = PendingSnapshot>) {
        for snapshot in snapshots {
            self.rare().snapshots.push(Arc::new(snapshot));
        }
    }

    pub(super) fn retain_snapshots(&mut self, is_kept: impl Fn(&PendingSnapshot) -> bool) {
        let Some(rare) = &mut self.rare else {
            return;
        };
        rare.snapshots.retain(|snapshot| is_kept(snapshot));
        if rare.is_empty() {
            self.rare = None;
        }
    }

    pub(super) fn take_snapshots(&mut self) -> Vec<Arc<PendingSnapshot>> {
        let rare = self.rare.as_mut();
        rare.map_or_else(Vec::new, |rare| std::mem::take(&mut rare.snapshots))
    }

    pub(super) fn has_deletions(&self) -> bool {
        let rare = self.rare.as_ref();
        rare.is_some_and(|rare| !rare.deletions.is_empty())
    }

    pub(super) fn take_deletions(&mut self) -> Vec<DeleteJob> {
        let rare = self.rare.as_mut();
        rare.map_or_else(Vec::new, |rare| std::mem::take(&mut rare.deletions))
    }

    pub(super) fn take_retired(&mut self) -> Vec<Arc<Segment>> {
        let rare = self.rare.as_mut();
        rare.map_or_else(Vec::new, |rare| std::mem::take(&mut rare.retired))
    }

    pub(super) fn take_swaps(&mut self) -> Vec<Arc<Swap>> {
        let rare = self.rare.as_mut();
        rare.map_or_else(Vec::new, |rare| std::mem::take(&mut rare.swaps))
    }
}

impl RareJobs {
    fn is_empty(&self) -> bool {
        self.snapshots.is_empty()
            && self.deletions.is_empty()
            && self.retired.is_empty()
            && self.swaps.is_empty()
    }
}

#[derive(Default)]
pub(super) enum Spare {
    #[default]
    None,
    Ordered,
    /// Creating it failed.
    Refused,
    /// Boxed, because idle logs have none.
    Ready(Box<SpareSegment>),
}
