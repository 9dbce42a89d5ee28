//! The resolved settings of one topic.
//!
//! One field for each topic setting of Kafka 4.3, named like Kafka's key with underscores. It
//! contains the effective value after topic overrides, dynamic broker settings, the properties file
//! and Kafka's defaults. `Default` returns Kafka's defaults. The values are Kafka's, including
//! negative markers such as "no limit", because they are compared with and printed like Kafka's;
//! the methods below interpret the markers.
//!
//! Kafka: `org.apache.kafka.storage.internals.log.LogConfig`.

mod resolve;

use std::fmt;

use ottla_types::named_enum;

pub use resolve::{InvalidTopicConfig, java_double};

/// `cleanup.policy`: how old records are removed. Both policies may be set, and (since 4.2)
/// neither.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CleanupPolicy {
    pub delete: bool,
    pub compact: bool,
}

impl CleanupPolicy {
    pub const DELETE: CleanupPolicy = CleanupPolicy {
        delete: true,
        compact: false,
    };
    pub const COMPACT: CleanupPolicy = CleanupPolicy {
        delete: false,
        compact: true,
    };
}

impl From<&[String]> for CleanupPolicy {
    fn from(policies: &[String]) -> CleanupPolicy {
        let has = |name: &str| {
            policies
                .iter()
                .any(|policy| policy.eq_ignore_ascii_case(name))
        };
        CleanupPolicy {
            delete: has("delete"),
            compact: has("compact"),
        }
    }
}

/// `message.timestamp.type`: which clock sets the timestamps of records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TimestampType {
    /// The producer's timestamps are kept.
    CreateTime,
    /// The leader sets the timestamp of each batch on append.
    LogAppendTime,
}

impl TimestampType {
    /// Kafka's name: `CreateTime`.
    pub const fn name(self) -> &'static str {
        match self {
            TimestampType::CreateTime => "CreateTime",
            TimestampType::LogAppendTime => "LogAppendTime",
        }
    }

    /// Parses the name, which is case-sensitive in Kafka too.
    pub fn from_name(name: &str) -> Option<TimestampType> {
        [TimestampType::CreateTime, TimestampType::LogAppendTime]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// For values that were validated against the table of settings.
impl From<&str> for TimestampType {
    fn from(name: &str) -> TimestampType {
        TimestampType::from_name(name).expect("the value has been checked")
    }
}

impl fmt::Display for TimestampType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

named_enum! {
    /// `compression.type`: the codec of batches in the log. In the order of Kafka's messages.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum BrokerCompressionType {
        Uncompressed => "uncompressed",
        Zstd => "zstd",
        Lz4 => "lz4",
        Snappy => "snappy",
        Gzip => "gzip",
        /// Batches keep the codec of the producer.
        Producer => "producer",
    }
}

