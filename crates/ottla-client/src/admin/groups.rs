//! Listing, describing and deleting groups.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};
use ottla_protocol::messages::consumer_group_describe_request::ConsumerGroupDescribeRequest;
use ottla_protocol::messages::consumer_group_describe_response::TopicPartitions;
use ottla_protocol::messages::leave_group_request::{LeaveGroupRequest, MemberIdentity};
use ottla_protocol::messages::list_groups_request::ListGroupsRequest;
use ottla_protocol::messages::{
    ConsumerProtocolAssignment, DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest,
};
use ottla_protocol::{ApiKey, Message, Reader};
use ottla_sync::BoxFuture;
use ottla_types::ErrorCode;

use super::{Admin, text};
use crate::error::ClientError;
use crate::metadata::BrokerNode;
use crate::partitions::{Partition, first_error, partitions_of};

/// A group in a list.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// for group in admin.list_groups(&[], &[]).await? {
///     println!("{} ({}): {}", group.group_id, group.group_type, group.state);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GroupListing {
    pub group_id: String,
    /// `classic`, `consumer`, `share`, `streams`; empty if the broker does not send it.
    pub group_type: String,
    pub protocol_type: String,
    pub state: String,
}

/// A member of a group.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// let group = admin.describe_consumer_group("billing").await?;
/// for member in &group.members {
///     println!("{} at {} has {:?}", member.client_id, member.host, member.assignment);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub client_id: String,
    /// As Kafka prints it: `/127.0.0.1`.
    pub host: String,
    pub assignment: Vec<(String, i32)>,
    /// The target assignment, in the consumer protocol.
    pub target_assignment: Option<Vec<(String, i32)>>,
    /// The member's epoch in the consumer protocol.
    pub member_epoch: Option<i32>,
    /// Whether the member uses the consumer protocol.
    pub upgraded: Option<bool>,
}

/// A consumer group.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// let group = admin.describe_consumer_group("billing").await?;
/// println!("{}: {} members, assigned by {}", group.state, group.members.len(), group.assignor);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedConsumerGroup {
    pub group_id: String,
    /// As Kafka's tools print it: `PreparingRebalance`.
    pub state: String,
    pub is_consumer_protocol: bool,
    pub assignor: String,
    pub members: Vec<GroupMember>,
    pub coordinator: BrokerNode,
    pub group_epoch: Option<i32>,
    pub target_assignment_epoch: Option<i32>,
}

