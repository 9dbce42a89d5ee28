//! What clients did and were told.

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
