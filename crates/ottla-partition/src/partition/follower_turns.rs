//! The turns of followers' fetches in the inbox of a partition: what each waits for, and what it is told.

use std::sync::Arc;

use ottla_replica::FetchRefusal;
use ottla_sync::Mutex;
use ottla_sync::Notify;
use ottla_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::waiters::Waiters;

/// What a leader says of a follower's fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FollowerVerdict {
    Served {
        /// Whether the controller has the follower in the ISR.
        is_in_sync: bool,
    },
    Refused(FetchRefusal),
    /// The partition has not come to it.
    Undecided(LateTurns),
}

/// How many fetches a partition had decided too late at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LateTurns(u64);

/// The fetches of followers that wait for a partition to be stepped.
#[derive(Debug, Default)]
pub struct FollowerTurns {
    pub(super) waiting: AtomicUsize,
    /// Those that were decided when their fetch had gone on.
    late: AtomicU64,
}

impl FollowerTurns {
    pub(super) fn late(&self) -> LateTurns {
        LateTurns(self.late.load(Ordering::Acquire))
    }

    /// Whether a turn has come late since then: the partition is stepped again.
    pub fn has_moved_since(&self, before: LateTurns) -> bool {
        self.late() != before
    }
}

/// What the leaders say of the partitions of one fetch.
#[derive(Debug)]
pub struct FollowerFetches {
    /// `None` when the fetch has gone on.
    pub(super) verdicts: Mutex<Option<Vec<FollowerVerdict>>>,
    /// Partitions that have not said anything.
    pub(super) remaining: AtomicUsize,
    pub(super) decided: Notify,
}

/// The place of one partition among those of its fetch. Counts as over when it is dropped.
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
