//! The samples of a snapshot, the most important first: without memory for another series, the last
//! ones are dropped.

use serde::Serialize;

use super::snapshot::{Broker, Group, Snapshot};
use crate::from_broker::Latency;

/// The topics and the partitions of a group that have a series: the ones with the largest lag.
const PARTS_OF_A_GROUP: usize = 20;
/// The number of brokers that have a series.
const BROKERS: usize = 20;
/// Groups with longer names have no series: a name is a part of the memory of a series.
const LONGEST_NAME: usize = 255;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) enum Unit {
    #[serde(rename = "records/s")]
    RecordsPerSecond,
    #[serde(rename = "bytes")]
    Bytes,
    #[serde(rename = "records")]
    Records,
    #[serde(rename = "partitions")]
    Partitions,
    /// From 0 to 1.
    #[serde(rename = "share")]
    Share,
    #[serde(rename = "ms")]
    Milliseconds,
}

impl Unit {
    /// One value for several that follow each other: the mean of rates, the last size, and otherwise
    /// the largest, so that no peak is lost.
    pub(super) fn merged(self, values: &[f32]) -> Option<f32> {
        let mut known = values.iter().copied().filter(|it| !it.is_nan());
        match self {
            Unit::RecordsPerSecond => {
                let (count, sum) = known.fold((0u32, 0.0f64), |(count, sum), value| {
                    (count + 1, sum + f64::from(value))
                });
                (count > 0).then(|| (sum / f64::from(count)) as f32)
            }
            Unit::Bytes => known.next_back(),
            Unit::Records | Unit::Partitions | Unit::Share | Unit::Milliseconds => {
                known.reduce(f32::max)
            }
        }
    }
}

/// One value of one series.
#[derive(Debug)]
pub(super) struct Sample {
    /// The thing: `cluster`, `topic/NAME` or `group/NAME`.
    pub(super) of: String,
    pub(super) name: String,
    pub(super) unit: Unit,
    pub(super) value: f64,
}

#[derive(Default)]
struct Samples(Vec<Sample>);

impl Samples {
    fn add(&mut self, of: &str, name: impl Into<String>, unit: Unit, value: Option<f64>) {
        let Some(value) = value else { return };
        self.0.push(Sample {
            of: of.to_owned(),
            name: name.into(),
            unit,
            value,
        });
    }
}

pub(super) fn of_snapshot(snapshot: &Snapshot, latencies: &[Latency]) -> Vec<Sample> {
    let mut samples = Samples::default();
    of_cluster(snapshot, latencies, &mut samples);
    for (name, topic) in &snapshot.topics {
        let of = format!("topic/{name}");
        let (rate_in, rate_out) = (topic.records_per_second, topic.records_out_per_second);
        samples.add(&of, "records_in", Unit::RecordsPerSecond, rate_in);
        samples.add(&of, "records_out", Unit::RecordsPerSecond, rate_out);
        let bytes = topic.bytes.map(|it| it as f64);
        samples.add(&of, "bytes", Unit::Bytes, bytes);
    }
    let groups = snapshot.groups.iter().flatten();
    let groups: Vec<(String, &Group)> = groups
        .filter(|(name, _)| name.len() <= LONGEST_NAME)
        .map(|(name, group)| (format!("group/{name}"), group))
        .collect();
    for (of, group) in &groups {
        let lag = group.lag().map(|it| it as f64);
        samples.add(of, "lag", Unit::Records, lag);
    }
    for (of, group) in &groups {
        of_group(of, group, &mut samples);
    }
    samples.0
}

