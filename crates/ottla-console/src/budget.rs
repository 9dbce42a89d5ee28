//! The memory that requests may use together: readers of records, bodies, and large answers.
//!
//! A request reserves what it may use before it uses it, and keeps it until its answer is read. One
//! for which there is no room is refused at once. The console may run in a broker's process, which
//! must not run out of memory because somebody opened many tabs.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::Problem;

const TOTAL: usize = 512 << 20;
/// What is reserved is a multiple of this.
const UNIT: usize = 64 << 10;

#[derive(Clone)]
pub(crate) struct Budget {
    units: Arc<Semaphore>,
}

/// A part of the budget, until it is dropped.
#[must_use]
pub(crate) struct Reservation {
    _units: OwnedSemaphorePermit,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            units: Arc::new(Semaphore::new(TOTAL / UNIT)),
        }
    }
}

impl Budget {
    /// Something larger than the whole budget gets all of it, if nothing else is reserved.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<Reservation, Problem> {
        let units = bytes.div_ceil(UNIT).clamp(1, TOTAL / UNIT) as u32;
        match self.units.clone().try_acquire_many_owned(units) {
            Ok(units) => Ok(Reservation { _units: units }),
            Err(_) => Err(Problem::busy(format!(
                "the console's memory for records and requests, {} MiB, is in use; stop a search, a live tail or an \
                 export, or try again later",
                TOTAL >> 20
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_missing_until_it_is_dropped() {
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
}
