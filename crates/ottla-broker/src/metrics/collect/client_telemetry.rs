//! The metrics that clients pushed (KIP-714), labelled by client.
//!
//! `org.apache.kafka.producer.record.queue.time.avg` is exported as
//! `client_org_apache_kafka_producer_record_queue_time_avg`, with the client's labels,
//! `client_instance_id` and `client_id`, which replace labels with these names. The prefix keeps a
//! client from choosing the name of a metric of the broker.

use std::collections::BTreeMap;

use crate::Broker;
use crate::telemetry::ClientMetricKind;
use ottla_metrics::family::{Family, Kind};

/// The prefix of pushed metrics, and of no other.
pub(crate) const CLIENT_METRIC_PREFIX: &str = "client_";

pub(super) fn collect(broker: &Broker, families: &mut Vec<Family>) {
    // If clients disagree about the kind of a metric, the first one counts.
    let mut by_name: BTreeMap<String, Family> = BTreeMap::new();
    broker
        .telemetry
        .for_each_client(broker.now_ms(), |id, client_id, metrics| {
            for metric in metrics {
                let is_counter = metric.kind == ClientMetricKind::Counter;
                let name = format!("{CLIENT_METRIC_PREFIX}{}", prometheus_name(&metric.name));
                // The exporter appends this suffix to every counter.
                let name = match name.strip_suffix("_total") {
                    Some(stem) if is_counter => stem.to_owned(),
                    _ => name,
                };
                let kind = match is_counter {
                    true => Kind::Counter,
                    false => Kind::Gauge,
                };
                let family = by_name
                    .entry(name.clone())
                    .or_insert_with(|| Family::new(kind, name, "Pushed by clients"));
                // A map, because a duplicate label would make the whole text invalid.
                let mut labels: BTreeMap<String, String> = metric
                    .labels
                    .iter()
                    .map(|(key, value)| (label_name(key), value.clone()))
                    .collect();
                labels.insert("client_instance_id".to_owned(), id.to_string());
                labels.insert("client_id".to_owned(), client_id.to_owned());
                family.push(labels, metric.value);
            }
        });
    families.extend(by_name.into_values());
}

/// Replaces everything except letters, digits and underscores, and a leading digit, by an
/// underscore.
fn prometheus_name(name: &str) -> String {
    let shown = |(index, c): (usize, char)| match c {
        'a'..='z' | 'A'..='Z' | '_' => c,
        '0'..='9' if index > 0 => c,
        _ => '_',
    };
    name.chars().enumerate().map(shown).collect()
}

/// Prometheus reserves names that begin with two underscores: a label `__name__` would be the name
/// of the metric. They get a prefix.
fn label_name(key: &str) -> String {
    let name = prometheus_name(key);
    match name.starts_with("__") {
        true => format!("key{name}"),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::{label_name, prometheus_name};

    #[test]
    fn a_label_never_has_a_reserved_name() {
        assert_eq!(label_name("__name__"), "key__name__");
        assert_eq!(label_name("9_x"), "key__x");
        assert_eq!(label_name("_x"), "_x");
        assert_eq!(label_name("node.id"), "node_id");
    }

    #[test]
    fn names_are_valid_for_prometheus() {
        assert_eq!(prometheus_name("org.apache.a-b.c9"), "org_apache_a_b_c9");
        assert_eq!(prometheus_name("9\u{e4}\"x"), "___x");
    }
}
