//! A follower's fetch of several partitions: the token holder of each partition decides whether it
//! is served, and the fetch continues when all have decided or a timeout has passed, because a
//! partition whose disk hangs must not block the others.
//!
//! One allocation per fetch, and no wait if the tokens are free: then everything is decided on the
//! calling thread.
//!
//! A fetch that continues without a partition leaves its turn in the inbox. When the turn comes,
//! the follower's position is recorded, and parked fetches that lack the partition are woken.

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

/// How long a fetch waits for partitions that other threads step: long compared with a step, short
/// compared with `replica.fetch.wait.max.ms`.
const WAIT: Duration = Duration::from_millis(10);
/// Above this many turns in one inbox, fetches leave the partition out at once. This exceeds the
/// number of followers of a partition, and each follower has one fetch of it at a time.
const MAX_TURNS: usize = 16;

impl FollowerFetches {
    /// Puts the fetches into their partitions' inboxes and returns the verdicts in the same order.
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
            // Undecided partitions are left out.
            let _ = ottla_sync::time::timeout(WAIT, wait).await;
        }
        all.verdicts.lock().take().unwrap_or_default()
    }
}
