//! A result in the format of the OpenMessaging Benchmark, for its charts.
//!
//! Its time series have ten-second periods, which are recorded in addition to the finer series.
//! Latencies are in milliseconds, except the publish delay (from due to sent), which is in
//! microseconds.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::results::{
    Curve, Period, PointResult, Quantiles, ResultFile, ScenarioResult, TargetRuns,
};

/// One file of the benchmark: one workload on one target.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TestResult {
    pub workload: String,
    pub driver: String,
    pub message_size: u64,
    pub topics: u32,
    pub partitions: u32,
    pub producers_per_topic: u32,
    pub consumers_per_topic: u32,
    #[serde(flatten)]
    pub figures: Map<String, Value>,
}

/// One result for each point and target with a round that was recorded in periods; of several
/// rounds, the first. One-at-a-time rounds have no periods, and the benchmark's charts require
/// them.
pub fn test_results(result: &ResultFile) -> Vec<TestResult> {
    let mut all = Vec::new();
    for scenario in &result.scenarios {
        for point in &scenario.points {
            for run in &point.runs {
                all.extend(of_run(scenario, point, run));
            }
        }
    }
    all
}

/// `workload-driver.json`, with path separators replaced.
pub fn file_name(result: &TestResult) -> String {
    let name = format!("{}-{}", result.workload, result.driver);
    let plain = |c: char| {
        if c.is_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name: String = name.chars().map(plain).collect();
    format!("{}.json", name.trim_matches(['-', '.']))
}

fn of_run(scenario: &ScenarioResult, point: &PointResult, run: &TargetRuns) -> Option<TestResult> {
    let round = run.rounds.first().filter(|it| !it.periods.is_empty())?;
    let shape = &point.shape;
    let mut workload = scenario.name.clone();
    if !point.label.is_empty() {
        workload.push_str(&format!(" {}", point.label));
    }
    let mut figures = Map::new();
    let mut put = |name: &str, value: Value| {
        figures.insert(name.to_owned(), value);
    };
    let periods = &round.periods;
    let list = |of: fn(&Period) -> Value| Value::Array(periods.iter().map(of).collect());
    put("publishRate", list(|it| json!(it.produced_per_second)));
    put("publishErrorRate", list(|it| json!(it.failed_per_second)));
    put("consumeRate", list(|it| json!(it.consumed_per_second)));
    put("backlog", list(|it| json!(it.backlog)));
    for (name, of, curve) in [
        (
            "publishLatency",
            (|it| &it.ack) as fn(&Period) -> &Quantiles,
            "ack",
        ),
        ("publishDelayLatency", |it| &it.send_delay, "send_delay"),
        ("endToEndLatency", |it| &it.e2e, "e2e"),
    ] {
        let shown = |us: f64| match curve {
            "send_delay" => json!(us.round() as u64),
            _ => json!(us / 1000.0),
        };
        for (index, suffix) in SUFFIXES.iter().enumerate() {
            let values = periods.iter().map(|it| shown(of(it).all()[index]));
            put(&format!("{name}{suffix}"), Value::Array(values.collect()));
        }
        let all = run.curves.get(curve);
        let in_all = all.map(Curve::quantiles).unwrap_or_default();
        let aggregated = format!("aggregated{}{}", name[..1].to_uppercase(), &name[1..]);
        for (suffix, us) in SUFFIXES.iter().zip(in_all.all()) {
            put(&format!("{aggregated}{suffix}"), shown(us));
        }
        let points = all.map(|it| it.points.as_slice()).unwrap_or_default();
        let by_percent: BTreeMap<String, Value> = points
            .iter()
            .map(|(quantile, us)| (format!("{}", quantile * 100.0), shown(*us)))
            .collect();
        put(&format!("{aggregated}Quantiles"), json!(by_percent));
    }
    Some(TestResult {
        workload,
        driver: run.target.clone(),
        message_size: shape.value_bytes,
        topics: 1,
        partitions: shape.partitions,
        producers_per_topic: shape.producers,
        consumers_per_topic: shape.consumers,
        figures,
    })
}

/// Suffixes of its figures' names, in the order of [`Quantiles::all`].
const SUFFIXES: [&str; 9] = [
    "Avg", "50pct", "75pct", "95pct", "99pct", "999pct", "9999pct", "99999pct", "Max",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_contain_no_folders() {
        let result = TestResult {
            workload: "a/b [1]".into(),
            driver: "h:9092,i:9092".into(),
            message_size: 1,
            topics: 1,
            partitions: 1,
            producers_per_topic: 1,
            consumers_per_topic: 1,
            figures: Map::new(),
        };
        assert_eq!(file_name(&result), "a-b--1--h-9092-i-9092.json");
    }
}
