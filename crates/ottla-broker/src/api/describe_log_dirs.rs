//! DescribeLogDirs (KIP-113, KIP-827): the log directories and their contents.
//!
//! Kafka: `ReplicaManager.describeLogDirs`.

use std::collections::HashSet;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use ottla_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};
use ottla_storage::log_dirs::LogDirDescription;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let authorizer = &broker.authorizer;
    if !authorizer.is_allowed(
        context,
        Operation::Describe,
        ResourceType::Cluster,
        "kafka-cluster",
    ) {
        return DescribeLogDirsResponse::of_error(ErrorCode::ClusterAuthorizationFailed);
    }
    let wanted: Option<HashSet<(ByteString, i32)>> = request.topics.map(|topics| {
        topics
            .into_iter()
            .flat_map(|topic| {
                let name = topic.topic;
                topic
                    .partitions
                    .into_iter()
                    .map(move |index| (name.clone(), index))
            })
            .collect()
    });
    let may_be_cordoned = broker
        .metadata()
        .metadata_version()
        .is_cordoned_log_dirs_supported();
    let Some(log_dirs) = broker.log_dirs().map(Arc::clone) else {
        return DescribeLogDirsResponse::default();
    };
    // Reading the free space of a file system may wait for the disk.
    let described = ottla_sync::task::spawn_blocking(move || log_dirs.describe()).await;
    let results = described.unwrap_or_default().into_iter().map(|dir| {
        let is_cordoned = may_be_cordoned && dir.is_cordoned;
        result(dir, is_cordoned, wanted.as_ref())
    });
    DescribeLogDirsResponse {
        results: results.collect(),
        ..Default::default()
    }
}

fn result(
    dir: LogDirDescription,
    is_cordoned: bool,
    wanted: Option<&HashSet<(ByteString, i32)>>,
) -> DescribeLogDirsResult {
    let log_dir = ByteString::from(dir.path.display().to_string());
    if !dir.is_online {
        return DescribeLogDirsResult {
            error_code: ErrorCode::KafkaStorageError.code(),
            log_dir,
            ..Default::default()
        };
    }
    let mut topics: Vec<DescribeLogDirsTopic> = Vec::new();
    for partition in dir.partitions {
        let name = partition.topic_partition.topic;
        let index = partition.topic_partition.partition.value();
        if wanted.is_some_and(|wanted| !wanted.contains(&(name.clone(), index))) {
            continue;
        }
        // Sorted by topic.
        if topics.last().is_none_or(|topic| topic.name != name) {
            topics.push(DescribeLogDirsTopic {
                name,
                ..Default::default()
            });
        }
        let topic = topics.last_mut().expect("it was just added");
        topic.partitions.push(DescribeLogDirsPartition {
            partition_index: index,
            partition_size: partition.size_bytes,
            offset_lag: partition.offset_lag,
            is_future_key: partition.is_future,
            ..Default::default()
        });
    }
    DescribeLogDirsResult {
        error_code: ErrorCode::None.code(),
        log_dir,
        topics,
        total_bytes: dir.total_bytes,
        usable_bytes: dir.usable_bytes,
        is_cordoned,
        ..Default::default()
    }
}
