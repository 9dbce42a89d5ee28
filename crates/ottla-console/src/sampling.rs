//! Shared by the views of all sessions for sampling: the memory for their series, and the latencies
//! of the broker that runs the console.
//!
//! With logins, each user has a share of the memory, whatever the number of their sessions.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::from_broker::{FromBroker, Latency};

/// Series of all sessions together, of about 6.5 kB each.
const SERIES: usize = 8000;
/// Of one user.
const SHARE: usize = SERIES / 2;

#[derive(Clone)]
pub(crate) struct Sampling {
    room: Arc<Semaphore>,
    share: Arc<Semaphore>,
    /// The shares of users with a session.
    shares: Arc<Mutex<HashMap<String, Weak<Semaphore>>>>,
    pub(crate) latencies: Option<FromBroker<Latency>>,
}

/// The room of one series, until it is dropped.
pub(crate) struct SeriesRoom {
    _of_share: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Sampling {
    pub(crate) fn new(latencies: Option<FromBroker<Latency>>) -> Sampling {
        Sampling {
            room: Arc::new(Semaphore::new(SERIES)),
            share: Arc::new(Semaphore::new(SERIES)),
            shares: Arc::default(),
            latencies,
        }
    }

    /// The same memory, limited to this user's share. All sessions of the user have the same share.
    pub(crate) fn of_user(&self, user: &str) -> Sampling {
        let mut shares = self.shares.lock();
        shares.retain(|_, share| share.strong_count() > 0);
        let known = shares.get(user).and_then(Weak::upgrade);
        let share = known.unwrap_or_else(|| {
            let share = Arc::new(Semaphore::new(SHARE));
            shares.insert(user.to_owned(), Arc::downgrade(&share));
            share
        });
        Sampling {
            room: self.room.clone(),
            share,
            shares: self.shares.clone(),
            latencies: self.latencies.clone(),
        }
    }

    /// Room for one more series. `None` if the user, or all sessions together, have as many as there
    /// may be.
    pub(crate) fn room(&self) -> Option<SeriesRoom> {
        let of_share = self.share.clone().try_acquire_owned().ok()?;
        let of_all = self.room.clone().try_acquire_owned().ok()?;
        Some(SeriesRoom {
            _of_share: of_share,
            _of_all: of_all,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_share_the_room_for_series() {
        let one = Sampling::new(None);
        let other = one.clone();
        let all: Vec<SeriesRoom> = std::iter::from_fn(|| one.room()).collect();
        assert_eq!(all.len(), SERIES);
        assert!(other.room().is_none());
        drop(all);
        assert!(other.room().is_some());
    }

    #[test]
    fn the_sessions_of_one_user_leave_room_for_others() {
        let all = Sampling::new(None);
        let (alice, again, bob) = (
            all.of_user("alice"),
            all.of_user("alice"),
            all.of_user("bob"),
        );
        let of_alice: Vec<SeriesRoom> = std::iter::from_fn(|| alice.room()).collect();
        assert_eq!(of_alice.len(), SHARE);
        assert!(again.room().is_none());
        let of_bob: Vec<SeriesRoom> = std::iter::from_fn(|| bob.room()).collect();
        assert_eq!(of_bob.len(), SERIES - SHARE);
        assert!(all.of_user("carol").room().is_none());
        drop(of_alice);
        assert!(again.room().is_some());
        drop((alice, again));
        drop(all.of_user("carol"));
        assert!(!all.shares.lock().contains_key("alice"));
    }
}
