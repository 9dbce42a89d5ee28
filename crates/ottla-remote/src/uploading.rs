//! The upload of one segment for a leader.
//!
//! It is abandoned when the broker no longer copies the partition: another one leads, copying was
//! disabled, or the topic is gone. The metadata then contains a copy that has begun. As in Kafka,
//! the leader deletes such a segment when it expires. Its objects, which cannot be read, are
//! deleted at once.
//!
//! They are also deleted if the metadata no longer contains the copy when the upload ends: another
//! leader has deleted the segment, or the record of the copy was lost with the end of
//! `__remote_log_metadata`. No later deletion would find them.
//!
//! Kafka: `RLMCopyTask.copyLogSegment`, `RLMTask.cancel`.

use std::sync::Arc;

use ottla_log::Log;
use ottla_partition::Partition;
use ottla_sync::watch;
use ottla_tiered::{CustomMetadata, RemoteLogMetadataCache, StoreFailure, TierRole, Upload};
use ottla_tiered_storage::LogSegmentData;
use ottla_types::{Offset, Uuid};

use crate::remote_tier::RemoteTier;
use crate::stores::failure_of;
use crate::tier_metrics::TierCounter;

/// Where a segment is copied from.
pub struct Source {
    pub partition: Arc<Partition>,
    /// Of the log when the copy was decided ([`ottla_log::LogReader::truncations`]).
    pub truncations: Option<u64>,
}

/// Copies a segment to the store. Counts and logs failures.
pub async fn upload(
    remote: &RemoteTier,
    source: Source,
    upload: &Upload,
    mut roles: watch::Receiver<TierRole>,
) -> Result<Option<CustomMetadata>, StoreFailure> {
    let topic = &upload.metadata.partition.topic;
    remote.metrics.add(topic, TierCounter::CopyRequests, 1);
    let key = upload.metadata.partition.topic_id_partition();
    let id = upload.metadata.segment.id;
    let copying = async {
        let copied = copy(remote, &source, upload).await;
        // If its end was lost during the copy, it is being read again.
        remote.metadata.until_initialized(key).await;
        copied
    };
    let copied = ottla_sync::select! {
        copied = copying => copied,
        () = until_not_copying(&mut roles) => {
            abandon(remote, upload, "this broker no longer copies the partition").await;
            // The store may still be writing, so the deletion must not count as complete.
            return Err(StoreFailure::Retriable);
        }
    };
    let metadata = &remote.metadata;
    if metadata.with_cache(key, |cache| is_overtaken(cache, id)) {
        abandon(remote, upload, "the metadata names no such copy any more").await;
        return Err(StoreFailure::Retriable);
    }
    match &copied {
        Ok(_) => {
            let bytes = u64::try_from(upload.metadata.segment.segment_size_bytes).unwrap_or(0);
            remote.metrics.add(topic, TierCounter::CopyBytes, bytes);
        }
        Err(_) => remote.metrics.add(topic, TierCounter::CopyErrors, 1),
    }
    copied
}

async fn copy(
    remote: &RemoteTier,
    source: &Source,
    upload: &Upload,
) -> Result<Option<CustomMetadata>, StoreFailure> {
    let (partition, metadata) = (&source.partition, &upload.metadata);
    let segment = &metadata.segment;
    let (base, next) = (segment.start_offset, Offset(segment.end_offset.0 + 1));
    let files = move |log: &mut Log| log.closed_segment_files(base, next);
    let Some(files) = partition.with_log(&remote.host, files).await else {
        return Err(StoreFailure::Permanent);
    };
    let data = LogSegmentData {
        log_segment: files.log,
        offset_index: files.offset_index,
        time_index: files.time_index,
        transaction_index: (!segment.is_txn_index_empty).then_some(files.transaction_index),
        producer_snapshot_index: files.producer_snapshot,
        leader_epoch_index: upload.leader_epochs.to_checkpoint().into(),
    };
    let permit = remote.turn_to_copy().await;
    let copied = remote.stores.copy(&permit, metadata, data).await;
    let now = |log: &mut Log| log.reader().truncations();
    if partition.with_log(&remote.host, now).await != source.truncations {
        tracing::warn!(
            partition = %metadata.partition,
            "the log was truncated while the segment at offset {base} was copied to remote \
             storage; the copy is discarded"
        );
        return Err(StoreFailure::Permanent);
    }
    copied.map_err(|error| {
        tracing::warn!(
            partition = %metadata.partition,
            "the segment at offset {base} is not copied to remote storage: {error}"
        );
        failure_of(&error)
    })
}

