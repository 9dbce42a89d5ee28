//! The stall trace: logs the operations that blocked a socket-serving thread for longer than a
//! threshold.
//!
//! It is off unless `ottla.trace.stalls.ms` (or `ottla server --trace-stalls`) sets a threshold.
//! When on, each potentially slow operation of a reactor thread is timed, and one above the
//! threshold is logged under the target `ottla::stalls` with its name, its subject and its
//! duration. When off, it costs one memory load per operation. The trace is global to the process,
//! because its threads are.
//!
//! Work that may be slow runs on other threads; code that runs it for a partition wraps it in
//! [`on_other_thread`].

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ottla_sync::Mutex;

/// Number of recent stalls that are kept for inspection.
const KEPT: usize = 128;

/// The threshold in microseconds; 0 if the trace is off.
static THRESHOLD_US: AtomicU64 = AtomicU64::new(0);
static LATEST: Mutex<VecDeque<Stall>> = Mutex::new(VecDeque::new());

thread_local! {
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
}

/// A stall.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stall {
    pub operation: &'static str,
    /// The partition or connection that the operation worked on.
    pub of: String,
    pub took: Duration,
}

/// Sets the threshold in milliseconds; 0 turns the trace off.
pub fn set_threshold_ms(ms: u64) {
    THRESHOLD_US.store(ms.saturating_mul(1000), Ordering::Relaxed);
}

/// Runs `work` on a thread that may block.
pub fn on_other_thread<R>(work: impl FnOnce() -> R) -> R {
    let before = MAY_BLOCK.replace(true);
    let result = work();
    MAY_BLOCK.set(before);
    result
}

/// An operation that is timed if the trace is on.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Watch(Option<Instant>);

#[inline]
pub fn watch() -> Watch {
    match THRESHOLD_US.load(Ordering::Relaxed) {
        0 => Watch(None),
        _ => Watch((!MAY_BLOCK.get()).then(ottla_sync::time::now)),
    }
}

impl Watch {
    /// Ends the operation.
    #[inline]
    pub fn end(self, operation: &'static str, of: &dyn Display) {
        if let Some(started) = self.0 {
            note(operation, of, ottla_sync::time::elapsed(started));
        }
    }
}

/// Maximum number of parts that a stall names.
const NAMED_PARTS: usize = 4;

/// An operation on several subjects in sequence that records which of them took the time.
#[must_use]
pub struct PartsWatch<'a> {
    whole: Watch,
    /// When the current part began.
    part_since: Option<Instant>,
    parts: usize,
    /// The slowest parts, slowest first.
    longest: [Option<(Duration, &'a dyn Display)>; NAMED_PARTS],
}

#[inline]
pub fn watch_parts<'a>() -> PartsWatch<'a> {
    let whole = watch();
    PartsWatch {
        whole,
        part_since: whole.0,
        parts: 0,
        longest: [None; NAMED_PARTS],
    }
}

impl<'a> PartsWatch<'a> {
    /// Ends the current part and begins the next.
    #[inline]
    pub fn end_part(&mut self, of: &'a dyn Display) {
        if let Some(since) = self.part_since {
            self.keep(since, of);
        }
    }

    fn keep(&mut self, since: Instant, of: &'a dyn Display) {
        let now = ottla_sync::time::now();
        self.part_since = Some(now);
        self.parts += 1;
        let took = now - since;
        let rank = |part: &Option<(Duration, _)>| part.is_none_or(|(other, _)| other < took);
        if let Some(place) = self.longest.iter().position(rank) {
            self.longest[place..].rotate_right(1);
            self.longest[place] = Some((took, of));
        }
    }

    #[inline]
    pub fn end(self, operation: &'static str) {
        if let Some(started) = self.whole.0 {
            note(operation, &self, ottla_sync::time::elapsed(started));
        }
    }
}

/// The slowest parts with their durations, without those that are negligible against the first, and
/// the number of parts.
impl Display for PartsWatch<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let longest = self.longest.iter().flatten();
        let most = longest.clone().next().map_or(Duration::ZERO, |part| part.0);
        for (index, (took, of)) in longest.filter(|part| part.0 * 10 >= most).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{of} {took:.1?}")?;
        }
        write!(f, " (of {})", self.parts)
    }
}

fn note(operation: &'static str, of: &dyn Display, took: Duration) {
    let threshold = Duration::from_micros(THRESHOLD_US.load(Ordering::Relaxed));
    if took < threshold || threshold.is_zero() {
        return;
    }
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or_default();
    tracing::warn!(target: "ottla::stalls", operation, %of, ?took, thread, "a network thread was blocked");
    let mut latest = LATEST.lock();
    if latest.len() == KEPT {
        latest.pop_front();
    }
    latest.push_back(Stall {
        operation,
        of: of.to_string(),
        took,
    });
}

/// The recent stalls, oldest first.
pub fn latest() -> Vec<Stall> {
    LATEST.lock().iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{NAMED_PARTS, latest, on_other_thread, set_threshold_ms, watch, watch_parts};

    const LONG: Duration = Duration::from_millis(120);

    fn slow(operation: &'static str) {
        let watched = watch();
        ottla_sync::thread::sleep(LONG);
        watched.end(operation, &"orders-3");
    }

    fn named(operation: &str, of: &str) -> Option<Duration> {
        let latest = latest().into_iter();
        let mut found = latest.filter(|stall| stall.operation == operation && stall.of == of);
        found.next().map(|stall| stall.took)
    }

    /// A single test, because the threshold is global to the process.
    #[test]
    fn slow_parts_are_named() {
        slow("test: off");
        assert_eq!(named("test: off", "orders-3"), None);

        set_threshold_ms(100);
        watch().end("test: quick", &"orders-3");
        assert_eq!(named("test: quick", "orders-3"), None);
        on_other_thread(|| slow("test: elsewhere"));
        assert_eq!(named("test: elsewhere", "orders-3"), None);
        slow("test: slow");
        assert!(named("test: slow", "orders-3").unwrap() >= LONG);

        let names: Vec<String> = (0..9).map(|number| format!("orders-{number}")).collect();
        for (slow, shown) in [
            (&[3, 7][..], &[7, 3][..]),
            (&[0, 1, 2, 4, 5, 8], &[8, 5, 4, 2]),
        ] {
            let mut watched = watch_parts();
            for (number, name) in names.iter().enumerate() {
                if slow.contains(&number) {
                    // They differ by more than a busy machine wakes a thread late.
                    ottla_sync::thread::sleep(LONG + Duration::from_millis(100 * number as u64));
                }
                watched.end_part(name);
            }
            watched.end("test: parts");
            let of = latest().pop().unwrap().of;
            let found: Vec<&str> = of.split_whitespace().step_by(2).collect();
            let mut expected: Vec<&str> = shown.iter().map(|number| &*names[*number]).collect();
            assert!(expected.len() <= NAMED_PARTS);
            expected.push("(of");
            assert_eq!(found, expected, "{of}");
            assert!(of.ends_with("(of 9)"), "{of}");
        }
        set_threshold_ms(0);
    }
}
