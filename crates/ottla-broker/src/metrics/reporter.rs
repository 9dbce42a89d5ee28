//! Writes all metrics into a directory every few seconds, for those who have no Prometheus: one CSV file a
//! metric, to which a line is added each time, or one JSON file with a line for each time.
//!
//! `ottla.metrics.reporter.dir`, `.format` and `.interval.ms`. A directory that cannot be written to is
//! complained of once a minute and tried again; nothing else suffers from it.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::collect;
use super::family::Family;
use crate::Broker;
use crate::complaints::Complaints;

/// Runs until the broker stops, and writes once more then.
pub(crate) async fn report_to_files(broker: Arc<Broker>) {
    let config = broker.config();
    let Some(dir) = config.ottla_metrics_reporter_dir.clone() else {
        return;
    };
    let is_json = config.ottla_metrics_reporter_format == "json";
    let interval_ms = u64::try_from(config.ottla_metrics_reporter_interval_ms).unwrap_or(1);
    drop(config);
    let complaints = Arc::new(Complaints::default());
    let mut ticks = tokio::time::interval(Duration::from_millis(interval_ms.max(1)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        let is_last = tokio::select! {
            _ = ticks.tick() => false,
            () = broker.stopping() => true,
        };
        let (broker, dir) = (Arc::clone(&broker), dir.clone());
        let complaints = Arc::clone(&complaints);
        let report = move || {
            let families = collect(&broker);
            let timestamp_ms = broker.timestamp().0;
            let written = match is_json {
                true => append_json(Path::new(&dir), timestamp_ms, &families),
                false => append_csv(Path::new(&dir), timestamp_ms, &families),
            };
            if let Err(error) = written {
                complaints.say(|| {
                    tracing::warn!(
                        "ottla.metrics.reporter.dir={dir}: metrics cannot be written: {error}"
                    );
                });
            }
        };
        // A panic has been reported where it happened; the next time may do better.
        let _ = tokio::task::spawn_blocking(report).await;
        if is_last {
            return;
        }
    }
}

/// One file for each metric, with a line for each of its values.
fn append_csv(dir: &Path, timestamp_ms: i64, families: &[Family]) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let mut lines = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let mut file = append_to(&dir.join(format!("{}.csv", family.name)))?;
        lines.clear();
        if file.metadata()?.len() == 0 {
            lines.push_str("timestamp_ms,labels,value\n");
        }
        for sample in &family.samples {
            let labels = sample.to_string().replace('"', "\"\"");
            let _ = writeln!(lines, "{timestamp_ms},\"{labels}\",{}", sample.value);
        }
        // One write, so that who reads meanwhile finds whole lines.
        file.write_all(lines.as_bytes())?;
    }
    Ok(())
}

/// One file, to which one line is added that holds everything.
fn append_json(dir: &Path, timestamp_ms: i64, families: &[Family]) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let metrics: Map<String, Value> = families
        .iter()
        .map(|family| {
            let samples = family.samples.iter().map(|sample| {
                let labels: Map<String, Value> = sample
                    .labels
                    .iter()
                    .map(|(key, value)| (key.to_string(), json!(value)))
                    .collect();
                json!({"labels": labels, "value": sample.value})
            });
            (family.name.clone(), samples.collect())
        })
        .collect();
    let mut line = json!({"timestamp_ms": timestamp_ms, "metrics": metrics}).to_string();
    line.push('\n');
    append_to(&dir.join("metrics.jsonl"))?.write_all(line.as_bytes())
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families() -> Vec<Family> {
        let name = "kafka_log_log_size";
        let labels = [("topic", "a,\"b".to_owned()), ("partition", "0".to_owned())];
        vec![
            Family::gauge(name, "").sample(labels, 17.5),
            Family::gauge("nothing", ""),
        ]
    }

    #[test]
    fn csv_grows_by_a_line_each_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().join("made");
        append_csv(&dir, 5, &families()).expect("written");
        append_csv(&dir, 6, &families()).expect("written");
        let text = std::fs::read_to_string(dir.join("kafka_log_log_size.csv")).expect("a file");
        assert_eq!(
            text,
            "timestamp_ms,labels,value\n5,\"topic=a,\"\"b,partition=0\",17.5\n6,\"topic=a,\"\"b,partition=0\",17.5\n"
        );
        assert!(!dir.join("nothing.csv").exists());
    }

    #[test]
    fn json_has_a_line_each_time() {
        let dir = tempfile::tempdir().expect("a directory");
        append_json(dir.path(), 5, &families()).expect("written");
        append_json(dir.path(), 6, &families()).expect("written");
        let text = std::fs::read_to_string(dir.path().join("metrics.jsonl")).expect("a file");
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1]["timestamp_ms"], 6);
        let sample = &lines[1]["metrics"]["kafka_log_log_size"][0];
        assert_eq!(sample["labels"]["topic"], "a,\"b");
        assert_eq!(sample["value"], 17.5);
    }
}
