//! All that `__remote_log_metadata` says, by partition.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::anyhow;
use bytes::Bytes;
use ottla_client::admin::{ConfigResourceType, EndpointType, OffsetSpec};
use ottla_client::{Admin, Client, ClientError};
use ottla_controller::is_valid_topic_name;
use ottla_tiered::{
    REMOTE_LOG_METADATA_TOPIC, RemoteLogMetadata, RemoteLogSegmentState, RemotePartition,
    RemotePartitionDeleteMetadata, RemoteSegment,
};
use ottla_types::{ErrorCode, Uuid};

use crate::tools::offset_reset::offsets;
use crate::tools::topic_records;

/// The remote segments of a cluster.
#[derive(Default, Debug)]
pub struct RemoteLog {
    pub partitions: BTreeMap<RemotePartition, RemotePartitionLog>,
    /// Records that could not be read, or that fit nothing: where, and why.
    pub unreadable: Vec<String>,
    /// The topic whose segments are kept after their deletion has ended. Elsewhere they are counted.
    pub keeps_deleted_of: Option<String>,
}

/// The segments of one partition, without fully deleted segments.
#[derive(Default, Debug)]
pub struct RemotePartitionLog {
    pub segments: BTreeMap<Uuid, RemoteSegment>,
    /// Segments whose deletion has ended.
    pub deleted: usize,
    /// Deleted segments whose upload had ended, if they are kept.
    pub deleted_segments: Vec<RemoteSegment>,
    /// Segments whose deletion began before their upload had ended, and has not ended.
    pub unfinished: BTreeSet<Uuid>,
    /// The deletion of the whole partition, if it was begun.
    pub deletion: Option<RemotePartitionDeleteMetadata>,
}

impl RemotePartitionLog {
    /// The segments in this state, by their offsets.
    pub fn in_state(&self, state: RemoteLogSegmentState) -> Vec<&RemoteSegment> {
        let all = self.segments.values();
        let mut segments: Vec<_> = all.filter(|segment| segment.state == state).collect();
        segments.sort_by_key(|segment| (segment.start_offset, segment.end_offset));
        segments
    }
}

impl RemoteLog {
    /// Applies one record. `place` is where it was found.
    pub fn apply(&mut self, value: &Bytes, place: &str) {
        let metadata = match RemoteLogMetadata::decode(value) {
            Ok(metadata) => metadata,
            Err(error) => {
                self.unreadable.push(format!("{place}: {error}"));
                return;
            }
        };
        // It becomes a part of paths in the store, and of the output.
        if let Some(partition) = metadata.partition()
            && !is_valid_topic_name(&partition.topic)
        {
            let name = &*partition.topic;
            self.unreadable
                .push(format!("{place}: {name:?} is not the name of a topic"));
            return;
        }
        match metadata {
            RemoteLogMetadata::Segment(metadata) => {
                let partition = self.partitions.entry(metadata.partition).or_default();
                let segment = metadata.segment;
                let known = partition.segments.get(&segment.id);
                if is_followed(known.map(|known| known.state), segment.state) {
                    partition.segments.insert(segment.id, segment);
                }
            }
            RemoteLogMetadata::SegmentUpdate(update) => {
                let keeps = self.keeps_deleted_of.as_deref() == Some(&*update.partition.topic);
                let partition = self.partitions.entry(update.partition).or_default();
                let update = update.update;
                let Some(segment) = partition.segments.get_mut(&update.id) else {
                    // The update of a segment that was deleted before, or that was never announced.
                    let id = update.id;
                    if update.state != RemoteLogSegmentState::DeleteSegmentFinished {
                        let error = format!("{place}: an update of segment {id}, which is unknown");
                        self.unreadable.push(error);
                    }
                    return;
                };
                if !is_followed(Some(segment.state), update.state) {
                    return;
                }
                if segment.state == RemoteLogSegmentState::CopySegmentStarted
                    && update.state == RemoteLogSegmentState::DeleteSegmentStarted
                {
                    partition.unfinished.insert(update.id);
                }
                *segment = segment.updated(&update);
                if update.state == RemoteLogSegmentState::DeleteSegmentFinished {
                    let segment = partition.segments.remove(&update.id);
                    let was_whole = !partition.unfinished.remove(&update.id);
                    partition.deleted += 1;
                    if keeps && was_whole {
                        partition.deleted_segments.extend(segment);
                    }
                }
            }
            RemoteLogMetadata::PartitionDelete(delete) => {
                let partition = self.partitions.entry(delete.partition.clone());
                partition.or_default().deletion = Some(delete);
            }
            RemoteLogMetadata::SegmentSnapshot(segment) => {
                let error = format!(
                    "{place}: a snapshot of segment {} without its partition",
                    segment.id
                );
                self.unreadable.push(error);
            }
        }
    }
}

