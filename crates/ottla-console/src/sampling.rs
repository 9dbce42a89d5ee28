//! What the views of all sessions sample with: the room for their series, which they share, and the
//! latencies of the broker beside the console.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::latencies::BrokerLatencies;

/// Series of all sessions together, of about 6.5 kB each.
const SERIES: usize = 8000;

#[derive(Clone)]
pub(crate) struct Sampling {
    room: Arc<Semaphore>,
    pub(crate) latencies: Option<BrokerLatencies>,
}

/// The room of one series, until it is dropped.
pub(crate) type SeriesRoom = OwnedSemaphorePermit;

impl Sampling {
    pub(crate) fn new(latencies: Option<BrokerLatencies>) -> Sampling {
        Sampling {
            room: Arc::new(Semaphore::new(SERIES)),
            latencies,
        }
    }

    /// Room for one more series. `None` if all sessions together have as many as there may be.
    pub(crate) fn room(&self) -> Option<SeriesRoom> {
        self.room.clone().try_acquire_owned().ok()
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
}
