//! Settings of logs: the broker defaults of topic settings, directories, flushing, retention, cleaning.
//!
//! Source of names, types, defaults and valid values: Kafka 4.3.1, `ServerLogConfigs`, `CleanerConfig`.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "alter.config.policy.class.name"                Class   null                     _                          Low    ReadOnly PLUGIN;
    "auto.create.topics.enable"                     Boolean "true"                   _                          High   ReadOnly SUPPORTED;
    "compression.gzip.level"                        Int     "-1"                     (gzip_level)               Medium ClusterWide SUPPORTED;
    "compression.lz4.level"                         Int     "9"                      (between 1, 17)            Medium ClusterWide SUPPORTED;
    "compression.type"                              String  "producer"               (one_of "uncompressed", "zstd", "lz4", "snappy", "gzip", "producer") High   ClusterWide SUPPORTED;
    "compression.zstd.level"                        Int     "3"                      (between -131072, 22)      Medium ClusterWide SUPPORTED;
    "cordoned.log.dirs"                             List    ""                       (list)                     Medium PerBroker SUPPORTED;
    "create.topic.policy.class.name"                Class   null                     _                          Low    ReadOnly PLUGIN;
    "log.cleaner.backoff.ms"                        Long    "15000"                  (at_least 0)               Medium ClusterWide SUPPORTED;
    "log.cleaner.dedupe.buffer.size"                Long    "134217728"              _                          Medium ClusterWide SUPPORTED;
    "log.cleaner.delete.retention.ms"               Long    "86400000"               (at_least 0)               Medium ClusterWide SUPPORTED;
    "log.cleaner.enable"                            Boolean "true"                   _                          Medium ReadOnly SUPPORTED;
    "log.cleaner.io.buffer.load.factor"             Double  "0.9"                    _                          Medium ClusterWide SUPPORTED;
    "log.cleaner.io.buffer.size"                    Int     "524288"                 (at_least 0)               Medium ClusterWide SUPPORTED;
    "log.cleaner.io.max.bytes.per.second"           Double  "1.7976931348623157E308" _                          Medium ClusterWide SUPPORTED;
    "log.cleaner.max.compaction.lag.ms"             Long    "9223372036854775807"    (at_least 1)               Medium ClusterWide SUPPORTED;
    "log.cleaner.min.cleanable.ratio"               Double  "0.5"                    (between 0, 1)             Medium ClusterWide SUPPORTED;
    "log.cleaner.min.compaction.lag.ms"             Long    "0"                      (at_least 0)               Medium ClusterWide SUPPORTED;
    "log.cleaner.threads"                           Int     "1"                      (at_least 0)               Medium ClusterWide SUPPORTED;
    "log.cleanup.policy"                            List    "delete"                 (list_of "compact", "delete") Medium ClusterWide SUPPORTED;
    "log.dir"                                       List    "/tmp/kafka-logs"        (non_empty_list)           High   ReadOnly SUPPORTED;
    "log.dir.failure.timeout.ms"                    Long    "30000"                  (at_least 1)               Low    ReadOnly SUPPORTED;
    "log.dirs"                                      List    null                     (non_empty_list)           High   ReadOnly SUPPORTED;
    "log.flush.interval.messages"                   Long    "9223372036854775807"    (at_least 1)               High   ClusterWide SUPPORTED;
    "log.flush.interval.ms"                         Long    null                     _                          High   ClusterWide SUPPORTED;
    "log.flush.offset.checkpoint.interval.ms"       Int     "60000"                  (at_least 0)               High   ReadOnly SUPPORTED;
    "log.flush.scheduler.interval.ms"               Long    "9223372036854775807"    _                          High   ReadOnly SUPPORTED;
    "log.flush.start.offset.checkpoint.interval.ms" Int     "60000"                  (at_least 0)               High   ReadOnly SUPPORTED;
    "log.index.interval.bytes"                      Int     "4096"                   (at_least 0)               Medium ClusterWide SUPPORTED;
    "log.index.size.max.bytes"                      Int     "10485760"               (at_least 4)               Medium ClusterWide SUPPORTED;
    "log.initial.task.delay.ms"                     Long    "30000"                  (at_least 0)               Low    ReadOnly SUPPORTED internal;
    "log.message.timestamp.after.max.ms"            Long    "3600000"                (at_least 0)               Medium ClusterWide SUPPORTED;
    "log.message.timestamp.before.max.ms"           Long    "9223372036854775807"    (at_least 0)               Medium ClusterWide SUPPORTED;
    "log.message.timestamp.type"                    String  "CreateTime"             (one_of "CreateTime", "LogAppendTime") Medium ClusterWide SUPPORTED;
    "log.preallocate"                               Boolean "false"                  _                          Medium ClusterWide SUPPORTED;
    "log.retention.bytes"                           Long    "-1"                     _                          High   ClusterWide SUPPORTED;
    "log.retention.check.interval.ms"               Long    "300000"                 (at_least 1)               Medium ReadOnly SUPPORTED;
    "log.retention.hours"                           Int     "168"                    _                          High   ReadOnly SUPPORTED;
    "log.retention.minutes"                         Int     null                     _                          High   ReadOnly SUPPORTED;
    "log.retention.ms"                              Long    null                     _                          High   ClusterWide SUPPORTED;
    "log.roll.hours"                                Int     "168"                    (at_least 1)               High   ReadOnly SUPPORTED;
    "log.roll.jitter.hours"                         Int     "0"                      (at_least 0)               High   ReadOnly SUPPORTED;
    "log.roll.jitter.ms"                            Long    null                     _                          High   ClusterWide SUPPORTED;
    "log.roll.ms"                                   Long    null                     _                          High   ClusterWide SUPPORTED;
    "log.segment.bytes"                             Int     "1073741824"             (at_least 1048576)         High   ClusterWide SUPPORTED;
    "log.segment.delete.delay.ms"                   Long    "60000"                  (at_least 0)               High   ClusterWide SUPPORTED;
    "max.decompressed.message.bytes"                Int     "2147483639"             (between 1, 2147483639)    Medium ClusterWide SUPPORTED;
    "message.max.bytes"                             Int     "1048588"                (at_least 0)               High   ClusterWide SUPPORTED;
    "min.insync.replicas"                           Int     "1"                      (at_least 1)               High   ClusterWide SUPPORTED;
    "num.partitions"                                Int     "1"                      (at_least 1)               Medium ReadOnly SUPPORTED;
    "num.recovery.threads.per.data.dir"             Int     "2"                      (at_least 1)               High   ClusterWide SUPPORTED;
}
