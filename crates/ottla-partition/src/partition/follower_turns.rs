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

#[cfg(test)]
mod tests {
    use ottla_types::Offset;

    use super::*;
    use crate::partition::Waiter;

    const SERVED: FollowerVerdict = FollowerVerdict::Served { is_in_sync: true };

    fn fetches(verdicts: Option<Vec<FollowerVerdict>>, remaining: usize) -> Arc<FollowerFetches> {
        Arc::new(FollowerFetches {
            verdicts: Mutex::new(verdicts),
            remaining: AtomicUsize::new(remaining),
            decided: Notify::new(),
        })
    }

    fn turn(fetches: &Arc<FollowerFetches>, index: usize) -> Turn {
        Turn {
            fetches: Arc::clone(fetches),
            index,
        }
    }

    /// Otherwise the follower would fetch the partition again only after its long poll, and writes
    /// with `acks=all` would wait as long.
    #[test]
    fn a_late_turn_wakes_the_fetches_that_lack_the_partition() {
        let (turns, followers) = (FollowerTurns::default(), Waiters::default());
        let _registered = followers.register(Offset(5), &Waiter::default());
        let before = turns.late();
        turns.waiting.store(2, Ordering::Release);

        let in_time = fetches(Some(vec![FollowerVerdict::Undecided(before)]), 1);
        turn(&in_time, 0).decide(&turns, &followers, SERVED);
        assert!(in_time.are_all_decided());
        assert_eq!(in_time.verdicts.lock().take(), Some(vec![SERVED]));
        assert!(!turns.has_moved_since(before) && !followers.is_empty());

        turn(&fetches(None, 1), 0).decide(&turns, &followers, SERVED);
        assert!(turns.has_moved_since(before) && followers.is_empty());
        assert_eq!(turns.waiting.load(Ordering::Acquire), 0);
    }

    /// The fetch of a partition that is gone would wait for its verdict.
    #[test]
    fn a_dropped_turn_counts_as_decided() {
        let undecided = FollowerVerdict::Undecided(FollowerTurns::default().late());
        let all = fetches(Some(vec![undecided; 2]), 2);
        drop(turn(&all, 0));
        assert!(!all.are_all_decided());
        drop(turn(&all, 1));
        assert!(all.are_all_decided());
        assert_eq!(all.verdicts.lock().take(), Some(vec![undecided; 2]));
    }
}
