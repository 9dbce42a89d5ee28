//! What the coordinator knows of a streams group and does not write down.
//!
//! It is not taken back with a write that fails, and a coordinator that takes over begins without it. A group that is made
//! by a heartbeat keeps nothing of it from that heartbeat but the delay.
//! Source: the fields of `StreamsGroup` that no record sets; `GroupMetadataManager.streamsInitialRebalanceKey`.

use std::collections::HashMap;
use std::sync::Arc;

use bytestring::ByteString;

use super::configured_topology::ConfiguredTopology;

#[derive(Clone, Debug, Default)]
pub(super) struct Unwritten {
    /// As configured last. Made anew when the topics' hash changes, or if there is none.
    pub(super) configured: Option<Arc<ConfiguredTopology>>,
    /// The member that wants the whole application to stop. Every member is told until all have left.
    pub(super) shutdown_requested_by: Option<ByteString>,
    /// Grows when tasks change of members that others can be sent to. Members say which they know.
    pub(super) endpoint_information_epoch: i32,
    /// The timer of the first assignment runs, so that more members can join before it.
    pub(super) delays_assignment: bool,
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

    /// The group is gone.
    pub(in crate::group) fn forget(&mut self, group_id: &str) {
        self.states.remove(group_id);
    }
}
