//! Checks histories of client operations, in the style of Jepsen's tests of Kafka. The check is
//! pure: operations in, findings out.
//!
//! Processes send values, each value once, and poll, inside and outside transactions. At the end,
//! readers read each log completely, so a value that no process has polled by then is lost. `logs`
//! checks which value is at which offset and which processes saw it, `orders` the sequence that
//! each process saw, and `skew` how transactions interleave. Two kinds of anomalies are not ruled
//! out by Kafka's transactions ([`Kind::is_promised_absent`]); they are counted and compared with
//! Kafka's count.
//!
//! `workload` generates such a history; `bin/client_histories.rs` runs it on a real cluster.

mod findings;
mod history;
mod logs;
mod orders;
mod skew;
#[cfg(test)]
mod tests;
#[cfg(feature = "client-histories")]
pub mod workload;

use logs::Logs;

pub use findings::{Findings, Kind};
pub use history::{Log, Operation, Outcome, Seen, Step, Value};

/// Checks a history, which lists the operations of each process in the order in which it began
/// them.
pub fn check(history: &[Operation]) -> Findings {
    let mut findings = Findings::default();
    let logs = Logs::of(history);
    logs.check(history, &mut findings);
    orders::check(history, &logs, &mut findings);
    skew::check(history, &logs, &mut findings);
    findings
}
