//! The upload of one segment for a leader.
//!
//! It is abandoned when the broker no longer copies the partition: another one leads, copying was
//! disabled, or the topic is gone. The metadata says then that a copy was begun. As in Kafka, the
//! leader deletes such a segment when it expires. The objects, which nobody can read, go at once.
//!
//! Kafka: `RLMCopyTask.copyLogSegment`, `RLMTask.cancel`.

use std::sync::Arc;

use ottla_log::Log;
use ottla_partition::Partition;
use ottla_sync::watch;
use ottla_tiered::{CustomMetadata, StoreFailure, TierRole, Upload};
use ottla_tiered_storage::LogSegmentData;
use ottla_types::Offset;

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
    let copied = ottla_sync::select! {
        copied = copy(remote, &source, upload) => copied,
        () = until_not_copying(&mut roles) => {
            abandon(remote, upload).await;
            // The store may still be writing, so the deletion must not count as complete.
            return Err(StoreFailure::Retriable);
        }
    };
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
    let stores = &remote.stores;
    let _turn = stores.copiers.acquire().await;
    let copied = stores.store.copy_log_segment_data(metadata, &data).await;
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

/// Only this upload could have made the segment readable, so its objects are of no use. What the
/// store still writes goes when the segment expires.
async fn abandon(remote: &RemoteTier, upload: &Upload) {
    let metadata = &upload.metadata;
    let base = metadata.segment.start_offset;
    tracing::info!(
        partition = %metadata.partition,
        "the copy of the segment at offset {base} to remote storage is abandoned, because this \
         broker no longer copies the partition"
    );
    let stores = &remote.stores;
    let _turn = stores.deleters.acquire().await;
    if let Err(error) = stores.store.delete_log_segment_data(metadata).await {
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
}
