//! The scenarios included in the binary: every row and every plot of the published measurements.

use ottla_config::nearest_name;

use super::{Scenario, ScenarioError};

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        /// Name and text, in display and run order.
        pub const SHIPPED: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*
        ];
    };
}

shipped![
    "linkedin-2014/single-producer",
    "linkedin-2014/asynchronous-replication",
    "linkedin-2014/synchronous-replication",
    "linkedin-2014/three-producers",
    "linkedin-2014/single-consumer",
    "linkedin-2014/three-consumers",
    "linkedin-2014/producer-and-consumer",
    "linkedin-2014/end-to-end-latency",
    "linkedin-2014/message-size",
    "linkedin-2014/stored-data",
    "linkedin-2014/leader-dies",
    "producer-tuning/batch-size",
    "producer-tuning/threads-and-partitions",
    "producer-tuning/linger",
    "producer-tuning/acks",
    "producer-tuning/in-flight",
    "producer-tuning/message-size",
    "producer-tuning/idempotence",
    "producer-tuning/exactly-once",
    "producer-tuning/min-insync-replicas",
    "producer-tuning/rebalances",
    "compression-matrix/produce",
    "compression-matrix/consume",
    "rate-ladder/write",
    "rate-ladder/fetch-size",
    "rate-ladder/write-and-read",
    "sla-search/maximum-throughput",
    "sla-search/under-a-limit",
    "sla-search/latency-against-rate",
];

/// The scenario with this name, or all of the group with this name; empty if there is neither.
pub fn find(name: &str) -> Vec<(&'static str, &'static str)> {
    let name = name.trim_end_matches("/*").trim_end_matches('/');
    let is_meant = |(full, _): &&(&'static str, &'static str)| {
        *full == name
            || full
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('/'))
    };
    SHIPPED.iter().filter(is_meant).copied().collect()
}

/// Parses a shipped scenario.
pub fn parse(name: &str, text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(name, &format!("{name}.toml"), text)
}

/// Existing names similar to an unknown one.
pub fn similar(name: &str) -> Vec<&'static str> {
    let groups = SHIPPED
        .iter()
        .filter_map(|(name, _)| name.split('/').next());
    let all = SHIPPED.iter().map(|(name, _)| *name).chain(groups);
    if let Some(meant) = nearest_name(name, all) {
        return vec![meant];
    }
    let words: Vec<&str> = name
        .split(['/', '-', '_'])
        .filter(|it| it.len() > 2)
        .collect();
    let names = SHIPPED.iter().map(|(name, _)| *name);
    names
        .filter(|shipped| words.iter().any(|word| shipped.contains(word)))
        .collect()
}
