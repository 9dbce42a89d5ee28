//! Subscriptions: a `client-metrics` resource selects clients, metrics and an interval. Kafka:
//! `ClientMetricsConfigs`, `ClientMetricsInstanceMetadata`.

use std::hash::{DefaultHasher, Hash, Hasher};

use regex::Regex;

use super::client_facts::ClientFacts;

const DEFAULT_INTERVAL_MS: i32 = 300_000;
/// All metrics of the client.
const ALL: &str = "*";

/// One `client-metrics` resource.
#[derive(Debug)]
pub(super) struct Subscription {
    metrics: Vec<String>,
    interval_ms: i32,
    /// Selects the clients that match every pattern. `None` matches no client, because the setting
    /// is invalid.
    patterns: Option<Vec<(String, Regex)>>,
}

impl Subscription {
    /// Parses the settings, which were validated when they were stored.
    pub(super) fn new(setting: impl Fn(&str) -> Option<String>) -> Subscription {
        let list = |key| {
            let text = setting(key).unwrap_or_default();
            let items = text.split(',').map(|item| item.trim().to_owned());
            items.filter(|item| !item.is_empty()).collect::<Vec<_>>()
        };
        let pattern = |text: String| {
            let (name, pattern) = text.split_once('=')?;
            let whole = format!("^(?:{})$", pattern.trim());
            Some((name.trim().to_owned(), Regex::new(&whole).ok()?))
        };
        Subscription {
            metrics: list("metrics"),
            interval_ms: setting("interval.ms")
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(DEFAULT_INTERVAL_MS),
            patterns: list("match").into_iter().map(pattern).collect(),
        }
    }

    fn is_for(&self, client: &ClientFacts) -> bool {
        let Some(patterns) = &self.patterns else {
            return false;
        };
        patterns.iter().all(|(name, pattern)| {
            let attribute = client.attribute(name);
            attribute.is_some_and(|attribute| pattern.is_match(&attribute))
        })
    }
}

/// The metrics that one client should push.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    /// Changes whenever the rest changes.
    pub(crate) subscription_id: i32,
    /// Prefixes of names, sorted; or only `*`.
    pub(crate) metrics: Vec<String>,
    pub(crate) push_interval_ms: i32,
}

impl Request {
    pub(super) fn of(subscriptions: &[Subscription], client: &ClientFacts) -> Request {
        let mut metrics = Vec::new();
        let mut push_interval_ms = DEFAULT_INTERVAL_MS;
        for subscription in subscriptions.iter().filter(|it| it.is_for(client)) {
            metrics.extend(subscription.metrics.iter().cloned());
            push_interval_ms = push_interval_ms.min(subscription.interval_ms);
        }
        if metrics.iter().any(|metric| metric == ALL) {
            metrics = vec![ALL.to_owned()];
        }
        metrics.sort();
        metrics.dedup();
        // Kafka uses a checksum. It only has to be the same for the same contents.
        let mut hasher = DefaultHasher::new();
        (&metrics, push_interval_ms, client.client_instance_id.0).hash(&mut hasher);
        Request {
            subscription_id: hasher.finish() as i32,
            metrics,
            push_interval_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use ottla_types::Uuid;

    use super::*;

    fn client() -> ClientFacts {
        ClientFacts {
            client_instance_id: Uuid([3; 16]),
            client_id: "orders-7".into(),
            software: Some(("apache-kafka-java".into(), "4.3.1".into())),
            address: "10.0.0.9:4711".parse().expect("an address"),
        }
    }

    fn subscription(metrics: &str, interval_ms: &str, patterns: &str) -> Subscription {
        Subscription::new(|key| {
            let value = match key {
                "metrics" => metrics,
                "interval.ms" => interval_ms,
                _ => patterns,
            };
            (!value.is_empty()).then(|| value.to_owned())
        })
    }

    #[test]
    fn matching_subscriptions_are_merged() {
        let subscriptions = [
            subscription("b., a.", "60000", ""),
            subscription("a.,c.", "1000", "client_id=orders-[0-9]"),
            subscription("d.", "100", "client_id=orders"),
            subscription(
                "e.",
                "100",
                "client_software_version=4.*, client_source_port=1",
            ),
            subscription("f.", "100", "client_id=((("),
        ];
        let request = Request::of(&subscriptions, &client());
        assert_eq!(request.metrics, ["a.", "b.", "c."]);
        assert_eq!(request.push_interval_ms, 1000);
        let fewer = Request::of(&subscriptions[..1], &client());
        assert_ne!(fewer.subscription_id, request.subscription_id);
    }

    #[test]
    fn all_metrics_are_one_entry_and_none_is_an_empty_list() {
        let all = Request::of(
            &[subscription("a.", "", ""), subscription("*", "", "")],
            &client(),
        );
        assert_eq!(all.metrics, ["*"]);
        assert_eq!(all.push_interval_ms, DEFAULT_INTERVAL_MS);
        assert!(Request::of(&[], &client()).metrics.is_empty());
    }
}
