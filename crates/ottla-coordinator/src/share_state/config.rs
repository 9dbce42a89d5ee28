//! The settings of the share coordinator.

/// Source: `ShareCoordinatorConfig`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareCoordinatorConfig {
    /// `share.coordinator.snapshot.update.records.per.snapshot`
    pub snapshot_update_records_per_snapshot: i32,
    /// `share.coordinator.state.topic.prune.interval.ms`
    pub state_topic_prune_interval_ms: u64,
    /// `share.coordinator.cold.partition.snapshot.interval.ms`
    pub cold_partition_snapshot_interval_ms: u64,
}

impl Default for ShareCoordinatorConfig {
    fn default() -> Self {
        ShareCoordinatorConfig {
            snapshot_update_records_per_snapshot: 500,
            state_topic_prune_interval_ms: 300_000,
            cold_partition_snapshot_interval_ms: 300_000,
        }
    }
}
