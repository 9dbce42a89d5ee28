//! End-to-end latency with `acks=all` and three replicas at a fixed rate: the scenario
//! `linkedin-2014/end-to-end-latency` as an open loop, so latency counts from when a record was
//! due.

use anyhow::{Context, Result};
use serde_json::Value;

use super::bench::{Bench, PARTITIONS};
use crate::bench_peer::setting::{BROKERS, Options};
use ottla_workspace::process;

/// Records per second.
pub const RATE: u64 = 5000;
const SCENARIO: &str = "linkedin-2014/end-to-end-latency";
const WARM_UP_SECONDS: u64 = 5;

pub fn settings_in_words(options: &Options) -> String {
    format!(
        "end to end: {SCENARIO} with acks=all and {RATE} records/s for {} s after {WARM_UP_SECONDS} s, {PARTITIONS} partitions, \
         {BROKERS} replicas",
        options.latency_seconds
    )
}

pub fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let seconds = bench.setting.options.latency_seconds;
    let out = bench.scratch.path().join("end-to-end");
    let mut run = bench.tool("bench");
    run.args(["run", SCENARIO, "--repetitions", "1"])
        .args(["--bootstrap-server", &bench.cluster.bootstrap()])
        .arg("--out")
        .arg(&out);
    for value in [
        "load.kind=rate".to_owned(),
        format!("load.rate={RATE}"),
        format!("records.count={}", RATE * (seconds + WARM_UP_SECONDS)),
        format!("measure.warm_up={WARM_UP_SECONDS}s"),
        format!("measure.time={seconds}s"),
        "measure.end_to_end=true".to_owned(),
        "producers.settings.acks=all".to_owned(),
        format!("topic.partitions={PARTITIONS}"),
    ] {
        run.args(["--set", &value]);
    }
    process::output_of(&mut run)?;
    let result = std::fs::read_dir(&out)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        });
    let result = result.with_context(|| format!("no result in {}", out.display()))?;
    let result: Value = serde_json::from_str(&std::fs::read_to_string(result)?)?;
    for (name, figure) in [
        ("p50", "e2e.p50_ms"),
        ("p99", "e2e.p99_ms"),
        ("p99.9", "e2e.p99_9_ms"),
    ] {
        let value = median_of(&result, figure)?;
        bench.add(format!("end to end, acks=all: {name}, ms"), value);
    }
    Ok(())
}

/// A figure of the only run in a result of `ottla bench`.
fn median_of(result: &Value, figure: &str) -> Result<f64> {
    let summaries = result.pointer("/scenarios/0/points/0/runs/0/summaries");
    let median = summaries.and_then(|all| all.get(figure)?.get("median")?.as_f64());
    median.with_context(|| format!("no {figure} in the results of the run"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_found_in_a_result() {
        let text = r#"{"scenarios":[{"points":[{"runs":[{"summaries":{"e2e.p50_ms":{"median":1.5,"rounds":1}}}]}]}]}"#;
        let result = serde_json::from_str(text).unwrap();
        assert_eq!(median_of(&result, "e2e.p50_ms").unwrap(), 1.5);
        assert!(median_of(&result, "e2e.p99_ms").is_err());
    }
}
