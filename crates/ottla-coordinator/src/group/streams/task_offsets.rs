//! The offsets that members report for their tasks: how much state of each task their process has,
//! also of tasks that it had earlier. Not written to the log.
//! Source: `MemberTaskOffsets`, `StreamsGroup.updateTaskOffsets`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::streams_group_heartbeat_request::TaskOffset;
use ottla_types::ErrorCode;
use rpds::RedBlackTreeMapSync;

use super::configured_topology::ConfiguredSubtopology;
use super::group::StreamsGroup;
use crate::group::member::owned;
use crate::group::modern::GroupError;

/// By subtopology and partition.
pub(super) type TaskOffsets = BTreeMap<(ByteString, i32), i64>;

/// By member. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportedOffsets {
    members: RedBlackTreeMapSync<ByteString, Arc<TaskOffsets>>,
}

impl ReportedOffsets {
    pub(super) fn of(&self, member_id: &str) -> Option<&TaskOffsets> {
        self.members.get(member_id).map(Arc::as_ref)
    }

    /// Replaces the offsets of the member. Those of tasks that do not exist would only take memory.
    pub(super) fn put(
        &mut self,
        member_id: &ByteString,
        reported: &[TaskOffset],
        subtopologies: &BTreeMap<ByteString, ConfiguredSubtopology>,
    ) {
        let existing = reported.iter().filter(|task| {
            let subtopology = subtopologies.get(&task.subtopology_id);
            subtopology.is_some_and(|it| (0..it.number_of_tasks).contains(&task.partition))
        });
        let offsets: TaskOffsets = existing
            .map(|task| ((owned(&task.subtopology_id), task.partition), task.offset))
            .collect();
        self.members.insert_mut(owned(member_id), Arc::new(offsets));
    }

    pub(super) fn forget(&mut self, member_id: &str) {
        self.members.remove_mut(member_id);
    }

    /// Forgets members that were replaced.
    pub(super) fn keep_members_of(&mut self, group: &StreamsGroup) {
        let members = self.members.keys();
        let gone: Vec<ByteString> = members
            .filter(|member_id| !group.has_member(member_id))
            .cloned()
            .collect();
        for member_id in gone {
            self.forget(&member_id);
        }
    }
}

/// No task may be reported twice.
pub(super) fn check_reported(reported: Option<&[TaskOffset]>) -> Result<(), GroupError> {
    let mut seen = std::collections::HashSet::new();
    for task in reported.into_iter().flatten() {
        if !seen.insert((&task.subtopology_id, task.partition)) {
            return Err(GroupError::new(
                ErrorCode::InvalidRequest,
                format!(
                    "Task offsets contain a duplicate entry for subtopology {} and partition {}.",
                    task.subtopology_id, task.partition
                ),
            ));
        }
    }
    Ok(())
}
