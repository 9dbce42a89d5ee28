//! Creating, deleting, growing and describing topics; deleting records.

use std::collections::BTreeMap;

use ottla_protocol::ApiKey;
use ottla_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use ottla_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use ottla_protocol::messages::create_topics_response::CreatableTopicResult;
use ottla_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use ottla_protocol::messages::delete_topics_request::{DeleteTopicState, DeleteTopicsRequest};
use ottla_protocol::messages::describe_topic_partitions_request::{
    Cursor, DescribeTopicPartitionsRequest, TopicRequest,
};
use ottla_sync::BoxFuture;
use ottla_types::{ErrorCode, Uuid};

use super::{Admin, text};
use crate::client::Client;
use crate::error::ClientError;

/// A topic to create.
///
/// ```
/// use std::collections::BTreeMap;
/// use ottla_client::admin::NewTopic;
///
/// let compacted = ("cleanup.policy".to_owned(), "compact".to_owned());
/// let topic = NewTopic {
///     name: "prices".to_owned(),
///     partitions: Some(12),
///     replication_factor: Some(3),
///     configs: BTreeMap::from([compacted]),
///     ..NewTopic::default()
/// };
/// # assert_eq!(topic.partitions, Some(12));
/// ```
#[derive(Clone, Default, Debug)]
pub struct NewTopic {
    pub name: String,
    /// `None` for the broker's default.
    pub partitions: Option<i32>,
    /// `None` for the broker's default.
    pub replication_factor: Option<i16>,
    /// The replicas of each partition, instead of the two numbers above.
    pub assignments: BTreeMap<i32, Vec<i32>>,
    pub configs: BTreeMap<String, String>,
}

/// One topic.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// for topic in admin.describe_topics(&["orders".to_owned()]).await? {
///     println!("{} has the ID {}", topic.name, topic.topic_id);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TopicDescription {
    pub name: String,
    pub topic_id: Uuid,
    pub is_internal: bool,
    pub partitions: Vec<PartitionDescription>,
}

/// One partition.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// for topic in admin.describe_topics(&["orders".to_owned()]).await? {
///     for partition in topic.partitions {
///         if partition.isr.len() < partition.replicas.len() {
///             println!("{}-{} is under-replicated", topic.name, partition.partition);
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PartitionDescription {
    pub partition: i32,
    /// `None` if there is no leader.
    pub leader: Option<i32>,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    /// Eligible leader replicas (KIP-966); `None` if the broker does not send them.
    pub eligible_leader_replicas: Option<Vec<i32>>,
    pub last_known_elr: Option<Vec<i32>>,
}

