//! A tiered log (KIP-405) as the decisions of tiered storage see it, and the deletion of its local
//! segments.
//!
//! Kafka: `UnifiedLog.deleteOldSegments`.

use ottla_config::{CleanupPolicy, TopicConfig};
use ottla_log::{Log, LogError, StorageError};
use ottla_tiered::{
    CopyDelay, EpochEntry, LeaderEpochs, LocalRetention, LocalSegment, LogView,
    REMOTE_LOG_METADATA_TOPIC, Retention, TopicTiering,
};
use ottla_types::Timestamp;

/// Brokers read these from their local logs, and the last one before they can read any remote log.
const NEVER_TIERED: [&str; 4] = [
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    REMOTE_LOG_METADATA_TOPIC,
];

/// Corrects the settings of a tiered topic that cannot be followed together.
///
/// The controller refuses a compacted topic that is tiered, but the broker's default of
/// `cleanup.policy` may change later. The cleaner would replace segments that are being copied.
/// Kafka then handles the topic as not tiered. Here it is not compacted, because otherwise its
/// remote records would expire.
///
/// Kafka: `UnifiedLog.isRemoteLogEnabled`.
pub(crate) fn correct(topic: &str, config: &mut TopicConfig) {
    if !config.remote_storage_enable {
        return;
    }
    if NEVER_TIERED.contains(&topic) {
        tracing::warn!(%topic, "remote.storage.enable=true has no effect on this topic");
        config.remote_storage_enable = false;
    } else if config.cleanup_policy.compact {
        tracing::warn!(
            %topic,
            "the topic is tiered, and so it is not compacted; set cleanup.policy=delete for it, or \
             disable remote.storage.enable"
        );
        config.cleanup_policy = CleanupPolicy::DELETE;
    }
}

/// The limits of a log, in both tiers.
pub fn retention_of(config: &TopicConfig) -> Retention {
    Retention {
        retention_ms: config.retention_ms,
        retention_bytes: config.retention_bytes,
    }
}

/// The limit of the bytes on the local disk, which may be that of both tiers. Negative: no limit.
pub fn local_retention_bytes_of(config: &TopicConfig) -> i64 {
    match config.local_retention_bytes {
        -2 => config.retention_bytes,
        limit => limit,
    }
}

/// How long closed segments stay uncopied. -1 means the local retention, and that may mean the
/// retention of all.
pub fn copy_delay_of(config: &TopicConfig) -> CopyDelay {
    let resolved = |lag: i64, local: i64, all: i64| match (lag, local) {
        (-1, -2) => all,
        (-1, local) => local,
        (lag, _) => lag,
    };
    CopyDelay {
        lag_ms: resolved(
            config.remote_copy_lag_ms,
            config.local_retention_ms,
            config.retention_ms,
        ),
        lag_bytes: resolved(
            config.remote_copy_lag_bytes,
            config.local_retention_bytes,
            config.retention_bytes,
        ),
    }
}

pub fn tiering_of(config: &TopicConfig) -> TopicTiering {
    TopicTiering {
        is_enabled: config.remote_storage_enable,
        is_copy_disabled: config.remote_log_copy_disable,
        is_deleted_on_disable: config.remote_log_delete_on_disable,
    }
}

pub fn tiered_epochs(epochs: &ottla_log::LeaderEpochs) -> LeaderEpochs {
    let entries = epochs.entries().iter();
    entries
        .map(|entry| EpochEntry {
            epoch: entry.epoch,
            start_offset: entry.start_offset,
        })
        .collect()
}

