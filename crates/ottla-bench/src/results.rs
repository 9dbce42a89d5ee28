//! The result of a run: one JSON file, described in `docs/bench-result.md`.
//!
//! The format is versioned. Within a version fields are only added; a reader rejects a newer
//! version.

pub mod compare;
pub mod curve;
pub mod table;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::figures::Figures;
use crate::machine::Machine;
use crate::scenario::Plot;
use crate::statistics::{Ratio, Summary, Verdict};
pub use curve::{Curve, Quantiles};

pub const SCHEMA: &str = "ottla-bench-result";
pub const VERSION: u32 = 1;

/// The whole file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResultFile {
    pub schema: String,
    pub version: u32,
    /// The Ottla version that measured.
    pub ottla: String,
    /// The command that repeats the run.
    pub command: String,
    /// UTC, `2026-11-21T20:45:04Z`.
    pub started: String,
    pub seconds: f64,
    /// Why the run ended before its time, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// `published`, or the name of a scale.
    pub scale: String,
    pub machine: Machine,
    pub targets: Vec<TargetInfo>,
    pub scenarios: Vec<ScenarioResult>,
}

/// A measured cluster.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TargetInfo {
    /// The name in results: `ottla`, `kafka`, or an address.
    pub name: String,
    /// Description, with the version if known.
    pub description: String,
    pub bootstrap: String,
    pub cluster_id: Option<String>,
    pub brokers: usize,
    /// Round trip of the smallest request, in microseconds.
    pub round_trip_us: f64,
    /// Throughput to one broker over one connection, in MB per second; not measured for local
    /// brokers, which use the loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_mb_per_second: Option<f64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScenarioResult {
    pub name: String,
    pub title: String,
    pub question: String,
    pub published_on: String,
    /// How the run differs from the published one.
    pub differences: Vec<String>,
    /// Requirements of the scenario that the run could not meet.
    pub notes: Vec<String>,
    pub plots: Vec<Plot>,
    pub points: Vec<PointResult>,
    /// The scenario's file.
    pub text: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PointResult {
    /// The swept values by path.
    pub at: IndexMap<String, serde_json::Value>,
    /// The same, formatted; empty without a sweep.
    pub label: String,
    #[serde(default)]
    pub shape: Shape,
    pub published: Vec<PublishedFigures>,
    /// One per target.
    pub runs: Vec<TargetRuns>,
    /// The second target against the first, by pairs of rounds.
    pub comparisons: Vec<Comparison>,
}

/// The size of the measured setup.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Shape {
    pub partitions: u32,
    pub replicas: u16,
    /// Average value size of a record.
    pub value_bytes: u64,
    pub producers: u32,
    pub consumers: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PublishedFigures {
    pub figures: Figures,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// The rounds of one target at one point.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct TargetRuns {
    pub target: String,
    /// Median and range of the rounds, by figure.
    pub summaries: IndexMap<String, Summary>,
    /// Distributions of all rounds together: `ack`, `ack_from_send`, `e2e`, `e2e_from_send`, `send_delay`.
    pub curves: IndexMap<String, Curve>,
    pub rounds: Vec<Round>,
}

#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Round {
    pub figures: Figures,
    pub series: Vec<Sample>,
    pub marks: Vec<Mark>,
    /// Ten-second periods, with more quantiles than the series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub periods: Vec<Period>,
    /// Metrics of a remote cluster by name: the increase of counters in the round, and the final
    /// value of gauges.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub metrics: IndexMap<String, f64>,
    /// The attempts of a search.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptResult>,
}

/// Figures of ten seconds of a round, or of the rest at its end.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Period {
    /// The period's end, in seconds since the beginning of the measurement.
    pub second: f64,
    pub produced_per_second: f64,
    pub failed_per_second: f64,
    pub consumed_per_second: f64,
    /// Records not yet consumed at the period's end, over all consumer groups.
    pub backlog: u64,
    /// From due to acknowledged.
    pub ack: Quantiles,
    /// From due to sent.
    pub send_delay: Quantiles,
    pub e2e: Quantiles,
}

/// Figures of one interval of a round.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The interval's end, in seconds since the beginning of the measurement; negative during the
    /// warm-up.
    pub second: f64,
    pub produced_per_second: f64,
    pub consumed_per_second: f64,
    /// Bytes of values acknowledged since the round began.
    pub stored_bytes: u64,
    pub ack_p50_ms: Option<f64>,
    pub ack_p99_ms: Option<f64>,
    pub ack_max_ms: Option<f64>,
    pub e2e_p99_ms: Option<f64>,
    pub e2e_max_ms: Option<f64>,
    /// Fraction of the interval in which the disk of a local broker was busy, 0 to 1.
    pub disk_utilisation: Option<f64>,
    pub disk_written_bytes: Option<u64>,
    /// Context switches of local brokers in the interval.
    pub voluntary_switches: Option<u64>,
    pub involuntary_switches: Option<u64>,
}