impl Admin {
    /// The groups of all brokers' coordinators. If states or types are given, only groups with
    /// these.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// // Share groups that have no members.
    /// let (states, types) = (["Empty".to_owned()], ["share".to_owned()]);
    /// for group in admin.list_groups(&states, &types).await? {
    ///     println!("{}", group.group_id);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list_groups(
        &self,
        states: &[String],
        types: &[String],
    ) -> Result<Vec<GroupListing>, ClientError> {
        let metadata = self.client.refresh_metadata(Some(&[]), false).await?;
        let mut groups = Vec::new();
        for broker in metadata.brokers.values() {
            let response = self
                .client
                .retrying("ListGroups", async || {
                    let connection = self.client.connection(&broker.address()).await?;
                    let response = connection
                        .send_with(|version| ListGroupsRequest {
                            // Newer versions have filters (KIP-518, KIP-848).
                            states_filter: match version {
                                4.. => states.iter().map(|state| text(state)).collect(),
                                _ => Vec::new(),
                            },
                            types_filter: match version {
                                5.. => types.iter().map(|kind| text(kind)).collect(),
                                _ => Vec::new(),
                            },
                            ..Default::default()
                        })
                        .await?;
                    let what = format!("the groups of broker {}", broker.id);
                    ClientError::check_code(what, response.error_code)?;
                    Ok(response)
                })
                .await?;
            groups.extend(response.groups.into_iter().map(|group| GroupListing {
                group_id: group.group_id.to_string(),
                group_type: group.group_type.to_string(),
                protocol_type: group.protocol_type.to_string(),
                state: group.group_state.to_string(),
            }));
        }
        groups.sort();
        groups.dedup();
        Ok(groups)
    }

    /// Describes a consumer group, of the consumer protocol or the classic one.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let group = admin.describe_consumer_group("billing").await?;
    /// println!("{} is coordinated by broker {}", group.group_id, group.coordinator.id);
    /// # Ok(())
    /// # }
    /// ```
    pub fn describe_consumer_group<'a>(
        &'a self,
        group: &'a str,
    ) -> BoxFuture<'a, Result<DescribedConsumerGroup, ClientError>> {
        Box::pin(self.describe_consumer_group_unboxed(group))
    }

    async fn describe_consumer_group_unboxed(
        &self,
        group: &str,
    ) -> Result<DescribedConsumerGroup, ClientError> {
        if self.client.serves(ApiKey::ConsumerGroupDescribe).await? {
            match self.describe_with_consumer_protocol(group).await {
                Err(error)
                    if matches!(
                        error.code(),
                        Some(ErrorCode::GroupIdNotFound | ErrorCode::UnsupportedVersion)
                    ) => {}
                result => return result,
            }
        }
        self.describe_with_classic_protocol(group).await
    }

    async fn describe_with_consumer_protocol(
        &self,
        group: &str,
    ) -> Result<DescribedConsumerGroup, ClientError> {
        let request = ConsumerGroupDescribeRequest {
            group_ids: vec![text(group)],
            ..Default::default()
        };
        let what = format!("group {group}");
        let (found, coordinator) = self
            .describe_group(group, &what, &request, |response| {
                let group = response.groups.first()?;
                Some((group, group.error_code, group.error_message.as_ref()))
            })
            .await?;
        let members = found.members.into_iter().map(|member| {
            let partitions = |topics: &[TopicPartitions]| {
                let topics = topics.iter();
                partitions_of(topics.map(|topic| (&*topic.topic_name, &topic.partitions[..])))
            };
            GroupMember {
                member_id: member.member_id.to_string(),
                group_instance_id: member.instance_id.map(|id| id.to_string()),
                client_id: member.client_id.to_string(),
                host: member.client_host.to_string(),
                assignment: partitions(&member.assignment.topic_partitions),
                target_assignment: Some(partitions(&member.target_assignment.topic_partitions)),
                member_epoch: Some(member.member_epoch),
                upgraded: match member.member_type {
                    0 => Some(false),
                    1 => Some(true),
                    _ => None,
                },
            }
        });
        Ok(DescribedConsumerGroup {
            group_id: group.to_owned(),
            state: found.group_state.to_string(),
            is_consumer_protocol: true,
            assignor: found.assignor_name.to_string(),
            members: members.collect(),
            coordinator,
            group_epoch: Some(found.group_epoch),
            target_assignment_epoch: Some(found.assignment_epoch),
        })
    }

    async fn describe_with_classic_protocol(
        &self,
        group: &str,
    ) -> Result<DescribedConsumerGroup, ClientError> {
        let request = DescribeGroupsRequest {
            groups: vec![text(group)],
            ..Default::default()
        };
        let what = format!("group {group}");
        let (found, coordinator) = self
            .describe_group(group, &what, &request, |response| {
                let group = response.groups.first()?;
                Some((group, group.error_code, group.error_message.as_ref()))
            })
            .await?;
        if !found.protocol_type.is_empty() && &*found.protocol_type != "consumer" {
            return Err(ClientError::broker(
                &what,
                ErrorCode::InvalidGroupId.code(),
                Some(format!(
                    "GroupId {group} is not a consumer group ({}).",
                    &*found.protocol_type
                )),
            ));
        }
        let mut members = Vec::new();
        for member in found.members {
            members.push(GroupMember {
                member_id: member.member_id.to_string(),
                group_instance_id: member.group_instance_id.map(|id| id.to_string()),
                client_id: member.client_id.to_string(),
                host: member.client_host.to_string(),
                assignment: decode_assignment(&member.member_assignment)?,
                target_assignment: None,
                member_epoch: None,
                upgraded: None,
            });
        }
        Ok(DescribedConsumerGroup {
            group_id: group.to_owned(),
            state: found.group_state.to_string(),
            is_consumer_protocol: false,
            assignor: found.protocol_data.to_string(),
            members,
            coordinator,
            group_epoch: None,
            target_assignment_epoch: None,
        })
    }

    /// Deletes groups that have no members.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// for (group, deleted) in admin.delete_groups(&["billing".to_owned()]).await {
    ///     match deleted {
    ///         Ok(()) => println!("{group} is deleted"),
    ///         Err(error) => println!("{group}: {error}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete_groups(
        &self,
        groups: &[String],
    ) -> BTreeMap<String, Result<(), ClientError>> {
        let mut results = BTreeMap::new();
        for group in groups {
            let request = DeleteGroupsRequest {
                groups_names: vec![text(group)],
                ..Default::default()
            };
            let code_of = |response: &DeleteGroupsResponse| {
                let result = response.results.first();
                result.map_or(0, |result| result.error_code)
            };
            let response = self.ask_group(group, &request, code_of).await;
            let result = response.and_then(|response| {
                ClientError::check_code(format!("deleting group {group}"), code_of(&response))
            });
            results.insert(group.clone(), result);
        }
        results
    }

    /// Removes members from a group: a static member by its instance id, any other by its member
    /// id.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::ottla_protocol::messages::leave_group_request::MemberIdentity;
    ///
    /// let stuck = MemberIdentity {
    ///     group_instance_id: Some("billing-7".into()),
    ///     reason: Some("its host is gone".into()),
    ///     ..MemberIdentity::default()
    /// };
    /// admin.remove_members("billing", vec![stuck]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn remove_members(
        &self,
        group: &str,
        members: Vec<MemberIdentity>,
    ) -> Result<(), ClientError> {
        let request = LeaveGroupRequest {
            group_id: text(group),
            members,
            ..Default::default()
        };
        let response = self
            .ask_group(group, &request, |response| response.error_code)
            .await?;
        let members = response.members.iter().map(|member| member.error_code);
        let code = first_error(members.chain([response.error_code]));
        ClientError::check_code(format!("removing members of group {group}"), code)
    }
}

/// The assignment of a member of a classic consumer group. Empty bytes mean no assignment.
pub(crate) fn decode_assignment(bytes: &Bytes) -> Result<Vec<Partition>, ClientError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let assignment: ConsumerProtocolAssignment = decode_versioned(bytes, "an assignment")?;
    let topics = assignment.assigned_partitions.iter();
    Ok(partitions_of(
        topics.map(|topic| (&*topic.topic, &topic.partitions[..])),
    ))
}

/// Decodes a message of the consumer protocol after its version. Fields that newer versions append
/// are ignored.
pub(crate) fn decode_versioned<M: Message>(bytes: &Bytes, what: &str) -> Result<M, ClientError> {
    let unreadable = |reason: String| ClientError::Unreadable {
        address: "a group member".into(),
        what: what.into(),
        reason,
    };
    let mut body = bytes.clone();
    let version = body
        .try_get_i16()
        .map_err(|_| unreadable("it has no version".into()))?;
    M::decode(&mut Reader::new(body), version.clamp(0, 3))
        .map_err(|error| unreadable(error.to_string()))
}
