//! Segments and logs for tests.

use ottla_types::{BrokerId, Offset, PartitionIndex, Timestamp, Uuid};

use crate::{
    LeaderEpochs, LocalSegment, LogView, RemoteLogMetadataCache, RemoteLogSegmentState,
    RemotePartition, RemoteSegment,
};

pub(crate) fn partition() -> RemotePartition {
    RemotePartition {
        topic_id: Uuid::from_u128(7),
        topic: "orders".into(),
        partition: PartitionIndex(0),
    }
}

pub(crate) fn segment(id: u128, start: i64, end: i64, epochs: LeaderEpochs) -> RemoteSegment {
    RemoteSegment {
        id: Uuid::from_u128(id),
        start_offset: Offset(start),
        end_offset: Offset(end),
        max_timestamp: Timestamp(end),
        broker_id: BrokerId(1),
        event_timestamp: Timestamp(0),
        segment_size_bytes: (end - start + 1) as i32,
        custom_metadata: None,
        state: RemoteLogSegmentState::CopySegmentStarted,
        segment_leader_epochs: epochs,
        is_txn_index_empty: true,
    }
}

/// A cache with finished segments.
pub(crate) fn cache_of(segments: &[RemoteSegment]) -> RemoteLogMetadataCache {
    let mut cache = RemoteLogMetadataCache::new();
    cache.mark_initialized();
    for segment in segments {
        cache.add(segment).unwrap();
        let finished = RemoteLogSegmentState::CopySegmentFinished;
        let update = segment.to_state(finished, Timestamp(0), BrokerId(1));
        cache.update(&update).unwrap();
    }
    cache
}

/// A log whose segments start at `bases`; a record takes one byte.
pub(crate) fn log(bases: &[i64], end: i64, epochs: LeaderEpochs) -> LogView {
    let next = |index: usize| bases.get(index + 1).copied().unwrap_or(end);
    LogView {
        log_start_offset: Offset(bases[0]),
        local_log_start_offset: Offset(bases[0]),
        log_end_offset: Offset(end),
        high_watermark: Offset(end),
        last_stable_offset: Offset(end),
        highest_remote_offset: Offset::UNKNOWN,
        leader_epochs: epochs,
        segments: bases
            .iter()
            .enumerate()
            .map(|(index, &base)| LocalSegment {
                base_offset: Offset(base),
                size_bytes: (next(index) - base) as u32,
                largest_timestamp: Timestamp(next(index) - 1),
                is_txn_index_empty: true,
                has_producer_snapshot: true,
            })
            .collect(),
    }
}
