//! Settings of the server as a whole.
//!
//! Source of names, types, defaults and valid values: Kafka 4.3.1, `ServerConfigs`.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "background.threads"                        Int     "10"       (at_least 1)    High   ClusterWide THREADS;
    "config.providers"                          List    ""         (list)          Low    ClusterWide SUPPORTED;
    "controlled.shutdown.enable"                Boolean "true"     _               Medium ReadOnly SUPPORTED;
    "delete.topic.enable"                       Boolean "true"     _               High   ReadOnly SUPPORTED;
    "fetch.max.bytes"                           Int     "57671680" (at_least 1024) Medium ReadOnly SUPPORTED;
    "max.incremental.fetch.session.cache.slots" Int     "1000"     (at_least 0)    Medium ReadOnly SUPPORTED;
    "max.request.partition.size.limit"          Int     "2000"     (at_least 1)    Medium ReadOnly SUPPORTED;
    "num.io.threads"                            Int     "8"        (at_least 1)    High   ClusterWide THREADS;
    "request.timeout.ms"                        Int     "30000"    _               High   ReadOnly SUPPORTED;
    "unstable.api.versions.enable"              Boolean "false"    _               High   ReadOnly UNSTABLE internal;
    "unstable.feature.versions.enable"          Boolean "false"    _               High   ReadOnly UNSTABLE internal;
}
