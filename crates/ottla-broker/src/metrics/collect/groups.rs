//! `kafka.coordinator.group:type=GroupMetadataManager`: the groups that this broker coordinates.

use std::collections::HashMap;

use crate::Broker;
use crate::metrics::family::Family;

/// States of classic groups as ListGroups has them, and the ends of the metrics' names.
const STATES: [(&str, &str); 5] = [
    ("PreparingRebalance", "preparingrebalance"),
    ("CompletingRebalance", "completingrebalance"),
    ("Stable", "stable"),
    ("Dead", "dead"),
    ("Empty", "empty"),
];

pub(super) fn collect(broker: &Broker, families: &mut Vec<Family>) {
    let mut by_state: HashMap<String, usize> = HashMap::new();
    for shard in broker.groups.all_shards() {
        // What is still being read, or has gone elsewhere, has no groups to count.
        for group in shard
            .read(|groups| groups.list_groups(&[], &[]))
            .unwrap_or_default()
        {
            *by_state.entry(group.group_state.to_string()).or_default() += 1;
        }
    }
    let name = |end: &str| format!("kafka_coordinator_group_groupmetadatamanager_numgroups{end}");
    let all = by_state.values().sum::<usize>();
    families.push(Family::gauge(name(""), "Groups that this broker coordinates").value(all as f64));
    for (state, end) in STATES {
        let count = by_state.get(state).copied().unwrap_or_default();
        families.push(Family::gauge(name(end), "Groups in this state").value(count as f64));
    }
}
