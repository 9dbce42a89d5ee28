//! The progress of a run on the terminal: one line with rate, p99 and remaining time, and messages
//! above it.

use std::io::Write as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::scenario::quantities::{shown_count, shown_duration};

/// The progress line; not drawn if standard error is not a terminal.
pub struct Progress {
    bar: ProgressBar,
    rounds: Mutex<Rounds>,
    is_quiet: bool,
    /// When the line was last printed, if it is printed and not drawn.
    printed: Option<Mutex<Option<Instant>>>,
}

/// Before each printed progress line.
const MARK: &str = "progress: ";
/// At least between two of them.
const PRINT_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Rounds {
    all: u32,
    done: u32,
    began: Option<Instant>,
}

/// The values shown in the progress line.
#[derive(Clone, Copy, Default, Debug)]
pub struct Moment {
    pub records_per_second: f64,
    pub p99_ms: Option<f64>,
    /// Remaining time of this round.
    pub left: Option<Duration>,
}

impl Progress {
    pub fn on_terminal() -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        let style = ProgressStyle::with_template("{spinner} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress {
            bar,
            rounds: Mutex::default(),
            is_quiet: false,
            printed: None,
        }
    }

    /// Prints the progress line on standard error from time to time, for a program that reads it.
    pub fn in_lines() -> Progress {
        Progress {
            bar: ProgressBar::hidden(),
            rounds: Mutex::default(),
            is_quiet: false,
            printed: Some(Mutex::default()),
        }
    }

    /// Shows nothing.
    pub fn quiet() -> Progress {
        Progress {
            bar: ProgressBar::hidden(),
            rounds: Mutex::default(),
            is_quiet: true,
            printed: None,
        }
    }

    /// Prints a text above the line, on standard output.
    pub fn print(&self, text: &str) {
        if !self.is_quiet {
            // A run continues, or cleans up, even if its output is closed.
            let _ = self.bar.suspend(|| writeln!(std::io::stdout(), "{text}"));
        }
    }

    pub fn say(&self, what: &str) {
        self.draw(what.to_owned());
    }

    fn draw(&self, line: String) {
        if let Some(printed) = &self.printed {
            let mut last = printed.lock().expect("no thread panics with the lock");
            if is_due(*last, Instant::now()) {
                *last = Some(Instant::now());
                let _ = writeln!(std::io::stderr(), "{MARK}{line}");
            }
        }
        self.bar.set_message(line);
    }

    pub(super) fn expect_rounds(&self, all: u32) {
        let mut rounds = self.rounds.lock().expect("no thread panics with the lock");
        rounds.all = all;
        rounds.began = Some(Instant::now());
    }

    pub(super) fn round_done(&self) {
        self.rounds
            .lock()
            .expect("no thread panics with the lock")
            .done += 1;
    }

    pub(super) fn show(&self, title: &str, moment: Moment) {
        let rounds = self.rounds.lock().expect("no thread panics with the lock");
        self.draw(line(title, moment, rounds.left()));
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn is_due(last: Option<Instant>, now: Instant) -> bool {
    last.is_none_or(|last| now.duration_since(last) >= PRINT_EVERY)
}

/// The figures come first, because a narrow terminal cuts off the end.
fn line(title: &str, moment: Moment, all_left: Option<Duration>) -> String {
    let mut line = format!("{} rec/s", shown_count(moment.records_per_second));
    if let Some(p99) = moment.p99_ms {
        line.push_str(&format!(", p99 {p99:.1} ms"));
    }
    if let Some(left) = moment.left {
        line.push_str(&format!(", {} left", shown_duration(left)));
    }
    if let Some(all_left) = all_left {
        line.push_str(&format!(" ({} of all)", shown_duration(all_left)));
    }
    format!("{line} · {title}")
}

impl Rounds {
    /// Estimated from the duration of the earlier rounds.
    fn left(&self) -> Option<Duration> {
        let elapsed = self.began?.elapsed();
        (self.done > 0).then(|| elapsed / self.done * self.all.saturating_sub(self.done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_rate_p99_and_remaining_time() {
        let moment = Moment {
            records_per_second: 248_060.4,
            p99_ms: Some(3.44),
            left: Some(Duration::from_secs(18)),
        };
        assert_eq!(
            line("x, round 2 of 3", moment, Some(Duration::from_secs(90))),
            "248,060 rec/s, p99 3.4 ms, 18 s left (1 min 30 s of all) · x, round 2 of 3"
        );
        assert_eq!(line("x", Moment::default(), None), "0 rec/s · x");
    }

    #[test]
    fn a_printed_line_is_not_repeated_at_once() {
        let now = Instant::now();
        assert!(is_due(None, now));
        assert!(!is_due(Some(now), now + PRINT_EVERY / 2));
        assert!(is_due(Some(now), now + PRINT_EVERY));
    }
}
