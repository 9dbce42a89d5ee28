//! AlterReplicaLogDirs (KIP-113): moves replicas to other log directories of this broker.
//!
//! Kafka: `KafkaApis.handleAlterReplicaLogDirsRequest`, `ReplicaManager.alterReplicaLogDirs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use ottla_protocol::messages::{AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse};
use ottla_types::{ErrorCode, TopicPartition};

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    // If a replica is named twice, the last directory counts.
    let mut wanted = BTreeMap::<(ByteString, i32), ByteString>::new();
    for dir in request.dirs {
        for topic in dir.topics {
            for partition in topic.partitions {
                wanted.insert((topic.name.clone(), partition), dir.path.clone());
            }
        }
    }
    let authorizer = &broker.authorizer;
    let is_allowed = authorizer.is_allowed(
        context,
        Operation::Alter,
        ResourceType::Cluster,
        "kafka-cluster",
    );
    let altering = Arc::clone(broker);
    // Blocks: creates and deletes directories.
    let altered = ottla_sync::task::spawn_blocking(move || {
        let wanted = wanted.into_iter();
        let results = wanted.map(|((topic, partition), path)| {
            let code = if is_allowed {
                let topic_partition = TopicPartition::new(topic.clone(), partition);
                let altered = altering
                    .directory_moves
                    .alter_replica_log_dir(&topic_partition, &path);
                altered.err().unwrap_or(ErrorCode::None)
            } else {
                ErrorCode::ClusterAuthorizationFailed
            };
            (topic, partition, code)
        });
        results.collect::<Vec<_>>()
    });
    let mut topics: Vec<AlterReplicaLogDirTopicResult> = Vec::new();
    for (topic, partition_index, code) in altered.await.unwrap_or_default() {
        // Sorted by topic.
        if topics.last().is_none_or(|last| last.topic_name != topic) {
            topics.push(AlterReplicaLogDirTopicResult {
                topic_name: topic,
                ..Default::default()
            });
        }
        let last = topics.last_mut().expect("it was just added");
        last.partitions.push(AlterReplicaLogDirPartitionResult {
            partition_index,
            error_code: code.code(),
            ..Default::default()
        });
    }
    AlterReplicaLogDirsResponse {
        results: topics,
        ..Default::default()
    }
}
