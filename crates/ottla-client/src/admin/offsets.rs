//! Offsets of partitions by time, and committed offsets of groups.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_protocol::messages::OffsetCommitRequest;
use ottla_protocol::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use ottla_protocol::messages::offset_delete_request::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use ottla_protocol::messages::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use ottla_sync::BoxFuture;
use ottla_types::{ErrorCode, Uuid};

use super::topics::{forget_stale_leader, leader_connection};
use super::{Admin, text};
use crate::client::CoordinatorKind;
use crate::consumer::{CommitOffset, commit_topics};
use crate::error::ClientError;
use crate::partitions::{Partition, by_topic, first_error};

/// Which offset of a partition is requested. The numbers are Kafka's.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::admin::OffsetSpec;
///
/// let midnight = OffsetSpec::Timestamp(1_767_225_600_000);
/// let first = admin.list_offset("orders", 0, midnight, false).await?;
/// println!("the first record of the day is at {}", first.offset);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffsetSpec {
    /// The offset of the first record with this timestamp or a later one.
    Timestamp(i64),
    /// The log end offset or, with read_committed, the last stable offset.
    Latest,
    Earliest,
    /// The offset of the record with the largest timestamp (KIP-734).
    MaxTimestamp,
    /// The first offset on the broker's local disk (KIP-405).
    EarliestLocal,
    /// The last offset in tiered storage (KIP-1005).
    LatestTiered,
    /// The first offset that is not in tiered storage yet (KIP-1023).
    EarliestPendingUpload,
}

impl OffsetSpec {
    /// The number in a request.
    ///
    /// ```
    /// use ottla_client::admin::OffsetSpec;
    ///
    /// assert_eq!(OffsetSpec::Latest.timestamp(), -1);
    /// assert_eq!(OffsetSpec::Timestamp(5).timestamp(), 5);
    /// ```
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
    ///
    /// ```
    /// use ottla_client::admin::OffsetSpec;
    ///
    /// assert_eq!(OffsetSpec::from_timestamp(-2), OffsetSpec::Earliest);
    /// ```
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
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::admin::OffsetSpec;
///
/// let newest = admin.list_offset("orders", 0, OffsetSpec::MaxTimestamp, false).await?;
/// match newest.offset {
///     -1 => println!("no records"),
///     offset => println!("offset {offset} at {}", newest.timestamp),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedOffset {
    /// -1 if there is no such record.
    pub offset: i64,
    pub timestamp: i64,
    pub leader_epoch: i32,
}

/// A committed offset of a group.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// for ((topic, partition), committed) in admin.committed_offsets("billing").await? {
///     println!("{topic}-{partition}: {} {}", committed.offset, committed.metadata);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommittedOffset {
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: String,
}

