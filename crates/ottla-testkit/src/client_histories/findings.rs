//! What is wrong with a history.

use std::collections::BTreeMap;
use std::fmt;

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
