//! The turns of followers' fetches in a partition's inbox, and their verdicts.

use std::sync::Arc;

use ottla_replica::FetchRefusal;
use ottla_sync::Mutex;
use ottla_sync::Notify;
use ottla_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::waiters::Waiters;

/// The leader's decision about a follower's fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FollowerVerdict {
    Served {
        /// Whether the follower is in the ISR.
        is_in_sync: bool,
    },
    Refused(FetchRefusal),
    /// The partition has not been stepped in time.
    Undecided(LateTurns),
}

/// The number of late turns of a partition at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LateTurns(u64);

/// The pending follower fetches of a partition.
#[derive(Debug, Default)]
pub struct FollowerTurns {
    pub(super) waiting: AtomicUsize,
    /// Number of turns decided after their fetch had continued.
    late: AtomicU64,
}

impl FollowerTurns {
    pub(super) fn late(&self) -> LateTurns {
        LateTurns(self.late.load(Ordering::Acquire))
    }

    /// Whether a turn was decided late since then: the partition is being stepped again.
    pub fn has_moved_since(&self, before: LateTurns) -> bool {
        self.late() != before
    }
}

/// The verdicts of one fetch.
#[derive(Debug)]
pub struct FollowerFetches {
    /// `None` after the fetch has continued.
    pub(super) verdicts: Mutex<Option<Vec<FollowerVerdict>>>,
    /// Number of partitions without a verdict.
    pub(super) remaining: AtomicUsize,
    pub(super) decided: Notify,
}

/// One partition of a fetch. Dropping it counts as decided.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) fetches: Arc<FollowerFetches>,
    pub(super) index: usize,
}

impl FollowerFetches {
    pub(super) fn are_all_decided(&self) -> bool {
        self.remaining.load(Ordering::Acquire) == 0
    }
}

impl Turn {
    pub(super) fn decide(
        self,
        turns: &FollowerTurns,
        followers: &Waiters,
        verdict: FollowerVerdict,
    ) {
        turns.waiting.fetch_sub(1, Ordering::AcqRel);
        let is_late = match &mut *self.fetches.verdicts.lock() {
            Some(verdicts) => {
                verdicts[self.index] = verdict;
                false
            }
            None => true,
        };
        if is_late {
            turns.late.fetch_add(1, Ordering::AcqRel);
            followers.wake_all();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.fetches.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.fetches.decided.notify_one();
        }
    }
}
