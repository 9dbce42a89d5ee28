//! The groups that this broker coordinates: `kafka.coordinator.group:type=GroupMetadataManager`,
//! for classic groups, and `kafka.server:type=group-coordinator-metrics`, for each type. Kafka:
//! `GroupCoordinatorMetrics`.

use std::collections::BTreeMap;

use crate::Broker;
use ottla_metrics::family::Family;

/// The states of classic groups in ListGroups, and the suffixes of their metrics.
const CLASSIC_STATES: [(&str, &str); 5] = [
    ("PreparingRebalance", "preparingrebalance"),
    ("CompletingRebalance", "completingrebalance"),
    ("Stable", "stable"),
    ("Dead", "dead"),
    ("Empty", "empty"),
];

/// The group types in ListGroups, and the states that are counted for each.
const TYPES: [(&str, &[&str]); 4] = [
    ("classic", &[]),
    (
        "consumer",
        &["Empty", "Assigning", "Reconciling", "Stable", "Dead"],
    ),
    ("share", &["Empty", "Stable", "Dead"]),
    (
        "streams",
        &[
            "Empty",
            "Assigning",
            "Reconciling",
            "Stable",
            "Dead",
            "NotReady",
        ],
    ),
];

pub(super) fn collect(broker: &Broker, families: &mut Vec<Family>) {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for shard in broker.groups.all_shards() {
        // A shard that is loading, or has moved to another broker, has no groups to count.
        for group in shard
            .read(|groups| groups.list_groups(&[], &[]))
            .unwrap_or_default()
        {
            let kind = (group.group_type.to_string(), group.group_state.to_string());
            *counts.entry(kind).or_default() += 1;
        }
    }
    let of_type = |group_type: &str| -> f64 {
        let of_type = counts.iter().filter(|((it, _), _)| it == group_type);
        of_type.map(|(_, count)| *count as f64).sum()
    };
    let in_state = |group_type: &str, state: &str| -> f64 {
        let key = (group_type.to_owned(), state.to_owned());
        counts.get(&key).map_or(0.0, |count| *count as f64)
    };
    let name = |end: &str| format!("kafka_coordinator_group_groupmetadatamanager_numgroups{end}");
    let all = Family::gauge(name(""), "Groups of the classic protocol");
    families.push(all.value(of_type("classic")));
    for (state, end) in CLASSIC_STATES {
        let in_this_state =
            Family::gauge(name(end), "Groups of the classic protocol in this state");
        families.push(in_this_state.value(in_state("classic", state)));
    }
    let name = |of: &str| format!("kafka_server_group_coordinator_metrics_{of}group_count");
    let mut by_protocol = Family::gauge(name(""), "Groups by their protocol");
    let mut by_state = Vec::new();
    for (group_type, states) in TYPES {
        by_protocol.push([("protocol", group_type.to_owned())], of_type(group_type));
        if states.is_empty() {
            continue;
        }
        let of = format!("{group_type}_");
        let mut family = Family::gauge(name(&of), "Groups of this protocol by their state");
        for state in states {
            family.push(
                [("state", (*state).to_owned())],
                in_state(group_type, state),
            );
        }
        by_state.push(family);
    }
    families.push(by_protocol);
    families.extend(by_state);
}
