//! Settings of one client metrics subscription.
//!
//! Source of names, types, defaults and valid values: Kafka 4.3.1, `ClientMetricsConfigs`.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "interval.ms" Int  "300000" _      Medium ClusterWide SUPPORTED;
    "match"       List ""       (list) Medium ClusterWide SUPPORTED;
    "metrics"     List ""       (list) Medium ClusterWide SUPPORTED;
}
