//! A limit on the bytes that uploads take from the disk in a second.

use std::time::{Duration, Instant};

use ottla_sync::{Mutex, time};

/// Shared by all uploads (`upload.rate.limit.bytes.per.second`).
pub struct RateLimit {
    bytes_per_second: u64,
    /// The time at which the bytes admitted so far are paid for.
    free_at: Mutex<Option<Instant>>,
}

impl RateLimit {
    pub fn new(bytes_per_second: u64) -> RateLimit {
        RateLimit {
            bytes_per_second: bytes_per_second.max(1),
            free_at: Mutex::new(None),
        }
    }

    /// Waits until these bytes may pass.
    pub async fn pass(&self, bytes: u64) {
        let now = time::now();
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let starts = {
            let mut free_at = self.free_at.lock();
            let starts = free_at.map_or(now, |free_at| free_at.max(now));
            *free_at = Some(starts + takes);
            starts
        };
        time::sleep_until(starts).await;
    }
}
