//! What clients did and were told, and what must hold of it, in the style of Jepsen's tests of Kafka: a pure check, operations
//! in, findings out.
//!
//! Processes send values, each once, and poll, in transactions and outside. In the end somebody reads each log from its
//! beginning to its end, so what nobody has polled by then is lost. `logs` looks at which value is where, and who saw it;
//! `orders` at what each process saw in a row; `skew` at transactions among each other. Two kinds of findings are not promised
//! to be absent by Kafka's transactions either ([`Kind::is_promised_absent`]): they are counted, beside Kafka's own number.
//!
//! `workload` makes such a history; `bin/client_histories.rs` has it made on a real cluster.

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

/// Checks a history: the operations of each process in the order in which it began them.
pub fn check(history: &[Operation]) -> Findings {
    let mut findings = Findings::default();
    let logs = Logs::of(history);
    logs.check(history, &mut findings);
    orders::check(history, &logs, &mut findings);
    skew::check(history, &logs, &mut findings);
    findings
}
