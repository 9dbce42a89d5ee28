//! Settings of one group.
//!
//! Source of names, types, defaults and valid values: Kafka 4.4.0, `GroupConfig`.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "consumer.assignment.interval.ms"    Int     "1000"             (at_least 0)               Medium ClusterWide SUPPORTED;
    "consumer.assignor.offload.enable"   Boolean "true"             _                          Medium ClusterWide SUPPORTED internal;
    "consumer.heartbeat.interval.ms"     Int     "5000"             (at_least 1)               Medium ClusterWide SUPPORTED;
    "consumer.session.timeout.ms"        Int     "45000"            (at_least 1)               Medium ClusterWide SUPPORTED;
    "errors.deadletterqueue.copy.record.enable" Boolean "false"     _                          Medium ClusterWide SUPPORTED;
    "errors.deadletterqueue.topic.name"  String  ""                 _                          Medium ClusterWide SUPPORTED;
    "share.assignment.interval.ms"       Int     "1000"             (at_least 0)               Medium ClusterWide SUPPORTED;
    "share.assignor.offload.enable"      Boolean "true"             _                          Medium ClusterWide ASSIGNS_AT_ONCE internal;
    "share.auto.offset.reset"            String  "latest"           (share_offset_reset)       Medium ClusterWide SUPPORTED;
    "share.delivery.count.limit"         Int     "5"                (at_least 2)               Medium ClusterWide SUPPORTED;
    "share.heartbeat.interval.ms"        Int     "5000"             (at_least 1)               Medium ClusterWide SUPPORTED;
    "share.isolation.level"              String  "read_uncommitted" (one_of "read_committed", "read_uncommitted") Medium ClusterWide SUPPORTED;
    "share.partition.max.record.locks"   Int     "2000"             (at_least 100)             Medium ClusterWide SUPPORTED;
    "share.record.lock.duration.ms"      Int     "30000"            (at_least 1000)            Medium ClusterWide SUPPORTED;
    "share.renew.acknowledge.enable"     Boolean "true"             _                          Medium ClusterWide SUPPORTED;
    "share.session.timeout.ms"           Int     "45000"            (at_least 1)               Medium ClusterWide SUPPORTED;
    "streams.acceptable.recovery.lag"    Long    "10000"            (at_least 0)               Medium ClusterWide SUPPORTED internal;
    "streams.assignment.interval.ms"     Int     "1000"             (at_least 0)               Medium ClusterWide SUPPORTED;
    "streams.assignor.name"              String  null               _                          Medium ClusterWide STREAMS_ASSIGNORS;
    "streams.assignor.offload.enable"    Boolean "true"             _                          Medium ClusterWide ASSIGNS_AT_ONCE internal;
    "streams.heartbeat.interval.ms"      Int     "5000"             (at_least 1)               Medium ClusterWide SUPPORTED;
    "streams.initial.rebalance.delay.ms" Int     "3000"             (at_least 0)               Medium ClusterWide SUPPORTED;
    "streams.num.standby.replicas"       Int     "0"                (at_least 0)               Medium ClusterWide SUPPORTED;
    "streams.num.warmup.replicas"        Int     "2"                (at_least 0)               Medium ClusterWide WARMUP internal;
    "streams.rack.aware.assignment.tags" List    ""                 (list)                     Low    ClusterWide SUPPORTED;
    "streams.session.timeout.ms"         Int     "45000"            (at_least 1)               Medium ClusterWide SUPPORTED;
    "streams.task.offset.interval.ms"    Int     "60000"            (at_least 1)               Medium ClusterWide SUPPORTED internal;
}
