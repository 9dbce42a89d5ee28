//! Applies records to a streams group. This is the only way in which its state changes, both for
//! decisions and for loading.
//!
//! Source: the `replay` methods of `GroupMetadataManager`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::coordinator_records::streams_group_target_assignment_member_value::TaskIds;
use ottla_protocol::coordinator_records::{GroupRecordKey, GroupRecordValue};
use ottla_types::Timestamp;

use super::group::StreamsGroup;
use super::member::StreamsGroupMember;
use super::tasks::{self, Tasks, TasksTuple};
use super::topology::StreamsTopology;
use crate::group::member::owned;
use crate::group::recorded::{RecordedGroup, apply_record};

impl RecordedGroup for StreamsGroup {
    type Member = StreamsGroupMember;

    const KIND: &'static str = "streams";
    const CAPITALIZED_KIND: &'static str = "Streams";

    fn new(group_id: ByteString) -> Self {
        StreamsGroup::new(group_id)
    }

    fn apply(&mut self, key: &GroupRecordKey, value: Option<&GroupRecordValue>, _now: Timestamp) {
        use GroupRecordKey as Key;
        use GroupRecordValue as Value;
        apply_record! {
            self, key, value;
            member: StreamsGroupMemberMetadata,
            current: StreamsGroupCurrentMemberAssignment,
            target: StreamsGroupTargetAssignmentMember(value) => TasksTuple {
                active: tasks_of(&value.active_tasks),
                standby: tasks_of(&value.standby_tasks),
                warmup: tasks_of(&value.warmup_tasks),
            },
            target_metadata: StreamsGroupTargetAssignmentMetadata;
            (Key::StreamsGroupMetadata(_), Some(Value::StreamsGroupMetadata(value))) => {
                self.group_epoch = value.epoch;
                self.metadata_hash = value.metadata_hash;
                self.validated_topology_epoch = value.validated_topology_epoch;
                let configs = value.last_assignment_configs.iter().flatten();
                self.last_assignment_configs = configs
                    .map(|config| (owned(&config.key), owned(&config.value)))
                    .collect();
            }
            (Key::StreamsGroupTopology(_), Some(Value::StreamsGroupTopology(value))) => {
                self.topology = StreamsTopology::from_record(value).map(Arc::new);
            }
            (Key::StreamsGroupTopology(_), None) => self.topology = None,
        }
    }
}

fn tasks_of(task_ids: &[TaskIds]) -> Tasks {
    let mut of_subtopologies = Tasks::new();
    for task_ids in task_ids {
        let subtopology_id = owned(&task_ids.subtopology_id);
        for partition in &task_ids.partitions {
            tasks::insert(&mut of_subtopologies, &subtopology_id, *partition);
        }
    }
    of_subtopologies
}
