//! Checks that `docs/bench-result.md` describes exactly the fields of a result.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::figures::FIGURES;
use crate::workload::latencies::Latencies;

const PAGE: &str = include_str!("../../../../docs/bench-result.md");

/// A result with every optional field set.
fn whole() -> ResultFile {
    let mut latencies = Latencies::default();
    latencies.record_ns(1_000_000);
    let figures = || Figures::from([("ack.p99_ms".to_owned(), 1.0)]);
    let curve = Curve::of(&latencies).expect("a curve");
    let period = Period {
        ack: curve.quantiles(),
        ..Period::default()
    };
    let mark = Mark {
        second: 1.0,
        kind: MarkKind::SegmentRoll,
        what: "a roll".into(),
    };
    let attempt = AttemptResult {
        offered: 1.0,
        reached: 1.0,
        is_held: true,
        e2e_p50_ms: None,
        e2e_p99_ms: None,
        e2e_p99_9_ms: None,
        e2e_max_ms: None,
    };
    let round = Round {
        figures: figures(),
        series: vec![Sample::default()],
        marks: vec![mark],
        periods: vec![period],
        metrics: figures(),
        attempts: vec![attempt],
    };
    let mut run = TargetRuns {
        target: "ottla".into(),
        rounds: vec![round],
        ..TargetRuns::default()
    };
    run.curves.insert("ack".into(), curve);
    run.summarise();
    let comparison = Comparison {
        figure: "ack.p99_ms".into(),
        first: "ottla".into(),
        second: "kafka".into(),
        ratio: Ratio::paired(&[(1.0, 2.0), (1.0, 2.0)]).expect("a ratio"),
        verdict: Verdict::TooFewRounds,
    };
    let published = PublishedFigures {
        figures: figures(),
        note: "a note".into(),
    };
    let point = PointResult {
        at: IndexMap::from([("records.size".to_owned(), Value::from(1))]),
        label: "records.size 1".into(),
        shape: Shape::default(),
        published: vec![published],
        runs: vec![run],
        comparisons: vec![comparison],
    };
    let plot = Plot {
        title: "t".into(),
        x: "time".into(),
        y: Vec::new(),
        by: Some("records.size".into()),
        logarithmic_x: false,
        logarithmic_y: false,
        trend: false,
    };
    let scenario = ScenarioResult {
        name: "s".into(),
        title: "s".into(),
        question: String::new(),
        published_on: String::new(),
        differences: Vec::new(),
        notes: Vec::new(),
        plots: vec![plot],
        points: vec![point],
        text: String::new(),
    };
    let target = TargetInfo {
        name: "ottla".into(),
        description: "Ottla".into(),
        bootstrap: "127.0.0.1:9092".into(),
        cluster_id: None,
        brokers: 1,
        round_trip_us: 1.0,
        network_mb_per_second: Some(1.0),
    };
    ResultFile {
        schema: SCHEMA.into(),
        version: VERSION,
        ottla: "0".into(),
        command: "ottla".into(),
        started: utc(0),
        seconds: 1.0,
        partial: Some("interrupted".into()),
        scale: "small".into(),
        machine: Machine {
            processor: "p".into(),
            cores: 1,
            memory_mb: 1.0,
            kernel: "k".into(),
            loopback_mb_per_second: 1.0,
            disk_mb_per_second: 1.0,
            disk_sync_ms: 1.0,
            crc32c_gb_per_second: 1.0,
            clock_ns: 1.0,
            longest_stall_ms: 1.0,
            stalled: 0.0,
            noise: 0.0,
        },
        targets: vec![target],
        scenarios: vec![scenario],
    }
}

/// The fields of an object and its children. Keys that are names of figures, paths or metrics are
/// not fields.
fn fields(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| fields(value, into)),
        Value::Object(entries) => {
            for (key, value) in entries {
                into.insert(key.clone());
                let is_by_name = matches!(key.as_str(), "figures" | "metrics" | "at");
                match (key.as_str(), value) {
                    ("summaries" | "curves", Value::Object(named)) => {
                        named.values().for_each(|value| fields(value, into));
                    }
                    _ if is_by_name => {}
                    _ => fields(value, into),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn the_page_documents_every_field_and_figure() {
    let mut wanted = BTreeSet::new();
    let json = serde_json::to_value(whole()).expect("JSON");
    fields(&json, &mut wanted);
    assert!(wanted.contains("p99_999_us") && wanted.contains("network_mb_per_second"));
    wanted.extend(FIGURES.iter().map(|it| it.name.to_owned()));
    for name in &wanted {
        let is_there = PAGE.contains(&format!("`{name}`"));
        assert!(is_there, "docs/bench-result.md does not describe `{name}`");
    }
    // Every name in the first column of its tables must exist.
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    for row in rows {
        let names = row.split('|').next().expect("a column");
        for name in names.split(", ").map(|it| it.trim().trim_matches('`')) {
            assert!(wanted.contains(name), "there is no `{name}` in a result");
        }
    }
}
