//! State of a streams group that is not written to the log.
//!
//! It is not rolled back when a write fails, and a new coordinator starts without it. After the
//! heartbeat that creates a group, only the delay is kept. Source: the fields of `StreamsGroup`
//! that no record sets; `GroupMetadataManager.streamsInitialRebalanceKey`.

use std::collections::HashMap;
use std::sync::Arc;

use bytestring::ByteString;

use super::configured_topology::ConfiguredTopology;
use super::task_offsets::ReportedOffsets;

#[derive(Clone, Debug, Default)]
pub(super) struct Unwritten {
    /// The last configured topology. Computed again if the hash of the topics changes, or if there
    /// is none.
    pub(super) configured: Option<Arc<ConfiguredTopology>>,
    /// The member that requested a shutdown of the whole application. Every member receives that
    /// until all have left.
    pub(super) shutdown_requested_by: Option<ByteString>,
    /// Raised when tasks of members with an endpoint change. Members send the epoch that they know.
    pub(super) endpoint_information_epoch: i32,
    /// Whether the timer of the initial delay runs, during which more members can join.
    pub(super) delays_assignment: bool,
    pub(super) task_offsets: ReportedOffsets,
}

/// By group id.
#[derive(Debug, Default)]
pub(in crate::group) struct UnwrittenStates {
    states: HashMap<ByteString, Unwritten>,
}

impl UnwrittenStates {
    pub(super) fn get(&self, group_id: &str) -> Option<&Unwritten> {
        self.states.get(group_id)
    }

    pub(super) fn get_mut(&mut self, group_id: &str) -> Option<&mut Unwritten> {
        self.states.get_mut(group_id)
    }

    pub(super) fn of(&mut self, group_id: &ByteString) -> &mut Unwritten {
        self.states.entry(group_id.clone()).or_default()
    }

    pub(super) fn put(&mut self, group_id: ByteString, unwritten: Unwritten) {
        self.states.insert(group_id, unwritten);
    }

    /// The group was deleted.
    pub(in crate::group) fn forget(&mut self, group_id: &str) {
        self.states.remove(group_id);
    }
}
