//! Idle ratio of the threads that serve sockets and requests.

use std::time::{Duration, Instant};

use ottla_sync::Mutex;

/// The share of time that the runtime's worker threads were idle between the last two samples.
#[derive(Debug, Default)]
pub struct WorkerIdle(Mutex<Looks>);

#[derive(Debug, Default)]
struct Looks {
    last: Option<(Instant, Duration)>,
    ratio: Option<f64>,
}

impl WorkerIdle {
    /// Between 0 and 1; `None` before the second sample.
    pub fn ratio(&self) -> Option<f64> {
        self.0.lock().ratio
    }

    /// Takes a sample. A task of the runtime calls this periodically.
    pub fn look(&self) {
        let Some((workers, busy)) = ottla_sync::task::worker_busy_time() else {
            return;
        };
        self.on_looked(ottla_sync::time::now(), busy, workers);
    }

    fn on_looked(&self, now: Instant, busy: Duration, workers: usize) {
        let mut looks = self.0.lock();
        if let Some((before, busy_before)) = looks.last.replace((now, busy)) {
            let time = now.duration_since(before).as_secs_f64() * workers as f64;
            let busy = busy.saturating_sub(busy_before).as_secs_f64();
            looks.ratio = (time > 0.0).then(|| (1.0 - busy / time).clamp(0.0, 1.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_the_time_not_busy_since_the_last_sample() {
        let idle = WorkerIdle::default();
        let start = ottla_sync::time::now();
        idle.on_looked(start, Duration::from_secs(100), 2);
        assert_eq!(idle.ratio(), None);
        idle.on_looked(start + Duration::from_secs(10), Duration::from_secs(105), 2);
        assert_eq!(idle.ratio(), Some(0.75));
    }
}
