//! Sampled series in memory, bounded in length and number.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::snapshot::Snapshot;

/// Four hours at the shortest interval.
const SAMPLES: usize = 1440;
/// At most 6 kB each.
const SERIES: usize = 4000;
/// The topics of a group with a series of their own, those with the largest lag.
const TOPICS_OF_A_GROUP: usize = 20;

/// A series of one thing, parallel to the sample times.
#[derive(Debug, Serialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    /// `None` where it is unknown.
    pub(crate) values: Vec<Option<f64>>,
}

#[derive(Default)]
pub(super) struct History {
    times: VecDeque<i64>,
    /// By `thing|name|unit`; NaN where unknown. Each is as long as `times`.
    series: BTreeMap<(String, String, &'static str), VecDeque<f32>>,
}

impl History {
    pub(super) fn add(&mut self, snapshot: &Snapshot) {
        if self.times.back().is_some_and(|last| *last >= snapshot.at) {
            return;
        }
        self.times.push_back(snapshot.at);
        for values in self.series.values_mut() {
            values.push_back(f32::NAN);
        }
        let mut cluster = (None, 0.0, 0.0);
        for (name, topic) in &snapshot.topics {
            let of = format!("topic/{name}");
            let rate = topic.records_per_second;
            self.set(&of, "records_in", "records/s", rate);
            let bytes = topic.bytes.map(|it| it as f64);
            self.set(&of, "bytes", "bytes", bytes);
            cluster.0 = cluster
                .0
                .zip(rate)
                .map(|(sum, rate)| sum + rate)
                .or(cluster.0)
                .or(rate);
            cluster.1 += bytes.unwrap_or(0.0);
            cluster.2 += (topic.under_replicated() + topic.offline()) as f64;
        }
        self.set("cluster", "records_in", "records/s", cluster.0);
        self.set("cluster", "bytes", "bytes", Some(cluster.1));
        self.set("cluster", "under_replicated", "partitions", Some(cluster.2));
        let mut lag = 0.0;
        for (name, group) in snapshot.groups.iter().flatten() {
            let of = format!("group/{name}");
            let Some(of_group) = group.lag() else {
                continue;
            };
            lag += of_group as f64;
            self.set(&of, "lag", "records", Some(of_group as f64));
            let topics = group.topics().into_iter();
            let mut topics: Vec<(i64, &str)> = topics
                .filter_map(|topic| Some((group.lag_of(topic)?, topic)))
                .collect();
            topics.sort_by(|one, other| other.cmp(one));
            for (lag, topic) in topics.into_iter().take(TOPICS_OF_A_GROUP) {
                self.set(&of, &format!("lag/{topic}"), "records", Some(lag as f64));
            }
        }
        self.set("cluster", "lag", "records", Some(lag));
        if self.times.len() > SAMPLES {
            self.times.pop_front();
            for values in self.series.values_mut() {
                values.pop_front();
            }
            // Those of things that are gone.
            self.series
                .retain(|_, values| values.iter().any(|it| !it.is_nan()));
        }
    }

    /// What it takes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        let names = self
            .series
            .keys()
            .map(|(of, name, _)| of.len() + name.len());
        let of_series = 4 * size_of::<String>() + self.times.len() * size_of::<f32>();
        names.sum::<usize>() + self.series.len() * of_series
    }

    fn set(&mut self, of: &str, name: &str, unit: &'static str, value: Option<f64>) {
        let Some(value) = value else { return };
        let key = (of.to_owned(), name.to_owned(), unit);
        let length = self.times.len();
        if !self.series.contains_key(&key) && self.series.len() >= SERIES {
            return;
        }
        let values = self.series.entry(key);
        let values = values.or_insert_with(|| std::iter::repeat_n(f32::NAN, length).collect());
        if let Some(last) = values.back_mut() {
            *last = value as f32;
        }
    }

    /// The times after `since`, and the series of a thing at these times.
    pub(super) fn read(&self, of: &str, since: i64) -> (Vec<i64>, Vec<Series>) {
        let skipped = self.times.partition_point(|time| *time <= since);
        let times = self.times.iter().skip(skipped).copied().collect();
        let of_thing = self.series.iter().filter(|((it, _, _), _)| it == of);
        let series = of_thing.map(|((_, name, unit), values)| Series {
            name: name.clone(),
            unit,
            values: values
                .iter()
                .skip(skipped)
                .map(|value| (!value.is_nan()).then_some(f64::from(*value)))
                .collect(),
        });
        (times, series.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::{LogOffsets, Topic};
    use super::*;

    fn snapshot(at: i64, topics: &[(&str, Option<f64>)]) -> Snapshot {
        let topic = |(name, rate): &(&str, Option<f64>)| {
            let info = ottla_client::TopicInfo {
                name: (*name).to_owned(),
                topic_id: ottla_types::Uuid::ZERO,
                error: ottla_types::ErrorCode::None,
                is_internal: false,
                partitions: Vec::new(),
            };
            let topic = Topic {
                info,
                offsets: vec![LogOffsets::default()],
                bytes: None,
                leader_bytes: Vec::new(),
                settings: None,
                records_per_second: *rate,
            };
            ((*name).to_owned(), topic)
        };
        Snapshot {
            at,
            cluster_id: None,
            brokers: Vec::new(),
            topics: topics.iter().map(topic).collect(),
            groups: None,
            quorum: None,
            features: Vec::new(),
        }
    }

    #[test]
    fn a_series_has_gaps_where_nothing_was_known() {
        let mut history = History::default();
        history.add(&snapshot(10, &[]));
        history.add(&snapshot(20, &[("a", Some(2.0))]));
        history.add(&snapshot(30, &[("a", None)]));
        let (times, series) = history.read("topic/a", 0);
        assert_eq!(times, [10, 20, 30]);
        assert_eq!(series.len(), 1);
        assert_eq!(series[0].values, [None, Some(2.0), None]);
        let (times, series) = history.read("topic/a", 20);
        assert_eq!((times, &*series[0].values), (vec![30], &[None][..]));
        assert_eq!(history.read("cluster", 0).1[0].name, "bytes");
    }

    #[test]
    fn old_samples_and_the_series_of_gone_topics_are_dropped() {
        let mut history = History::default();
        history.add(&snapshot(1, &[("gone", Some(1.0))]));
        for at in 2..=SAMPLES as i64 + 1 {
            history.add(&snapshot(at, &[]));
        }
        let (times, series) = history.read("topic/gone", 0);
        assert_eq!((times.len(), times[0]), (SAMPLES, 2));
        assert!(series.is_empty());
    }

    #[test]
    fn there_are_so_many_series_and_no_more() {
        let names: Vec<String> = (0..SERIES * 2).map(|it| format!("t{it}")).collect();
        let topics: Vec<(&str, Option<f64>)> = names.iter().map(|it| (&**it, Some(1.0))).collect();
        let mut history = History::default();
        history.add(&snapshot(1, &topics));
        assert_eq!(history.series.len(), SERIES);
    }
}
