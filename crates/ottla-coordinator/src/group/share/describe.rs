//! ShareGroupDescribe: a group with its members and what they have.
//! Source: `ShareGroup.asDescribedGroup`, `ShareGroupMember.asShareGroupDescribeMember`.

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_protocol::messages::share_group_describe_response::{
    Assignment, DescribedGroup, Member, TopicPartitions,
};
use ottla_types::ErrorCode;

use super::group::ShareGroup;
use super::member::ShareGroupMember;
use crate::group::coordinator::{Group, GroupCoordinator};
use crate::group::modern::Assignor;
use crate::group::modern::assignors::SimpleAssignor;

impl GroupCoordinator {
    /// The group as it is committed.
    pub fn describe_share_group(&self, group_id: &ByteString) -> DescribedGroup {
        let not_found = |message: String| DescribedGroup {
            group_id: group_id.clone(),
            error_code: ErrorCode::GroupIdNotFound.code(),
            error_message: Some(message.into()),
            ..Default::default()
        };
        match self.committed_group(group_id) {
            Some(Group::Share(group)) => described(group, self.metadata.image()),
            None => not_found(format!("Group {group_id} not found.")),
            _ => not_found(format!("Group {group_id} is not a share group.")),
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
    // Topics that are gone are left out.
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
