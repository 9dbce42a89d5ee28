//! What was decided in the epoch that this node leads, and who waits for it to be committed.

use std::collections::VecDeque;

use ottla_metadata::{MetadataDelta, MetadataLoader};
use ottla_types::Offset;

use crate::quorum::work::Reply;

/// What was decided in the epoch that this node leads.
pub struct Decisions {
    /// Everything that is in the log, committed or not.
    pub loader: MetadataLoader,
    /// What is on disk, and where that ends in the log: what is gone back to.
    pub flushed: (MetadataLoader, Offset),
    /// What waits to be committed, and up to where the log has to be for it, in order.
    pub pending: VecDeque<(Offset, Pending)>,
    pub bytes_unflushed: u64,
    pub is_unflushed: bool,
    /// The state machine counts on what is not on disk: it cannot be taken back.
    pub has_unflushed_control: bool,
    /// Requests may be decided.
    pub is_activated: bool,
    /// The first of its records is committed, and nothing was decided yet.
    pub is_activation_due: bool,
}

/// What waits to be committed.
pub enum Pending {
    Delta(Box<MetadataDelta>),
    Reply(Reply),
    /// All of a flush, and the bytes of it.
    Flushed(Box<MetadataLoader>, u64),
}
