//! The settings of a topic as the append path needs them: resolved once, when they change.

use std::borrow::Cow;

use ottla_config::{BrokerCompressionType, TimestampType, TopicConfig};
use ottla_records::{Compression, RecordBatch, ValidationRules};
use ottla_replica::{ReplicaSettings, ThrottledReplicas};
use ottla_types::{BrokerId, PartitionIndex};

/// Most bytes of compressed records that are looked through on the thread of a connection, and most bytes
/// that these may decompress to. Batches of a producer's usual sizes stay below both.
///
/// Measured with the example `validation_cost` of `ottla-records` on a busy machine with two cores: records
/// that hardly compress go through at 0.12 (gzip), 0.60 (zstd), 0.69 (snappy) and 0.82 GB/s (lz4), so that the
/// first limit is 1 ms of gzip; a mebibyte of records that compress well takes 0.78, 0.45, 0.38 and 0.37 ms.
/// A wake of another thread would cost two hundredths of that.
const INLINE_COMPRESSED_BYTES: usize = 64 * 1024;
const INLINE_DECOMPRESSED_BYTES: usize = 1024 * 1024;
/// How many times larger than compressed the records of a batch are expected to be at most.
const EXPECTED_RATIO: usize = 32;
/// What looking through compressed records takes while it is under way.
const STREAM_BYTES: usize = 1024 * 1024;

#[derive(Debug)]
pub struct PartitionSettings {
    pub rules: ValidationRules,
    /// A batch that does not fit into a segment can never be appended.
    pub segment_bytes: usize,
    pub replica: ReplicaSettings,
    /// Whether `leader.replication.throttled.replicas` names the replica.
    pub is_throttled_as_leader: bool,
    /// Whether `follower.replication.throttled.replicas` names the replica.
    pub is_throttled_as_follower: bool,
}

impl PartitionSettings {
    /// `max_request_bytes` is `socket.request.max.bytes`: what could not be sent uncompressed is taken for
    /// a decompression bomb.
    pub fn new(
        config: &TopicConfig,
        max_request_bytes: i32,
        partition: PartitionIndex,
        broker_id: BrokerId,
    ) -> Self {
        let names = |replicas: &[String]| {
            let named = match replicas.is_empty() {
                true => None,
                false => ThrottledReplicas::parse(&replicas.join(","), broker_id),
            };
            named.is_some_and(|named| named.contains(partition))
        };
        PartitionSettings {
            is_throttled_as_leader: names(&config.leader_replication_throttled_replicas),
            is_throttled_as_follower: names(&config.follower_replication_throttled_replicas),
            rules: ValidationRules {
                compacted: config.cleanup_policy.compact,
                max_message_bytes: config.max_message_bytes.max(0) as usize,
                message_timestamp_type: match config.message_timestamp_type {
                    TimestampType::CreateTime => ottla_records::TimestampType::CreateTime,
                    TimestampType::LogAppendTime => ottla_records::TimestampType::LogAppendTime,
                },
                message_timestamp_before_max_ms: config.message_timestamp_before_max_ms,
                message_timestamp_after_max_ms: config.message_timestamp_after_max_ms,
                compression: match config.compression_type {
                    BrokerCompressionType::Producer => None,
                    BrokerCompressionType::Uncompressed => Some(Compression::None),
                    BrokerCompressionType::Gzip => Some(Compression::Gzip {
                        level: config.compression_gzip_level,
                    }),
                    BrokerCompressionType::Snappy => Some(Compression::Snappy),
                    BrokerCompressionType::Lz4 => Some(Compression::Lz4 {
                        level: config.compression_lz4_level,
                    }),
                    BrokerCompressionType::Zstd => Some(Compression::Zstd {
                        level: config.compression_zstd_level,
                    }),
                },
                max_decompressed_bytes: config.max_message_bytes.max(max_request_bytes).max(0)
                    as usize,
            },
            segment_bytes: config.effective_segment_bytes().max(0) as usize,
            replica: ReplicaSettings {
                min_insync_replicas: config.min_insync_replicas.max(1) as usize,
                flush_messages: config.flush_messages,
            },
        }
    }

    /// The rules for validating a batch on the thread of a connection; `None` where that would keep the
    /// connection's thread for too long.
    pub fn inline_rules(&self, batch: &RecordBatch) -> Option<Cow<'_, ValidationRules>> {
        if self.recompresses(batch) {
            return None;
        }
        match batch.header.attributes.is_compressed() {
            false => Some(Cow::Borrowed(&self.rules)),
            true if batch.body().len() > INLINE_COMPRESSED_BYTES => None,
            true => {
                let limit = self
                    .rules
                    .max_decompressed_bytes
                    .min(INLINE_DECOMPRESSED_BYTES);
                Some(Cow::Owned(self.rules_with_limit(limit)))
            }
        }
    }

    /// The attempts at validating a batch elsewhere, each with its rules and the memory that it may take:
    /// one within what is expected of records, and one with all that is allowed.
    pub fn attempts(&self, batch: &RecordBatch) -> Vec<(ValidationRules, usize)> {
        let allowed = self.rules.max_decompressed_bytes;
        if !self.recompresses(batch) {
            return vec![(self.rules.clone(), STREAM_BYTES)];
        }
        let body_bytes = batch.body().len();
        if !batch.header.attributes.is_compressed() {
            return vec![(self.rules.clone(), body_bytes)];
        }
        let expected = body_bytes.saturating_mul(EXPECTED_RATIO).min(allowed);
        let mut attempts = vec![(self.rules_with_limit(expected), expected)];
        if expected < allowed {
            attempts.push((self.rules.clone(), allowed));
        }
        attempts
    }

    fn rules_with_limit(&self, max_decompressed_bytes: usize) -> ValidationRules {
        ValidationRules {
            max_decompressed_bytes,
            ..self.rules.clone()
        }
    }

    /// Whether the batch has to be compressed anew.
    fn recompresses(&self, batch: &RecordBatch) -> bool {
        match (self.rules.compression, batch.header.compression_type()) {
            (Some(target), Ok(codec)) => target.codec() != codec,
            _ => false,
        }
    }
}
