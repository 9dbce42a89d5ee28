//! Offsets: of partitions by time, and those that groups have committed.

use std::collections::BTreeMap;

use ottla_protocol::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_delete_request::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use ottla_protocol::messages::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use ottla_types::Uuid;

use super::topics::{forget_stale_leader, leader_connection};
use super::{Admin, text};
use crate::client::CoordinatorKind;
use crate::error::ClientError;

/// Which offset of a partition is asked for; the numbers are Kafka's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffsetSpec {
    /// The first record that was produced at this time or later.
    Timestamp(i64),
    /// Behind the last record.
    Latest,
    Earliest,
    /// The record with the largest timestamp (KIP-734).
    MaxTimestamp,
    /// The first on the broker's own disk (KIP-405).
    EarliestLocal,
    /// The last in tiered storage (KIP-1005).
    LatestTiered,
    /// The first not yet in tiered storage (KIP-1023).
    EarliestPendingUpload,
}

impl OffsetSpec {
    /// The number in a request.
    pub fn timestamp(self) -> i64 {
        match self {
            OffsetSpec::Timestamp(timestamp) => timestamp,
            OffsetSpec::Latest => -1,
            OffsetSpec::Earliest => -2,
            OffsetSpec::MaxTimestamp => -3,
            OffsetSpec::EarliestLocal => -4,
            OffsetSpec::LatestTiered => -5,
            OffsetSpec::EarliestPendingUpload => -6,
        }
    }

    /// The reverse of [`OffsetSpec::timestamp`].
    pub fn from_timestamp(timestamp: i64) -> OffsetSpec {
        match timestamp {
            -1 => OffsetSpec::Latest,
            -2 => OffsetSpec::Earliest,
            -3 => OffsetSpec::MaxTimestamp,
            -4 => OffsetSpec::EarliestLocal,
            -5 => OffsetSpec::LatestTiered,
            -6 => OffsetSpec::EarliestPendingUpload,
            timestamp => OffsetSpec::Timestamp(timestamp),
        }
    }
}

/// An offset of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedOffset {
    /// -1 where there is no such record.
    pub offset: i64,
    pub timestamp: i64,
    pub leader_epoch: i32,
}

/// An offset that a group has committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommittedOffset {
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: String,
}

/// A partition by topic name and number.
type Partition = (String, i32);

impl Admin {
    /// An offset of one partition.
    pub async fn list_offset(
        &self,
        topic: &str,
        partition: i32,
        spec: OffsetSpec,
        read_committed: bool,
    ) -> Result<ListedOffset, ClientError> {
        let what = format!("the offset of {topic}-{partition}");
        self.client
            .retrying("ListOffsets", async || {
                let connection = leader_connection(&self.client, topic, partition).await?;
                let request = ListOffsetsRequest {
                    replica_id: -1,
                    isolation_level: i8::from(read_committed),
                    topics: vec![ListOffsetsTopic {
                        name: text(topic),
                        partitions: vec![ListOffsetsPartition {
                            partition_index: partition,
                            current_leader_epoch: -1,
                            timestamp: spec.timestamp(),
                            ..Default::default()
                        }],
                        ..Default::default()
                    }],
                    ..Default::default()
                };
                let response = connection.send(&request).await?;
                let Some(found) = response.topics.iter().flat_map(|it| &it.partitions).next()
                else {
                    return Err(ClientError::broker(
                        what.clone(),
                        -1,
                        Some("there was no answer"),
                    ));
                };
                let checked = ClientError::check(what.clone(), found.error_code, None::<&str>);
                forget_stale_leader(&self.client, topic, &checked).await;
                checked.map(|()| ListedOffset {
                    offset: found.offset,
                    timestamp: found.timestamp,
                    leader_epoch: found.leader_epoch,
                })
            })
            .await
    }

    /// Offsets of several partitions, all partitions at once.
    pub async fn list_offsets(
        &self,
        partitions: &[Partition],
        spec: OffsetSpec,
        read_committed: bool,
    ) -> BTreeMap<Partition, Result<ListedOffset, ClientError>> {
        let mut tasks = ottla_sync::task::JoinSet::new();
        for (topic, partition) in partitions {
            let (admin, topic, partition) = (self.clone(), topic.clone(), *partition);
            tasks.spawn(async move {
                let result = admin
                    .list_offset(&topic, partition, spec, read_committed)
                    .await;
                ((topic, partition), result)
            });
        }
        let mut offsets = BTreeMap::new();
        while let Some(finished) = tasks.join_next().await {
            let (partition, result) = finished.expect("looking up an offset does not panic");
            offsets.insert(partition, result);
        }
        offsets
    }

