//! The metrics of a client, with the names of Kafka's clients:
//! `producer-metrics:record-send-rate:{client-id=a}`.
//!
//! They are recorded per batch, request and poll, never per record. Averages, maxima and rates
//! cover the last `metrics.num.samples` windows of `metrics.sample.window.ms`, totals the lifetime
//! of the client (`org.apache.kafka.common.metrics`). A metric without a value is NaN, as in Kafka.
//!
//! Metrics of Java's internals, such as selectors and the I/O thread, are omitted.

mod network;
mod sensor;

use std::borrow::Cow;
use std::fmt;
use std::time::Instant;

pub(crate) use network::NetworkSensors;
pub(crate) use sensor::{Measured, Moment, Sensor, Windows};

/// One metric.
///
/// ```no_run
/// # fn example(producer: &ottla_client::Producer) {
/// for metric in producer.metrics() {
///     // producer-metrics:record-send-rate:{client-id=billing} 1200
///     println!("{metric} {}", metric.value);
/// }
/// # }
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Metric {
    /// `producer-metrics`, `consumer-fetch-manager-metrics` and so on.
    pub group: &'static str,
    pub name: Cow<'static, str>,
    /// `client-id`, and `topic`, `partition` or `node-id` if it belongs to one.
    pub tags: Vec<(&'static str, String)>,
    pub value: f64,
}

/// In the format of Kafka's tools: `group:name:{tag=value, …}`.
impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{{", self.group, self.name)?;
        for (index, (tag, value)) in self.tags.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{tag}={value}")?;
        }
        f.write_str("}")
    }
}

/// The values of all metrics of a client at one time.
///
/// ```no_run
/// # fn example(producer: &ottla_client::Producer) {
/// let metrics = producer.metrics();
/// println!("{:?} records per second", metrics.value("record-send-rate"));
/// # }
/// ```
#[derive(Clone, Default, Debug)]
pub struct Metrics(Vec<Metric>);

impl Metrics {
    /// All metrics, group by group.
    ///
    /// ```no_run
    /// # fn example(producer: &ottla_client::Producer) {
    /// let metrics = producer.metrics();
    /// let of_topics = metrics.iter().filter(|metric| metric.group == "producer-topic-metrics");
    /// println!("{}", of_topics.count());
    /// # }
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = &Metric> {
        self.0.iter()
    }

    /// The value of a metric of the client as a whole; `None` if there is no such metric.
    ///
    /// ```no_run
    /// # fn example(producer: &ottla_client::Producer) {
    /// let metrics = producer.metrics();
    /// println!("{:?} records were sent", metrics.value("record-send-total"));
    /// # }
    /// ```
    pub fn value(&self, name: &str) -> Option<f64> {
        self.value_of(name, &[])
    }

    /// The value of a metric of one topic, partition or node, given by its tags besides
    /// `client-id`.
    ///
    /// ```no_run
    /// # fn example(producer: &ottla_client::Producer) {
    /// let metrics = producer.metrics();
    /// println!("{:?}", metrics.value_of("byte-rate", &[("topic", "orders")]));
    /// # }
    /// ```
    pub fn value_of(&self, name: &str, tags: &[(&str, &str)]) -> Option<f64> {
        let found = self.0.iter().find(|metric| {
            let own = metric.tags.iter().filter(|(tag, _)| *tag != "client-id");
            metric.name == name
                && own
                    .map(|(tag, value)| (*tag, value.as_str()))
                    .eq(tags.iter().copied())
        });
        found.map(|metric| metric.value)
    }
}

impl IntoIterator for Metrics {
    type Item = Metric;
    type IntoIter = std::vec::IntoIter<Metric>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Collects metrics, group by group.
pub(crate) struct Sheet {
    client_id: String,
    group: &'static str,
    /// The current tags besides `client-id`.
    tags: Vec<(&'static str, String)>,
    metrics: Vec<Metric>,
}

impl Sheet {
    pub(crate) fn new(client_id: &str) -> Sheet {
        Sheet {
            client_id: client_id.to_owned(),
            group: "",
            tags: Vec::new(),
            metrics: Vec::new(),
        }
    }

    /// Sets the group and the tags of the following metrics.
    pub(crate) fn begin(&mut self, group: &'static str, tags: &[(&'static str, &str)]) {
        self.group = group;
        self.tags = tags
            .iter()
            .map(|(tag, value)| (*tag, (*value).to_owned()))
            .collect();
    }

    pub(crate) fn put(&mut self, name: impl Into<Cow<'static, str>>, value: f64) {
        let mut tags = Vec::with_capacity(1 + self.tags.len());
        tags.push(("client-id", self.client_id.clone()));
        tags.extend(self.tags.iter().cloned());
        self.metrics.push(Metric {
            group: self.group,
            name: name.into(),
            tags,
            value,
        });
    }

    /// `name-avg` and `name-max`.
    pub(crate) fn put_avg_and_max(&mut self, name: &str, measured: Measured) {
        self.put(format!("{name}-avg"), measured.avg);
        self.put(format!("{name}-max"), measured.max);
    }

    /// `name-rate` and `name-total` of the recorded values.
    pub(crate) fn put_sums(&mut self, name: &str, measured: Measured) {
        self.put(format!("{name}-rate"), measured.rate);
        self.put(format!("{name}-total"), measured.total);
    }

    /// `name-rate` and `name-total` of the number of recordings.
    pub(crate) fn put_events(&mut self, name: &str, measured: Measured) {
        self.put(format!("{name}-rate"), measured.event_rate);
        self.put(format!("{name}-total"), measured.count);
    }

    pub(crate) fn finish(self) -> Metrics {
        Metrics(self.metrics)
    }
}

/// The clock of a client's sensors, which starts with the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    beginning: Instant,
    windows: Windows,
}

impl Clock {
    pub(crate) fn start(windows: Windows) -> Clock {
        Clock {
            beginning: ottla_sync::time::now(),
            windows,
        }
    }

    pub(crate) fn now(self) -> Moment {
        self.at(ottla_sync::time::now())
    }

    pub(crate) fn at(self, instant: Instant) -> Moment {
        Moment {
            ms: instant
                .saturating_duration_since(self.beginning)
                .as_millis() as u64,
            windows: self.windows,
        }
    }
}

/// The elapsed time in whole seconds, as in Kafka; -1 if there is none.
pub(crate) fn seconds_ago(last: Option<Moment>, now: Moment) -> f64 {
    last.map_or(-1.0, |last| (now.ms.saturating_sub(last.ms) / 1000) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_name_and_tags() {
        let mut sheet = Sheet::new("a");
        sheet.begin("producer-metrics", &[]);
        sheet.put("record-send-total", 3.0);
        sheet.begin("producer-topic-metrics", &[("topic", "t")]);
        sheet.put("record-send-total", 2.0);
        let metrics = sheet.finish();
        assert_eq!(metrics.value("record-send-total"), Some(3.0));
        assert_eq!(
            metrics.value_of("record-send-total", &[("topic", "t")]),
            Some(2.0)
        );
        assert_eq!(
            metrics.value_of("record-send-total", &[("topic", "u")]),
            None
        );
        let names: Vec<String> = metrics.iter().map(Metric::to_string).collect();
        assert_eq!(
            names,
            [
                "producer-metrics:record-send-total:{client-id=a}",
                "producer-topic-metrics:record-send-total:{client-id=a, topic=t}"
            ]
        );
    }
}