fn of_cluster(snapshot: &Snapshot, latencies: &[Latency], samples: &mut Samples) {
    let of = "cluster";
    let topics = || snapshot.topics.values();
    let rate_in = sum(topics().map(|it| it.records_per_second));
    let rate_out = sum(topics().map(|it| it.records_out_per_second));
    samples.add(of, "records_in", Unit::RecordsPerSecond, rate_in);
    samples.add(of, "records_out", Unit::RecordsPerSecond, rate_out);
    let bytes = sum(topics().map(|it| it.bytes.map(|bytes| bytes as f64)));
    samples.add(of, "bytes", Unit::Bytes, Some(bytes.unwrap_or(0.0)));
    let ill: usize = topics()
        .map(|it| it.under_replicated() + it.offline())
        .sum();
    let ill = Some(ill as f64);
    samples.add(of, "under_replicated", Unit::Partitions, ill);
    let groups = snapshot.groups.iter().flat_map(|it| it.values());
    let lag = sum(groups.map(|it| it.lag().map(|lag| lag as f64)));
    samples.add(of, "lag", Unit::Records, Some(lag.unwrap_or(0.0)));
    for broker in snapshot.brokers.iter().take(BROKERS) {
        let name = format!("disk/{}", broker.id);
        samples.add(of, name, Unit::Share, used_share(broker));
    }
    for latency in latencies {
        let name = format!("latency/{}", latency.name);
        samples.add(of, name, Unit::Milliseconds, Some(latency.ms));
    }
}

fn of_group(of: &str, group: &Group, samples: &mut Samples) {
    let topics = group.topics().into_iter();
    let topics = topics.filter_map(|topic| Some((group.lag_of(topic)?, topic.to_owned())));
    for (lag, topic) in largest(topics.collect()) {
        let name = format!("lag/{topic}");
        samples.add(of, name, Unit::Records, Some(lag as f64));
    }
    let partitions = group.offsets.iter();
    let partitions = partitions.filter_map(|((topic, partition), (_, lag))| {
        let lag = (*lag)?;
        Some((lag, format!("{topic}-{partition}")))
    });
    for (lag, partition) in largest(partitions.collect()) {
        let name = format!("partition_lag/{partition}");
        samples.add(of, name, Unit::Records, Some(lag as f64));
    }
}

fn largest(mut lags: Vec<(i64, String)>) -> Vec<(i64, String)> {
    lags.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    lags.truncate(PARTS_OF_A_GROUP);
    lags
}

/// The used share of the volumes of a broker's log directories.
fn used_share(broker: &Broker) -> Option<f64> {
    let dirs = broker.log_dirs.iter().flatten();
    let known = dirs.filter(|it| it.total_bytes > 0 && it.usable_bytes >= 0);
    let (total, usable) = known.fold((0.0, 0.0), |(total, usable), it| {
        (
            total + it.total_bytes as f64,
            usable + it.usable_bytes as f64,
        )
    });
    (total > 0.0).then(|| (1.0 - usable / total).clamp(0.0, 1.0))
}

/// The sum of the known values; `None` if there are none.
fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().fold(None, |sum: Option<f64>, value| {
        Some(sum.unwrap_or(0.0) + value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_follow_each_other_are_merged_by_their_unit() {
        let values = [f32::NAN, 4.0, 2.0, f32::NAN];
        for (unit, merged) in [
            (Unit::RecordsPerSecond, 3.0),
            (Unit::Bytes, 2.0),
            (Unit::Records, 4.0),
            (Unit::Milliseconds, 4.0),
        ] {
            assert_eq!(unit.merged(&values), Some(merged), "{unit:?}");
            assert_eq!(unit.merged(&[f32::NAN]), None, "{unit:?}");
        }
    }

    #[test]
    fn the_partitions_with_the_largest_lag_have_series() {
        let lags = (0..50).map(|it| (it / 2, format!("t-{it}"))).collect();
        let largest = largest(lags);
        assert_eq!(largest.len(), PARTS_OF_A_GROUP);
        assert_eq!(largest[0], (24, "t-48".to_owned()));
        assert_eq!(largest[1], (24, "t-49".to_owned()));
        assert_eq!(largest[19], (15, "t-31".to_owned()));
    }
}
