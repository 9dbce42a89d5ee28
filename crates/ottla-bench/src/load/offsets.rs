//! Many committed offsets: commits them, and reads them back from a coordinator that has just
//! loaded them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytestring::ByteString;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use ottla_protocol::messages::{OffsetCommitRequest, OffsetFetchRequest};

use super::access::Access;
use super::groups::{coordinators, is_not_served_yet};
use super::topic::Topic;
use super::wire::check;

const PAUSE: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(120);

/// The names of the groups. Each group commits an offset in every partition of a topic.
pub fn names(prefix: &str, groups: usize) -> Vec<ByteString> {
    (0..groups)
        .map(|number| format!("{prefix}-{number}").into())
        .collect()
}

/// Commits an offset of each group in each partition.
pub fn commit(topic: &Topic, groups: &[ByteString]) -> Result<()> {
    let access = &topic.access;
    let bootstrap = access.bootstrap();
    let partitions = topic
        .partitions
        .iter()
        .map(|partition| OffsetCommitRequestPartition {
            partition_index: partition.index,
            committed_offset: i64::from(partition.index),
            committed_metadata: Some(ByteString::default()),
            ..Default::default()
        })
        .collect();
    let topics = vec![OffsetCommitRequestTopic {
        name: topic.name.clone().into(),
        topic_id: topic.id,
        partitions,
        ..Default::default()
    }];
    coordinators(access, groups)?;
    let mut connection = access.open_bootstrap()?;
    for group_id in groups {
        let request = OffsetCommitRequest {
            group_id: group_id.clone(),
            topics: topics.clone(),
            ..Default::default()
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = connection.request(&request)?;
            let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
            let mut errors = partitions.map(|partition| partition.error_code);
            let error = errors.find(|code| *code != 0).unwrap_or_default();
            if !is_not_served_yet(error) {
                check(error, "committing offsets", bootstrap)?;
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "{bootstrap}: {group_id} is not served"
            );
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Waits until the offsets of all groups are returned, and counts them.
pub fn fetch(access: &Access, groups: &[ByteString]) -> Result<u64> {
    let bootstrap = access.bootstrap();
    let mut connection = access.open_bootstrap()?;
    let mut count = 0;
    for group_id in groups {
        let request = OffsetFetchRequest {
            groups: vec![OffsetFetchRequestGroup {
                group_id: group_id.clone(),
                topics: None,
                ..Default::default()
            }],
            ..Default::default()
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = connection.request(&request)?;
            let group = answer.groups.first();
            let error = group.map_or(0, |group| group.error_code);
            if !is_not_served_yet(error) {
                check(error, "fetching offsets", bootstrap)?;
                let topics = group.into_iter().flat_map(|group| &group.topics);
                count += topics
                    .map(|topic| topic.partitions.len() as u64)
                    .sum::<u64>();
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "{bootstrap}: {group_id} is not served"
            );
            std::thread::sleep(PAUSE);
        }
    }
    Ok(count)
}