/// Whether brokers follow a record that gives a segment this state. They drop a late record, such
/// as the end of an upload after the deletion began.
fn is_followed(known: Option<RemoteLogSegmentState>, state: RemoteLogSegmentState) -> bool {
    RemoteLogSegmentState::is_valid_transition(known, state)
}

/// Reads the topic from its beginning to the end that it has now. Of one topic, it can keep the
/// segments that were deleted.
pub async fn read(client: &Client, keeps_deleted_of: Option<&str>) -> anyhow::Result<RemoteLog> {
    let admin = Admin::new(client.clone());
    let partitions = match topic_records::partitions(&admin, REMOTE_LOG_METADATA_TOPIC).await {
        Ok(partitions) => partitions,
        Err(error) => return Err(explained(&admin, error).await),
    };
    let begins = offsets(&admin, &partitions, OffsetSpec::Earliest).await?;
    let ends = offsets(&admin, &partitions, OffsetSpec::Latest).await?;
    let ranges = begins.into_iter().map(|(partition, begin)| {
        let end = ends[&partition];
        (partition, begin..end)
    });
    let ranges: BTreeMap<_, _> = ranges.collect();
    let mut log = RemoteLog {
        keeps_deleted_of: keeps_deleted_of.map(str::to_owned),
        ..RemoteLog::default()
    };
    topic_records::read(client, &ranges, |record| {
        if let Some(value) = &record.value {
            let (topic, partition, offset) = (&record.topic, record.partition, record.offset);
            log.apply(value, &format!("{topic}-{partition} offset {offset}"));
        }
    })
    .await?;
    Ok(log)
}

/// The error of a topic that cannot be described, with its cause.
async fn explained(admin: &Admin, error: ClientError) -> anyhow::Error {
    let ClientError::Broker { code, .. } = &error else {
        return error.into();
    };
    let is_enabled = match code {
        ErrorCode::UnknownTopicOrPartition => is_enabled(admin).await,
        _ => None,
    };
    match cause(*code, is_enabled) {
        Some(cause) => anyhow!(cause),
        None => error.into(),
    }
}

fn cause(code: ErrorCode, is_enabled: Option<bool>) -> Option<String> {
    const TOPIC: &str = REMOTE_LOG_METADATA_TOPIC;
    const SETTING: &str = "remote.log.storage.system.enable";
    match (code, is_enabled) {
        (ErrorCode::TopicAuthorizationFailed, _) => Some(topic_records::way_to_read(TOPIC)),
        (ErrorCode::UnknownTopicOrPartition, Some(true)) => Some(format!(
            "{SETTING} is set, and the brokers have not created the topic {TOPIC}; their logs say why. \
             If there are fewer than three brokers, set \
             rlmm.config.remote.log.metadata.topic.replication.factor to their number"
        )),
        (ErrorCode::UnknownTopicOrPartition, Some(false)) => Some(format!(
            "the cluster has no topic {TOPIC}, because {SETTING} is not set; to use tiered storage, set \
             {SETTING}=true and a store (rsm.config.*) in the file of each broker"
        )),
        (ErrorCode::UnknownTopicOrPartition, None) => Some(format!(
            "the cluster has no topic {TOPIC}; see whether {SETTING} is set in the file of each broker"
        )),
        _ => None,
    }
}

