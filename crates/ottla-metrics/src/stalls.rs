//! The latency trace: names what kept a thread that serves sockets for longer than a given time.
//!
//! Off unless `ottla.trace.stalls.ms` (or `ottla server --trace-stalls`) gives a time; then each operation of
//! a reactor thread that may take long is timed, and one that did is logged under the target `ottla::stalls`
//! with the operation, what it was done to and how long it took. Off, it costs one load from memory for each
//! operation. It belongs to the process, as its threads do.
//!
//! Work that may take its time does so on other threads; those that run it for a partition say so with
//! [`on_other_thread`].

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ottla_sync::Mutex;

/// So many of the latest stalls are kept to be looked at.
const KEPT: usize = 128;

/// From here on something has stalled, in microseconds; 0 where nobody asked.
static THRESHOLD_US: AtomicU64 = AtomicU64::new(0);
static LATEST: Mutex<VecDeque<Stall>> = Mutex::new(VecDeque::new());

thread_local! {
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
}

/// What kept a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stall {
    pub operation: &'static str,
    /// The partition or connection.
    pub of: String,
    pub took: Duration,
}

/// 0 turns the trace off.
pub fn set_threshold_ms(ms: u64) {
    THRESHOLD_US.store(ms.saturating_mul(1000), Ordering::Relaxed);
}

/// Runs `work` on a thread that may take its time.
pub fn on_other_thread<R>(work: impl FnOnce() -> R) -> R {
    let before = MAY_BLOCK.replace(true);
    let result = work();
    MAY_BLOCK.set(before);
    result
}

/// An operation that is being timed, if anything is.
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
    /// The operation is over.
    #[inline]
    pub fn end(self, operation: &'static str, of: &dyn Display) {
        if let Some(started) = self.0 {
            note(operation, of, ottla_sync::time::elapsed(started));
        }
    }
}

/// So many parts of an operation are named.
const NAMED_PARTS: usize = 4;

/// An operation on several things, one after the other, that says over which of them it took its time.
#[must_use]
pub struct PartsWatch<'a> {
    whole: Watch,
    /// When the part under way began.
    part_since: Option<Instant>,
    parts: usize,
    /// The parts that took longest, longest first.
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
    /// The work on one of the things is over, and that on the next begins.
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

/// The parts that took longest, each with its time but for those of no account beside the first, and how many there are.
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
    tracing::warn!(target: "ottla::stalls", operation, %of, ?took, thread, "a thread that serves sockets was kept");
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

/// The latest stalls, oldest first.
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

    /// One test, since the threshold is one for all.
    #[test]
    fn what_takes_long_is_named() {
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
                    ottla_sync::thread::sleep(LONG + Duration::from_millis(20 * number as u64));
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
