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

use ottla_replica::FollowerFetch;
use ottla_sync::Mutex;
use ottla_sync::Notify;
use ottla_sync::atomic::{AtomicUsize, Ordering};

use super::Partition;
use super::event::PartitionEvent;
use super::follower_turns::{FollowerFetches, FollowerVerdict, Turn};
use super::host::PartitionHost;

/// How long a fetch waits for partitions that somebody else steps. Long for a step, and short beside
/// `replica.fetch.wait.max.ms`.
const WAIT: Duration = Duration::from_millis(10);
/// From so many turns on that wait in one inbox, fetches leave the partition out at once. More than a partition has
/// followers, each of which fetches it once at a time.
const MAX_TURNS: usize = 16;

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
}
