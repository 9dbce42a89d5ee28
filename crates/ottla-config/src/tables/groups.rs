//! Settings of consumer groups and committed offsets.
//!
//! Source of names, types, defaults and valid values: Kafka 4.3.1, `GroupCoordinatorConfig`.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "group.consumer.assignment.interval.ms"     Int    "1000"                     (at_least 0)               Medium ClusterWide SUPPORTED;
    "group.consumer.assignor.offload.enable"    Boolean "true"                    _                          Medium ClusterWide SUPPORTED internal;
    "group.consumer.assignors"                  List   "uniform,range"            (non_empty_list)           Medium ReadOnly CONSUMER_ASSIGNORS;
    "group.consumer.heartbeat.interval.ms"      Int    "5000"                     (at_least 1)               Medium ReadOnly SUPPORTED;
    "group.consumer.max.assignment.interval.ms" Int    "15000"                    (at_least 0)               Medium ReadOnly SUPPORTED;
    "group.consumer.max.heartbeat.interval.ms"  Int    "15000"                    (at_least 1)               Medium ReadOnly SUPPORTED;
    "group.consumer.max.session.timeout.ms"     Int    "60000"                    (at_least 1)               Medium ReadOnly SUPPORTED;
    "group.consumer.max.size"                   Int    "2147483647"               (at_least 1)               Medium ReadOnly SUPPORTED;
    "group.consumer.migration.policy"           String "bidirectional"            (one_of_any_case "DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL") Medium ReadOnly SUPPORTED;
    "group.consumer.min.assignment.interval.ms" Int    "0"                        (at_least 0)               Medium ReadOnly SUPPORTED;
    "group.consumer.min.heartbeat.interval.ms"  Int    "5000"                     (at_least 1)               Medium ReadOnly SUPPORTED;
    "group.consumer.min.session.timeout.ms"     Int    "45000"                    (at_least 1)               Medium ReadOnly SUPPORTED;
    "group.consumer.regex.refresh.interval.ms"  Int    "600000"                   (at_least 10000)           Medium ReadOnly SUPPORTED internal;
    "group.consumer.session.timeout.ms"         Int    "45000"                    (at_least 1)               Medium ReadOnly SUPPORTED;
    "group.coordinator.append.linger.ms"        Int    "-1"                       (at_least -1)              Medium ReadOnly COORDINATOR_BUFFERS;
    "group.coordinator.background.threads"      Int    "2"                        (at_least 1)               High   ReadOnly SUPPORTED;
    "group.coordinator.cached.buffer.max.bytes" Int    "1048588"                  (at_least 524288)          Medium ClusterWide COORDINATOR_BUFFERS;
    "group.coordinator.rebalance.protocols"     List   "classic,consumer,streams" (non_empty_list_of "consumer", "classic", "share", "streams") Medium ReadOnly SUPPORTED;
    "group.coordinator.threads"                 Int    "4"                        (at_least 1)               High   ReadOnly THREADS;
    "group.initial.rebalance.delay.ms"          Int    "3000"                     _                          Medium ReadOnly SUPPORTED;
    "group.max.session.timeout.ms"              Int    "1800000"                  _                          Medium ReadOnly SUPPORTED;
    "group.max.size"                            Int    "2147483647"               (at_least 1)               Medium ReadOnly SUPPORTED;
    "group.min.session.timeout.ms"              Int    "6000"                     _                          Medium ReadOnly SUPPORTED;
    "offset.metadata.max.bytes"                 Int    "4096"                     _                          High   ReadOnly SUPPORTED;
    "offsets.commit.timeout.ms"                 Int    "5000"                     (at_least 1)               High   ReadOnly SUPPORTED;
    "offsets.load.buffer.size"                  Int    "5242880"                  (at_least 1)               High   ReadOnly COORDINATOR_BUFFERS;
    "offsets.retention.check.interval.ms"       Long   "600000"                   (at_least 1)               High   ReadOnly SUPPORTED;
    "offsets.retention.minutes"                 Int    "10080"                    (at_least 1)               High   ReadOnly SUPPORTED;
    "offsets.topic.compression.codec"           Int    "0"                        _                          High   ReadOnly SUPPORTED;
    "offsets.topic.num.partitions"              Int    "50"                       (at_least 1)               High   ReadOnly SUPPORTED;
    "offsets.topic.replication.factor"          Short  "3"                        (at_least 1)               High   ReadOnly SUPPORTED;
    "offsets.topic.segment.bytes"               Int    "104857600"                (at_least 1)               High   ReadOnly SUPPORTED;
}
