//! Settings of tiered storage.
//!
//! Source of names, types, defaults and valid values: Kafka 4.3.1, `RemoteLogManagerConfig`.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "follower.fetch.last.tiered.offset.enable"           Boolean "false"                        _                Medium ClusterWide SUPPORTED;
    "log.local.retention.bytes"                          Long    "-2"                           (at_least -2)    Medium ClusterWide SUPPORTED;
    "log.local.retention.ms"                             Long    "-2"                           (at_least -2)    Medium ClusterWide SUPPORTED;
    "log.remote.copy.lag.bytes"                          Long    "-1"                           (at_least -1)    Medium ClusterWide SUPPORTED;
    "log.remote.copy.lag.ms"                             Long    "0"                            (at_least -1)    Medium ClusterWide SUPPORTED;
    "remote.fetch.max.wait.ms"                           Int     "500"                          (at_least 1)     Medium ClusterWide SUPPORTED;
    "remote.list.offsets.request.timeout.ms"             Long    "30000"                        (at_least 1)     Medium ClusterWide SUPPORTED;
    "remote.log.index.file.cache.total.size.bytes"       Long    "1073741824"                   (at_least 1)     Low    ClusterWide SUPPORTED;
    "remote.log.index.file.cache.ttl.ms"                 Long    "900000"                       (at_least -1)    Low    ReadOnly REMOTE_CACHE_TIME internal;
    "remote.log.manager.copier.thread.pool.size"         Int     "10"                           (at_least 1)     Medium ClusterWide SUPPORTED;
    "remote.log.manager.copy.max.bytes.per.second"       Long    "9223372036854775807"          (at_least 1)     Medium ClusterWide SUPPORTED;
    "remote.log.manager.copy.quota.window.num"           Int     "11"                           (at_least 1)     Medium ReadOnly SUPPORTED;
    "remote.log.manager.copy.quota.window.size.seconds"  Int     "1"                            (at_least 1)     Medium ReadOnly SUPPORTED;
    "remote.log.manager.expiration.thread.pool.size"     Int     "10"                           (at_least 1)     Medium ClusterWide SUPPORTED;
    "remote.log.manager.fetch.max.bytes.per.second"      Long    "9223372036854775807"          (at_least 1)     Medium ClusterWide SUPPORTED;
    "remote.log.manager.fetch.quota.window.num"          Int     "11"                           (at_least 1)     Medium ReadOnly SUPPORTED;
    "remote.log.manager.fetch.quota.window.size.seconds" Int     "1"                            (at_least 1)     Medium ReadOnly SUPPORTED;
    "remote.log.manager.follower.thread.pool.size"       Int     "2"                            (at_least 1)     Medium ClusterWide REMOTE_THREADS;
    "remote.log.manager.task.interval.ms"                Long    "30000"                        (at_least 1)     Low    ReadOnly SUPPORTED;
    "remote.log.manager.task.retry.backoff.max.ms"       Long    "30000"                        (at_least 1)     Low    ReadOnly REMOTE_RETRIES internal;
    "remote.log.manager.task.retry.backoff.ms"           Long    "500"                          (at_least 1)     Low    ReadOnly REMOTE_RETRIES internal;
    "remote.log.manager.task.retry.jitter"               Double  "0.2"                          (between 0, 0.5) Low    ReadOnly REMOTE_RETRIES internal;
    "remote.log.manager.thread.pool.size"                Int     "2"                            (at_least 1)     Medium ReadOnly REMOTE_THREADS;
    "remote.log.metadata.custom.metadata.max.bytes"      Int     "128"                          (at_least 0)     Low    ReadOnly SUPPORTED;
    "remote.log.metadata.manager.class.name"             String  "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager" (non_empty)      Medium ReadOnly SUPPORTED;
    "remote.log.metadata.manager.class.path"             String  null                           _                Medium ReadOnly REMOTE_CLASS_PATH;
    "remote.log.metadata.manager.impl.prefix"            String  "rlmm.config."                 (non_empty)      Medium ReadOnly SUPPORTED;
    "remote.log.metadata.manager.listener.name"          String  null                           (non_empty)      Medium ReadOnly REMOTE_LISTENER;
    "remote.log.reader.max.pending.tasks"                Int     "100"                          (at_least 1)     Medium ReadOnly SUPPORTED;
    "remote.log.reader.threads"                          Int     "10"                           (at_least 1)     Medium ClusterWide SUPPORTED;
    "remote.log.storage.manager.class.name"              String  null                           (non_empty)      Medium ReadOnly SUPPORTED;
    "remote.log.storage.manager.class.path"              String  null                           _                Medium ReadOnly REMOTE_CLASS_PATH;
    "remote.log.storage.manager.impl.prefix"             String  "rsm.config."                  (non_empty)      Medium ReadOnly SUPPORTED;
    "remote.log.storage.system.enable"                   Boolean "false"                        _                Medium ReadOnly SUPPORTED;
}