impl BrokerCompressionType {
    pub fn from_name(name: &str) -> Option<BrokerCompressionType> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// For values that were validated against the table of settings.
impl From<&str> for BrokerCompressionType {
    fn from(name: &str) -> BrokerCompressionType {
        BrokerCompressionType::from_name(name).expect("the value has been checked")
    }
}

impl fmt::Display for BrokerCompressionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The settings that apply to one topic.
#[derive(Clone, PartialEq, Debug)]
pub struct TopicConfig {
    pub cleanup_policy: CleanupPolicy,
    pub compression_gzip_level: i32,
    pub compression_lz4_level: i32,
    pub compression_type: BrokerCompressionType,
    pub compression_zstd_level: i32,
    /// How long tombstones and transaction markers are kept in a compacted log.
    pub delete_retention_ms: i64,
    /// Whether share groups may use the topic as their dead-letter queue.
    pub errors_deadletterqueue_group_enable: bool,
    /// How long the files of a deleted segment are kept with the suffix `.deleted`.
    pub file_delete_delay_ms: i64,
    /// The number of records after which an append flushes; `i64::MAX` means never.
    pub flush_messages: i64,
    /// The time after which unflushed records are flushed; `i64::MAX` means never.
    pub flush_ms: i64,
    /// `topic-partition:broker` entries, or `*` for all.
    pub follower_replication_throttled_replicas: Vec<String>,
    /// Bytes of records between two entries of the offset index.
    pub index_interval_bytes: i32,
    /// A segment size below the public minimum, for tests only.
    pub internal_segment_bytes: Option<i32>,
    /// `topic-partition:broker` entries, or `*` for all.
    pub leader_replication_throttled_replicas: Vec<String>,
    /// -1 for no limit, -2 for the value of `retention_bytes`.
    pub local_retention_bytes: i64,
    /// -1 for no limit, -2 for the value of `retention_ms`.
    pub local_retention_ms: i64,
    pub max_compaction_lag_ms: i64,
    /// The maximum size of a record of a compressed batch.
    pub max_decompressed_message_bytes: i32,
    /// The maximum size of a batch, compressed and including its header.
    pub max_message_bytes: i32,
    pub message_timestamp_after_max_ms: i64,
    pub message_timestamp_before_max_ms: i64,
    pub message_timestamp_type: TimestampType,
    pub min_cleanable_dirty_ratio: f64,
    pub min_compaction_lag_ms: i64,
    pub min_insync_replicas: i32,
    pub preallocate: bool,
    /// -1 for the value of `local_retention_bytes`.
    pub remote_copy_lag_bytes: i64,
    /// -1 for the value of `local_retention_ms`.
    pub remote_copy_lag_ms: i64,
    pub remote_log_copy_disable: bool,
    pub remote_log_delete_on_disable: bool,
    pub remote_storage_enable: bool,
    /// Negative for no limit.
    pub retention_bytes: i64,
    /// -1 for no limit.
    pub retention_ms: i64,
    pub segment_bytes: i32,
    /// The maximum size of an offset or time index. A full index rolls the segment.
    pub segment_index_bytes: i32,
    pub segment_jitter_ms: i64,
    pub segment_ms: i64,
    pub unclean_leader_election_enable: bool,
}

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

impl Default for TopicConfig {
    fn default() -> Self {
        TopicConfig {
            cleanup_policy: CleanupPolicy::DELETE,
            compression_gzip_level: -1,
            compression_lz4_level: 9,
            compression_type: BrokerCompressionType::Producer,
            compression_zstd_level: 3,
            delete_retention_ms: DAY_MS,
            errors_deadletterqueue_group_enable: false,
            file_delete_delay_ms: 60_000,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            follower_replication_throttled_replicas: Vec::new(),
            index_interval_bytes: 4096,
            internal_segment_bytes: None,
            leader_replication_throttled_replicas: Vec::new(),
            local_retention_bytes: -2,
            local_retention_ms: -2,
            max_compaction_lag_ms: i64::MAX,
            max_decompressed_message_bytes: i32::MAX - 8,
            max_message_bytes: 1024 * 1024 + 12,
            message_timestamp_after_max_ms: 3_600_000,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_type: TimestampType::CreateTime,
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            min_insync_replicas: 1,
            preallocate: false,
            remote_copy_lag_bytes: -1,
            remote_copy_lag_ms: 0,
            remote_log_copy_disable: false,
            remote_log_delete_on_disable: false,
            remote_storage_enable: false,
            retention_bytes: -1,
            retention_ms: 7 * DAY_MS,
            segment_bytes: 1024 * 1024 * 1024,
            segment_index_bytes: 10 * 1024 * 1024,
            segment_jitter_ms: 0,
            segment_ms: 7 * DAY_MS,
            unclean_leader_election_enable: false,
        }
    }
}

impl TopicConfig {
    /// The size at which a segment rolls. The internal setting of tests takes precedence, as in
    /// `LogConfig.segmentSize`.
    pub fn effective_segment_bytes(&self) -> i32 {
        self.internal_segment_bytes.unwrap_or(self.segment_bytes)
    }

    /// `max.decompressed.message.bytes`: the limit for a record of a compressed batch.
    pub fn max_decompressed_record_bytes(&self) -> usize {
        self.max_decompressed_message_bytes.max(1) as usize
    }

    /// The age at which a segment rolls: a compacted topic must roll in time for
    /// `max.compaction.lag.ms`, as in `LogConfig.maxSegmentMs`.
    pub fn max_segment_ms(&self) -> i64 {
        if self.cleanup_policy.compact && self.max_compaction_lag_ms > 0 {
            self.segment_ms.min(self.max_compaction_lag_ms)
        } else {
            self.segment_ms
        }
    }

    /// How much earlier than [`TopicConfig::max_segment_ms`] a new segment rolls, given a random
    /// number, as in `LogConfig.randomSegmentJitter`.
    pub fn segment_jitter(&self, random: u64) -> i64 {
        let bound = self.segment_jitter_ms.min(self.segment_ms);
        if bound <= 0 {
            0
        } else {
            (random % bound as u64) as i64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compacted_topic_rolls_in_time_for_compaction() {
        let config = TopicConfig {
            cleanup_policy: CleanupPolicy::COMPACT,
            max_compaction_lag_ms: 1000,
            ..TopicConfig::default()
        };
        assert_eq!(config.max_segment_ms(), 1000);
        let config = TopicConfig {
            cleanup_policy: CleanupPolicy::DELETE,
            ..config
        };
        assert_eq!(config.max_segment_ms(), 7 * DAY_MS);
    }

    #[test]
    fn jitter_stays_below_both_bounds() {
        let config = TopicConfig {
            segment_jitter_ms: 500,
            segment_ms: 100,
            ..Default::default()
        };
        for random in [0, 1, 99, 100, 12_345, u64::MAX] {
            assert!((0..100).contains(&config.segment_jitter(random)));
        }
        assert_eq!(TopicConfig::default().segment_jitter(u64::MAX), 0);
    }

    #[test]
    fn names_come_back() {
        for kind in BrokerCompressionType::ALL {
            assert_eq!(BrokerCompressionType::from_name(kind.name()), Some(kind));
        }
        assert_eq!(TimestampType::from_name("logappendtime"), None);
        assert_eq!(
            TimestampType::from_name("LogAppendTime"),
            Some(TimestampType::LogAppendTime)
        );
    }
}
