//! The history of client operations and their results.

/// A partition, identified by the number that the history assigns to it.
pub type Log = u32;

/// The value of a record; unique among all records sent.
pub type Value = u64;

/// A call of a process, or several calls in one transaction. The operations of a process do not
/// overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    pub process: u32,
    pub steps: Vec<Step>,
    pub outcome: Outcome,
    /// When the commit was requested, on the same clock as [`Step::Polled`]; `None` if it was not
    /// requested or there is no transaction.
    pub commit_asked_at: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// In the order in which the process sent them. The offset is `Some` if the send was
    /// acknowledged.
    Sent {
        log: Log,
        value: Value,
        offset: Option<i64>,
    },
    /// The records of one poll, and when it returned, in microseconds on a clock shared by all
    /// processes.
    Polled { at: u64, records: Vec<Seen> },
    /// The consumer was repositioned; the next record need not follow the previous one.
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
    /// The commit was acknowledged, or there was no transaction.
    Committed,
    /// No commit was requested, so none of it may become visible.
    Aborted,
    /// A commit was requested without a known result: all of it is visible or none.
    Unknown,
}