    /// Every offset that a group has committed.
    pub async fn committed_offsets(
        &self,
        group: &str,
    ) -> Result<BTreeMap<Partition, CommittedOffset>, ClientError> {
        self.fetch_offsets(group, None, None).await
    }

    /// What a group has committed for these partitions, once no transaction about it is open any more:
    /// where a member of the group goes on.
    pub async fn stable_offsets(
        &self,
        group: &str,
        partitions: &[Partition],
    ) -> Result<BTreeMap<Partition, CommittedOffset>, ClientError> {
        self.stable_offsets_for(group, partitions, None).await
    }

    /// As [`Admin::stable_offsets`], asked for by a member: its epoch and its id.
    pub(crate) async fn stable_offsets_for(
        &self,
        group: &str,
        partitions: &[Partition],
        member: Option<(i32, String)>,
    ) -> Result<BTreeMap<Partition, CommittedOffset>, ClientError> {
        let mut topics: Vec<String> = partitions.iter().map(|(topic, _)| topic.clone()).collect();
        topics.dedup();
        // Newer requests name topics by their ids.
        self.client.topics(&topics).await?;
        self.client
            .retrying("OffsetFetch", async || {
                self.fetch_offsets(group, Some(partitions), member.as_ref())
                    .await
            })
            .await
    }

    async fn fetch_offsets(
        &self,
        group: &str,
        wanted: Option<&[Partition]>,
        member: Option<&(i32, String)>,
    ) -> Result<BTreeMap<Partition, CommittedOffset>, ClientError> {
        let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in wanted.unwrap_or_default() {
            by_topic.entry(topic).or_default().push(*partition);
        }
        let metadata = self.client.metadata();
        let topic_id = |topic: &str| {
            let topic = metadata.topics.get(topic);
            topic.map_or(Uuid::ZERO, |it| it.topic_id)
        };
        let response = self
            .client
            .send_to_coordinator(
                CoordinatorKind::Group,
                group,
                |version| {
                    let mut request = OffsetFetchRequest {
                        require_stable: wanted.is_some(),
                        ..Default::default()
                    };
                    // Several groups at once are newer (KIP-709).
                    if version >= 8 {
                        request.groups = vec![OffsetFetchRequestGroup {
                            group_id: text(group),
                            member_id: member.map(|(_, id)| text(id)),
                            member_epoch: member.map_or(-1, |(epoch, _)| *epoch),
                            topics: wanted.map(|_| {
                                let topics = by_topic.iter();
                                topics
                                    .map(|(name, partitions)| OffsetFetchRequestTopics {
                                        name: text(name),
                                        topic_id: topic_id(name),
                                        partition_indexes: partitions.clone(),
                                        ..Default::default()
                                    })
                                    .collect()
                            }),
                            ..Default::default()
                        }];
                    } else {
                        request.group_id = text(group);
                        request.topics = wanted.map(|_| {
                            let topics = by_topic.iter();
                            topics
                                .map(|(name, partitions)| OffsetFetchRequestTopic {
                                    name: text(name),
                                    partition_indexes: partitions.clone(),
                                    ..Default::default()
                                })
                                .collect()
                        });
                    }
                    request
                },
                |response| {
                    response
                        .groups
                        .first()
                        .map_or(response.error_code, |it| it.error_code)
                },
            )
            .await?;
        let mut offsets = BTreeMap::new();
        let what = format!("the offsets of group {group}");
        let Some(found) = response.groups.first() else {
            ClientError::check(what, response.error_code, None::<&str>)?;
            for topic in &response.topics {
                for partition in &topic.partitions {
                    if wanted.is_some() {
                        let what = format!("the offsets of group {group}");
                        ClientError::check(what, partition.error_code, None::<&str>)?;
                    }
                    if partition.committed_offset >= 0 {
                        let committed = CommittedOffset {
                            offset: partition.committed_offset,
                            leader_epoch: partition.committed_leader_epoch,
                            metadata: optional(&partition.metadata),
                        };
                        offsets.insert(
                            (topic.name.to_string(), partition.partition_index),
                            committed,
                        );
                    }
                }
            }
            return Ok(offsets);
        };
        ClientError::check(what.clone(), found.error_code, None::<&str>)?;
        for topic in &found.topics {
            let name = self.topic_name(&topic.name, topic.topic_id).await?;
            for partition in &topic.partitions {
                if wanted.is_some() {
                    ClientError::check(what.clone(), partition.error_code, None::<&str>)?;
                }
                if partition.committed_offset < 0 {
                    continue;
                }
                let committed = CommittedOffset {
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: optional(&partition.metadata),
                };
                offsets.insert((name.clone(), partition.partition_index), committed);
            }
        }
        Ok(offsets)
    }

