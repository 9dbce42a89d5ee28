//! Groups of the types that are not served, which are share groups where clients are not offered them, as far as their
//! records in the log tell that they exist.
//!
//! A directory taken over from Kafka may hold them. Their records stay in the log untouched; here only
//! their ids are kept, so that a classic group never takes the id, and so that their offsets are
//! neither expired nor handed to the rules of classic groups.

use std::collections::HashMap;

use bytestring::ByteString;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ForeignGroupType {
    Share,
}

impl ForeignGroupType {
    /// Kafka's name, as ListGroups gives it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ForeignGroupType::Share => "share",
        }
    }

    /// The protocol type that ListGroups gives for such a group.
    pub(crate) fn protocol_type(self) -> &'static str {
        match self {
            ForeignGroupType::Share => "share",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct ForeignGroups {
    by_id: HashMap<ByteString, ForeignGroupType>,
}

impl ForeignGroups {
    pub(crate) fn insert(&mut self, group_id: ByteString, group_type: ForeignGroupType) {
        self.by_id.insert(group_id, group_type);
    }

    pub(crate) fn remove(&mut self, group_id: &str) {
        self.by_id.remove(group_id);
    }

    pub(crate) fn contains(&self, group_id: &str) -> bool {
        self.by_id.contains_key(group_id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ByteString, ForeignGroupType)> {
        self.by_id
            .iter()
            .map(|(group_id, group_type)| (group_id, *group_type))
    }
}
