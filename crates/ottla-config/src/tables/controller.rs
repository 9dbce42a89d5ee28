//! Settings of the node's identity, its roles, the controller quorum and the metadata log.
//!
//! Source of names, types, defaults and valid values: Kafka 4.3.1, `KRaftConfigs`, `QuorumConfig`, `MetadataLogConfig`.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "broker.heartbeat.interval.ms"                    Int     "2000"                _                          Medium ReadOnly SUPPORTED;
    "broker.id"                                       Int     "-1"                  _                          High   ReadOnly SUPPORTED;
    "broker.rack"                                     String  null                  _                          Medium ReadOnly SUPPORTED;
    "broker.session.timeout.ms"                       Int     "9000"                _                          Medium ReadOnly SUPPORTED;
    "controller.listener.names"                       List    required              (non_empty_list)           High   ReadOnly SUPPORTED;
    "controller.performance.always.log.threshold.ms"  Long    "2000"                (at_least 0)               Medium ReadOnly UNUSED internal;
    "controller.performance.sample.period.ms"         Long    "60000"               (at_least 100)             Medium ReadOnly UNUSED internal;
    "controller.quorum.append.linger.ms"              Int     "25"                  (at_least 0)               Medium ReadOnly APPENDS_AT_ONCE;
    "controller.quorum.auto.join.enable"              Boolean "false"               _                          Low    ReadOnly SUPPORTED;
    "controller.quorum.bootstrap.servers"             List    ""                    (bootstrap_servers)        High   ReadOnly SUPPORTED;
    "controller.quorum.election.backoff.max.ms"       Int     "1000"                (at_least 0)               High   ReadOnly SUPPORTED;
    "controller.quorum.election.timeout.ms"           Int     "1000"                (at_least 0)               High   ReadOnly SUPPORTED;
    "controller.quorum.fetch.max.bytes"               Int     "1048576"             (at_least 1)               Low    ReadOnly SUPPORTED;
    "controller.quorum.fetch.snapshot.max.bytes"      Int     "1048576"             (at_least 1)               Low    ReadOnly SUPPORTED;
    "controller.quorum.fetch.timeout.ms"              Int     "2000"                (at_least 0)               High   ReadOnly SUPPORTED;
    "controller.quorum.request.timeout.ms"            Int     "2000"                (at_least 0)               Medium ReadOnly SUPPORTED;
    "controller.quorum.retry.backoff.ms"              Int     "20"                  (at_least 0)               Low    ReadOnly SUPPORTED;
    "controller.quorum.voters"                        List    ""                    (quorum_voters)            High   ReadOnly SUPPORTED;
    "initial.broker.registration.timeout.ms"          Int     "60000"               _                          Medium ReadOnly SUPPORTED;
    "internal.metadata.delete.delay.millis"           Long    "60000"               _                          Low    ReadOnly UNUSED internal;
    "internal.metadata.log.segment.bytes"             Int     null                  _                          Low    ReadOnly SUPPORTED internal;
    "internal.metadata.max.batch.size.in.bytes"       Int     "8388608"             _                          Low    ReadOnly SUPPORTED internal;
    "metadata.log.dir"                                String  null                  _                          High   ReadOnly SUPPORTED;
    "metadata.log.max.record.bytes.between.snapshots" Long    "20971520"            (at_least 1)               High   ReadOnly SUPPORTED;
    "metadata.log.max.snapshot.interval.ms"           Long    "3600000"             (at_least 0)               High   ReadOnly SUPPORTED;
    "metadata.log.segment.bytes"                      Int     "1073741824"          (at_least 8388608)         High   ReadOnly SUPPORTED;
    "metadata.log.segment.ms"                         Long    "604800000"           _                          High   ReadOnly SUPPORTED;
    "metadata.max.idle.interval.ms"                   Int     "500"                 (at_least 0)               Low    ReadOnly IDLE;
    "metadata.max.retention.bytes"                    Long    "104857600"           _                          High   ReadOnly SUPPORTED;
    "metadata.max.retention.ms"                       Long    "604800000"           _                          High   ReadOnly SUPPORTED;
    "node.id"                                         Int     required              (at_least 0)               High   ReadOnly SUPPORTED;
    "process.roles"                                   List    required              (non_empty_list_of "broker", "controller") High   ReadOnly SUPPORTED;
    "server.max.startup.time.ms"                      Long    "9223372036854775807" (at_least 0)               Medium ReadOnly UNUSED internal;
}