async fn until_not_copying(roles: &mut watch::Receiver<TierRole>) {
    loop {
        let role = *roles.borrow_and_update();
        let is_copying = matches!(
            role,
            TierRole::Leader {
                is_copy_disabled: false
            }
        );
        if !is_copying || roles.changed().await.is_err() {
            return;
        }
    }
}

/// Whether another leader has begun to delete the segment, or its record is gone.
fn is_overtaken(cache: Option<&RemoteLogMetadataCache>, id: Uuid) -> bool {
    cache.is_some_and(|cache| !cache.is_being_copied(id))
}

/// Only this upload could have made the segment readable, so its objects are useless. Objects that
/// the store still writes are deleted when the segment expires.
async fn abandon(remote: &RemoteTier, upload: &Upload, reason: &str) {
    let metadata = &upload.metadata;
    let base = metadata.segment.start_offset;
    tracing::info!(
        partition = %metadata.partition,
        "the copy of the segment at offset {base} to remote storage is abandoned, because {reason}"
    );
    let permit = remote.turn_to_delete().await;
    if let Err(error) = remote.stores.delete(&permit, metadata).await {
        tracing::warn!(
            partition = %metadata.partition,
            "the objects of an abandoned copy at offset {base} stay until the segment expires: \
             {error}"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ottla_tiered::{LeaderEpochs, RemoteLogSegmentState, RemoteSegment};
    use ottla_types::{BrokerId, Timestamp};

    use super::*;

    const COPIES: TierRole = TierRole::Leader {
        is_copy_disabled: false,
    };

    #[tokio::test]
    async fn a_copy_ends_with_the_role() {
        let reads_only = TierRole::Leader {
            is_copy_disabled: true,
        };
        for role in [TierRole::Follower, TierRole::Stopped, reads_only] {
            let (sender, mut roles) = watch::channel(COPIES);
            {
                let ended = until_not_copying(&mut roles);
                tokio::pin!(ended);
                let soon = Duration::from_millis(20);
                let waited = ottla_sync::time::timeout(soon, &mut ended).await;
                waited.expect_err("it copies");
                sender.send_replace(role);
                ended.await;
            }
            until_not_copying(&mut roles).await;
        }
    }

    #[tokio::test]
    async fn a_copy_ends_with_the_task() {
        let (sender, mut roles) = watch::channel(COPIES);
        drop(sender);
        until_not_copying(&mut roles).await;
    }

    #[test]
    fn a_copy_is_overtaken_once_the_metadata_does_not_name_it() {
        let segment = RemoteSegment {
            id: Uuid::from_u128(1),
            start_offset: Offset(0),
            end_offset: Offset(9),
            max_timestamp: Timestamp(1),
            broker_id: BrokerId(1),
            event_timestamp: Timestamp(1),
            segment_size_bytes: 10,
            custom_metadata: None,
            state: RemoteLogSegmentState::CopySegmentStarted,
            segment_leader_epochs: LeaderEpochs::from([(0, 0)]),
            is_txn_index_empty: true,
        };
        let mut cache = RemoteLogMetadataCache::new();
        cache.mark_initialized();
        assert!(is_overtaken(Some(&cache), segment.id), "its record is lost");
        cache.add(&segment).unwrap();
        assert!(!is_overtaken(Some(&cache), segment.id));
        let deleting = RemoteLogSegmentState::DeleteSegmentStarted;
        let update = segment.to_state(deleting, Timestamp(2), BrokerId(2));
        cache.update(&update).unwrap();
        assert!(
            is_overtaken(Some(&cache), segment.id),
            "it is being deleted"
        );
        assert!(!is_overtaken(None, segment.id), "not known yet");
    }
}
