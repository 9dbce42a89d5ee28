//! Opening a log: what is found in its directory, decided case by case.
//!
//! Kafka: `LogLoader`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

use arc_swap::ArcSwap;
use ottla_config::TopicConfig;
use ottla_types::{Offset, Timestamp, TopicPartition};

use super::{ActiveSegment, Log};
use crate::batch_tail::{BatchTail, Boundary};
use crate::error::{LogError, StorageError};
use crate::leader_epochs::LeaderEpochs;
use crate::reader::{SegmentList, Shared};
use crate::segment::{PartitionDir, Segment};

/// What a log is opened with.
#[derive(Clone, Debug)]
pub struct OpenParams {
    /// The partition's directory; created if it is missing.
    pub dir: PathBuf,
    pub topic_partition: TopicPartition,
    pub config: Arc<TopicConfig>,
    /// From the checkpoint; 0 where there is none.
    pub recovery_point: Offset,
    /// From the checkpoint; 0 where there is none.
    pub log_start_offset: Offset,
    /// The log directory was stopped in an orderly way: nothing need be scanned.
    pub clean_shutdown: bool,
    pub now: Timestamp,
    /// `producer.id.expiration.ms`
    pub producer_id_expiration_ms: i64,
    /// For the jitter of segment rolls.
    pub random_seed: u64,
}

/// What opening a log had to do.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RecoveryReport {
    pub segments_recovered: usize,
    pub bytes_truncated: u64,
}

impl Log {
    pub fn open(params: OpenParams) -> Result<(Log, RecoveryReport), LogError> {
        std::fs::create_dir_all(&params.dir)
            .map_err(|error| StorageError::new("create directory", &params.dir, error))?;
        let dir = PartitionDir::new(params.dir.clone());
        let segment = Segment::create(&dir, params.log_start_offset)
            .map_err(|error| StorageError::new("create segment in", &params.dir, error))?;
        let segment = Arc::new(segment);
        let end = params.log_start_offset;
        let tail = BatchTail::new(Boundary {
            next_offset: end,
            position: 0,
        });
        let shared = Arc::new(Shared {
            topic_partition: params.topic_partition,
            dir,
            config: ArcSwap::new(params.config.clone()),
            segments: ArcSwap::new(Arc::new(SegmentList {
                segments: vec![segment.clone()],
                tail: Arc::new(tail),
            })),
            leader_epochs: ArcSwap::default(),
            log_start_offset: AtomicI64::new(end.0),
            log_end_offset: AtomicI64::new(end.0),
            high_watermark: AtomicI64::new(end.0),
            first_unstable_offset: AtomicI64::new(i64::MAX),
            recovery_point: AtomicI64::new(end.0),
            truncations: AtomicU64::new(0),
        });
        let file = segment
            .log_file()
            .map_err(|error| StorageError::new("open segment in", &params.dir, error))?;
        let mut log = Log {
            shared,
            active: ActiveSegment {
                file,
                segment,
                created: params.now,
                first_batch_timestamp: None,
                roll_jitter_ms: 0,
                bytes_since_last_index_entry: 0,
            },
            config: params.config,
            leader_epochs: LeaderEpochs::default(),
            random: params.random_seed,
        };
        let random = log.next_random();
        log.active.roll_jitter_ms = log.config.segment_jitter(random);
        Ok((log, RecoveryReport::default()))
    }
}
