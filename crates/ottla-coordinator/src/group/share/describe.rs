//! ShareGroupDescribe: a group with its members and their assignments.
//! Source: `ShareGroup.asDescribedGroup`, `ShareGroupMember.asShareGroupDescribeMember`.

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_protocol::messages::share_group_describe_response::{
    Assignment, DescribedGroup, Member, TopicPartitions,
};

use super::group::ShareGroup;
use super::member::ShareGroupMember;
use crate::group::coordinator::GroupCoordinator;
use crate::group::modern::Assignor;
use crate::group::modern::assignors::SimpleAssignor;
use crate::group::refused::Refused;

impl GroupCoordinator {
    /// Describes the committed state of the group.
    pub fn describe_share_group(&self, group_id: &ByteString) -> DescribedGroup {
        match self.committed_group_of::<ShareGroup>(group_id) {
            Ok(group) => described(group, self.metadata.image()),
            Err(error) => DescribedGroup {
                group_id: group_id.clone(),
                ..Refused::refused(error)
            },
        }
    }
}

fn described(group: &ShareGroup, image: &MetadataImage) -> DescribedGroup {
    DescribedGroup {
        group_id: group.group_id.clone(),
        group_state: group.state_name().into(),
        group_epoch: group.group_epoch,
        assignment_epoch: group.target.epoch,
        assignor_name: SimpleAssignor.name().into(),
        members: group
            .members()
            .map(|member| described_member(member, image))
            .collect(),
        ..Default::default()
    }
}

fn described_member(member: &ShareGroupMember, image: &MetadataImage) -> Member {
    // Deleted topics are omitted.
    let topics = member
        .assigned
        .topics()
        .filter_map(|(topic_id, partitions)| {
            Some(TopicPartitions {
                topic_id,
                topic_name: image.topics.by_id(topic_id)?.name.clone(),
                partitions: partitions.iter().copied().collect(),
                ..Default::default()
            })
        });
    Member {
        member_id: member.member_id.clone(),
        rack_id: member.rack_id.clone(),
        member_epoch: member.member_epoch,
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        subscribed_topic_names: member.subscribed_topic_names.iter().cloned().collect(),
        assignment: Assignment {
            topic_partitions: topics.collect(),
            ..Default::default()
        },
        ..Default::default()
    }
}