impl Admin {
    /// Creates topics. The results are in the order of the response.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::ClientError;
    /// use ottla_client::admin::NewTopic;
    ///
    /// let topic = NewTopic { name: "orders".to_owned(), ..NewTopic::default() };
    /// let validate_only = false;
    /// for created in admin.create_topics(&[topic], validate_only).await? {
    ///     ClientError::check("orders", created.error_code, created.error_message.as_ref())?;
    ///     println!("{} partitions", created.num_partitions);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn create_topics(
        &self,
        topics: &[NewTopic],
        validate_only: bool,
    ) -> Result<Vec<CreatableTopicResult>, ClientError> {
        let request = CreateTopicsRequest {
            topics: topics.iter().map(creatable).collect(),
            timeout_ms: self.timeout_ms(),
            validate_only,
            ..Default::default()
        };
        let response = self
            .client
            .retrying("CreateTopics", async || {
                let response = self.client.any_node().await?.send(&request).await?;
                // The deletion of a topic of that name has not reached every broker yet, or the
                // controller is changing.
                for topic in &response.topics {
                    retriable(&format!("topic {}", &*topic.name), topic.error_code)?;
                }
                Ok(response)
            })
            .await?;
        Ok(response.topics)
    }

    /// Deletes a topic by its name.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// admin.delete_topic("orders").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete_topic(&self, name: &str) -> Result<(), ClientError> {
        let response = self
            .client
            .send(|version| {
                let mut request = DeleteTopicsRequest {
                    timeout_ms: self.timeout_ms(),
                    ..Default::default()
                };
                // Newer versions accept an id or a name (KIP-516).
                if version >= 6 {
                    request.topics = vec![DeleteTopicState {
                        name: Some(text(name)),
                        ..Default::default()
                    }];
                } else {
                    request.topic_names = vec![text(name)];
                }
                request
            })
            .await?;
        let result = response.responses.first();
        let (code, message) = result.map_or((0, None), |result| {
            (result.error_code, result.error_message.as_ref())
        });
        ClientError::check(format!("deleting topic {name}"), code, message)
    }

    /// Raises the number of partitions of a topic to `count`. `assignments` has the replicas of the
    /// new ones.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// // 24 partitions in all; the cluster places the new ones.
    /// admin.create_partitions("orders", 24, None).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn create_partitions(
        &self,
        name: &str,
        count: i32,
        assignments: Option<&[Vec<i32>]>,
    ) -> Result<(), ClientError> {
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name: text(name),
                count,
                assignments: assignments.map(|assignments| {
                    let assignment = |brokers: &Vec<i32>| CreatePartitionsAssignment {
                        broker_ids: brokers.clone(),
                        ..Default::default()
                    };
                    assignments.iter().map(assignment).collect()
                }),
                ..Default::default()
            }],
            timeout_ms: self.timeout_ms(),
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        let Some(result) = response.results.first() else {
            return Ok(());
        };
        let what = format!("adding partitions to topic {name}");
        ClientError::check(what, result.error_code, result.error_message.as_ref())
    }

    /// The names of all topics.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let include_internal = true;
    /// for topic in admin.list_topics(include_internal).await? {
    ///     println!("{topic}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list_topics(&self, include_internal: bool) -> Result<Vec<String>, ClientError> {
        let metadata = self.client.refresh_metadata(None, false).await?;
        let names = metadata
            .topics
            .values()
            .filter(|topic| include_internal || !topic.is_internal);
        Ok(names.map(|topic| topic.name.clone()).collect())
    }

    /// Describes topics by name, in the order of their names. A topic that does not exist is an
    /// error.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// for topic in admin.describe_topics(&["orders".to_owned()]).await? {
    ///     let without_leader = topic.partitions.iter().filter(|it| it.leader.is_none());
    ///     println!("{}: {} partitions without a leader", topic.name, without_leader.count());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn describe_topics<'a>(
        &'a self,
        names: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<TopicDescription>, ClientError>> {
        Box::pin(self.describe_topics_unboxed(names))
    }

    async fn describe_topics_unboxed(
        &self,
        names: &[String],
    ) -> Result<Vec<TopicDescription>, ClientError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        if self.client.serves(ApiKey::DescribeTopicPartitions).await? {
            match self.describe_by_partitions(names).await {
                Err(ClientError::Unsupported { .. }) => {}
                result => return result,
            }
        }
        let metadata = self.client.refresh_metadata(Some(names), false).await?;
        let mut described = Vec::new();
        for name in names {
            let Some(topic) = metadata.topics.get(name) else {
                return Err(unknown(name));
            };
            let partitions = topic
                .partitions
                .iter()
                .map(|partition| PartitionDescription {
                    partition: partition.partition,
                    leader: Some(partition.leader).filter(|leader| *leader >= 0),
                    replicas: partition.replicas.clone(),
                    isr: partition.isr.clone(),
                    eligible_leader_replicas: None,
                    last_known_elr: None,
                });
            described.push(TopicDescription {
                name: name.clone(),
                topic_id: topic.topic_id,
                is_internal: topic.is_internal,
                partitions: partitions.collect(),
            });
        }
        Ok(described)
    }

    /// Page by page, because a topic can have more partitions than fit into a response.
    async fn describe_by_partitions(
        &self,
        names: &[String],
    ) -> Result<Vec<TopicDescription>, ClientError> {
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        let mut described: BTreeMap<String, TopicDescription> = BTreeMap::new();
        let mut cursor: Option<(String, i32)> = None;
        loop {
            let response = self
                .client
                .send(|_| DescribeTopicPartitionsRequest {
                    topics: sorted
                        .iter()
                        .filter(|name| cursor.as_ref().is_none_or(|(topic, _)| **name >= topic))
                        .map(|name| TopicRequest {
                            name: text(name),
                            ..Default::default()
                        })
                        .collect(),
                    response_partition_limit: 2000,
                    cursor: cursor.as_ref().map(|(topic, partition)| Cursor {
                        topic_name: text(topic),
                        partition_index: *partition,
                        ..Default::default()
                    }),
                    ..Default::default()
                })
                .await?;
            for topic in &response.topics {
                let name = topic.name.as_deref().unwrap_or_default();
                if topic.error_code == ErrorCode::UnknownTopicOrPartition.code() {
                    return Err(unknown(name));
                }
                ClientError::check_code(format!("topic {name}"), topic.error_code)?;
                let partitions = topic
                    .partitions
                    .iter()
                    .map(|partition| PartitionDescription {
                        partition: partition.partition_index,
                        leader: Some(partition.leader_id).filter(|leader| *leader >= 0),
                        replicas: partition.replica_nodes.clone(),
                        isr: partition.isr_nodes.clone(),
                        eligible_leader_replicas: partition.eligible_leader_replicas.clone(),
                        last_known_elr: partition.last_known_elr.clone(),
                    });
                described
                    .entry(name.to_owned())
                    .or_insert_with(|| TopicDescription {
                        name: name.to_owned(),
                        topic_id: topic.topic_id,
                        is_internal: topic.is_internal,
                        partitions: Vec::new(),
                    })
                    .partitions
                    .extend(partitions);
            }
            let next = response
                .next_cursor
                .map(|cursor| (cursor.topic_name.to_string(), cursor.partition_index));
            // A cursor that does not advance would never end.
            if next.is_none() || next == cursor {
                return Ok(described.into_values().collect());
            }
            cursor = next;
        }
    }

    /// Deletes the records before an offset of each partition; -1 means the high watermark. Returns
    /// the new log start offsets.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeMap;
    ///
    /// let offsets = BTreeMap::from([(("orders".to_owned(), 0), 1000)]);
    /// for ((topic, partition), start) in admin.delete_records(&offsets).await? {
    ///     println!("{topic}-{partition} starts at {}", start?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete_records(
        &self,
        offsets: &BTreeMap<(String, i32), i64>,
    ) -> Result<BTreeMap<(String, i32), Result<i64, ClientError>>, ClientError> {
        let mut results = BTreeMap::new();
        for ((topic, partition), offset) in offsets {
            let result = self
                .client
                .retrying("DeleteRecords", async || {
                    let connection = leader_connection(&self.client, topic, *partition).await?;
                    let request = DeleteRecordsRequest {
                        topics: vec![DeleteRecordsTopic {
                            name: text(topic),
                            partitions: vec![DeleteRecordsPartition {
                                partition_index: *partition,
                                offset: *offset,
                                ..Default::default()
                            }],
                            ..Default::default()
                        }],
                        timeout_ms: self.timeout_ms(),
                        ..Default::default()
                    };
                    let response = connection.send(&request).await?;
                    let found = response
                        .topics
                        .iter()
                        .flat_map(|topic| &topic.partitions)
                        .next();
                    let (code, low_watermark) =
                        found.map_or((-1, -1), |it| (it.error_code, it.low_watermark));
                    let what = format!("deleting records of {topic}-{partition}");
                    let checked = ClientError::check_code(what, code);
                    forget_stale_leader(&self.client, topic, &checked).await;
                    checked.map(|()| low_watermark)
                })
                .await;
            results.insert((topic.clone(), *partition), result);
        }
        Ok(results)
    }

    pub(super) fn timeout_ms(&self) -> i32 {
        self.client
            .config()
            .request_timeout
            .as_millis()
            .try_into()
            .unwrap_or(i32::MAX)
    }
}

