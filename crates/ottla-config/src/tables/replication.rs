//! Settings of replication between brokers.
//!
//! Source of names, types, defaults and valid values: Kafka 4.3.1, `ReplicationConfigs`.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "auto.leader.rebalance.enable"                     Boolean "true"                _            High   ReadOnly SUPPORTED;
    "controller.socket.timeout.ms"                     Int     "30000"               _            Medium ReadOnly SUPPORTED;
    "default.replication.factor"                       Int     "1"                   _            Medium ReadOnly SUPPORTED;
    "delete.records.purgatory.purge.interval.requests" Int     "1"                   _            Medium ReadOnly PURGATORY;
    "fetch.purgatory.purge.interval.requests"          Int     "1000"                _            Medium ReadOnly PURGATORY;
    "leader.imbalance.check.interval.seconds"          Long    "300"                 (at_least 1) High   ReadOnly SUPPORTED;
    "num.replica.alter.log.dirs.threads"               Int     null                  _            High   ReadOnly SUPPORTED;
    "num.replica.fetchers"                             Int     "1"                   (at_least 1) High   ClusterWide SUPPORTED;
    "producer.purgatory.purge.interval.requests"       Int     "1000"                _            Medium ReadOnly PURGATORY;
    "replica.alter.log.dirs.io.max.bytes.per.second"   Long    "9223372036854775807" (at_least 0) Medium ClusterWide SUPPORTED;
    "replica.fetch.backoff.ms"                         Int     "1000"                (at_least 0) Medium ReadOnly SUPPORTED;
    "replica.fetch.max.bytes"                          Int     "1048576"             (at_least 0) Medium ReadOnly SUPPORTED;
    "replica.fetch.min.bytes"                          Int     "1"                   _            High   ReadOnly SUPPORTED;
    "replica.fetch.response.max.bytes"                 Int     "10485760"            (at_least 0) Medium ReadOnly SUPPORTED;
    "replica.fetch.wait.max.ms"                        Int     "500"                 _            High   ReadOnly SUPPORTED;
    "replica.high.watermark.checkpoint.interval.ms"    Long    "5000"                _            High   ReadOnly SUPPORTED;
    "replica.lag.time.max.ms"                          Long    "30000"               _            High   ReadOnly SUPPORTED;
    "replica.selector.class"                           String  null                  _            Medium ReadOnly REPLICA_SELECTOR;
    "replica.socket.receive.buffer.bytes"              Int     "65536"               _            High   ReadOnly KERNEL_BUFFER;
    "replica.socket.timeout.ms"                        Int     "30000"               _            High   ReadOnly SUPPORTED;
    "unclean.leader.election.enable"                   Boolean "false"               _            High   ClusterWide SUPPORTED;
    "unclean.leader.election.interval.ms"              Long    "300000"              (at_least 1) Medium ReadOnly SUPPORTED internal;
}