/// Whether tiered storage is on at a broker; `None` if this user may not see its settings.
async fn is_enabled(admin: &Admin) -> Option<bool> {
    let cluster = admin.describe_cluster(EndpointType::Broker, false).await;
    let broker = cluster.ok()?.brokers.first()?.broker_id.to_string();
    let configs = admin.describe_configs(ConfigResourceType::Broker, &broker, false);
    let configs = configs.await.ok()?;
    let setting = "remote.log.storage.system.enable";
    let found = configs
        .into_iter()
        .find(|config| &*config.name == setting)?;
    Some(found.value.as_deref() == Some("true"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use ottla_tiered::{
        LeaderEpochs, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
        RemotePartitionDeleteState,
    };
    use ottla_types::{BrokerId, Offset, PartitionIndex, Timestamp, TopicName};

    pub fn partition(topic: &str) -> RemotePartition {
        RemotePartition {
            topic_id: Uuid::from_u128(9),
            topic: TopicName::from(topic),
            partition: PartitionIndex(0),
        }
    }

    pub fn segment(id: u128, start: i64, end: i64, state: RemoteLogSegmentState) -> RemoteSegment {
        RemoteSegment {
            id: Uuid::from_u128(id),
            start_offset: Offset(start),
            end_offset: Offset(end),
            max_timestamp: Timestamp(1_000 + end),
            broker_id: BrokerId(1),
            event_timestamp: Timestamp(500_000),
            segment_size_bytes: 1000,
            custom_metadata: None,
            state,
            segment_leader_epochs: LeaderEpochs::from([(2, start)]),
            is_txn_index_empty: true,
        }
    }

    pub fn announced(segment: RemoteSegment) -> Bytes {
        let metadata = RemoteLogSegmentMetadata {
            partition: partition("t"),
            segment,
        };
        RemoteLogMetadata::Segment(metadata).encode().unwrap()
    }

    pub fn update(segment: &RemoteSegment, state: RemoteLogSegmentState) -> Bytes {
        let update = segment.to_state(state, Timestamp(600_000), BrokerId(2));
        let metadata = RemoteLogSegmentMetadataUpdate {
            partition: partition("t"),
            update,
        };
        RemoteLogMetadata::SegmentUpdate(metadata).encode().unwrap()
    }

    #[test]
    fn segments_are_built_from_records() {
        use RemoteLogSegmentState::*;
        let mut log = RemoteLog::default();
        let (first, second) = (
            segment(1, 0, 9, CopySegmentStarted),
            segment(2, 10, 19, CopySegmentStarted),
        );
        for value in [
            announced(first.clone()),
            update(&first, CopySegmentFinished),
            announced(second.clone()),
            update(&first, DeleteSegmentStarted),
            update(&first, DeleteSegmentFinished),
            // Twice, as after a restart of the broker.
            update(&first, DeleteSegmentFinished),
        ] {
            log.apply(&value, "here");
        }
        let found = &log.partitions[&partition("t")];
        assert_eq!((found.deleted, found.segments.len()), (1, 1));
        assert_eq!(found.in_state(CopySegmentStarted), [&second]);
        assert!(log.unreadable.is_empty());

        log.apply(&Bytes::from_static(b"\x01\x63"), "there");
        log.apply(
            &update(&segment(7, 0, 1, CopySegmentStarted), CopySegmentFinished),
            "there",
        );
        assert_eq!(log.unreadable.len(), 2);
        assert!(
            log.unreadable[0].starts_with("there: "),
            "{:?}",
            log.unreadable
        );
        let delete = RemotePartitionDeleteMetadata {
            partition: partition("t"),
            state: RemotePartitionDeleteState::DeletePartitionMarked,
            event_timestamp: Timestamp(1),
            broker_id: BrokerId(1),
        };
        let value = RemoteLogMetadata::PartitionDelete(delete.clone())
            .encode()
            .unwrap();
        log.apply(&value, "here");
        assert_eq!(log.partitions[&partition("t")].deletion, Some(delete));
    }

    #[test]
    fn an_unreadable_topic_is_one_error() {
        use ErrorCode::{TopicAuthorizationFailed, UnknownTopicOrPartition};
        for (code, is_enabled, says) in [
            (TopicAuthorizationFailed, None, "this user may not read"),
            (UnknownTopicOrPartition, Some(true), "have not created"),
            (UnknownTopicOrPartition, Some(false), "is not set"),
            (UnknownTopicOrPartition, None, "see whether"),
        ] {
            let cause = cause(code, is_enabled).unwrap();
            assert!(cause.contains(says), "{cause}");
            let not_set = cause.contains("set remote.log.storage.system.enable=true");
            assert_eq!(not_set, is_enabled == Some(false), "{cause}");
        }
        assert_eq!(cause(ErrorCode::UnknownServerError, None), None);
    }

    #[test]
    fn a_record_with_an_invalid_topic_name_is_unreadable() {
        let metadata = RemoteLogSegmentMetadata {
            partition: partition("../../\x1b[2J"),
            segment: segment(1, 0, 9, RemoteLogSegmentState::CopySegmentStarted),
        };
        let value = RemoteLogMetadata::Segment(metadata).encode().unwrap();
        let mut log = RemoteLog::default();
        log.apply(&value, "here");
        assert!(log.partitions.is_empty());
        let unreadable = r#"here: "../../\u{1b}[2J" is not the name of a topic"#;
        assert_eq!(log.unreadable, [unreadable]);
    }

    #[test]
    fn records_that_brokers_drop_are_ignored() {
        use RemoteLogSegmentState::*;
        let left_behind = segment(1, 0, 9, CopySegmentStarted);
        let mut log = RemoteLog::default();
        for value in [
            announced(left_behind.clone()),
            update(&left_behind, DeleteSegmentStarted),
            update(&left_behind, CopySegmentFinished),
            announced(left_behind.clone()),
        ] {
            log.apply(&value, "here");
        }
        let found = &log.partitions[&partition("t")];
        assert_eq!(found.in_state(DeleteSegmentStarted).len(), 1);
        assert!(log.unreadable.is_empty(), "{:?}", log.unreadable);
    }

    #[test]
    fn deleted_complete_segments_are_kept_for_their_topic() {
        use RemoteLogSegmentState::*;
        let (whole, partial) = (
            segment(1, 0, 9, CopySegmentStarted),
            segment(2, 10, 19, CopySegmentStarted),
        );
        let values = [
            announced(whole.clone()),
            announced(partial.clone()),
            update(&whole, CopySegmentFinished),
            update(&partial, DeleteSegmentStarted),
            update(&partial, DeleteSegmentFinished),
            update(&whole, DeleteSegmentStarted),
            update(&whole, DeleteSegmentFinished),
        ];
        for (topic, kept) in [
            (Some("t"), vec![whole.id]),
            (Some("u"), vec![]),
            (None, vec![]),
        ] {
            let mut log = RemoteLog {
                keeps_deleted_of: topic.map(str::to_owned),
                ..RemoteLog::default()
            };
            for value in &values {
                log.apply(value, "here");
            }
            let found = &log.partitions[&partition("t")];
            let ids: Vec<_> = found.deleted_segments.iter().map(|it| it.id).collect();
            assert_eq!(ids, kept, "{topic:?}");
            assert_eq!((found.deleted, found.unfinished.len()), (2, 0));
        }
    }
}
