//! Settings of the topic-based metadata manager of tiered storage, below the prefix of
//! `remote.log.metadata.manager.impl.prefix`.
//!
//! Source of names, types, defaults and valid values: Kafka 4.3.1,
//! `TopicBasedRemoteLogMetadataManagerConfig`.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "remote.log.metadata.consume.wait.ms"                     Long  "120000" (at_least 0) Low ReadOnly SUPPORTED;
    "remote.log.metadata.initialization.retry.interval.ms"    Long  "100"    (at_least 0) Low ReadOnly SUPPORTED;
    "remote.log.metadata.initialization.retry.max.timeout.ms" Long  "120000" (at_least 0) Low ReadOnly SUPPORTED;
    "remote.log.metadata.topic.min.isr"                       Short "2"      (at_least 1) Low ReadOnly SUPPORTED;
    "remote.log.metadata.topic.num.partitions"                Int   "50"     (at_least 1) Low ReadOnly SUPPORTED;
    "remote.log.metadata.topic.replication.factor"            Short "3"      (at_least 1) Low ReadOnly SUPPORTED;
    "remote.log.metadata.topic.retention.ms"                  Long  "-1"     _            Low ReadOnly SUPPORTED;
}
