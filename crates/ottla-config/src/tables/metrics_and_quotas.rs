//! Settings of metrics, client telemetry and quotas.
//!
//! Source of names, types, defaults and valid values: Kafka 4.3.1, `MetricConfigs`, `QuotaConfig`.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "alter.log.dirs.replication.quota.window.num"          Int    "11"                           (at_least 1) Low    ReadOnly EVEN_PACE;
    "alter.log.dirs.replication.quota.window.size.seconds" Int    "1"                            (at_least 1) Low    ReadOnly EVEN_PACE;
    "client.quota.callback.class"                          Class  null                           _            Low    ReadOnly PLUGIN;
    "controller.quota.window.num"                          Int    "11"                           (at_least 1) Low    ReadOnly SUPPORTED;
    "controller.quota.window.size.seconds"                 Int    "1"                            (at_least 1) Low    ReadOnly SUPPORTED;
    "follower.replication.throttled.rate"                  Long   "9223372036854775807"          (at_least 0) Medium ClusterWide SUPPORTED;
    "kafka.metrics.polling.interval.secs"                  Int    "10"                           (at_least 1) Low    ReadOnly METRICS;
    "kafka.metrics.reporters"                              List   ""                             (list)       Low    ReadOnly PLUGIN;
    "leader.replication.throttled.rate"                    Long   "9223372036854775807"          (at_least 0) Medium ClusterWide SUPPORTED;
    "metric.reporters"                                     List   "org.apache.kafka.common.metrics.JmxReporter" (list)       Low    ClusterWide REPORTERS;
    "metrics.num.samples"                                  Int    "2"                            (at_least 1) Low    ReadOnly METRICS;
    "metrics.recording.level"                              String "INFO"                         _            Low    ReadOnly METRICS;
    "metrics.sample.window.ms"                             Long   "30000"                        (at_least 1) Low    ReadOnly METRICS;
    "quota.window.num"                                     Int    "11"                           (at_least 1) Low    ReadOnly SUPPORTED;
    "quota.window.size.seconds"                            Int    "1"                            (at_least 1) Low    ReadOnly SUPPORTED;
    "replication.quota.window.num"                         Int    "11"                           (at_least 1) Low    ReadOnly SUPPORTED;
    "replication.quota.window.size.seconds"                Int    "1"                            (at_least 1) Low    ReadOnly SUPPORTED;
    "telemetry.max.bytes"                                  Int    "1048576"                      (at_least 1) Low    ReadOnly SUPPORTED;
}
