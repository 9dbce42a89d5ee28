//! DescribeLogDirs (KIP-113, KIP-827): directories with what is in them.
//!
//! Kafka: `ReplicaManager.describeLogDirs`.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use ottla_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use ottla_types::ErrorCode;

use crate::{Broker, Operation, RequestContext, ResourceType};

/// Partitions with their sizes, by directory and topic.
type Contents = BTreeMap<PathBuf, BTreeMap<ByteString, Vec<DescribeLogDirsPartition>>>;

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
        return DescribeLogDirsResponse {
            error_code: ErrorCode::ClusterAuthorizationFailed.code(),
            ..Default::default()
        };
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
    let contents = contents(broker, wanted.as_ref());
    let config = broker.config().clone();
    // Asking the file system how full it is may wait for the disk.
    let results = tokio::task::spawn_blocking(move || {
        config
            .log_dirs
            .iter()
            .map(|dir| {
                let is_cordoned = config
                    .cordoned_log_dirs
                    .iter()
                    .any(|entry| entry == "*" || entry == dir);
                described(Path::new(dir), &contents, is_cordoned)
            })
            .collect()
    })
    .await
    .unwrap_or_default();
    DescribeLogDirsResponse {
        results,
        ..Default::default()
    }
}

fn contents(broker: &Broker, wanted: Option<&HashSet<(ByteString, i32)>>) -> Contents {
    let mut contents = Contents::new();
    for partition in broker.partitions.load().iter() {
        let name = &partition.topic_partition.topic;
        let index = partition.topic_partition.partition.value();
        if wanted.is_some_and(|wanted| !wanted.contains(&(name.clone(), index))) {
            continue;
        }
        let reader = partition.reader();
        let Some(dir) = reader.dir().parent().map(Path::to_path_buf) else {
            continue;
        };
        let lag = reader
            .high_watermark()
            .since(reader.log_end_offset())
            .max(0);
        let topics = contents.entry(dir).or_default();
        topics
            .entry(name.clone())
            .or_default()
            .push(DescribeLogDirsPartition {
                partition_index: index,
                partition_size: reader.size() as i64,
                offset_lag: lag,
                is_future_key: false,
                ..Default::default()
            });
    }
    contents
}

fn described(dir: &Path, contents: &Contents, is_cordoned: bool) -> DescribeLogDirsResult {
    // Kafka shows directories by their absolute path.
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let log_dir = ByteString::from(absolute.display().to_string());
    let space = match rustix::fs::statvfs(dir) {
        Ok(space) => space,
        Err(_) => {
            return DescribeLogDirsResult {
                error_code: ErrorCode::KafkaStorageError.code(),
                log_dir,
                ..Default::default()
            };
        }
    };
    let topics = contents
        .get(dir)
        .into_iter()
        .flatten()
        .map(|(name, partitions)| DescribeLogDirsTopic {
            name: name.clone(),
            partitions: partitions.clone(),
            ..Default::default()
        });
    let bytes =
        |blocks: u64| i64::try_from(blocks.saturating_mul(space.f_frsize)).unwrap_or(i64::MAX);
    DescribeLogDirsResult {
        error_code: ErrorCode::None.code(),
        log_dir,
        topics: topics.collect(),
        total_bytes: bytes(space.f_blocks),
        usable_bytes: bytes(space.f_bavail),
        is_cordoned,
        ..Default::default()
    }
}
