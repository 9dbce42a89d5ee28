//! The target assignment: the last result of the assignor. Cheap to clone.
//!
//! Source: `ModernGroup.targetAssignment`, `TargetAssignmentMetadata`, `TargetAssignmentBuilder`.

use std::sync::Arc;

use bytestring::ByteString;
use rpds::RedBlackTreeMapSync;

use super::Assignment;
use super::assignor::{Assignor, AssignorError, GroupSpec};

/// The epoch after a tombstone of the assignment.
const NO_EPOCH: i32 = -1;

/// `A` is the assignment of one member.
#[derive(Clone, PartialEq, Debug)]
pub struct TargetAssignment<A = Assignment> {
    /// The group epoch for which it was computed.
    pub epoch: i32,
    /// When it was computed; 0 if that is not known.
    pub timestamp_ms: i64,
    members: RedBlackTreeMapSync<ByteString, Arc<A>>,
}

impl<A> Default for TargetAssignment<A> {
    /// The assignment of a new group, whose epoch starts at 1 as well.
    fn default() -> Self {
        TargetAssignment {
            epoch: 1,
            timestamp_ms: 0,
            members: RedBlackTreeMapSync::new_sync(),
        }
    }
}

impl<A> TargetAssignment<A> {
    pub fn of(&self, member_id: &str) -> Option<&Arc<A>> {
        self.members.get(member_id)
    }

    /// In the order of the members' ids.
    pub fn iter(&self) -> impl Iterator<Item = (&ByteString, &Arc<A>)> {
        self.members.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn set(&mut self, member_id: ByteString, assignment: Arc<A>) {
        self.members.insert_mut(member_id, assignment);
    }

    pub fn remove(&mut self, member_id: &str) {
        self.members.remove_mut(member_id);
    }

    pub fn set_metadata(&mut self, epoch: i32, timestamp_ms: i64) {
        self.epoch = epoch;
        self.timestamp_ms = timestamp_ms;
    }

    pub fn clear_metadata(&mut self) {
        self.set_metadata(NO_EPOCH, 0);
    }
}

impl TargetAssignment {
    /// Computes a new assignment with `assignor`. Returns the differences from this one for the
    /// members of `spec`. A member without an earlier assignment is included even if it gets
    /// nothing.
    pub fn changes(
        &self,
        assignor: &dyn Assignor,
        spec: &GroupSpec<'_>,
    ) -> Result<Vec<(ByteString, Arc<Assignment>)>, AssignorError> {
        let mut assigned = assignor.assign(spec)?;
        let mut changes = Vec::new();
        for member_id in spec.members.keys() {
            let assignment = assigned.remove(member_id).unwrap_or_default();
            if self.of(member_id) != Some(&assignment) {
                changes.push((member_id.clone(), assignment));
            }
        }
        Ok(changes)
    }
}

/// Whether a group that was assigned at `assigned_at_ms` can be assigned again. With an interval of
/// 0 it always can, which helps after the clock has gone back a long way.
pub fn may_assign_now(assigned_at_ms: i64, interval_ms: i32, now_ms: i64) -> bool {
    assigned_at_ms == 0
        || interval_ms == 0
        || now_ms >= assigned_at_ms.saturating_add(i64::from(interval_ms))
}

#[cfg(test)]
mod tests {
    use super::may_assign_now;

    #[test]
    fn assignments_keep_their_distance() {
        assert!(may_assign_now(0, 1_000, 5));
        assert!(may_assign_now(10_000, 0, 5));
        assert!(!may_assign_now(10_000, 1_000, 10_999));
        assert!(may_assign_now(10_000, 1_000, 11_000));
        assert!(!may_assign_now(i64::MAX, 1_000, 11_000));
    }
}
