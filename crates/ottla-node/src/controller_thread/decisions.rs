//! The decisions of the current leader epoch, and the requests that wait for their commit.

use std::collections::VecDeque;

use ottla_metadata::{MetadataDelta, MetadataLoader};
use ottla_types::Offset;

use crate::quorum::work::Reply;

/// The decisions of the epoch in which this node is leader.
pub struct Decisions {
    /// With all records of the log applied, committed or not.
    pub loader: MetadataLoader,
    /// With the records on disk applied, and their end offset. A full disk makes the controller go
    /// back to this.
    pub flushed: (MetadataLoader, Offset),
    /// The entries that wait for a commit, each with the log end offset that it needs, in order.
    pub pending: VecDeque<(Offset, Pending)>,
    pub bytes_unflushed: u64,
    pub is_unflushed: bool,
    /// Whether there are control records that are not on disk. The state machine relies on them, so
    /// they cannot be taken back.
    pub has_unflushed_control: bool,
    /// Whether requests may be decided.
    pub is_activated: bool,
    /// Whether the leader's first record is committed and nothing has been decided yet.
    pub is_activation_due: bool,
}

/// An entry that waits for a commit.
pub enum Pending {
    Delta(Box<MetadataDelta>),
    Reply(Reply),
    /// Everything of one flush, and its size in bytes.
    Flushed(Box<MetadataLoader>, u64),
}
