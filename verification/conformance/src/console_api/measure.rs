//! Benchmarks: a run from its start to its result.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::stage::Stage;

const SCENARIO: &str = "producer-tuning/idempotence";
/// For a run, which measures the machine first.
const LONGEST: Duration = Duration::from_secs(900);

pub fn benchmark(stage: &Stage) -> Result<()> {
    let found = stage.http.get("/api/measure")?;
    let mut scenarios = found["scenarios"].as_array().into_iter().flatten();
    ensure!(scenarios.any(|it| it["name"] == SCENARIO), "{found}");
    ensure!(
        found["refusal"].is_null() && found["run"].is_null(),
        "{found}"
    );
    let run = "/api/measure/run";
    let wanted = json!({"scenario": SCENARIO, "is_small": true, "replicas": 1, "repetitions": 1});
    let started = stage.post(run, &wanted)?;
    ensure!(started["state"] == "running", "{started}");
    let (status, detail) = stage.http.refused("POST", run, Some(&wanted))?;
    ensure!(status == 409, "{status}: {detail}");
    let began = Instant::now();
    let mut has_progress = false;
    let ended = loop {
        let now = stage.http.get("/api/measure")?["run"].clone();
        has_progress |= now["progress"].is_string();
        if now["state"] == "ended" {
            break now;
        }
        ensure!(began.elapsed() < LONGEST, "it has not ended: {now}");
        std::thread::sleep(Duration::from_millis(200));
    };
    let (_, done) = stage.http.stream("GET", "/api/measure/run/output", None)?;
    ensure!(ended["is_ok"] == true && has_progress, "{ended}\n{done}");
    let name = ended["result"].as_str();
    let name = name.with_context(|| format!("no result: {ended}"))?;
    ensure!(done["result"] == name, "{done}");

    let listed = stage.http.get("/api/measure/results")?;
    ensure!(
        listed["items"][0]["name"] == name && listed["items"][0]["has_report"] == true,
        "{listed}"
    );
    let result = stage.http.get(&format!("/api/measure/results/{name}"))?;
    let summaries = &result["scenarios"][0]["points"][0]["runs"][0]["summaries"];
    let rate = summaries["produce.records_per_second"]["median"].as_f64();
    ensure!(rate > Some(0.0), "{summaries}");
    let compared = format!("/api/measure/comparison?first={name}&second={name}");
    let compared = stage.http.get(&compared)?;
    let text = compared["text"].as_str().unwrap_or_default();
    ensure!(text.contains(SCENARIO), "{compared}");
    let report = format!("/api/measure/results/{name}/export?download=1");
    let report = stage.http.send("GET", &report, None)?.text()?;
    ensure!(report.contains("<html"), "a report of {}", report.len());
    // Its topics are gone.
    stage.tool_hides(&["topics", "--list"], "bench")?;
    Ok(())
}
