//! Settings of transactions and idempotent producers.
//!
//! Source of names, types, defaults and valid values: Kafka 4.3.1, `TransactionLogConfig`, `TransactionStateManagerConfig`.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "add.partitions.to.txn.retry.backoff.max.ms"                  Int     "100"       (at_least 0) High ReadOnly SUPPORTED;
    "add.partitions.to.txn.retry.backoff.ms"                      Int     "20"        (at_least 1) High ReadOnly SUPPORTED;
    "producer.id.expiration.check.interval.ms"                    Int     "600000"    (at_least 1) Low  ReadOnly SUPPORTED internal;
    "producer.id.expiration.ms"                                   Int     "86400000"  (at_least 1) Low  ClusterWide SUPPORTED;
    "transaction.abort.timed.out.transaction.cleanup.interval.ms" Int     "10000"     (at_least 1) Low  ReadOnly SUPPORTED;
    "transaction.max.timeout.ms"                                  Int     "900000"    (at_least 1) High ReadOnly SUPPORTED;
    "transaction.partition.verification.enable"                   Boolean "true"      _            Low  ClusterWide SUPPORTED;
    "transaction.remove.expired.transaction.cleanup.interval.ms"  Int     "3600000"   (at_least 1) Low  ReadOnly SUPPORTED;
    "transaction.state.log.load.buffer.size"                      Int     "5242880"   (at_least 1) High ReadOnly COORDINATOR_BUFFERS;
    "transaction.state.log.min.isr"                               Int     "2"         (at_least 1) High ReadOnly SUPPORTED;
    "transaction.state.log.num.partitions"                        Int     "50"        (at_least 1) High ReadOnly SUPPORTED;
    "transaction.state.log.replication.factor"                    Short   "3"         (at_least 1) High ReadOnly SUPPORTED;
    "transaction.state.log.segment.bytes"                         Int     "104857600" (at_least 1) High ReadOnly SUPPORTED;
    "transaction.two.phase.commit.enable"                         Boolean "false"     _            Low  ReadOnly SUPPORTED;
    "transactional.id.expiration.ms"                              Int     "604800000" (at_least 1) High ReadOnly SUPPORTED;
}