/// An event during a round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Mark {
    pub second: f64,
    pub kind: MarkKind,
    pub what: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkKind {
    SegmentRoll,
    Flush,
    /// A broker that led partitions was killed, as the scenario requires.
    LeaderDeath,
    /// A consumer joined or left each group, as the scenario requires.
    Rebalance,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AttemptResult {
    pub offered: f64,
    pub reached: f64,
    pub is_held: bool,
    pub e2e_p50_ms: Option<f64>,
    pub e2e_p99_ms: Option<f64>,
    pub e2e_p99_9_ms: Option<f64>,
    pub e2e_max_ms: Option<f64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    pub figure: String,
    pub first: String,
    pub second: String,
    pub ratio: Ratio,
    pub verdict: Verdict,
}

impl TargetRuns {
    /// All values of a figure in round order; NaN where a round has none.
    pub fn values(&self, figure: &str) -> Vec<f64> {
        let value = |round: &Round| round.figures.get(figure).copied().unwrap_or(f64::NAN);
        self.rounds.iter().map(value).collect()
    }

    pub fn summarise(&mut self) {
        let mut names: Vec<&str> = Vec::new();
        for figure in crate::figures::FIGURES {
            if self
                .rounds
                .iter()
                .any(|it| it.figures.contains_key(figure.name))
            {
                names.push(figure.name);
            }
        }
        self.summaries = names
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), Summary::of(&self.values(name))?)))
            .collect();
    }
}

impl PointResult {
    /// Compares each further target with the first, by pairs of rounds.
    pub fn compare_targets(&mut self, noise: f64) {
        self.comparisons.clear();
        let Some((first, others)) = self.runs.split_first() else {
            return;
        };
        for second in others {
            for figure in crate::figures::FIGURES {
                let pairs: Vec<(f64, f64)> = first
                    .values(figure.name)
                    .into_iter()
                    .zip(second.values(figure.name))
                    .filter(|(a, b)| a.is_finite() && b.is_finite())
                    .collect();
                if let Some(ratio) = Ratio::paired(&pairs) {
                    self.comparisons.push(Comparison {
                        figure: figure.name.to_owned(),
                        first: first.target.clone(),
                        second: second.target.clone(),
                        verdict: ratio.verdict(figure.better, noise),
                        ratio,
                    });
                }
            }
        }
    }
}

impl ResultFile {
    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        let mut points = self.scenarios.iter().flat_map(|it| &it.points);
        points.all(|point| point.runs.iter().all(|run| run.rounds.is_empty()))
    }

    pub fn read(path: &Path) -> Result<ResultFile> {
        let text = std::fs::read(path)
            .with_context(|| format!("{} cannot be read; check the path", path.display()))?;
        #[derive(Deserialize)]
        struct Head {
            schema: String,
            version: u32,
        }
        let head: Head = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not a result of ottla bench", path.display()))?;
        ensure!(
            head.schema == SCHEMA,
            "{} is a {}, not a result of ottla bench",
            path.display(),
            head.schema
        );
        ensure!(
            head.version <= VERSION,
            "{} has version {} of the result's shape; this ottla reads up to {VERSION}",
            path.display(),
            head.version
        );
        serde_json::from_slice(&text)
            .with_context(|| format!("{} is not a complete result of ottla bench", path.display()))
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
    }
}

/// An instant as ISO 8601 in UTC.
pub fn utc(seconds_since_1970: u64) -> String {
    let (days, second) = (seconds_since_1970 / 86_400, seconds_since_1970 % 86_400);
    // Days are counted from 1 March of year 0, in eras of 400 years, so that a leap day is the last
    // day of its year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod documented;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_in_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_795_293_904), "2026-11-21T20:45:04Z");
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        for (text, sentence) in [
            ("{", "is not a result"),
            (r#"{"schema": "x", "version": 1}"#, "is a x, not a result"),
            (
                r#"{"schema": "ottla-bench-result", "version": 9}"#,
                "has version 9",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = ResultFile::read(&path).unwrap_err().to_string();
            assert!(error.contains(sentence), "{error}");
        }
    }
}
