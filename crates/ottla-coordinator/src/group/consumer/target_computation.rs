//! The computation of a target assignment from a snapshot of a group, without a coordinator.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_metadata::MetadataImage;

use super::group::ConsumerGroup;
use crate::group::modern::{Assignment, Assignor, AssignorError, GroupSpec, MemberSpec};

/// The members whose assignment changes.
pub(super) type Changes = Vec<(ByteString, Arc<Assignment>)>;

/// Identifies an order, as long as the coordinator is loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetOrder {
    pub(super) group_id: ByteString,
    pub(super) number: u64,
}

/// A target assignment to be computed.
#[derive(Clone)]
pub struct ComputeTarget {
    pub(super) number: u64,
    pub(super) snapshot: ConsumerGroup,
    pub(super) image: Arc<MetadataImage>,
    pub(super) assignor: &'static dyn Assignor,
}

/// Its result, for `GroupCoordinator::on_target_computed`. To be dropped without a lock: the last
/// reference to a large group may be in it.
pub struct ComputedTarget {
    pub(super) order: TargetOrder,
    pub(super) snapshot: ConsumerGroup,
    pub(super) changes: Result<Changes, AssignorError>,
}

impl ComputeTarget {
    pub fn order(&self) -> TargetOrder {
        TargetOrder {
            group_id: self.snapshot.group_id.clone(),
            number: self.number,
        }
    }

    /// Can take long. Needs no coordinator.
    pub fn compute(self) -> ComputedTarget {
        let changes = self.changes();
        ComputedTarget {
            order: self.order(),
            snapshot: self.snapshot,
            changes,
        }
    }

    /// The target of each member whose target is another than before.
    pub(super) fn changes(&self) -> Result<Changes, AssignorError> {
        let (group, image) = (&self.snapshot, &self.image);
        let members: BTreeMap<ByteString, MemberSpec<'_>> = group
            .members()
            .map(|member| {
                let spec = MemberSpec::new(
                    member.instance_id.as_ref(),
                    member.rack_id.as_ref(),
                    member.subscription(group.matches_of(member)),
                    group.target.of(&member.member_id),
                    image,
                );
                (member.member_id.clone(), spec)
            })
            .collect();
        let spec = GroupSpec {
            members,
            subscription_type: group.subscription_type(),
            image,
            assignable: None,
        };
        group.target.changes(self.assignor, &spec)
    }

    /// The group and the epoch of the target.
    #[cfg(test)]
    pub(in crate::group) fn subject(&self) -> (&ByteString, i32) {
        (&self.snapshot.group_id, self.snapshot.group_epoch)
    }
}

impl fmt::Debug for ComputeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (group_id, epoch) = (&self.snapshot.group_id, self.snapshot.group_epoch);
        write!(f, "ComputeTarget({group_id} in epoch {epoch})")
    }
}
