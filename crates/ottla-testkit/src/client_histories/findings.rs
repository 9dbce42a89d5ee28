//! Anomalies found in a history.

use std::collections::BTreeMap;
use std::fmt;

/// The kind of an anomaly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An offset of a log had two different values.
    TwoValuesAtOnePlace,
    /// A value has two offsets.
    Duplicate,
    /// A consumer received a value that was never sent to that log.
    NeverSent,
    /// A committed value is missing.
    LostWrite,
    /// An uncommitted value was read.
    AbortedRead,
    /// A value was read before its producer asked to commit it.
    EarlyRead,
    /// Part of a transaction is visible, another part is not.
    TornTransaction,
    /// A consumer received a record again, or an earlier one.
    NonMonotonicPoll,
    /// A consumer skipped a record between two others, although other consumers received it.
    PollSkip,
    /// A producer's later record has a lower offset.
    NonMonotonicSend,
    /// A cycle of transactions in which each wrote before the next, in the same log or in different
    /// ones.
    WriteSkew,
    /// A transaction read part of another transaction, and later in the operation missed the other
    /// part.
    ReadSkew,
}

impl Kind {
    /// Kafka's transactions have no write isolation, and their markers reach one log after the
    /// other.
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

/// The findings by kind, one sentence each.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings(BTreeMap<Kind, Vec<String>>);

impl Findings {
    pub(super) fn add(&mut self, kind: Kind, sentence: String) {
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
