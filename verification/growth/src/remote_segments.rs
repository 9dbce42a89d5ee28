//! The metadata of remote segments, as a starting broker reads it from `__remote_log_metadata`.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_remote::MetadataPartitions;
use ottla_tiered::{
    CustomMetadata, LeaderEpochs, RemoteLogMetadata, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, RemotePartition, RemoteSegment,
};
use ottla_types::{BrokerId, LeaderEpoch, Offset, PartitionIndex, Timestamp, Uuid};

use crate::measure::{Row, written};

pub const ROW: Row = Row {
    name: "remote-segments",
    operation: "reading the two records of a remote segment, each a batch of its own",
    counted: "remote segments of 20 partitions",
    smallest: 10_000,
    measure: read,
};

const PARTITIONS: u64 = 20;
/// Of `__remote_log_metadata`.
const METADATA_PARTITION: i32 = 0;
/// Segments whose records are made at once, outside the time that counts.
const AT_ONCE: u64 = 5_000;
const RECORDS_OF_A_SEGMENT: u64 = 2;
/// Spreads the IDs of the segments.
const RANDOM: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn read(count: u64) -> Duration {
    let mut read = MetadataPartitions::default();
    for index in 0..PARTITIONS {
        read.assign(partition(index).topic_id_partition(), METADATA_PARTITION);
    }
    let needed = read.need_end(METADATA_PARTITION);
    let end = Offset((count * RECORDS_OF_A_SEGMENT) as i64);
    read.on_end(METADATA_PARTITION, &needed, end);
    let mut took = Duration::ZERO;
    for first in (0..count).step_by(AT_ONCE as usize) {
        let records = records_of(first..count.min(first + AT_ONCE));
        let position = Offset((first * RECORDS_OF_A_SEGMENT) as i64);
        let began = Instant::now();
        assert!(read.on_records(METADATA_PARTITION, position, records));
        took += began.elapsed();
    }
    let caches = (0..PARTITIONS).map(|index| {
        let cache = read.cache(partition(index).topic_id_partition());
        cache.expect("everything has been read").len() as u64
    });
    assert_eq!(caches.sum::<u64>(), count);
    // The goal is about the whole time. `cargo test -p ottla-tiered a_million_segments` checks the
    // memory: that of this process depends on what the rows before have freed.
    if count >= 1_000_000 {
        eprintln!(
            "{}: {count} segments are read in {}",
            ROW.name,
            written(took)
        );
    }
    took / u32::try_from(count).expect("a small number")
}

fn partition(index: u64) -> RemotePartition {
    RemotePartition {
        topic_id: Uuid::from_u128(7),
        topic: "orders".into(),
        partition: PartitionIndex(index as i32),
    }
}

fn records_of(segments: std::ops::Range<u64>) -> Bytes {
    let mut records = BytesMut::new();
    for number in segments {
        let partition = partition(number % PARTITIONS);
        let start = (number / PARTITIONS * 1000) as i64;
        let segment = RemoteSegment {
            // Random IDs have no order.
            id: Uuid::from_u128(u128::from(number + 1).wrapping_mul(RANDOM)),
            start_offset: Offset(start),
            end_offset: Offset(start + 999),
            max_timestamp: NOW,
            broker_id: BrokerId(1),
            event_timestamp: NOW,
            segment_size_bytes: 1 << 30,
            custom_metadata: None,
            state: RemoteLogSegmentState::CopySegmentStarted,
            segment_leader_epochs: LeaderEpochs::from([(3, start)]),
            is_txn_index_empty: true,
        };
        let state = RemoteLogSegmentState::CopySegmentFinished;
        let mut update = segment.to_state(state, NOW, BrokerId(1));
        // The size of the metadata of Aiven's plugin.
        update.custom_metadata = Some(CustomMetadata(Bytes::from_static(&[7; 8])));
        let started = RemoteLogMetadata::Segment(RemoteLogSegmentMetadata {
            partition: partition.clone(),
            segment,
        });
        let finished =
            RemoteLogMetadata::SegmentUpdate(RemoteLogSegmentMetadataUpdate { partition, update });
        for (offset, metadata) in (number * RECORDS_OF_A_SEGMENT..).zip([started, finished]) {
            let value = metadata.encode().expect("short names");
            let builder = RecordBatchBuilder::new(Compression::None);
            let mut builder = builder
                .base_offset(Offset(offset as i64))
                .partition_leader_epoch(LeaderEpoch(0));
            builder.append(NOW, None, Some(&value[..]), &[]);
            records.extend_from_slice(&builder.build().to_bytes());
        }
    }
    records.freeze()
}
