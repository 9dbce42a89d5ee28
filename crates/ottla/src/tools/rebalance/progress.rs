//! The lines that `apply` prints while it works.

use std::time::{Duration, Instant};

use ottla_rebalance_apply::Count;

use super::quantities::{bytes, duration};

/// The minimum time between two lines.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Progress {
    started: Instant,
    moves: usize,
    bytes: u64,
    printed: Option<(Instant, String)>,
}

impl Progress {
    pub(super) fn new(moves: usize, bytes: u64) -> Progress {
        Progress {
            started: Instant::now(),
            moves,
            bytes,
            printed: None,
        }
    }

    /// Prints a line if something has changed. Elections alone take moments.
    pub(super) fn tell(&mut self, done: Count) {
        if self.moves == 0 {
            return;
        }
        let text = self.text(done);
        let is_news = self.printed.as_ref().is_none_or(|(at, before)| {
            *before != text && (at.elapsed() >= PAUSE || done.moving == 0)
        });
        if is_news {
            let elapsed = self.started.elapsed();
            println!(
                "{:>9}  {text}{}",
                duration(elapsed.as_secs()),
                self.left(done.bytes, elapsed)
            );
            self.printed = Some((Instant::now(), text));
        }
    }

    fn text(&self, done: Count) -> String {
        format!(
            "{} of {} replicas moved, {} of {}, {} moving",
            done.moves,
            self.moves,
            bytes(done.bytes.min(self.bytes)),
            bytes(self.bytes),
            done.moving
        )
    }

    /// At the pace so far.
    fn left(&self, done: u64, elapsed: Duration) -> String {
        let left = self.bytes.saturating_sub(done);
        if done == 0 || left == 0 || elapsed < PAUSE {
            return String::new();
        }
        let seconds = left as f64 * elapsed.as_secs_f64() / done as f64;
        format!(", about {} left", duration(seconds.ceil() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_follows_the_rate() {
        let progress = Progress::new(4, 4_000_000);
        let half_done = Count {
            moves: 1,
            bytes: 1_000_000,
            moving: 2,
        };
        assert_eq!(
            progress.text(half_done),
            "1 of 4 replicas moved, 1.0 MB of 4.0 MB, 2 moving"
        );
        assert_eq!(
            progress.left(1_000_000, Duration::from_secs(10)),
            ", about 30 s left"
        );
        assert_eq!(progress.left(0, Duration::from_secs(10)), "");
        assert_eq!(progress.left(4_000_000, Duration::from_secs(10)), "");
    }
}
