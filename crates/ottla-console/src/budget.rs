//! The memory that requests may use together: readers of records, bodies, snapshots and large
//! answers; and the streams that a user may have open.
//!
//! A request reserves memory before it uses it, and keeps it until its response is read. A request
//! for which there is no room is refused at once. The console may run in a broker's process, which
//! must not run out of memory because a user opened many tabs.
//!
//! With logins, each user has a share, whatever the number of their sessions. So one user can take
//! neither all of the memory nor more streams than others.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::Problem;

const TOTAL: usize = 512 << 20;
/// Of one user.
const SHARE: usize = TOTAL / 2;
/// Reservations are multiples of this.
const UNIT: usize = 64 << 10;
/// Event streams of one user at a time: some tabs, and as many searches.
const STREAMS: usize = 64;

#[derive(Clone)]
pub(crate) struct Budget {
    units: Arc<Semaphore>,
    share: Arc<Share>,
    /// The shares of users with a session.
    shares: Arc<Mutex<HashMap<String, Weak<Share>>>>,
}

struct Share {
    bytes: usize,
    units: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// A part of the budget, until it is dropped.
#[must_use]
pub(crate) struct Reservation {
    _of_share: OwnedSemaphorePermit,
    _units: OwnedSemaphorePermit,
}

impl Share {
    fn new(bytes: usize) -> Share {
        Share {
            bytes,
            units: Arc::new(Semaphore::new(bytes / UNIT)),
            streams: Arc::new(Semaphore::new(STREAMS)),
        }
    }
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            units: Arc::new(Semaphore::new(TOTAL / UNIT)),
            share: Arc::new(Share::new(TOTAL)),
            shares: Arc::default(),
        }
    }
}

impl Budget {
    /// The same budget, limited to this user's share. All sessions of the user have the same share.
    pub(crate) fn of_user(&self, user: &str) -> Budget {
        let mut shares = self.shares.lock();
        shares.retain(|_, share| share.strong_count() > 0);
        let known = shares.get(user).and_then(Weak::upgrade);
        let share = known.unwrap_or_else(|| {
            let share = Arc::new(Share::new(SHARE));
            shares.insert(user.to_owned(), Arc::downgrade(&share));
            share
        });
        Budget {
            units: self.units.clone(),
            share,
            shares: self.shares.clone(),
        }
    }

    /// Something larger than the whole share gets all of it, if nothing else is reserved.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<Reservation, Problem> {
        let units = bytes.div_ceil(UNIT).clamp(1, self.share.bytes / UNIT) as u32;
        let of_share = self.share.units.clone().try_acquire_many_owned(units);
        let of_share = of_share.map_err(|_| self.used_up(self.share.bytes))?;
        let of_all = self.units.clone().try_acquire_many_owned(units);
        Ok(Reservation {
            _of_share: of_share,
            _units: of_all.map_err(|_| self.used_up(TOTAL))?,
        })
    }

    fn used_up(&self, bytes: usize) -> Problem {
        let whose = match bytes < TOTAL {
            true => "your share of the console's memory",
            false => "the console's memory",
        };
        Problem::busy(format!(
            "{whose} for records and requests, {} MiB, is in use; stop a search, a live tail or an export, or try \
             again later",
            bytes >> 20
        ))
    }

    /// A place for an event stream.
    pub(crate) fn stream(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.share.streams.clone().try_acquire_owned().map_err(|_| {
            Problem::too_many(format!(
                "{STREAMS} streams are open; close a tab with a live tail or a search"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_memory_is_unavailable_until_it_is_dropped() {
        let budget = Budget::default();
        let half = budget.reserve(TOTAL / 2).unwrap();
        let rest = budget.reserve(TOTAL / 2 - 1).unwrap();
        let refused = budget.reserve(1).err().unwrap();
        assert_eq!(refused.status(), 503);
        drop(half);
        let small = budget.reserve(0).unwrap();
        drop(rest);
        assert!(budget.reserve(usize::MAX).is_err());
        drop(small);
        assert!(budget.reserve(usize::MAX).is_ok());
    }

    #[test]
    fn one_user_takes_neither_all_of_the_memory_nor_the_streams_of_others() {
        let budget = Budget::default();
        let (alice, again, bob) = (
            budget.of_user("alice"),
            budget.of_user("alice"),
            budget.of_user("bob"),
        );
        let all = alice.reserve(usize::MAX).unwrap();
        let refused = again.reserve(1).err().unwrap();
        assert!(
            refused.detail().starts_with("your share"),
            "{}",
            refused.detail()
        );
        let of_bob = bob.reserve(usize::MAX).unwrap();
        // It counts for all together.
        assert!(budget.reserve(TOTAL - SHARE).is_err());
        drop((all, of_bob));
        assert!(budget.reserve(usize::MAX).is_ok());

        let places: Vec<_> = (0..STREAMS).map(|_| alice.stream().ok().unwrap()).collect();
        assert_eq!(again.stream().err().unwrap().status(), 429);
        assert!(bob.stream().is_ok());
        drop(places);
        assert!(again.stream().is_ok());
        drop((alice, again));
        // Nothing is remembered of a user without a session.
        drop(budget.of_user("carol"));
        assert!(!budget.shares.lock().contains_key("alice"));
    }
}
