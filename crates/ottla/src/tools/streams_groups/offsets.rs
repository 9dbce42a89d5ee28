//! A group's committed offsets of the topics that its application reads, and the lag.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use ottla_client::Admin;
use ottla_client::admin::{CommittedOffset, DescribedStreamsGroup, OffsetSpec};

use super::wrapped;
use crate::tools::UsageError;
use crate::tools::offset_reset::{self, Partition};

/// A partition that a member of the group reads.
pub(super) struct OffsetsOfPartition {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) current_offset: Option<i64>,
    pub(super) leader_epoch: Option<i32>,
    pub(super) log_end_offset: i64,
    pub(super) lag: i64,
}

/// All partitions that the members' active tasks read.
pub(super) async fn offsets(
    admin: &Admin,
    group: &DescribedStreamsGroup,
) -> anyhow::Result<Vec<OffsetsOfPartition>> {
    let partitions = partitions_read(group)?;
    let starts = offset_reset::offsets(admin, &partitions, OffsetSpec::Earliest).await?;
    let ends = offset_reset::offsets(admin, &partitions, OffsetSpec::Latest).await?;
    let committed = committed_of(admin, &group.group.group_id, group, true).await?;
    let of = |partition: Partition| {
        let found = committed.get(&partition);
        let current_offset = found.map(|found| found.offset);
        let log_end_offset = ends[&partition];
        OffsetsOfPartition {
            current_offset,
            leader_epoch: found
                .map(|found| found.leader_epoch)
                .filter(|epoch| *epoch >= 0),
            log_end_offset,
            lag: log_end_offset - current_offset.unwrap_or(starts[&partition]),
            topic: partition.0,
            partition: partition.1,
        }
    };
    Ok(partitions.into_iter().map(of).collect())
}

fn partitions_read(group: &DescribedStreamsGroup) -> anyhow::Result<Vec<Partition>> {
    let mut partitions = BTreeSet::new();
    let members = group.group.members.iter();
    for tasks in members.flat_map(|member| &member.assignment.active_tasks) {
        let id = &*tasks.subtopology_id;
        let mut subtopologies = group.subtopologies.iter();
        let Some(subtopology) = subtopologies.find(|subtopology| subtopology.id == id) else {
            bail!(UsageError(format!(
                "Subtopology {id} not found in group description!"
            )));
        };
        let repartitioned = &subtopology.repartition_source_topics;
        for topic in subtopology.source_topics.iter().chain(repartitioned) {
            partitions.extend(tasks.partitions.iter().map(|it| (topic.clone(), *it)));
        }
    }
    Ok(partitions.into_iter().collect())
}

/// The group's committed offsets of its input topics, and optionally of its repartition topics.
pub(super) async fn committed(
    admin: &Admin,
    group: &str,
    with_repartitioned: bool,
) -> anyhow::Result<BTreeMap<Partition, CommittedOffset>> {
    let described = admin.describe_streams_group(group).await.map_err(wrapped)?;
    committed_of(admin, group, &described, with_repartitioned).await
}

async fn committed_of(
    admin: &Admin,
    group: &str,
    described: &DescribedStreamsGroup,
    with_repartitioned: bool,
) -> anyhow::Result<BTreeMap<Partition, CommittedOffset>> {
    let reads = |topic: &String| {
        described.subtopologies.iter().any(|subtopology| {
            subtopology.source_topics.contains(topic)
                || (with_repartitioned && subtopology.repartition_source_topics.contains(topic))
        })
    };
    let mut committed = admin.committed_offsets(group).await.map_err(wrapped)?;
    committed.retain(|(topic, _), _| reads(topic));
    Ok(committed)
}
