//! The partitions of one follower's fetch on their way through the inboxes: whether each is served is decided by whoever
//! holds its run token, and the fetch goes on when all have said so, or when it has waited long enough: a partition whose
//! disk hangs must not keep the follower from all others.
//!
//! One allocation for a fetch, and no wait where the tokens are free: then all is decided on the thread that asks.
//!
//! A fetch that goes on leaves its turn in the inbox. When that comes, what the follower had is noted, and fetches that
//! are parked without this partition are woken.

use std::sync::Arc;
use std::time::Duration;

use ottla_replica::{FetchRefusal, FollowerFetch};
use ottla_sync::Mutex;
use ottla_sync::Notify;
use ottla_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Partition, PartitionEvent};
use crate::partition::host::PartitionHost;

/// How long a fetch waits for partitions that somebody else steps. Long for a step, and short beside
/// `replica.fetch.wait.max.ms`.
const WAIT: Duration = Duration::from_millis(10);
/// From so many turns on that wait in one inbox, fetches leave the partition out at once. More than a partition has
/// followers, each of which fetches it once at a time.
const MAX_TURNS: usize = 16;

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
    waiting: AtomicUsize,
    /// Those that were decided when their fetch had gone on.
    late: AtomicU64,
}

impl FollowerTurns {
    fn late(&self) -> LateTurns {
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
    verdicts: Mutex<Option<Vec<FollowerVerdict>>>,
    /// Partitions that have not said anything.
    remaining: AtomicUsize,
    decided: Notify,
}

/// The place of one partition among those of its fetch. Counts as over when it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    fetches: Arc<FollowerFetches>,
    index: usize,
}

impl FollowerFetches {
    /// Puts fetches into the inboxes of their partitions, and returns what these say, in the same order.
    pub async fn decide(
        host: &Arc<PartitionHost>,
        fetches: Vec<(Arc<Partition>, FollowerFetch)>,
    ) -> Vec<FollowerVerdict> {
        let undecided = fetches
            .iter()
            .map(|(partition, _)| FollowerVerdict::Undecided(partition.follower_turns.late()));
        let all = Arc::new(FollowerFetches {
            verdicts: Mutex::new(Some(undecided.collect())),
            remaining: AtomicUsize::new(fetches.len()),
            decided: Notify::new(),
        });
        for (index, (partition, fetch)) in fetches.into_iter().enumerate() {
            let turn = Turn {
                fetches: Arc::clone(&all),
                index,
            };
            let waiting = &partition.follower_turns.waiting;
            if waiting.load(Ordering::Acquire) < MAX_TURNS {
                waiting.fetch_add(1, Ordering::AcqRel);
                partition.put(host, PartitionEvent::FollowerFetch(fetch, turn));
            }
        }
        if !all.are_all_decided() {
            let wait = async {
                while !all.are_all_decided() {
                    all.decided.notified().await;
                }
            };
            // What is undecided then is left out.
            let _ = ottla_sync::time::timeout(WAIT, wait).await;
        }
        all.verdicts.lock().take().unwrap_or_default()
    }

    fn are_all_decided(&self) -> bool {
        self.remaining.load(Ordering::Acquire) == 0
    }
}

impl Turn {
    pub(super) fn decide(self, partition: &Partition, verdict: FollowerVerdict) {
        let turns = &partition.follower_turns;
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
            partition.followers.wake_all();
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
