//! Limits how long followers' fetches wait when this broker has just become leader of partitions.
//!
//! A follower fetches all partitions of a leader in one request, which waits for
//! `replica.fetch.wait.max.ms` if nothing is written. A partition that the follower gets during the
//! wait is not in that request, and its first write with `acks=all` would wait for it to end: half
//! a second after an election that takes milliseconds. Kafka's leaders let it wait.
//!
//! Both brokers learn of an election at about the same time, in either order. So waiting fetches
//! are answered when this broker becomes leader, and later ones wait no longer than a quarter of the
//! time since then: about twenty fetches until the wait is normal again, and none that adds more than
//! a quarter to the delay of a follower that opens a log first.

use std::pin::pin;
use std::time::Duration;

use std::time::Instant;

use ottla_sync::watch;

/// The minimum wait, and the addition per partition of the fetch: each fetch processes all its
/// partitions, which must not dominate the load after thousands of partitions have moved.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);
const FOR_EACH_PARTITION: Duration = Duration::from_micros(20);
/// The part of the time since the start of a leadership that a fetch waits.
const PART: u32 = 4;

/// When this broker last became leader of a partition.
#[derive(Debug, Default)]
pub struct NewLeaderships {
    last: watch::Sender<Option<Instant>>,
}

impl NewLeaderships {
    pub fn note(&self) {
        self.last.send_replace(Some(ottla_sync::time::now()));
    }

    /// Waits until a fetch of `partitions` partitions, parked now, should be answered.
    pub async fn until_asked_again(&self, partitions: usize) {
        let parked = ottla_sync::time::now();
        let mut last = self.last.subscribe();
        loop {
            let began = *last.borrow_and_update();
            let mut changed = pin!(last.changed());
            match began {
                None => {
                    // The sender lives as long as the broker, so waiting cannot fail.
                    let _ = changed.await;
                }
                Some(began) => {
                    let wait = longest_wait(parked.saturating_duration_since(began), partitions);
                    ottla_sync::select! {
                        _ = &mut changed => {}
                        () = ottla_sync::time::sleep_until(parked + wait) => return,
                    }
                }
            }
        }
    }
}

/// How long a fetch waits that was parked `since` after the start of a leadership.
fn longest_wait(since: Duration, partitions: usize) -> Duration {
    (since / PART).max(SHORTEST_WAIT + FOR_EACH_PARTITION * partitions as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_after_an_election_wait_longer_and_longer() {
        let mut since = Duration::ZERO;
        let mut fetches = 0;
        while since < Duration::from_millis(500) {
            let wait = longest_wait(since, 1);
            assert!(wait <= SHORTEST_WAIT * 2 || wait <= since / 3, "{wait:?}");
            since += wait;
            fetches += 1;
        }
        assert!((10..=25).contains(&fetches), "{fetches} fetches");
    }

    #[test]
    fn a_fetch_of_many_partitions_is_not_repeated_at_once() {
        let wait = longest_wait(Duration::ZERO, 10_000);
        assert!(wait >= Duration::from_millis(200), "{wait:?}");
    }

    #[test]
    fn long_after_an_election_a_fetch_waits_its_full_time() {
        let wait = longest_wait(Duration::from_secs(3600), 10_000);
        assert_eq!(wait, Duration::from_secs(900));
    }

    #[tokio::test]
    async fn a_fetch_that_waits_is_answered_when_a_leadership_begins() {
        let leaderships = NewLeaderships::default();
        let asked_again = leaderships.until_asked_again(1);
        let mut asked_again = pin!(asked_again);
        let little = Duration::from_millis(50);
        let waited = ottla_sync::time::timeout(little, &mut asked_again).await;
        assert!(waited.is_err(), "nothing has begun");
        leaderships.note();
        let waited = ottla_sync::time::timeout(Duration::from_secs(10), asked_again).await;
        assert!(waited.is_ok());
    }
}
