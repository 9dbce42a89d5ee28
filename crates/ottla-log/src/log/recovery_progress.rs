//! Progress of the recovery of logs.

use ottla_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Progress of one thread that recovers one log after the other. Other threads may read it.
#[derive(Default, Debug)]
pub struct RecoveryProgress {
    remaining_segments: AtomicUsize,
    recovered_bytes: AtomicU64,
}

impl RecoveryProgress {
    /// Segments of the current log that are still to be scanned. Kafka:
    /// `remainingSegmentsToRecover`.
    pub fn remaining_segments(&self) -> usize {
        self.remaining_segments.load(Ordering::Relaxed)
    }

    /// Bytes scanned, over all logs.
    pub fn recovered_bytes(&self) -> u64 {
        self.recovered_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn set_remaining_segments(&self, segments: usize) {
        self.remaining_segments.store(segments, Ordering::Relaxed);
    }

    pub(super) fn on_segment(&self, bytes: u64) {
        self.remaining_segments.fetch_sub(1, Ordering::Relaxed);
        self.recovered_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
