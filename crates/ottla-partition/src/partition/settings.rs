//! A topic's settings in the form that the append path needs, resolved when they change.

use std::borrow::Cow;

use ottla_config::{BrokerCompressionType, TimestampType, TopicConfig};
use ottla_records::{Compression, RecordBatch, ValidationRules};
use ottla_replica::{ReplicaSettings, ThrottledReplicas};
use ottla_types::{BrokerId, PartitionIndex};

/// Limits for validating compressed records on a connection's thread: compressed bytes, and bytes
/// they may decompress to. Batches of usual producers stay below both.
///
/// Measured with the example `validation_cost` of `ottla-records` on a busy machine with two cores:
/// barely compressible records are validated at 0.12 (gzip), 0.60 (zstd), 0.69 (snappy) and 0.82
/// GB/s (lz4), so the first limit is 1 ms of gzip; 1 MiB of well compressible records takes 0.78,
/// 0.45, 0.38 and 0.37 ms. Waking another thread would cost a fiftieth of that.
const INLINE_COMPRESSED_BYTES: usize = 64 * 1024;
const INLINE_DECOMPRESSED_BYTES: usize = 1024 * 1024;
/// The expected maximum compression ratio of a batch.
const EXPECTED_RATIO: usize = 32;
/// Memory needed while compressed records are validated as a stream.
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
    /// `max_request_bytes` is `socket.request.max.bytes`: a batch that could not have been sent
    /// uncompressed counts as a decompression bomb.
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
                max_decompressed_record_bytes: config.max_decompressed_record_bytes(),
            },
            segment_bytes: config.effective_segment_bytes().max(0) as usize,
            replica: ReplicaSettings {
                min_insync_replicas: config.min_insync_replicas.max(1) as usize,
                flush_messages: config.flush_messages,
            },
        }
    }

    /// The rules for validating a batch on a connection's thread; `None` if that would block the
    /// thread for too long.
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

    /// The attempts to validate a batch on another thread, each with its rules and memory limit:
    /// first the expected size, then the allowed maximum.
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

    /// Whether the batch must be recompressed.
    fn recompresses(&self, batch: &RecordBatch) -> bool {
        match (self.rules.compression, batch.header.compression_type()) {
            (Some(target), Ok(codec)) => target.codec() != codec,
            _ => false,
        }
    }
}
