//! ConsumerGroupDescribe: a group and its members, with their current and target assignments.
//! Source: `ConsumerGroup.asDescribedGroup`, `ConsumerGroupMember.asConsumerGroupDescribeMember`.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_protocol::messages::consumer_group_describe_response::{
    Assignment, DescribedGroup, Member, TopicPartitions,
};
use ottla_types::TopicId;

use super::group::ConsumerGroup;
use super::member::ConsumerGroupMember;
use crate::group::coordinator::GroupCoordinator;
use crate::group::refused::Refused;

/// `Member.MemberType`.
const CLASSIC_MEMBER: i8 = 0;
const CONSUMER_MEMBER: i8 = 1;

impl GroupCoordinator {
    /// Describes the committed state of the group.
    pub fn describe_consumer_group(&self, group_id: &ByteString) -> DescribedGroup {
        match self.committed_group_of::<ConsumerGroup>(group_id) {
            Ok(group) => described(
                group,
                self.config.assignor(None).name(),
                self.metadata.image(),
            ),
            Err(error) => DescribedGroup {
                group_id: group_id.clone(),
                ..Refused::refused(error)
            },
        }
    }
}

fn described(
    group: &ConsumerGroup,
    default_assignor: &str,
    image: &MetadataImage,
) -> DescribedGroup {
    let assignor_name = match group.preferred_server_assignor() {
        Some(name) => name.clone(),
        None => ByteString::from(default_assignor),
    };
    DescribedGroup {
        group_id: group.group_id.clone(),
        group_state: group.state().name().into(),
        group_epoch: group.group_epoch,
        assignment_epoch: group.target.epoch,
        assignor_name,
        members: group
            .members()
            .map(|member| described_member(group, member, image))
            .collect(),
        ..Default::default()
    }
}

fn described_member(
    group: &ConsumerGroup,
    member: &ConsumerGroupMember,
    image: &MetadataImage,
) -> Member {
    let target = group.target.of(&member.member_id);
    let member_type = if member.uses_classic_protocol() {
        CLASSIC_MEMBER
    } else {
        CONSUMER_MEMBER
    };
    Member {
        member_id: member.member_id.clone(),
        instance_id: member.instance_id.clone(),
        rack_id: member.rack_id.clone(),
        member_epoch: member.member_epoch,
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        subscribed_topic_names: member.subscribed_topic_names.iter().cloned().collect(),
        subscribed_topic_regex: member.subscribed_topic_regex.clone(),
        // Partitions that are being revoked still belong to the member.
        assignment: assignment_of(member.held(), image),
        target_assignment: assignment_of(target.iter().flat_map(|target| target.iter()), image),
        member_type,
        ..Default::default()
    }
}

/// Deleted topics are omitted.
fn assignment_of(
    partitions: impl Iterator<Item = (TopicId, i32)>,
    image: &MetadataImage,
) -> Assignment {
    let mut by_topic: BTreeMap<TopicId, BTreeSet<i32>> = BTreeMap::new();
    for (topic_id, partition) in partitions {
        by_topic.entry(topic_id).or_default().insert(partition);
    }
    let topics = by_topic.into_iter().filter_map(|(topic_id, partitions)| {
        Some(TopicPartitions {
            topic_id,
            topic_name: image.topics.by_id(topic_id)?.name.clone(),
            partitions: partitions.into_iter().collect(),
            ..Default::default()
        })
    });
    Assignment {
        topic_partitions: topics.collect(),
        ..Default::default()
    }
}
