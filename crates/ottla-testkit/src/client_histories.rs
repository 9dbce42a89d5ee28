//! What clients did and were told, and what must hold of it, in the style of Jepsen's tests of Kafka: a pure check, operations
//! in, findings out.
//!
//! Processes send values, each once, and poll, in transactions and outside. In the end somebody reads each log from its
//! beginning to its end, so what nobody has polled by then is lost. `logs` looks at which value is where, and who saw it;
//! `orders` at what each process saw in a row; `skew` at transactions among each other. Two kinds of findings are not promised
//! to be absent by Kafka's transactions either ([`Kind::is_promised_absent`]): they are counted, beside Kafka's own number.
//!
//! `bin/client_histories.rs` makes such a history with real clients and a real cluster.

mod logs;
mod orders;
mod skew;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use logs::Logs;

/// A partition, by a number that the history gives it.
pub type Log = u32;
/// What a record says: no other record that is sent says the same.
pub type Value = u64;

/// A call of a process or several in one transaction: one after the other, and none beside another of the same process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    pub process: u32,
    pub steps: Vec<Step>,
    pub outcome: Outcome,
    /// When the producer was told to commit, in the clock of [`Step::Polled`]; nothing where it never was, or where there is
    /// no transaction.
    pub commit_asked_at: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// In the order in which a process handed them in; the offset is there if it was acknowledged.
    Sent {
        log: Log,
        value: Value,
        offset: Option<i64>,
    },
    /// What one poll gave, and when it had given it, in one clock of all processes.
    Polled { at: u64, records: Vec<Seen> },
    /// The consumer was put elsewhere: what it is given next need not follow on what it was given before.
    Sought { log: Log },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub log: Log,
    pub offset: i64,
    pub value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The commit was answered; or there was no transaction to end.
    Committed,
    /// It was never told to commit, so nobody may see anything of it.
    Aborted,
    /// It was told to commit, and no answer says whether it did: all of it or nothing.
    Unknown,
}

/// What can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One place of a log has had two values.
    TwoValuesAtOnePlace,
    /// One value is at two places.
    Duplicate,
    /// Somebody was given what nobody sent to that log.
    NeverSent,
    /// What was committed is nowhere.
    LostWrite,
    /// What was not committed was seen.
    AbortedRead,
    /// What was committed later was seen before anybody asked for that.
    EarlyRead,
    /// One part of a transaction came to be, and another did not.
    TornTransaction,
    /// A consumer was given a record again, or an earlier one.
    NonMonotonicPoll,
    /// A consumer was not given what others were given from between two of its records.
    PollSkip,
    /// A producer's later record has an earlier place.
    NonMonotonicSend,
    /// Transactions wrote around each other: each before another of them, in one log or the next.
    WriteSkew,
    /// A transaction read a part of another one, and afterwards not yet its other part.
    ReadSkew,
}

impl Kind {
    /// Transactions of Kafka keep nobody from writing between their records, and their markers reach one log after the other.
    pub fn is_promised_absent(self) -> bool {
        !matches!(self, Kind::WriteSkew | Kind::ReadSkew)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::TwoValuesAtOnePlace => "two values at one place",
            Kind::Duplicate => "duplicate",
            Kind::NeverSent => "never sent",
            Kind::LostWrite => "lost write",
            Kind::AbortedRead => "aborted read",
            Kind::EarlyRead => "early read",
            Kind::TornTransaction => "torn transaction",
            Kind::NonMonotonicPoll => "non-monotonic poll",
            Kind::PollSkip => "poll skip",
            Kind::NonMonotonicSend => "non-monotonic send",
            Kind::WriteSkew => "write skew",
            Kind::ReadSkew => "read skew",
        })
    }
}

/// What was found, by kind: a sentence each.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings(BTreeMap<Kind, Vec<String>>);

impl Findings {
    fn add(&mut self, kind: Kind, sentence: String) {
        self.0.entry(kind).or_default().push(sentence);
    }

    pub fn iter(&self) -> impl Iterator<Item = (Kind, &[String])> {
        self.0
            .iter()
            .map(|(kind, sentences)| (*kind, sentences.as_slice()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Checks a history: the operations of each process in the order in which it began them.
pub fn check(history: &[Operation]) -> Findings {
    let mut findings = Findings::default();
    let logs = Logs::of(history);
    logs.check(history, &mut findings);
    orders::check(history, &logs, &mut findings);
    skew::check(history, &logs, &mut findings);
    findings
}