    /// Commits offsets for a group that has no members, as a reset does.
    pub async fn alter_offsets(
        &self,
        group: &str,
        offsets: &BTreeMap<Partition, i64>,
    ) -> Result<BTreeMap<Partition, Result<(), ClientError>>, ClientError> {
        if offsets.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut names: Vec<String> = offsets.keys().map(|(topic, _)| topic.clone()).collect();
        names.dedup();
        let metadata = self.client.topics(&names).await?;
        let topics: Vec<OffsetCommitRequestTopic> = names
            .iter()
            .map(|name| OffsetCommitRequestTopic {
                name: text(name),
                topic_id: metadata
                    .topics
                    .get(name)
                    .map_or(Uuid::ZERO, |topic| topic.topic_id),
                partitions: offsets
                    .iter()
                    .filter(|((topic, _), _)| topic == name)
                    .map(|((_, partition), offset)| OffsetCommitRequestPartition {
                        partition_index: *partition,
                        committed_offset: *offset,
                        committed_leader_epoch: -1,
                        committed_metadata: Some(text("")),
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            })
            .collect();
        let response = self
            .client
            .send_to_coordinator(
                CoordinatorKind::Group,
                group,
                |_| OffsetCommitRequest {
                    group_id: text(group),
                    generation_id_or_member_epoch: -1,
                    topics: topics.clone(),
                    ..Default::default()
                },
                |response| {
                    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
                    partitions
                        .map(|partition| partition.error_code)
                        .find(|code| *code != 0)
                        .unwrap_or(0)
                },
            )
            .await?;
        let mut results = BTreeMap::new();
        for topic in &response.topics {
            let name = self.topic_name(&topic.name, topic.topic_id).await?;
            for partition in &topic.partitions {
                let what = format!("committing {name}-{}", partition.partition_index);
                let result = ClientError::check(what, partition.error_code, None::<&str>);
                results.insert((name.clone(), partition.partition_index), result);
            }
        }
        Ok(results)
    }

    /// Forgets committed offsets of a group.
    pub async fn delete_offsets(
        &self,
        group: &str,
        partitions: &[Partition],
    ) -> Result<BTreeMap<Partition, Result<(), ClientError>>, ClientError> {
        let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in partitions {
            by_topic.entry(topic).or_default().push(*partition);
        }
        let response = self
            .client
            .send_to_coordinator(
                CoordinatorKind::Group,
                group,
                |_| OffsetDeleteRequest {
                    group_id: text(group),
                    topics: by_topic
                        .iter()
                        .map(|(topic, partitions)| OffsetDeleteRequestTopic {
                            name: text(topic),
                            partitions: partitions
                                .iter()
                                .map(|partition| OffsetDeleteRequestPartition {
                                    partition_index: *partition,
                                })
                                .collect(),
                        })
                        .collect(),
                },
                |response| response.error_code,
            )
            .await?;
        ClientError::check(
            format!("deleting offsets of group {group}"),
            response.error_code,
            None::<&str>,
        )?;
        let mut results = BTreeMap::new();
        for topic in &response.topics {
            for partition in &topic.partitions {
                let what = format!("deleting {}-{}", &*topic.name, partition.partition_index);
                let result = ClientError::check(what, partition.error_code, None::<&str>);
                results.insert((topic.name.to_string(), partition.partition_index), result);
            }
        }
        Ok(results)
    }

    /// The name of a topic that newer responses give by its id.
    async fn topic_name(&self, name: &str, id: Uuid) -> Result<String, ClientError> {
        if !name.is_empty() || id.is_zero() {
            return Ok(name.to_owned());
        }
        if let Some(name) = self.client.metadata().topic_name(id) {
            return Ok(name.to_owned());
        }
        let metadata = self.client.refresh_metadata(None, false).await?;
        Ok(metadata
            .topic_name(id)
            .map_or_else(|| id.to_string(), str::to_owned))
    }
}

fn optional(text: &Option<bytestring::ByteString>) -> String {
    text.as_ref().map(ToString::to_string).unwrap_or_default()
}
