//! Share groups (KIP-932): their members, and how far they are. Listing and deleting them is as with other groups.

use std::collections::BTreeMap;

use ottla_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
};
use ottla_protocol::messages::delete_share_group_offsets_request::{
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequestTopic,
};
use ottla_protocol::messages::describe_share_group_offsets_request::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup,
};
use ottla_protocol::messages::share_group_describe_request::ShareGroupDescribeRequest;

use super::groups::described;
use super::{Admin, text};
use crate::client::CoordinatorKind;
use crate::error::ClientError;
use crate::metadata::BrokerNode;

/// A member of a share group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareGroupMember {
    pub member_id: String,
    pub client_id: String,
    /// As Kafka prints it: `/127.0.0.1`.
    pub host: String,
    pub rack: Option<String>,
    pub member_epoch: i32,
    pub assignment: Vec<(String, i32)>,
}

/// A share group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedShareGroup {
    pub group_id: String,
    /// `Empty` or `Stable`.
    pub state: String,
    pub members: Vec<ShareGroupMember>,
    pub coordinator: BrokerNode,
    pub group_epoch: i32,
    pub target_assignment_epoch: i32,
}

/// How far a share group is in a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharePartitionOffset {
    /// Everything before it is done.
    pub start_offset: i64,
    pub leader_epoch: Option<i32>,
    /// How many records from there on are not done; nothing where the cluster does not know.
    pub lag: Option<i64>,
}

impl Admin {
    pub async fn describe_share_group(
        &self,
        group: &str,
    ) -> Result<DescribedShareGroup, ClientError> {
        let what = format!("share group {group}");
        let found = described!(
            self.client,
            ShareGroupDescribeRequest { group_ids },
            group,
            &what
        );
        let members = found.members.into_iter().map(|member| {
            let topics = member.assignment.topic_partitions.iter();
            let assignment = topics.flat_map(|topic| {
                let name = topic.topic_name.to_string();
                let partitions = topic.partitions.iter();
                partitions.map(move |partition| (name.clone(), *partition))
            });
            ShareGroupMember {
                assignment: assignment.collect(),
                member_id: member.member_id.to_string(),
                client_id: member.client_id.to_string(),
                host: member.client_host.to_string(),
                rack: member.rack_id.map(|rack| rack.to_string()),
                member_epoch: member.member_epoch,
            }
        });
        Ok(DescribedShareGroup {
            group_id: group.to_owned(),
            state: found.group_state.to_string(),
            members: members.collect(),
            coordinator: self
                .client
                .coordinator(CoordinatorKind::Group, group)
                .await?,
            group_epoch: found.group_epoch,
            target_assignment_epoch: found.assignment_epoch,
        })
    }

    /// How far a share group is in all partitions that it has begun to read; nothing where that is decided when the first
    /// record is read. Partitions of which the cluster cannot say it now are left out.
    pub async fn share_group_offsets(
        &self,
        group: &str,
    ) -> Result<BTreeMap<(String, i32), Option<SharePartitionOffset>>, ClientError> {
        let response = self
            .client
            .send_to_coordinator(
                CoordinatorKind::Group,
                group,
                |_| DescribeShareGroupOffsetsRequest {
                    groups: vec![DescribeShareGroupOffsetsRequestGroup {
                        group_id: text(group),
                        topics: None,
                        ..Default::default()
                    }],
                    ..Default::default()
                },
                |response| response.groups.first().map_or(0, |group| group.error_code),
            )
            .await?;
        let mut offsets = BTreeMap::new();
        for found in response.groups {
            let what = format!("the offsets of share group {group}");
            ClientError::check(what, found.error_code, found.error_message.as_ref())?;
            for topic in found.topics {
                let known = topic.partitions.iter().filter(|it| it.error_code == 0);
                for partition in known {
                    let offset = (partition.start_offset >= 0).then_some(SharePartitionOffset {
                        start_offset: partition.start_offset,
                        leader_epoch: Some(partition.leader_epoch).filter(|epoch| *epoch >= 0),
                        lag: Some(partition.lag).filter(|lag| *lag >= 0),
                    });
                    let key = (topic.topic_name.to_string(), partition.partition_index);
                    offsets.insert(key, offset);
                }
            }
        }
        Ok(offsets)
    }

    /// Has a share group without members go on from these offsets; a group that is not there is created.
    pub async fn alter_share_group_offsets(
        &self,
        group: &str,
        offsets: &BTreeMap<(String, i32), i64>,
    ) -> Result<BTreeMap<(String, i32), Result<(), ClientError>>, ClientError> {
        let mut topics: Vec<AlterShareGroupOffsetsRequestTopic> = Vec::new();
        for ((topic, partition), offset) in offsets {
            let wanted = AlterShareGroupOffsetsRequestPartition {
                partition_index: *partition,
                start_offset: *offset,
                ..Default::default()
            };
            match topics.last_mut() {
                Some(last) if *last.topic_name == **topic => last.partitions.push(wanted),
                _ => topics.push(AlterShareGroupOffsetsRequestTopic {
                    topic_name: text(topic),
                    partitions: vec![wanted],
                    ..Default::default()
                }),
            }
        }
        let response = self
            .client
            .send_to_coordinator(
                CoordinatorKind::Group,
                group,
                |_| AlterShareGroupOffsetsRequest {
                    group_id: text(group),
                    topics: topics.clone(),
                    ..Default::default()
                },
                |response| response.error_code,
            )
            .await?;
        let what = format!("setting offsets of share group {group}");
        ClientError::check(&what, response.error_code, response.error_message.as_ref())?;
        let mut results = BTreeMap::new();
        for topic in response.responses {
            for partition in topic.partitions {
                let message = partition.error_message.as_ref();
                let result = ClientError::check(&what, partition.error_code, message);
                let key = (topic.topic_name.to_string(), partition.partition_index);
                results.insert(key, result);
            }
        }
        Ok(results)
    }

    /// Has a share group without members forget how far it is in these topics. A topic that is missing in the answer was
    /// nothing to it.
    pub async fn delete_share_group_offsets(
        &self,
        group: &str,
        topics: &[String],
    ) -> Result<BTreeMap<String, Result<(), ClientError>>, ClientError> {
        let response = self
            .client
            .send_to_coordinator(
                CoordinatorKind::Group,
                group,
                |_| DeleteShareGroupOffsetsRequest {
                    group_id: text(group),
                    topics: topics
                        .iter()
                        .map(|topic| DeleteShareGroupOffsetsRequestTopic {
                            topic_name: text(topic),
                            ..Default::default()
                        })
                        .collect(),
                    ..Default::default()
                },
                |response| response.error_code,
            )
            .await?;
        let what = format!("deleting offsets of share group {group}");
        ClientError::check(&what, response.error_code, response.error_message.as_ref())?;
        let responses = response.responses.into_iter().map(|topic| {
            let result = ClientError::check(&what, topic.error_code, topic.error_message.as_ref());
            (topic.topic_name.to_string(), result)
        });
        Ok(responses.collect())
    }
}
