//! The settings of a topic as the append path needs them: resolved once, when they change.

use ottla_config::{BrokerCompressionType, TimestampType, TopicConfig};
use ottla_records::{Compression, RecordBatch, ValidationRules};
use ottla_replica::ReplicaSettings;

/// Most bytes that the records of one batch may decompress to. Kafka has no such bound; a batch that
/// grows beyond this is taken for a decompression bomb.
const MAX_DECOMPRESSED_BYTES: usize = 1024 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct PartitionSettings {
    pub(crate) rules: ValidationRules,
    /// A batch that does not fit into a segment can never be appended.
    pub(crate) segment_bytes: usize,
    pub(crate) replica: ReplicaSettings,
}

impl PartitionSettings {
    pub(crate) fn new(config: &TopicConfig) -> Self {
        PartitionSettings {
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
                max_decompressed_bytes: MAX_DECOMPRESSED_BYTES,
            },
            segment_bytes: config.effective_segment_bytes().max(0) as usize,
            replica: ReplicaSettings {
                min_insync_replicas: config.min_insync_replicas.max(1) as usize,
                flush_messages: config.flush_messages,
            },
        }
    }

    /// Whether the batch has to be compressed anew, which takes too long for the thread of a connection.
    pub(crate) fn recompresses(&self, batch: &RecordBatch) -> bool {
        match (self.rules.compression, batch.header.compression_type()) {
            (Some(target), Ok(codec)) => target.codec() != codec,
            _ => false,
        }
    }
}
