//! Settings of one topic.
//!
//! Source of names, types, defaults and valid values: Kafka 4.4.0, `LogConfig`.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "cleanup.policy"                          List    "delete"              (list_of "compact", "delete") Medium ClusterWide SUPPORTED;
    "compression.gzip.level"                  Int     "-1"                  (gzip_level)               Medium ClusterWide SUPPORTED;
    "compression.lz4.level"                   Int     "9"                   (between 1, 17)            Medium ClusterWide SUPPORTED;
    "compression.type"                        String  "producer"            (one_of "uncompressed", "zstd", "lz4", "snappy", "gzip", "producer") Medium ClusterWide SUPPORTED;
    "compression.zstd.level"                  Int     "3"                   (between -131072, 22)      Medium ClusterWide SUPPORTED;
    "delete.retention.ms"                     Long    "86400000"            (at_least 0)               Medium ClusterWide SUPPORTED;
    "errors.deadletterqueue.group.enable"     Boolean "false"               _                          Medium ClusterWide SUPPORTED;
    "file.delete.delay.ms"                    Long    "60000"               (at_least 0)               Medium ClusterWide SUPPORTED;
    "flush.messages"                          Long    "9223372036854775807" (at_least 1)               Medium ClusterWide SUPPORTED;
    "flush.ms"                                Long    "9223372036854775807" (at_least 0)               Medium ClusterWide SUPPORTED;
    "follower.replication.throttled.replicas" List    ""                    (throttled_replicas)       Medium ClusterWide SUPPORTED;
    "index.interval.bytes"                    Int     "4096"                (at_least 0)               Medium ClusterWide SUPPORTED;
    "internal.segment.bytes"                  Int     null                  _                          Medium ClusterWide SUPPORTED internal;
    "leader.replication.throttled.replicas"   List    ""                    (throttled_replicas)       Medium ClusterWide SUPPORTED;
    "local.retention.bytes"                   Long    "-2"                  (at_least -2)              Medium ClusterWide SUPPORTED;
    "local.retention.ms"                      Long    "-2"                  (at_least -2)              Medium ClusterWide SUPPORTED;
    "max.compaction.lag.ms"                   Long    "9223372036854775807" (at_least 1)               Medium ClusterWide SUPPORTED;
    "max.decompressed.message.bytes"          Int     "2147483639"          (between 1, 2147483639)    Medium ClusterWide SUPPORTED;
    "max.message.bytes"                       Int     "1048588"             (at_least 0)               Medium ClusterWide SUPPORTED;
    "message.timestamp.after.max.ms"          Long    "3600000"             (at_least 0)               Medium ClusterWide SUPPORTED;
    "message.timestamp.before.max.ms"         Long    "9223372036854775807" (at_least 0)               Medium ClusterWide SUPPORTED;
    "message.timestamp.type"                  String  "CreateTime"          (one_of "CreateTime", "LogAppendTime") Medium ClusterWide SUPPORTED;
    "min.cleanable.dirty.ratio"               Double  "0.5"                 (between 0, 1)             Medium ClusterWide SUPPORTED;
    "min.compaction.lag.ms"                   Long    "0"                   (at_least 0)               Medium ClusterWide SUPPORTED;
    "min.insync.replicas"                     Int     "1"                   (at_least 1)               Medium ClusterWide SUPPORTED;
    "preallocate"                             Boolean "false"               _                          Medium ClusterWide SUPPORTED;
    "remote.copy.lag.bytes"                   Long    "-1"                  (at_least -1)              Medium ClusterWide SUPPORTED;
    "remote.copy.lag.ms"                      Long    "0"                   (at_least -1)              Medium ClusterWide SUPPORTED;
    "remote.log.copy.disable"                 Boolean "false"               _                          Medium ClusterWide SUPPORTED;
    "remote.log.delete.on.disable"            Boolean "false"               _                          Medium ClusterWide SUPPORTED;
    "remote.storage.enable"                   Boolean "false"               _                          Medium ClusterWide SUPPORTED;
    "retention.bytes"                         Long    "-1"                  _                          Medium ClusterWide SUPPORTED;
    "retention.ms"                            Long    "604800000"           (at_least -1)              Medium ClusterWide SUPPORTED;
    "segment.bytes"                           Int     "1073741824"          (at_least 1048576)         Medium ClusterWide SUPPORTED;
    "segment.index.bytes"                     Int     "10485760"            (at_least 4)               Medium ClusterWide SUPPORTED;
    "segment.jitter.ms"                       Long    "0"                   (at_least 0)               Medium ClusterWide SUPPORTED;
    "segment.ms"                              Long    "604800000"           (at_least 1)               Medium ClusterWide SUPPORTED;
    "unclean.leader.election.enable"          Boolean "false"               _                          Medium ClusterWide SUPPORTED;
}
