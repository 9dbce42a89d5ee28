//! The partitions of one follower's fetch on their way through the inboxes: whether each is served is decided by whoever
//! holds its run token, and the fetch goes on when all have said so.
//!
//! One allocation for a fetch, and no wait where the tokens are free: then all is decided on the thread that asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ottla_replica::{FetchRefusal, FollowerFetch};
use ottla_types::ErrorCode;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Partition, PartitionEvent};
use crate::Broker;

/// What a leader says of a follower's fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FollowerVerdict {
    Served {
        /// Whether the controller has the follower in the ISR.
        is_in_sync: bool,
    },
    Refused(FetchRefusal),
}

/// What the leaders say of the partitions of one fetch.
#[derive(Debug)]
pub(crate) struct FollowerFetches {
    verdicts: Mutex<Vec<FollowerVerdict>>,
    /// Partitions that have not said anything.
    remaining: AtomicUsize,
    decided: Notify,
}

/// The place of one partition among those of its fetch. Counts as decided when it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    fetches: Arc<FollowerFetches>,
    index: usize,
}

impl FollowerFetches {
    /// Puts fetches into the inboxes of their partitions, and returns what these say, in the same order.
    pub(crate) async fn decide(
        broker: &Arc<Broker>,
        fetches: impl ExactSizeIterator<Item = (Arc<Partition>, FollowerFetch)>,
    ) -> Vec<FollowerVerdict> {
        // Stands for a partition that is gone before it is asked.
        let gone = FetchRefusal::Error(ErrorCode::NotLeaderOrFollower);
        let count = fetches.len();
        let all = Arc::new(FollowerFetches {
            verdicts: Mutex::new(vec![FollowerVerdict::Refused(gone); count]),
            remaining: AtomicUsize::new(count),
            decided: Notify::new(),
        });
        for (index, (partition, fetch)) in fetches.enumerate() {
            let turn = Turn {
                fetches: Arc::clone(&all),
                index,
            };
            partition.put(broker, PartitionEvent::FollowerFetch(fetch, turn));
        }
        while all.remaining.load(Ordering::Acquire) > 0 {
            all.decided.notified().await;
        }
        std::mem::take(&mut *all.verdicts.lock())
    }
}

impl Turn {
    pub(super) fn decide(self, verdict: FollowerVerdict) {
        self.fetches.verdicts.lock()[self.index] = verdict;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.fetches.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.fetches.decided.notify_one();
        }
    }
}
