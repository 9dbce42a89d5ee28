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

use crate::config_def::{ConfigDef, ConfigValue};
use crate::from_value::FromValue;
use crate::tables::topic_config;
pub use resolve::InvalidTopicConfig;

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

impl FromValue for CleanupPolicy {
    fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
        let policies = Vec::<String>::from_value(value, def);
        let has = |name: &str| {
            let mut policies = policies.iter();
            policies.any(|policy| policy.eq_ignore_ascii_case(name))
        };
        CleanupPolicy {
            delete: has("delete"),
            compact: has("compact"),
        }
    }
}

/// A setting whose values are names, which are case-sensitive, as in Kafka.
macro_rules! named_setting {
    ($type:ident) => {
        impl $type {
            pub fn from_name(name: &str) -> Option<$type> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl FromValue for $type {
            fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
                let name = String::from_value(value, def);
                $type::from_name(&name).expect("the value has been checked")
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named_enum! {
    /// `message.timestamp.type`: which clock sets the timestamps of records.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum TimestampType {
        /// The producer's timestamps are kept.
        CreateTime => "CreateTime",
        /// The leader sets the timestamp of each batch on append.
        LogAppendTime => "LogAppendTime",
    }
}

named_setting!(TimestampType);

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

named_setting!(BrokerCompressionType);

/// The value of a topic setting as Kafka prints it; `None` without a value.
trait PrintedValue {
    fn printed(&self) -> Option<String>;
}

macro_rules! printed_as_displayed {
    ($($type:ty),+) => {$(
        impl PrintedValue for $type {
            fn printed(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )+};
}
printed_as_displayed!(bool, i32, i64, BrokerCompressionType, TimestampType);

impl PrintedValue for Option<i32> {
    fn printed(&self) -> Option<String> {
        self.map(|number| number.to_string())
    }
}

impl PrintedValue for f64 {
    fn printed(&self) -> Option<String> {
        Some(java_double(*self))
    }
}

impl PrintedValue for Vec<String> {
    fn printed(&self) -> Option<String> {
        Some(self.join(","))
    }
}

impl PrintedValue for CleanupPolicy {
    fn printed(&self) -> Option<String> {
        let names = match (self.compact, self.delete) {
            (true, true) => "compact,delete",
            (true, false) => "compact",
            (false, true) => "delete",
            (false, false) => "",
        };
        Some(names.to_owned())
    }
}

fn default_value<T: FromValue>(key: &str) -> T {
    let def = topic_config(key).expect("every field is in the table of topic settings");
    T::from_value(def.default_value(), def)
}

/// Declares a field for each setting.
macro_rules! topic_config {
    ($( $(#[$doc:meta])* $field:ident: $type:ty = $key:literal, )*) => {
        /// The settings that apply to one topic.
        #[derive(Clone, PartialEq, Debug)]
        pub struct TopicConfig {
            $( $(#[$doc])* pub $field: $type, )*
        }

        impl Default for TopicConfig {
            fn default() -> Self {
                TopicConfig {
                    $( $field: default_value($key), )*
                }
            }
        }

        impl TopicConfig {
            /// Sets a value that was parsed for this setting.
            pub(crate) fn set(&mut self, def: &ConfigDef, value: ConfigValue) {
                match def.name {
                    $( $key => self.$field = FromValue::from_value(Some(value), def), )*
                    other => unreachable!("{other} is in the table of topic settings"),
                }
            }

            /// The value of a topic setting as Kafka prints it; `None` for a setting without a
            /// value or an unknown name.
            pub fn value_text(&self, key: &str) -> Option<String> {
                match key {
                    $( $key => self.$field.printed(), )*
                    _ => None,
                }
            }
        }
    };
}

topic_config! {
    cleanup_policy: CleanupPolicy = "cleanup.policy",
    compression_gzip_level: i32 = "compression.gzip.level",
    compression_lz4_level: i32 = "compression.lz4.level",
    compression_type: BrokerCompressionType = "compression.type",
    compression_zstd_level: i32 = "compression.zstd.level",
    /// How long tombstones and transaction markers are kept in a compacted log.
    delete_retention_ms: i64 = "delete.retention.ms",
    /// Whether share groups may use the topic as their dead-letter queue.
    errors_deadletterqueue_group_enable: bool = "errors.deadletterqueue.group.enable",
    /// How long the files of a deleted segment are kept with the suffix `.deleted`.
    file_delete_delay_ms: i64 = "file.delete.delay.ms",
    /// The number of records after which an append flushes; `i64::MAX` means never.
    flush_messages: i64 = "flush.messages",
    /// The time after which unflushed records are flushed; `i64::MAX` means never.
    flush_ms: i64 = "flush.ms",
    /// `topic-partition:broker` entries, or `*` for all.
    follower_replication_throttled_replicas: Vec<String> = "follower.replication.throttled.replicas",
    /// Bytes of records between two entries of the offset index.
    index_interval_bytes: i32 = "index.interval.bytes",
    /// A segment size below the public minimum, for tests only.
    internal_segment_bytes: Option<i32> = "internal.segment.bytes",
    /// `topic-partition:broker` entries, or `*` for all.
    leader_replication_throttled_replicas: Vec<String> = "leader.replication.throttled.replicas",
    /// -1 for no limit, -2 for the value of `retention_bytes`.
    local_retention_bytes: i64 = "local.retention.bytes",
    /// -1 for no limit, -2 for the value of `retention_ms`.
    local_retention_ms: i64 = "local.retention.ms",
    max_compaction_lag_ms: i64 = "max.compaction.lag.ms",
    /// The maximum size of a record of a compressed batch.
    max_decompressed_message_bytes: i32 = "max.decompressed.message.bytes",
    /// The maximum size of a batch, compressed and including its header.
    max_message_bytes: i32 = "max.message.bytes",
    message_timestamp_after_max_ms: i64 = "message.timestamp.after.max.ms",
    message_timestamp_before_max_ms: i64 = "message.timestamp.before.max.ms",
    message_timestamp_type: TimestampType = "message.timestamp.type",
    min_cleanable_dirty_ratio: f64 = "min.cleanable.dirty.ratio",
    min_compaction_lag_ms: i64 = "min.compaction.lag.ms",
    min_insync_replicas: i32 = "min.insync.replicas",
    preallocate: bool = "preallocate",
    /// -1 for the value of `local_retention_bytes`.
    remote_copy_lag_bytes: i64 = "remote.copy.lag.bytes",
    /// -1 for the value of `local_retention_ms`.
    remote_copy_lag_ms: i64 = "remote.copy.lag.ms",
    remote_log_copy_disable: bool = "remote.log.copy.disable",
    remote_log_delete_on_disable: bool = "remote.log.delete.on.disable",
    remote_storage_enable: bool = "remote.storage.enable",
    /// Negative for no limit.
    retention_bytes: i64 = "retention.bytes",
    /// -1 for no limit.
    retention_ms: i64 = "retention.ms",
    segment_bytes: i32 = "segment.bytes",
    /// The maximum size of an offset or time index. A full index rolls the segment.
    segment_index_bytes: i32 = "segment.index.bytes",
    segment_jitter_ms: i64 = "segment.jitter.ms",
    segment_ms: i64 = "segment.ms",
    unclean_leader_election_enable: bool = "unclean.leader.election.enable",
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

/// Formats a number like `Double.toString`, for the range of these settings.
pub fn java_double(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 || (1e-3..1e7).contains(&magnitude) {
        return format!("{value:?}");
    }
    let text = format!("{value:E}");
    match text.split_once('E') {
        Some((mantissa, exponent)) if !mantissa.contains('.') => format!("{mantissa}.0E{exponent}"),
        _ => text,
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
        assert_eq!(config.max_segment_ms(), 7 * 24 * 60 * 60 * 1000);
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
