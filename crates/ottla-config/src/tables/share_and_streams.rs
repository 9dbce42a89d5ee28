//! Settings of share groups, the share coordinator and streams groups.
//!
//! Source of names, types, defaults and valid values: Kafka 4.4.0, `ShareGroupConfig`, `ShareCoordinatorConfig`, `GroupCoordinatorConfig`.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "errors.deadletterqueue.auto.create.topics.enable"       Boolean "false"                       _                        Medium ClusterWide SUPPORTED;
    "errors.deadletterqueue.topic.name.prefix"               String "dlq."                         _                        Medium ClusterWide SUPPORTED;
    "group.share.assignment.interval.ms"                     Int    "1000"                         (at_least 0)             Medium ClusterWide SUPPORTED;
    "group.share.assignor.offload.enable"                    Boolean "true"                        _                        Medium ClusterWide ASSIGNS_AT_ONCE internal;
    "group.share.assignors"                                  List   "simple"                       (non_empty_list)         Medium ReadOnly SHARE_ASSIGNORS;
    "group.share.delivery.count.limit"                       Int    "5"                            (between 2, 10)          Medium ReadOnly SUPPORTED;
    "group.share.dlq.manager.class.name"                     String "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager" _                 Medium ReadOnly PLUGIN internal;
    "group.share.heartbeat.interval.ms"                      Int    "5000"                         (at_least 1)             Medium ReadOnly SUPPORTED;
    "group.share.initialize.retry.interval.ms"               Int    "30000"                        (at_least 1)             Low    ReadOnly SUPPORTED internal;
    "group.share.max.assignment.interval.ms"                 Int    "15000"                        (at_least 0)             Medium ReadOnly SUPPORTED;
    "group.share.max.delivery.count.limit"                   Int    "10"                           (between 5, 25)          Medium ReadOnly SUPPORTED;
    "group.share.max.heartbeat.interval.ms"                  Int    "15000"                        (at_least 1)             Medium ReadOnly SUPPORTED;
    "group.share.max.partition.max.record.locks"             Int    "4000"                         (between 2000, 10000)    Medium ReadOnly SUPPORTED;
    "group.share.max.record.lock.duration.ms"                Int    "60000"                        (between 30000, 3600000) Medium ReadOnly SUPPORTED;
    "group.share.max.session.timeout.ms"                     Int    "60000"                        (at_least 1)             Medium ReadOnly SUPPORTED;
    "group.share.max.share.sessions"                         Int    "2000"                         (at_least 1)             Medium ReadOnly SUPPORTED;
    "group.share.max.size"                                   Int    "200"                          (between 1, 1000)        Medium ReadOnly SUPPORTED;
    "group.share.min.assignment.interval.ms"                 Int    "0"                            (at_least 0)             Medium ReadOnly SUPPORTED;
    "group.share.min.delivery.count.limit"                   Int    "2"                            (between 2, 5)           Medium ReadOnly SUPPORTED;
    "group.share.min.heartbeat.interval.ms"                  Int    "5000"                         (at_least 1)             Medium ReadOnly SUPPORTED;
    "group.share.min.partition.max.record.locks"             Int    "100"                          (between 100, 2000)      Medium ReadOnly SUPPORTED;
    "group.share.min.record.lock.duration.ms"                Int    "15000"                        (between 1000, 30000)    Medium ReadOnly SUPPORTED;
    "group.share.min.session.timeout.ms"                     Int    "45000"                        (at_least 1)             Medium ReadOnly SUPPORTED;
    "group.share.partition.max.record.locks"                 Int    "2000"                         (between 100, 10000)     Medium ReadOnly SUPPORTED;
    "group.share.persister.class.name"                       String "org.apache.kafka.server.share.persister.DefaultStatePersister" _                        Medium ReadOnly PLUGIN internal;
    "group.share.record.lock.duration.ms"                    Int    "30000"                        (between 1000, 3600000)  Medium ReadOnly SUPPORTED;
    "group.share.session.timeout.ms"                         Int    "45000"                        (at_least 1)             Medium ReadOnly SUPPORTED;
    "group.streams.acceptable.recovery.lag"                  Long   "10000"                        (at_least 0)             Medium ReadOnly SUPPORTED internal;
    "group.streams.assignment.interval.ms"                   Int    "1000"                         (at_least 0)             Medium ClusterWide SUPPORTED;
    "group.streams.assignor.offload.enable"                  Boolean "true"                        _                        Medium ClusterWide ASSIGNS_AT_ONCE internal;
    "group.streams.assignors"                                List   "sticky"                       (non_empty_list)         Medium ReadOnly STREAMS_ASSIGNORS;
    "group.streams.heartbeat.interval.ms"                    Int    "5000"                         (at_least 1)             Medium ReadOnly SUPPORTED;
    "group.streams.initial.rebalance.delay.ms"               Int    "3000"                         (at_least 0)             Medium ReadOnly SUPPORTED;
    "group.streams.max.assignment.interval.ms"               Int    "15000"                        (at_least 0)             Medium ReadOnly SUPPORTED;
    "group.streams.max.heartbeat.interval.ms"                Int    "15000"                        (at_least 1)             Medium ReadOnly SUPPORTED;
    "group.streams.max.session.timeout.ms"                   Int    "60000"                        (at_least 1)             Medium ReadOnly SUPPORTED;
    "group.streams.max.size"                                 Int    "2147483647"                   (at_least 1)             Medium ReadOnly SUPPORTED;
    "group.streams.max.standby.replicas"                     Int    "2"                            (at_least 0)             Medium ReadOnly SUPPORTED;
    "group.streams.max.warmup.replicas"                      Int    "20"                           (at_least 0)             Medium ReadOnly WARMUP internal;
    "group.streams.min.assignment.interval.ms"               Int    "0"                            (at_least 0)             Medium ReadOnly SUPPORTED;
    "group.streams.min.heartbeat.interval.ms"                Int    "5000"                         (at_least 1)             Medium ReadOnly SUPPORTED;
    "group.streams.min.session.timeout.ms"                   Int    "45000"                        (at_least 1)             Medium ReadOnly SUPPORTED;
    "group.streams.min.task.offset.interval.ms"              Int    "15000"                        (at_least 1)             Medium ReadOnly SUPPORTED internal;
    "group.streams.num.standby.replicas"                     Int    "0"                            (at_least 0)             Medium ReadOnly SUPPORTED;
    "group.streams.num.warmup.replicas"                      Int    "2"                            (at_least 0)             Medium ReadOnly WARMUP internal;
    "group.streams.rack.aware.assignment.tags"               List   ""                             (list)                   Low    ReadOnly SUPPORTED;
    "group.streams.session.timeout.ms"                       Int    "45000"                        (at_least 1)             Medium ReadOnly SUPPORTED;
    "group.streams.task.offset.interval.ms"                  Int    "60000"                        (at_least 1)             Medium ReadOnly SUPPORTED internal;
    "group.streams.topology.description.plugin.class"        Class  null                           _                        Medium ReadOnly PLUGIN;
    "share.coordinator.append.linger.ms"                     Int    "-1"                           (at_least -1)            Medium ReadOnly COORDINATOR_BUFFERS;
    "share.coordinator.cached.buffer.max.bytes"              Int    "1048588"                      (at_least 524288)        Medium ClusterWide COORDINATOR_BUFFERS;
    "share.coordinator.cold.partition.snapshot.interval.ms"  Int    "300000"                       (at_least 1)             Low    ReadOnly SUPPORTED internal;
    "share.coordinator.load.buffer.size"                     Int    "5242880"                      (at_least 1)             High   ReadOnly COORDINATOR_BUFFERS;
    "share.coordinator.snapshot.update.records.per.snapshot" Int    "500"                          (between 0, 500)         Medium ReadOnly SUPPORTED;
    "share.coordinator.state.topic.compression.codec"        Int    "0"                            _                        High   ReadOnly SUPPORTED;
    "share.coordinator.state.topic.min.isr"                  Short  "2"                            (at_least 1)             High   ReadOnly SUPPORTED;
    "share.coordinator.state.topic.num.partitions"           Int    "50"                           (at_least 1)             High   ReadOnly SUPPORTED;
    "share.coordinator.state.topic.prune.interval.ms"        Int    "300000"                       (at_least 1)             Low    ReadOnly SUPPORTED internal;
    "share.coordinator.state.topic.replication.factor"       Short  "3"                            (at_least 1)             High   ReadOnly SUPPORTED;
    "share.coordinator.state.topic.segment.bytes"            Int    "104857600"                    (at_least 1)             High   ReadOnly SUPPORTED;
    "share.coordinator.threads"                              Int    "1"                            (at_least 1)             Medium ReadOnly THREADS;
    "share.coordinator.write.timeout.ms"                     Int    "5000"                         (at_least 1)             High   ReadOnly SUPPORTED;
    "share.fetch.purgatory.purge.interval.requests"          Int    "1000"                         _                        Medium ReadOnly PURGATORY;
}