/// A connection to the leader of a partition.
pub(crate) async fn leader_connection(
    client: &Client,
    topic: &str,
    partition: i32,
) -> Result<std::sync::Arc<crate::Connection>, ClientError> {
    let metadata = client.topics(&[topic.to_owned()]).await?;
    let Some(info) = metadata.partition(topic, partition) else {
        return Err(ClientError::broker(
            format!("{topic}-{partition}"),
            // Not retriable: the topic has fewer partitions.
            ErrorCode::InvalidPartitions.code(),
            Some("the topic does not have this partition"),
        ));
    };
    let connected = match metadata.brokers.get(&info.leader) {
        Some(broker) => client.connection(&broker.address()).await,
        None => Err(ClientError::broker(
            format!("{topic}-{partition}"),
            ErrorCode::LeaderNotAvailable.code(),
            None::<&str>,
        )),
    };
    // Another broker may lead by now. Without a refresh, a client that has the address of a broker
    // that has just died would retry that address forever.
    forget_stale_leader(client, topic, &connected).await;
    connected
}

/// Refreshes the metadata after an error that says that it is stale, or after no response.
pub(crate) async fn forget_stale_leader<T>(
    client: &Client,
    topic: &str,
    result: &Result<T, ClientError>,
) {
    if result.as_ref().is_err_and(ClientError::is_retriable) {
        let _ = client
            .refresh_metadata(Some(&[topic.to_owned()]), false)
            .await;
    }
}

/// An error if the code is retriable.
fn retriable(what: &str, code: i16) -> Result<(), ClientError> {
    match ErrorCode::from_code(code).is_retriable() {
        true => Err(ClientError::broker(what, code, None::<&str>)),
        false => Ok(()),
    }
}

fn unknown(name: &str) -> ClientError {
    ClientError::broker(
        format!("topic {name}"),
        ErrorCode::UnknownTopicOrPartition.code(),
        Some("it does not exist"),
    )
}

fn creatable(topic: &NewTopic) -> CreatableTopic {
    let is_manual = !topic.assignments.is_empty();
    let partitions = topic.partitions.filter(|_| !is_manual);
    let replication_factor = topic.replication_factor.filter(|_| !is_manual);
    CreatableTopic {
        name: text(&topic.name),
        num_partitions: partitions.unwrap_or(-1),
        replication_factor: replication_factor.unwrap_or(-1),
        assignments: topic
            .assignments
            .iter()
            .map(|(partition, brokers)| CreatableReplicaAssignment {
                partition_index: *partition,
                broker_ids: brokers.clone(),
                ..Default::default()
            })
            .collect(),
        configs: topic
            .configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig {
                name: text(name),
                value: Some(text(value)),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}
