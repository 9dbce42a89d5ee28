//! One point of a scenario, parsed and checked: the complete specification of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use super::document::{Document, ScenarioError, Section};
use super::quantities::{self, SizeRange};
use crate::workload::keys::KeyDistribution;
use crate::workload::stamp::STAMP_BYTES;

/// The specification of one run.
#[derive(Clone, PartialEq, Debug)]
pub struct PointSpec {
    pub topic: TopicSpec,
    /// Settings of the brokers, if they are started for the run.
    pub broker_settings: BTreeMap<String, String>,
    pub records: RecordsSpec,
    pub producers: ProducersSpec,
    pub consumers: ConsumersSpec,
    pub load: Load,
    pub measure: MeasureSpec,
}

#[derive(Clone, PartialEq, Debug)]
pub struct TopicSpec {
    pub partitions: u32,
    pub replicas: u16,
    pub settings: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct RecordsSpec {
    /// Size of the values.
    pub size: SizeRange,
    /// Records of all producers together; `None` if the time ends the run.
    pub count: Option<u64>,
    /// Every four bytes of a value are a number below this, as with `--value-bound` of Kafka's
    /// tool: the lower, the more compressible. `None` for random capital letters.
    pub value_bound: Option<u32>,
    pub keys: KeyDistribution,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ProducersSpec {
    pub count: u32,
    /// Threads that share each producer.
    pub threads: u32,
    /// Duration of a transaction; `None` without transactions.
    pub transaction: Option<Duration>,
    pub settings: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ConsumersSpec {
    /// Consumers of all groups together.
    pub count: u32,
    /// Number of groups. The consumers of a group share the partitions, and each group reads the
    /// whole topic; without sharing, every consumer is its own group.
    pub groups: u32,
    /// Whether consumers are group members with assigned partitions; otherwise their partitions are
    /// fixed.
    pub subscribe: bool,
    pub settings: BTreeMap<String, String>,
}

/// How records are sent.
#[derive(Clone, PartialEq, Debug)]
pub enum Load {
    /// As fast as the producers accept them.
    Closed,
    /// At a fixed rate, as an open loop.
    Rate { records_per_second: f64 },
    /// At a rate that rises over the measured time.
    Ramp { from: f64, to: f64 },
    /// Searches for the highest sustainable rate.
    Search {
        from: f64,
        step: f64,
        /// Limit of the end-to-end p99 latency, in milliseconds.
        p99_limit_ms: Option<f64>,
    },
    /// Each record is sent when the previous one has been consumed.
    OneAtATime,
}

#[derive(Clone, PartialEq, Debug)]
pub struct MeasureSpec {
    pub warm_up: Duration,
    /// Measured time; `None` until all records are consumed.
    pub time: Option<Duration>,
    pub repetitions: u32,
    /// Whether records carry their due and send times, so that consumers can compute their age.
    pub end_to_end: bool,
    /// After this time, counted from the end of the warm-up, a broker that leads partitions is
    /// killed. Lost acknowledged records are counted at the end.
    pub leader_dies: Option<Duration>,
    /// After this time, counted from the end of the warm-up, one more consumer joins each group;
    /// after the same time again it leaves.
    pub rebalance: Option<Duration>,
}

/// Validates the tables that belong to points; they are parsed again for each point.
pub fn read_keys_only(root: &Section<'_>) {
    for key in [
        "topic",
        "broker",
        "records",
        "producers",
        "consumers",
        "load",
        "measure",
    ] {
        root.value(key);
    }
}

impl ConsumersSpec {
    /// The consumers of one group.
    pub fn per_group(&self) -> u32 {
        (self.count / self.groups).max(1)
    }
}

impl PointSpec {
    pub fn read(document: &Document) -> Result<PointSpec, ScenarioError> {
        let root = document.root();
        let records = read_records(root.section("records")?)?;
        let load = Load::read(root.section("load")?, records.size)?;
        let broker = root.section("broker")?;
        let broker_settings = broker.settings("settings")?;
        broker.finish()?;
        let spec = PointSpec {
            topic: read_topic(root.section("topic")?)?,
            broker_settings,
            producers: read_producers(root.section("producers")?)?,
            consumers: read_consumers(root.section("consumers")?)?,
            measure: read_measure(root.section("measure")?)?,
            records,
            load,
        };
        spec.check(document)?;
        Ok(spec)
    }

    /// Checks conditions that involve several keys.
    fn check(&self, document: &Document) -> Result<(), ScenarioError> {
        let error = |key: &str, sentence: &str| {
            let value = document.get(key).map(super::document::shown);
            Err(document.error(key, &value.unwrap_or_default(), sentence))
        };
        if self.producers.count == 0 && self.consumers.count == 0 {
            return error(
                "producers.count",
                "there is neither a producer nor a consumer",
            );
        }
        let has_rate = !matches!(self.load, Load::Closed);
        if self.producers.count == 0 && has_rate {
            return error("load.kind", "without producers the load can only be closed");
        }
        if self.records.count.is_none() && self.measure.time.is_none() {
            return error("records.count", "is missing; give it, or measure.time");
        }
        if self.producers.count == 0 && self.records.count.is_none() {
            return error(
                "records.count",
                "is missing; consumers need records to read",
            );
        }
        if matches!(self.load, Load::Search { .. } | Load::Ramp { .. })
            && self.measure.time.is_none()
        {
            return error("measure.time", "is missing; this kind of load needs it");
        }
        if self.load == Load::OneAtATime && (self.producers.count, self.consumers.count) != (1, 1) {
            let sentence = "one at a time needs one producer and one consumer";
            return error("load.kind", sentence);
        }
        if self.measure.end_to_end && self.consumers.count == 0 {
            return error("measure.end_to_end", "needs at least one consumer");
        }
        if self.measure.end_to_end && self.records.size.smallest < STAMP_BYTES {
            let sentence = "must be at least 16 where records carry the time for end_to_end";
            return error("records.size", sentence);
        }
        if self.measure.leader_dies.is_some() {
            self.check_death(&error)?;
        }
        if self.consumers.subscribe && self.load == Load::OneAtATime {
            return error(
                "consumers.subscribe",
                "one at a time has a consumer of its own kind",
            );
        }
        if self.measure.rebalance.is_some() {
            self.check_rebalance(&error)?;
        }
        if let Load::Search {
            p99_limit_ms: Some(_),
            ..
        } = self.load
            && !self.measure.end_to_end
        {
            return error("load.p99_limit_ms", "needs measure.end_to_end = true");
        }
        Ok(())
    }

    fn check_death(
        &self,
        error: &impl Fn(&str, &str) -> Result<(), ScenarioError>,
    ) -> Result<(), ScenarioError> {
        if self.producers.count == 0 {
            return error(
                "measure.leader_dies",
                "needs producers, to see whether their records are lost",
            );
        }
        if self.topic.replicas < 2 {
            return error(
                "measure.leader_dies",
                "needs topic.replicas of 2 or more: another has to lead",
            );
        }
        if matches!(self.load, Load::Search { .. } | Load::OneAtATime) {
            return error(
                "measure.leader_dies",
                "needs a load that is closed, rate or ramp",
            );
        }
        if self
            .measure
            .time
            .is_none_or(|time| self.measure.leader_dies >= Some(time))
        {
            return error(
                "measure.leader_dies",
                "has to be before the end of measure.time",
            );
        }
        Ok(())
    }

    fn check_rebalance(
        &self,
        error: &impl Fn(&str, &str) -> Result<(), ScenarioError>,
    ) -> Result<(), ScenarioError> {
        let key = "measure.rebalance";
        if !self.consumers.subscribe {
            return error(key, "needs consumers.subscribe = true");
        }
        if self.producers.count == 0 {
            return error(key, "needs producers: the consumers read while they write");
        }
        let leaves = self.measure.rebalance.map(|it| 2 * it);
        if self.measure.time.is_none_or(|time| leaves >= Some(time)) {
            return error(key, "has to be less than half of measure.time");
        }
        Ok(())
    }

    /// The maximum size of the topic over all replicas, in bytes, at this highest rate.
    pub fn expected_bytes(&self, highest_bytes_per_second: f64) -> u64 {
        // A record has about 10 bytes besides its value in a batch.
        let record = self.records.size.mean() + 10.0;
        let seconds = self
            .measure
            .time
            .map(|time| (time + self.measure.warm_up).as_secs_f64());
        let by_time = seconds.map(|seconds| match self.load {
            Load::Rate { records_per_second } => records_per_second * record * seconds,
            Load::Ramp { from, to } => (from + to) / 2.0 * record * seconds,
            _ => highest_bytes_per_second * seconds,
        });
        let by_count = self.records.count.map(|count| count as f64 * record);
        let bytes = match (by_time, by_count) {
            (Some(time), Some(count)) if self.producers.count > 0 => time.min(count),
            (_, Some(count)) => count,
            (Some(time), None) => time,
            (None, None) => 0.0,
        };
        (bytes * f64::from(self.topic.replicas)) as u64
    }
}

impl Load {
    fn read(section: Section<'_>, size: SizeRange) -> Result<Load, ScenarioError> {
        let kind = section.text("kind")?.unwrap_or_else(|| "closed".to_owned());
        let rate = |key: &'static str| match section.value(key) {
            None => Err(section.error(key, "is missing; give records per second, or \"2MB\"")),
            Some(value) => {
                let by_bytes = value
                    .as_str()
                    .and_then(quantities::bytes)
                    .map(|bytes| bytes as f64 / size.mean().max(1.0));
                let by_records = value.as_integer().map(|it| it as f64).or(value.as_float());
                by_bytes
                    .or(by_records)
                    .filter(|rate| rate.is_finite() && *rate > 0.0)
                    .ok_or_else(|| {
                        let sentence = "not accepted; give records a second, or a size such as \
                                        \"2MB\" for bytes a second";
                        section.error(key, sentence)
                    })
            }
        };
        let load = match kind.as_str() {
            "closed" => Load::Closed,
            "one-at-a-time" => Load::OneAtATime,
            "rate" => Load::Rate {
                records_per_second: rate("rate")?,
            },
            "ramp" => Load::Ramp {
                from: rate("from")?,
                to: rate("to")?,
            },
            "search" => Load::Search {
                from: rate("from")?,
                step: rate("step")?,
                p99_limit_ms: section.number("p99_limit_ms")?,
            },
            _ => {
                let accepted = "no kind of load; give closed, rate, ramp, search or one-at-a-time";
                return Err(section.error("kind", accepted));
            }
        };
        section.finish()?;
        Ok(load)
    }
}

fn bounded<T: TryFrom<u64>>(
    section: &Section<'_>,
    key: &'static str,
    default: u64,
    smallest: u64,
    largest: u64,
) -> Result<T, ScenarioError> {
    let value = section.count(key)?.unwrap_or(default);
    let refused = || section.error(key, format!("not accepted; give {smallest} to {largest}"));
    if !(smallest..=largest).contains(&value) {
        return Err(refused());
    }
    T::try_from(value).map_err(|_| refused())
}

fn read_topic(section: Section<'_>) -> Result<TopicSpec, ScenarioError> {
    let topic = TopicSpec {
        partitions: bounded(&section, "partitions", 1, 1, 100_000)?,
        replicas: bounded(&section, "replicas", 1, 1, 1000)?,
        settings: section.settings("settings")?,
    };
    section.finish()?;
    Ok(topic)
}

fn read_records(section: Section<'_>) -> Result<RecordsSpec, ScenarioError> {
    let size = section.size_range("size")?;
    let size =
        size.ok_or_else(|| section.error("size", "is missing; give the bytes of a record"))?;
    let total = section.size_range("total")?;
    let of_total = total.map(|total| (total.mean() / size.mean().max(1.0)).ceil() as u64);
    let count = section.count("count")?;
    let records = RecordsSpec {
        size,
        count: count.into_iter().chain(of_total).min(),
        value_bound: match section.value("value_bound") {
            None => None,
            Some(_) => Some(bounded(&section, "value_bound", 0, 1, u64::from(u32::MAX))?),
        },
        keys: read_keys(&section)?,
    };
    if records.count == Some(0) {
        return Err(section.error("count", "not accepted; give at least 1"));
    }
    if records.size.largest > 1 << 30 {
        return Err(section.error("size", "not accepted; a record has at most 1 GB"));
    }
    section.finish()?;
    Ok(records)
}

fn read_keys(section: &Section<'_>) -> Result<KeyDistribution, ScenarioError> {
    let range = bounded(section, "key_range", 10_000, 1, u64::from(u32::MAX))?;
    match section.text("keys")?.as_deref() {
        None | Some("none") => Ok(KeyDistribution::None),
        Some("range") => Ok(KeyDistribution::Range(range)),
        Some("random") => Ok(KeyDistribution::Random(range)),
        Some(_) => Err(section.error("keys", "not accepted; give none, range or random")),
    }
}

fn read_producers(section: Section<'_>) -> Result<ProducersSpec, ScenarioError> {
    let producers = ProducersSpec {
        count: bounded(&section, "count", 1, 0, 10_000)?,
        threads: bounded(&section, "threads", 1, 1, 1000)?,
        transaction: section.duration("transaction")?,
        settings: section.settings("settings")?,
    };
    if producers.transaction.is_some() && !producers.settings.contains_key("transactional.id") {
        return Err(section.error("transaction", "needs the setting transactional.id"));
    }
    if producers.transaction.is_some() && producers.threads > 1 {
        return Err(section.error(
            "threads",
            "a producer with transactions has one thread only",
        ));
    }
    section.finish()?;
    Ok(producers)
}

fn read_consumers(section: Section<'_>) -> Result<ConsumersSpec, ScenarioError> {
    let count: u32 = bounded(&section, "count", 0, 0, 10_000)?;
    let groups = section.count("groups")?;
    let is_shared = section.boolean("shared")?;
    let subscribe = section.boolean("subscribe")?;
    if subscribe && !is_shared {
        return Err(section.error("subscribe", "needs shared = true"));
    }
    let groups = if is_shared {
        groups.unwrap_or(1)
    } else if groups.is_some() {
        return Err(section.error("groups", "needs shared = true"));
    } else {
        u64::from(count).max(1)
    };
    let groups = match u32::try_from(groups) {
        Ok(groups) if groups > 0 && count.is_multiple_of(groups) => groups,
        _ => {
            let sentence = "not accepted; give a number by which count can be divided";
            return Err(section.error("groups", sentence));
        }
    };
    let consumers = ConsumersSpec {
        count,
        groups,
        subscribe,
        settings: section.settings("settings")?,
    };
    section.finish()?;
    Ok(consumers)
}

fn read_measure(section: Section<'_>) -> Result<MeasureSpec, ScenarioError> {
    let measure = MeasureSpec {
        warm_up: section.duration("warm_up")?.unwrap_or_default(),
        time: section.duration("time")?,
        repetitions: bounded(&section, "repetitions", 3, 1, 1000)?,
        end_to_end: section.boolean("end_to_end")?,
        leader_dies: section.duration("leader_dies")?,
        rebalance: section.duration("rebalance")?,
    };
    if measure.time.is_some_and(|time| time.is_zero()) {
        return Err(section.error("time", "not accepted; give more than nothing"));
    }
    section.finish()?;
    Ok(measure)
}
