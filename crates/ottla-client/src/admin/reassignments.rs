//! Moving replicas: to other brokers (KIP-455), and to other log directories of a broker (KIP-113).

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::messages::alter_partition_reassignments_request::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use ottla_protocol::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use ottla_protocol::messages::list_partition_reassignments_request::ListPartitionReassignmentsRequest;
use ottla_protocol::messages::list_partition_reassignments_response::OngoingPartitionReassignment;

use super::{Admin, text};
use crate::error::ClientError;
use crate::partitions::{Partition, by_topic};

/// The log directories of a replica on a broker.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use std::collections::BTreeSet;
///
/// let partitions = BTreeSet::from([("orders".to_owned(), 0)]);
/// for dirs in admin.describe_replica_log_dirs(1, &partitions).await?.values() {
///     if let (Some(from), Some(to)) = (&dirs.current, &dirs.future) {
///         println!("moving from {from} to {to}");
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ReplicaLogDirs {
    /// `None` if no directory of the broker has it.
    pub current: Option<String>,
    /// The directory that it is being moved to.
    pub future: Option<String>,
}

impl Admin {
    /// The reassignments in progress, by topic and partition.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// for ((topic, partition), moving) in admin.list_partition_reassignments().await? {
    ///     println!("{topic}-{partition}: adding {:?}", moving.adding_replicas);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list_partition_reassignments(
        &self,
    ) -> Result<BTreeMap<(String, i32), OngoingPartitionReassignment>, ClientError> {
        let request = ListPartitionReassignmentsRequest {
            timeout_ms: self.timeout_ms(),
            topics: None,
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        let what = "listing reassignments";
        ClientError::check(what, response.error_code, response.error_message.as_ref())?;
        Ok(response
            .topics
            .into_iter()
            .flat_map(|topic| {
                let name = topic.name.to_string();
                topic
                    .partitions
                    .into_iter()
                    .map(move |it| ((name.clone(), it.partition_index), it))
            })
            .collect())
    }

    /// Requests other replicas of partitions. `None` cancels a reassignment that is in progress.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeMap;
    ///
    /// let moves = BTreeMap::from([
    ///     (("orders".to_owned(), 0), Some(vec![2, 3, 4])),
    ///     (("orders".to_owned(), 1), None),
    /// ]);
    /// let may_change_count = false;
    /// for (_, accepted) in admin.alter_partition_reassignments(&moves, may_change_count).await? {
    ///     accepted?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn alter_partition_reassignments(
        &self,
        partitions: &BTreeMap<Partition, Option<Vec<i32>>>,
        allow_replication_factor_change: bool,
    ) -> Result<BTreeMap<Partition, Result<(), ClientError>>, ClientError> {
        let partitions = partitions.iter().map(|(partition, replicas)| {
            let wanted = ReassignablePartition {
                partition_index: partition.1,
                replicas: replicas.clone(),
                ..Default::default()
            };
            (partition, wanted)
        });
        let topics = by_topic(partitions).into_iter();
        let topics = topics.map(|(topic, partitions)| ReassignableTopic {
            name: text(topic),
            partitions,
            ..Default::default()
        });
        let request = AlterPartitionReassignmentsRequest {
            timeout_ms: self.timeout_ms(),
            allow_replication_factor_change,
            topics: topics.collect(),
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        let what = "reassigning partitions";
        ClientError::check(what, response.error_code, response.error_message.as_ref())?;
        let mut results = BTreeMap::new();
        for topic in &response.responses {
            for partition in &topic.partitions {
                let message = partition.error_message.as_ref();
                results.insert(
                    (topic.name.to_string(), partition.partition_index),
                    ClientError::check(what, partition.error_code, message),
                );
            }
        }
        Ok(results)
    }

    /// Moves a replica to another log directory of its broker.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let partition = ("orders".to_owned(), 0);
    /// admin.alter_replica_log_dir(1, &partition, "/var/lib/kafka/disk2").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn alter_replica_log_dir(
        &self,
        broker: i32,
        (topic, partition): &Partition,
        path: &str,
    ) -> Result<(), ClientError> {
        let request = AlterReplicaLogDirsRequest {
            dirs: vec![AlterReplicaLogDir {
                path: text(path),
                topics: vec![AlterReplicaLogDirTopic {
                    name: text(topic),
                    partitions: vec![*partition],
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let connection = self.client.node(broker).await?;
        let response = connection.send(&request).await?;
        let what = format!("moving {topic}-{partition} to {path}");
        let mut results = response.results.iter().flat_map(|topic| &topic.partitions);
        let code = results.next().map_or(-1, |result| result.error_code);
        ClientError::check_code(what, code)
    }

    /// The log directories of these replicas. Offline directories report none.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeSet;
    ///
    /// let partitions = BTreeSet::from([("orders".to_owned(), 0)]);
    /// for ((topic, partition), dirs) in admin.describe_replica_log_dirs(1, &partitions).await? {
    ///     println!("{topic}-{partition} is in {:?}", dirs.current);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn describe_replica_log_dirs(
        &self,
        broker: i32,
        partitions: &BTreeSet<Partition>,
    ) -> Result<BTreeMap<Partition, ReplicaLogDirs>, ClientError> {
        let none = |partition: &Partition| (partition.clone(), ReplicaLogDirs::default());
        let mut found: BTreeMap<Partition, ReplicaLogDirs> = partitions.iter().map(none).collect();
        for directory in self.describe_log_dirs(broker).await? {
            for topic in &directory.topics {
                for partition in &topic.partitions {
                    let key = (topic.name.to_string(), partition.partition_index);
                    let Some(replica) = found.get_mut(&key) else {
                        continue;
                    };
                    let path = Some(directory.log_dir.to_string());
                    match partition.is_future_key {
                        true => replica.future = path,
                        false => replica.current = path,
                    }
                }
            }
        }
        Ok(found)
    }
}
