//! Bounds the number of log lines that clients can cause in a period: for each client or partition,
//! so that one client in a loop does not hide the others, and in total, so that many clients do not
//! fill the disk.

use std::hash::{BuildHasher, Hash};
use std::time::{Duration, Instant};

use ottla_sync::Mutex;
use ottla_sync::collections::HashMap;

/// The period of [`LimitedLines`].
const PERIOD: Duration = Duration::from_secs(60);
/// The maximum number of clients that are distinguished within a period. Further clients share one
/// count.
const CLIENTS: usize = 1000;

/// Lets a limited number of log lines through in each minute, and logs how many were left out.
#[derive(Debug)]
pub struct LimitedLines {
    /// What the lines are about, in the plural: `failed logins`.
    what: &'static str,
    since: Instant,
    lines: Mutex<LineLimit>,
}

impl LimitedLines {
    /// `of_one` and `of_all` as in [`LineLimit::new`].
    pub fn new(what: &'static str, of_one: u64, of_all: u64) -> LimitedLines {
        LimitedLines {
            what,
            since: ottla_sync::time::now(),
            lines: Mutex::new(LineLimit::new(of_one, of_all)),
        }
    }

    /// Runs `line`, which logs something about `of`, unless the limit is reached.
    pub fn say(&self, of: impl Hash, line: impl FnOnce()) {
        let period = ottla_sync::time::elapsed(self.since).as_secs() / PERIOD.as_secs();
        let (has_room, left_out) = self.lines.lock().count(period, of);
        if left_out > 0 {
            tracing::info!("{left_out} more {} were not logged", self.what);
        }
        if has_room {
            line();
        }
    }
}

/// The lines of the current period.
#[derive(Debug)]
pub struct LineLimit {
    /// The maximum number of lines of one client.
    of_one: u64,
    /// The maximum number of lines in total.
    of_all: u64,
    period: u64,
    /// By the hash of the client.
    by_client: HashMap<u64, u64>,
    written: u64,
    left_out: u64,
}

impl LineLimit {
    /// The maximum number of lines of one client, and in total.
    pub fn new(of_one: u64, of_all: u64) -> LineLimit {
        LineLimit {
            of_one,
            of_all,
            period: 0,
            by_client: HashMap::default(),
            written: 0,
            left_out: 0,
        }
    }

    /// Counts a line. Returns whether it may be written, and how many were left out in the previous
    /// period.
    pub fn count(&mut self, period: u64, client: impl Hash) -> (bool, u64) {
        let mut left_out = 0;
        if period != self.period {
            left_out = self.left_out;
            *self = LineLimit {
                period,
                ..LineLimit::new(self.of_one, self.of_all)
            };
        }
        let mut key = self.by_client.hasher().hash_one(client);
        if self.by_client.len() >= CLIENTS && !self.by_client.contains_key(&key) {
            key = 0;
        }
        let of_client = self.by_client.entry(key).or_default();
        *of_client += 1;
        let has_room = *of_client <= self.of_one && self.written < self.of_all;
        match has_room {
            true => self.written += 1,
            false => self.left_out += 1,
        }
        (has_room, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_each_are_logged_up_to_a_limit() {
        let lines = LimitedLines::new("failed reads", 1, 3);
        let mut logged = Vec::new();
        for partition in 0..5 {
            for _ in 0..1000 {
                lines.say(partition, || logged.push(partition));
            }
        }
        assert_eq!(logged, [0, 1, 2]);
    }

    #[test]
    fn a_client_in_a_loop_does_not_hide_others() {
        let mut lines = LineLimit::new(10, 200);
        let mut written = |period, client: &str| {
            let counted = (0..500).filter(|_| lines.count(period, client).0);
            counted.count()
        };
        assert_eq!(written(0, "one"), 10);
        assert_eq!(written(0, "other"), 10);
        assert_eq!(written(1, "one"), 10);
    }

    #[test]
    fn many_clients_share_one_limit() {
        let mut lines = LineLimit::new(10, 200);
        let mut count = |period| {
            let counted = (0..5000).map(|client: u32| lines.count(period, client));
            counted.fold((0, 0), |(written, left_out), (has_room, before)| {
                (written + u64::from(has_room), left_out + before)
            })
        };
        assert_eq!(count(0), (200, 0));
        assert_eq!(count(1), (200, 5000 - 200));
        assert!(lines.by_client.len() <= CLIENTS + 1);
    }
}