/// The log as it is now. Its last stable offset is no higher than the first closed segment whose
/// files are not complete on disk, so that such a segment is not copied yet.
pub fn log_view(log: &Log) -> Result<LogView, StorageError> {
    let segments = log.local_segments()?;
    let reader = log.reader();
    let (_, closed) = segments.split_last().expect("a log has a segment");
    let incomplete = closed.iter().find(|segment| !segment.are_files_complete);
    let stable = reader.last_stable_offset();
    let local = segments.iter().map(|segment| LocalSegment {
        base_offset: segment.base_offset,
        size_bytes: u32::try_from(segment.size_bytes).unwrap_or(u32::MAX),
        largest_timestamp: segment.largest_timestamp,
        is_txn_index_empty: segment.is_txn_index_empty,
        has_producer_snapshot: segment.are_files_complete,
    });
    Ok(LogView {
        log_start_offset: reader.log_start_offset(),
        local_log_start_offset: reader.local_log_start_offset(),
        log_end_offset: reader.log_end_offset(),
        high_watermark: reader.high_watermark(),
        last_stable_offset: incomplete.map_or(stable, |it| it.base_offset.min(stable)),
        highest_remote_offset: reader.highest_remote_offset(),
        leader_epochs: tiered_epochs(log.leader_epochs()),
        segments: local.collect(),
    })
}

/// Deletes the local segments that `local.retention.*` allows, as far as remote storage has them.
/// Returns their number. While copying is disabled, the log starts after them: `retention.*` has
/// expired them, and all earlier remote records too.
pub(crate) fn delete_local_segments(log: &mut Log, now: Timestamp) -> Result<usize, LogError> {
    let config = log.config().clone();
    let retention = LocalRetention {
        retention: retention_of(&config),
        local_retention_ms: config.local_retention_ms,
        local_retention_bytes: config.local_retention_bytes,
        is_delete_policy: config.cleanup_policy.delete,
        is_remote_storage_enabled: config.remote_storage_enable,
        is_copy_disabled: config.remote_log_copy_disable,
    };
    let expiry = retention.expire(&log_view(log)?, now);
    if expiry.is_active_closed {
        log.close_active_segment(now)?;
    }
    log.delete_local_segments(expiry.segments, now)?;
    if retention.is_copy_disabled && expiry.segments > 0 {
        let local_log_start_offset = log.reader().local_log_start_offset();
        if let Err(error) = log.increment_log_start_offset(local_log_start_offset) {
            tracing::warn!(dir = %log.dir().display(), "{error}");
        }
    }
    Ok(expiry.segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_of_copying_falls_back_to_the_local_retention() {
        let delay = |lag: (i64, i64), local: (i64, i64)| {
            let delay = copy_delay_of(&TopicConfig {
                remote_copy_lag_ms: lag.0,
                remote_copy_lag_bytes: lag.1,
                local_retention_ms: local.0,
                local_retention_bytes: local.1,
                retention_ms: 70,
                retention_bytes: -1,
                ..TopicConfig::default()
            });
            (delay.lag_ms, delay.lag_bytes)
        };
        assert_eq!(delay((0, -1), (-2, -2)), (0, -1));
        assert_eq!(delay((-1, -1), (-2, -2)), (70, -1));
        assert_eq!(delay((-1, -1), (5, 6)), (5, 6));
        assert_eq!(delay((3, 4), (5, 6)), (3, 4));
    }

    #[test]
    fn settings_that_cannot_be_followed_together() {
        let corrected = |topic: &str, remote_storage_enable, compact| {
            let mut config = TopicConfig {
                remote_storage_enable,
                ..TopicConfig::default()
            };
            if compact {
                config.cleanup_policy = CleanupPolicy::COMPACT;
            }
            correct(topic, &mut config);
            (config.remote_storage_enable, config.cleanup_policy.compact)
        };
        assert_eq!(corrected("orders", false, true), (false, true));
        assert_eq!(corrected("orders", true, false), (true, false));
        assert_eq!(corrected("orders", true, true), (true, false));
        for topic in NEVER_TIERED {
            assert_eq!(corrected(topic, true, false), (false, false));
        }
        assert_eq!(corrected("__consumer_offsets", true, true), (false, true));
    }
}