impl Admin {
    /// An offset of one partition.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::admin::OffsetSpec;
    ///
    /// let start = admin.list_offset("orders", 0, OffsetSpec::Earliest, false).await?;
    /// let end = admin.list_offset("orders", 0, OffsetSpec::Latest, false).await?;
    /// println!("{} records at most", end.offset - start.offset);
    /// # Ok(())
    /// # }
    /// ```
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
                let mut partitions = response.topics.iter().flat_map(|it| &it.partitions);
                let found = partitions.next();
                let found = found.ok_or_else(|| ClientError::no_answer(&what))?;
                let checked = ClientError::check_code(&what, found.error_code);
                forget_stale_leader(&self.client, topic, &checked).await;
                checked.map(|()| ListedOffset {
                    offset: found.offset,
                    timestamp: found.timestamp,
                    leader_epoch: found.leader_epoch,
                })
            })
            .await
    }

    /// Offsets of several partitions: one request per leader, in parallel. Partitions that cannot be
    /// looked up at the moment are then requested one by one, with retries.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::admin::OffsetSpec;
    ///
    /// let partitions = [("orders".to_owned(), 0), ("orders".to_owned(), 1)];
    /// let read_committed = true;
    /// let ends = admin.list_offsets(&partitions, OffsetSpec::Latest, read_committed).await;
    /// for ((topic, partition), end) in ends {
    ///     println!("{topic}-{partition} ends at {}", end?.offset);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_offsets<'a>(
        &'a self,
        partitions: &'a [Partition],
        spec: OffsetSpec,
        read_committed: bool,
    ) -> BoxFuture<'a, BTreeMap<Partition, Result<ListedOffset, ClientError>>> {
        Box::pin(self.list_offsets_unboxed(partitions, spec, read_committed))
    }

    async fn list_offsets_unboxed(
        &self,
        partitions: &[Partition],
        spec: OffsetSpec,
        read_committed: bool,
    ) -> BTreeMap<Partition, Result<ListedOffset, ClientError>> {
        let mut offsets = self
            .list_offsets_once(partitions, spec, read_committed)
            .await;
        let mut tasks = ottla_sync::task::JoinSet::new();
        for ((topic, partition), result) in &offsets {
            if !result.as_ref().is_err_and(ClientError::is_retriable) {
                continue;
            }
            let (admin, topic, partition) = (self.clone(), topic.clone(), *partition);
            tasks.spawn(async move {
                let result = admin
                    .list_offset(&topic, partition, spec, read_committed)
                    .await;
                ((topic, partition), result)
            });
        }
        while let Some(finished) = tasks.join_next().await {
            let (partition, result) = finished.expect("looking up an offset does not panic");
            offsets.insert(partition, result);
        }
        offsets
    }

    /// As [`Admin::list_offsets`], without retries: partitions without a leader have an error.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::admin::OffsetSpec;
    ///
    /// let partitions = [("orders".to_owned(), 0)];
    /// for (_, end) in admin.list_offsets_once(&partitions, OffsetSpec::Latest, false).await {
    ///     match end {
    ///         Ok(end) => println!("ends at {}", end.offset),
    ///         Err(error) => println!("unknown at the moment: {error}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list_offsets_once(
        &self,
        partitions: &[Partition],
        spec: OffsetSpec,
        read_committed: bool,
    ) -> BTreeMap<Partition, Result<ListedOffset, ClientError>> {
        let mut topics: Vec<String> = partitions.iter().map(|(topic, _)| topic.clone()).collect();
        topics.sort_unstable();
        topics.dedup();
        // An unknown topic is the error of its partitions alone.
        let unknown = self.client.topics(&topics).await.err();
        let metadata = self.client.metadata();
        let mut by_leader: BTreeMap<i32, Vec<Partition>> = BTreeMap::new();
        let mut offsets = BTreeMap::new();
        for partition in partitions {
            let (topic, number) = partition;
            if let Some(leader) = metadata.leader(topic, *number) {
                by_leader
                    .entry(leader.id)
                    .or_default()
                    .push(partition.clone());
                continue;
            }
            let error = match metadata.partition(topic, *number) {
                Some(_) => ClientError::broker(
                    format!("{topic}-{number}"),
                    ErrorCode::LeaderNotAvailable.code(),
                    None::<&str>,
                ),
                None => unknown.clone().unwrap_or_else(|| {
                    ClientError::broker(
                        format!("{topic}-{number}"),
                        ErrorCode::UnknownTopicOrPartition.code(),
                        Some("the topic does not have this partition"),
                    )
                }),
            };
            offsets.insert(partition.clone(), Err(error));
        }
        let mut tasks = ottla_sync::task::JoinSet::new();
        for (leader, partitions) in by_leader {
            let admin = self.clone();
            tasks.spawn(async move {
                let listed = admin
                    .list_offsets_at(leader, &partitions, spec, read_committed)
                    .await;
                (partitions, listed)
            });
        }
        while let Some(finished) = tasks.join_next().await {
            let (asked, listed) = finished.expect("looking up offsets does not panic");
            match listed {
                Ok(listed) => {
                    offsets.extend(listed);
                    for partition in asked {
                        offsets
                            .entry(partition)
                            .or_insert_with_key(|(topic, number)| {
                                Err(ClientError::no_answer(format!(
                                    "the offset of {topic}-{number}"
                                )))
                            });
                    }
                }
                Err(error) => offsets.extend(asked.into_iter().map(|it| (it, Err(error.clone())))),
            }
        }
        offsets
    }

    /// Offsets of partitions with the same leader.
    async fn list_offsets_at(
        &self,
        leader: i32,
        partitions: &[Partition],
        spec: OffsetSpec,
        read_committed: bool,
    ) -> Result<Vec<(Partition, Result<ListedOffset, ClientError>)>, ClientError> {
        let wanted = partitions.iter().map(|partition| {
            let wanted = ListOffsetsPartition {
                partition_index: partition.1,
                current_leader_epoch: -1,
                timestamp: spec.timestamp(),
                ..Default::default()
            };
            (partition, wanted)
        });
        let topics = by_topic(wanted).into_iter();
        let topics = topics.map(|(topic, partitions)| ListOffsetsTopic {
            name: text(topic),
            partitions,
            ..Default::default()
        });
        let request = ListOffsetsRequest {
            replica_id: -1,
            isolation_level: i8::from(read_committed),
            topics: topics.collect(),
            ..Default::default()
        };
        let connection = self.client.node(leader).await?;
        let response = connection.send(&request).await?;
        let mut listed = Vec::with_capacity(partitions.len());
        for topic in response.topics {
            let name = topic.name.to_string();
            listed.extend(topic.partitions.iter().map(|found| {
                let what = format!("the offset of {name}-{}", found.partition_index);
                let checked = ClientError::check_code(what, found.error_code);
                let offset = checked.map(|()| ListedOffset {
                    offset: found.offset,
                    timestamp: found.timestamp,
                    leader_epoch: found.leader_epoch,
                });
                ((name.clone(), found.partition_index), offset)
            }));
        }
        Ok(listed)
    }

    /// All committed offsets of a group.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let committed = admin.committed_offsets("billing").await?;
    /// if let Some(committed) = committed.get(&("orders".to_owned(), 0)) {
    ///     println!("the group continues at {}", committed.offset);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn committed_offsets(
        &self,
        group: &str,
    ) -> Result<BTreeMap<Partition, CommittedOffset>, ClientError> {
        self.fetch_offsets(group, None, None).await
    }

    /// The committed offsets of a group for these partitions, after all open transactions with
    /// pending offsets for them have ended. A member of the group starts there.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let partitions = [("orders".to_owned(), 0)];
    /// for committed in admin.stable_offsets("billing", &partitions).await?.values() {
    ///     println!("a member would start at {}", committed.offset);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn stable_offsets(
        &self,
        group: &str,
        partitions: &[Partition],
    ) -> Result<BTreeMap<Partition, CommittedOffset>, ClientError> {
        self.stable_offsets_for(group, partitions, None).await
    }

    /// As [`Admin::stable_offsets`], with the member epoch and the member id.
    pub(crate) async fn stable_offsets_for(
        &self,
        group: &str,
        partitions: &[Partition],
        member: Option<(i32, String)>,
    ) -> Result<BTreeMap<Partition, CommittedOffset>, ClientError> {
        let mut topics: Vec<String> = partitions.iter().map(|(topic, _)| topic.clone()).collect();
        topics.dedup();
        // Newer versions identify topics by their ids.
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
                    // Newer versions support several groups (KIP-709).
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
                                        topic_id: metadata.topic_id(name),
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
        let mut take = |partition: Partition, code, offset, leader_epoch, metadata: &Option<_>| {
            if wanted.is_some() {
                ClientError::check_code(&what, code)?;
            }
            if offset >= 0 {
                let metadata = metadata.as_ref().map(ByteString::to_string);
                let committed = CommittedOffset {
                    offset,
                    leader_epoch,
                    metadata: metadata.unwrap_or_default(),
                };
                offsets.insert(partition, committed);
            }
            Ok::<(), ClientError>(())
        };
        let Some(found) = response.groups.first() else {
            ClientError::check_code(&what, response.error_code)?;
            for topic in &response.topics {
                for it in &topic.partitions {
                    let partition = (topic.name.to_string(), it.partition_index);
                    let (offset, epoch) = (it.committed_offset, it.committed_leader_epoch);
                    take(partition, it.error_code, offset, epoch, &it.metadata)?;
                }
            }
            return Ok(offsets);
        };
        ClientError::check_code(&what, found.error_code)?;
        for topic in &found.topics {
            let name = self.topic_name(&topic.name, topic.topic_id).await?;
            for it in &topic.partitions {
                let partition = (name.clone(), it.partition_index);
                let (offset, epoch) = (it.committed_offset, it.committed_leader_epoch);
                take(partition, it.error_code, offset, epoch, &it.metadata)?;
            }
        }
        Ok(offsets)
    }

    /// Commits offsets for a group without members, as a reset does.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeMap;
    ///
    /// let offsets = BTreeMap::from([(("orders".to_owned(), 0), 4200)]);
    /// for (_, altered) in admin.alter_offsets("billing", &offsets).await? {
    ///     altered?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
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
        let commit = |(partition, offset): (&Partition, &i64)| {
            (partition.clone(), CommitOffset::new(*offset))
        };
        let request = OffsetCommitRequest {
            group_id: text(group),
            generation_id_or_member_epoch: -1,
            topics: commit_topics(&metadata, &offsets.iter().map(commit).collect()),
            ..Default::default()
        };
        let response = self
            .ask_group(group, &request, |response| {
                let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
                first_error(partitions.map(|partition| partition.error_code))
            })
            .await?;
        let mut results = BTreeMap::new();
        for topic in &response.topics {
            let name = self.topic_name(&topic.name, topic.topic_id).await?;
            for partition in &topic.partitions {
                let what = format!("committing {name}-{}", partition.partition_index);
                let result = ClientError::check_code(what, partition.error_code);
                results.insert((name.clone(), partition.partition_index), result);
            }
        }
        Ok(results)
    }

    /// Deletes committed offsets of a group.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let partitions = [("orders".to_owned(), 0)];
    /// for (_, deleted) in admin.delete_offsets("billing", &partitions).await? {
    ///     deleted?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete_offsets(
        &self,
        group: &str,
        partitions: &[Partition],
    ) -> Result<BTreeMap<Partition, Result<(), ClientError>>, ClientError> {
        let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in partitions {
            by_topic.entry(topic).or_default().push(*partition);
        }
        let partition = |partition_index: i32| OffsetDeleteRequestPartition { partition_index };
        let topics = by_topic.into_iter();
        let topics = topics.map(|(topic, partitions)| OffsetDeleteRequestTopic {
            name: text(topic),
            partitions: partitions.into_iter().map(partition).collect(),
        });
        let request = OffsetDeleteRequest {
            group_id: text(group),
            topics: topics.collect(),
        };
        let response = self
            .ask_group(group, &request, |response| response.error_code)
            .await?;
        let what = format!("deleting offsets of group {group}");
        ClientError::check_code(what, response.error_code)?;
        let mut results = BTreeMap::new();
        for topic in &response.topics {
            for partition in &topic.partitions {
                let what = format!("deleting {}-{}", &*topic.name, partition.partition_index);
                let result = ClientError::check_code(what, partition.error_code);
                results.insert((topic.name.to_string(), partition.partition_index), result);
            }
        }
        Ok(results)
    }

    /// The name of a topic, for which newer responses have only the id.
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
