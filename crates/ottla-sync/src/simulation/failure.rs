//! Why a run failed.

use std::cell::Cell;
use std::fmt;
use std::panic::Location;
use std::sync::Once;

use super::hot::is_simulated;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// No thread can run, and no timer is pending.
    Deadlock(Vec<Waiting>),
    /// A thread or task of the product or of the test panicked.
    Panic { thread: String, message: String },
    /// The run exceeded its limit of switch points.
    StepLimit { steps: u64 },
}

/// A waiting thread or task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    pub thread: String,
    pub what: String,
    pub at: &'static Location<'static>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Deadlock(waiting) => {
                write!(f, "deadlock: no thread can run and no timer is pending")?;
                waiting.iter().try_for_each(|one| {
                    write!(f, "\n  {} waits at {} for {}", one.thread, one.at, one.what)
                })
            }
            Failure::Panic { thread, message } => write!(f, "{thread} {message}"),
            Failure::StepLimit { steps } => write!(f, "not ended after {steps} switch points"),
        }
    }
}

thread_local!(static LAST_PANIC: Cell<Option<String>> = const { Cell::new(None) });

/// Collects the panic messages of simulated threads instead of printing them: a search over seeds
/// has many.
pub(super) fn catch_panic_messages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| match is_simulated() {
            true => LAST_PANIC.set(Some(info.to_string())),
            false => before(info),
        }));
    });
}

pub(super) fn take_panic_message() -> String {
    LAST_PANIC.take().unwrap_or_else(|| "panicked".to_owned())
}
