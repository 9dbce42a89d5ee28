//! Share groups (KIP-932): their members and offsets. They are listed and deleted like other
//! groups.

use std::collections::BTreeMap;

use ottla_protocol::messages::ShareGroupDescribeRequest;
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
use ottla_protocol::messages::share_group_describe_response::DescribedGroup;

use super::{Admin, text};
use crate::error::ClientError;
use crate::metadata::BrokerNode;
use crate::partitions::by_topic;

/// The offset of a share group in a partition.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// for ((topic, partition), offset) in admin.share_group_offsets("workers").await? {
///     let lag = offset.and_then(|offset| offset.lag);
///     println!("{topic}-{partition}: lag {lag:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharePartitionOffset {
    /// Records before it are settled.
    pub start_offset: i64,
    pub leader_epoch: Option<i32>,
    /// The number of unsettled records from there on; `None` if the cluster does not know it.
    pub lag: Option<i64>,
}

impl Admin {
    /// A share group, and the broker id of its coordinator.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let (group, coordinator) = admin.describe_share_group("workers").await?;
    /// println!("{}, {} members", group.group_state, group.members.len());
    /// println!("coordinated by broker {}", coordinator.id);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn describe_share_group(
        &self,
        group: &str,
    ) -> Result<(DescribedGroup, BrokerNode), ClientError> {
        let request = ShareGroupDescribeRequest {
            group_ids: vec![text(group)],
            ..Default::default()
        };
        let what = format!("share group {group}");
        self.describe_group(group, &what, &request, |response| {
            let group = response.groups.first()?;
            Some((group, group.error_code, group.error_message.as_ref()))
        })
        .await
    }

    /// The offsets of a share group in all partitions that it has started to read; `None` if the
    /// first offset is not determined yet. Partitions whose offset is currently unavailable are
    /// omitted.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let offsets = admin.share_group_offsets("workers").await?;
    /// if let Some(Some(offset)) = offsets.get(&("jobs".to_owned(), 0)) {
    ///     println!("records before {} are settled", offset.start_offset);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn share_group_offsets(
        &self,
        group: &str,
    ) -> Result<BTreeMap<(String, i32), Option<SharePartitionOffset>>, ClientError> {
        let request = DescribeShareGroupOffsetsRequest {
            groups: vec![DescribeShareGroupOffsetsRequestGroup {
                group_id: text(group),
                topics: None,
                ..Default::default()
            }],
            ..Default::default()
        };
        let response = self
            .ask_group(group, &request, |response| {
                response.groups.first().map_or(0, |group| group.error_code)
            })
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

    /// Sets the offsets of a share group without members. A group that does not exist is created.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeMap;
    ///
    /// let offsets = BTreeMap::from([(("jobs".to_owned(), 0), 0)]);
    /// for (_, altered) in admin.alter_share_group_offsets("workers", &offsets).await? {
    ///     altered?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn alter_share_group_offsets(
        &self,
        group: &str,
        offsets: &BTreeMap<(String, i32), i64>,
    ) -> Result<BTreeMap<(String, i32), Result<(), ClientError>>, ClientError> {
        let offsets = offsets.iter().map(|(partition, offset)| {
            let wanted = AlterShareGroupOffsetsRequestPartition {
                partition_index: partition.1,
                start_offset: *offset,
                ..Default::default()
            };
            (partition, wanted)
        });
        let topics = by_topic(offsets).into_iter();
        let topics = topics.map(|(topic, partitions)| AlterShareGroupOffsetsRequestTopic {
            topic_name: text(topic),
            partitions,
            ..Default::default()
        });
        let request = AlterShareGroupOffsetsRequest {
            group_id: text(group),
            topics: topics.collect(),
            ..Default::default()
        };
        let response = self
            .ask_group(group, &request, |response| response.error_code)
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

    /// Deletes the offsets of a share group without members in these topics. A topic that is
    /// missing in the response had no offsets.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let topics = ["jobs".to_owned()];
    /// for (_, deleted) in admin.delete_share_group_offsets("workers", &topics).await? {
    ///     deleted?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete_share_group_offsets(
        &self,
        group: &str,
        topics: &[String],
    ) -> Result<BTreeMap<String, Result<(), ClientError>>, ClientError> {
        let topic = |topic: &String| DeleteShareGroupOffsetsRequestTopic {
            topic_name: text(topic),
            ..Default::default()
        };
        let request = DeleteShareGroupOffsetsRequest {
            group_id: text(group),
            topics: topics.iter().map(topic).collect(),
            ..Default::default()
        };
        let response = self
            .ask_group(group, &request, |response| response.error_code)
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
