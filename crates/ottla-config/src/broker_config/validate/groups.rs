//! Rules across group settings: a default must be within its bounds, and the bounds in order.
//!
//! Kafka: the constructor of `GroupCoordinatorConfig`, `ShareGroupConfig.validate`.

use super::super::{BrokerConfig, ConfigError, Values};
use crate::broker_config::values::require;

/// Further pairs of settings, in addition to [`BOUNDED`]. The first must not exceed the second.
const IN_ORDER: &[(&str, &str)] = &[
    (
        "group.streams.num.standby.replicas",
        "group.streams.max.standby.replicas",
    ),
    ("group.share.max.size", "group.share.max.share.sessions"),
];

/// Settings `group.<kind>.<name>` with bounds `group.<kind>.min.<name>` and `group.<kind>.max.<name>`.
const BOUNDED: &[(&str, &[&str])] = &[
    (
        "consumer",
        &[
            "heartbeat.interval.ms",
            "session.timeout.ms",
            "assignment.interval.ms",
        ],
    ),
    (
        "share",
        &[
            "heartbeat.interval.ms",
            "session.timeout.ms",
            "assignment.interval.ms",
            "delivery.count.limit",
            "partition.max.record.locks",
            "record.lock.duration.ms",
        ],
    ),
    (
        "streams",
        &[
            "heartbeat.interval.ms",
            "session.timeout.ms",
            "assignment.interval.ms",
        ],
    ),
];

pub(super) fn groups(config: &BrokerConfig, values: &Values<'_>) -> Result<(), ConfigError> {
    let protocols = &config.group_coordinator_rebalance_protocols;
    require(
        values,
        protocols.iter().any(|protocol| protocol == "classic"),
        "group.coordinator.rebalance.protocols",
        || {
            "group.coordinator.rebalance.protocols must have classic, which cannot be disabled; \
             add it or remove the line"
                .into()
        },
    )?;
    let in_order = |low: &str, high: &str| {
        let (low_value, high_value): (i32, i32) = (values.get(low), values.get(high));
        let key = if values.is_given(high) { high } else { low };
        require(values, low_value <= high_value, key, || {
            format!(
                "{low}={low_value} is more than {high}={high_value}; give them the other way round"
            )
        })
    };
    for (kind, names) in BOUNDED {
        for name in *names {
            let key = format!("group.{kind}.{name}");
            let (min, max) = (
                format!("group.{kind}.min.{name}"),
                format!("group.{kind}.max.{name}"),
            );
            in_order(&min, &max)?;
            in_order(&min, &key)?;
            in_order(&key, &max)?;
        }
        let (heartbeat, session) = (
            format!("group.{kind}.heartbeat.interval.ms"),
            format!("group.{kind}.session.timeout.ms"),
        );
        let (heartbeat_ms, session_ms): (i32, i32) = (values.get(&heartbeat), values.get(&session));
        require(values, heartbeat_ms < session_ms, &session, || {
            format!(
                "{heartbeat}={heartbeat_ms} is not less than {session}={session_ms}; lower it, or members \
                 would be considered dead"
            )
        })?;
    }
    for (low, high) in IN_ORDER {
        in_order(low, high)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{BrokerConfig, single_node_properties};

    fn refusal(settings: &[(&str, &str)]) -> Option<String> {
        let mut properties = single_node_properties("./data", "127.0.0.1:9092", "127.0.0.1:9093");
        for (key, value) in settings {
            properties.set(key, value);
        }
        let error = BrokerConfig::from_properties(&properties).err()?;
        Some(error.to_string())
    }

    #[test]
    fn bounds_are_checked_as_kafka_checks_them() {
        assert_eq!(refusal(&[]), None);
        for (settings, says) in [
            (
                vec![("group.consumer.session.timeout.ms", "90000")],
                "group.consumer.session.timeout.ms=90000 is more than \
                 group.consumer.max.session.timeout.ms=60000",
            ),
            (
                vec![("group.share.min.heartbeat.interval.ms", "20000")],
                "is more than group.share.max.heartbeat.interval.ms=15000",
            ),
            (
                vec![
                    ("group.share.delivery.count.limit", "3"),
                    ("group.share.min.delivery.count.limit", "4"),
                ],
                "group.share.min.delivery.count.limit=4 is more than group.share.delivery.count.limit=3",
            ),
            (
                vec![("group.streams.num.standby.replicas", "3")],
                "is more than group.streams.max.standby.replicas=2",
            ),
            (
                vec![
                    ("group.consumer.min.session.timeout.ms", "1000"),
                    ("group.consumer.session.timeout.ms", "5000"),
                ],
                "is not less than group.consumer.session.timeout.ms=5000",
            ),
            (
                vec![("group.share.max.share.sessions", "100")],
                "group.share.max.size=200 is more than",
            ),
        ] {
            let said = refusal(&settings).expect("refused");
            assert!(said.contains(says), "{said}");
        }
    }
}
