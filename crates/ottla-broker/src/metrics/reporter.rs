//! Writes all metrics to a directory at regular intervals, for setups without Prometheus: one CSV
//! file per metric, to which lines are appended, or one JSON file with one line per interval. All
//! metrics that clients pushed are written to one CSV file, because clients choose the names and
//! must not determine the number and names of files.
//!
//! `ottla.metrics.reporter.dir`, `.format` and `.interval.ms`. If the directory cannot be written,
//! a warning is logged once a minute, and the next interval tries again; nothing else is affected.
//!
//! The size is bounded: a file that has reached `.file.max.bytes` is renamed to `NAME.1`, the
//! previous one to `NAME.2`, and so on. `.files` files are kept, including the current one; older
//! ones are deleted.

use ottla_sync::fs::{File, OpenOptions};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::collect;
use super::collect::CLIENT_METRIC_PREFIX;
use crate::Broker;
use ottla_metrics::complaints::Complaints;
use ottla_metrics::family::{Family, Sample};

const CLIENT_METRICS_FILE: &str = "client_metrics.csv";

/// The retention of each file.
#[derive(Debug, Clone, Copy)]
struct FileRetention {
    /// A file of at least this size is rotated before the next write. A line is never split.
    file_max_bytes: u64,
    /// The number of files, including the current one; at least 1.
    files: u32,
}

/// Runs until the broker stops, and then writes once more.
pub(crate) async fn report_to_files(broker: Arc<Broker>) {
    let config = broker.config();
    let Some(dir) = config.ottla_metrics_reporter_dir.clone() else {
        return;
    };
    let is_json = config.ottla_metrics_reporter_format == "json";
    let interval_ms = u64::try_from(config.ottla_metrics_reporter_interval_ms).unwrap_or(1);
    let kept = FileRetention {
        file_max_bytes: u64::try_from(config.ottla_metrics_reporter_file_max_bytes).unwrap_or(1),
        files: u32::try_from(config.ottla_metrics_reporter_files).unwrap_or(1),
    };
    drop(config);
    let complaints = Arc::new(Complaints::default());
    let mut ticks = ottla_sync::time::interval(Duration::from_millis(interval_ms.max(1)));
    ticks.set_missed_tick_behavior(ottla_sync::time::MissedTickBehavior::Skip);
    loop {
        let is_last = ottla_sync::select! {
            _ = ticks.tick() => false,
            () = broker.stopping() => true,
        };
        let (broker, dir) = (Arc::clone(&broker), dir.clone());
        let complaints = Arc::clone(&complaints);
        let report = move || {
            let families = collect(&broker);
            let timestamp_ms = broker.timestamp().0;
            let written = match is_json {
                true => append_json(Path::new(&dir), kept, timestamp_ms, &families),
                false => append_csv(Path::new(&dir), kept, timestamp_ms, &families),
            };
            if let Err(error) = written {
                complaints.say(|| {
                    tracing::warn!(
                        "ottla.metrics.reporter.dir={dir}: metrics cannot be written: {error}"
                    );
                });
            }
        };
        // A panic was reported where it happened. The next interval tries again.
        let _ = ottla_sync::task::spawn_blocking(report).await;
        if is_last {
            return;
        }
    }
}

/// Writes one file for each metric, with a line for each value, and one file for all metrics that
/// clients pushed.
fn append_csv(
    dir: &Path,
    kept: FileRetention,
    timestamp_ms: i64,
    families: &[Family],
) -> io::Result<()> {
    ottla_sync::fs::create_dir_all(dir)?;
    let families = families.iter().filter(|family| !family.samples.is_empty());
    let (pushed, own): (Vec<&Family>, Vec<&Family>) =
        families.partition(|family| family.name.starts_with(CLIENT_METRIC_PREFIX));
    let mut lines = String::new();
    for family in own {
        lines.clear();
        for sample in &family.samples {
            let _ = writeln!(lines, "{timestamp_ms},{},{}", quoted(sample), sample.value);
        }
        let file = dir.join(format!("{}.csv", family.name));
        append_lines(&file, kept, "timestamp_ms,labels,value", &lines)?;
    }
    lines.clear();
    for family in pushed {
        for sample in &family.samples {
            let (name, labels) = (&family.name, quoted(sample));
            let _ = writeln!(lines, "{timestamp_ms},{name},{labels},{}", sample.value);
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    let file = dir.join(CLIENT_METRICS_FILE);
    append_lines(&file, kept, "timestamp_ms,metric,labels,value", &lines)
}

fn quoted(sample: &Sample) -> String {
    format!("\"{}\"", sample.to_string().replace('"', "\"\""))
}

/// Uses a single write, so that a concurrent reader sees complete lines.
fn append_lines(path: &Path, kept: FileRetention, heading: &str, lines: &str) -> io::Result<()> {
    let mut file = append_to(path, kept)?;
    match file.metadata()?.len() {
        0 => file.write_all(format!("{heading}\n{lines}").as_bytes()),
        _ => file.write_all(lines.as_bytes()),
    }
}

/// Appends one line with all metrics to one file.
fn append_json(
    dir: &Path,
    kept: FileRetention,
    timestamp_ms: i64,
    families: &[Family],
) -> io::Result<()> {
    ottla_sync::fs::create_dir_all(dir)?;
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
    append_to(&dir.join("metrics.jsonl"), kept)?.write_all(line.as_bytes())
}

/// Opens the current file, after rotating it if it is full.
fn append_to(path: &Path, kept: FileRetention) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let length = file.metadata()?.len();
    if length == 0 || length < kept.file_max_bytes {
        return Ok(file);
    }
    set_aside(path, kept)?;
    OpenOptions::new().create(true).append(true).open(path)
}

/// Renames each file to the name of the next older one. The oldest is replaced, or deleted if only
/// one is kept. A gap in the sequence is moved along.
fn set_aside(path: &Path, kept: FileRetention) -> io::Result<()> {
    let older = |number: u32| -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        name.into()
    };
    for number in (1..kept.files).rev() {
        absent_is_fine(ottla_sync::fs::rename(older(number - 1), older(number)))?;
    }
    // If more than one is kept, this name is free by now.
    absent_is_fine(ottla_sync::fs::remove_file(path))?;
    delete_numbered_from(path, kept.files)
}

/// Also deletes files that an earlier configuration kept.
fn delete_numbered_from(path: &Path, first: u32) -> io::Result<()> {
    let (Some(dir), Some(name)) = (
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) else {
        return Ok(());
    };
    for entry in ottla_sync::fs::read_dir(dir)? {
        let entry = entry?;
        let found = entry.file_name();
        let number = found
            .to_str()
            .and_then(|found| found.strip_prefix(name)?.strip_prefix('.')?.parse().ok());
        if number.is_some_and(|number: u32| number >= first) {
            absent_is_fine(ottla_sync::fs::remove_file(entry.path()))?;
        }
    }
    Ok(())
}

fn absent_is_fine(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: FileRetention = FileRetention {
        file_max_bytes: 1 << 20,
        files: 3,
    };

    fn families() -> Vec<Family> {
        let name = "kafka_log_log_size";
        let labels = [("topic", "a,\"b".to_owned()), ("partition", "0".to_owned())];
        vec![
            Family::gauge(name, "").sample(labels, 17.5),
            Family::gauge("nothing", ""),
        ]
    }

    #[test]
    fn each_report_adds_a_line_of_csv() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().join("made");
        append_csv(&dir, ALL, 5, &families()).expect("written");
        append_csv(&dir, ALL, 6, &families()).expect("written");
        let text = std::fs::read_to_string(dir.join("kafka_log_log_size.csv")).expect("a file");
        assert_eq!(
            text,
            "timestamp_ms,labels,value\n5,\"topic=a,\"\"b,partition=0\",17.5\n6,\"topic=a,\"\"b,partition=0\",17.5\n"
        );
        assert!(!dir.join("nothing.csv").exists());
    }

    #[test]
    fn each_report_adds_a_line_of_json() {
        let dir = tempfile::tempdir().expect("a directory");
        append_json(dir.path(), ALL, 5, &families()).expect("written");
        append_json(dir.path(), ALL, 6, &families()).expect("written");
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

    fn names(dir: &Path) -> Vec<String> {
        let entries = ottla_sync::fs::read_dir(dir).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name())
            .map(|name| name.into_string().expect("UTF-8"))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_number_of_files_is_bounded_and_each_has_a_heading() {
        let dir = tempfile::tempdir().expect("a directory");
        let kept = FileRetention {
            // Two lines fit. A file is rotated when it has reached the size, not before.
            file_max_bytes: 90,
            files: 3,
        };
        for time in 10..19 {
            append_csv(dir.path(), kept, time, &families()).expect("written");
        }
        let file = "kafka_log_log_size.csv";
        let all = [file.to_owned(), format!("{file}.1"), format!("{file}.2")];
        assert_eq!(names(dir.path()), all);
        let times: Vec<Vec<String>> = all
            .iter()
            .map(|name| {
                let text = std::fs::read_to_string(dir.path().join(name)).expect("a file");
                let mut lines = text.lines();
                assert_eq!(lines.next(), Some("timestamp_ms,labels,value"));
                lines.map(|line| line[..2].to_owned()).collect()
            })
            .collect();
        assert_eq!(times, [vec!["18"], vec!["16", "17"], vec!["14", "15"]]);
    }

    #[test]
    fn metrics_of_clients_go_into_one_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let long = format!("client_{}", "x".repeat(300));
        let families = [&long, "client_b"].map(|name| {
            Family::gauge(name.to_owned(), "").sample([("client_id", "c".to_owned())], 1.0)
        });
        append_csv(dir.path(), ALL, 5, &families).expect("written");
        assert_eq!(names(dir.path()), ["client_metrics.csv"]);
        let text = std::fs::read_to_string(dir.path().join("client_metrics.csv")).expect("a file");
        assert_eq!(
            text,
            format!(
                "timestamp_ms,metric,labels,value\n5,{long},\"client_id=c\",1\n5,client_b,\"client_id=c\",1\n"
            )
        );
    }

    #[test]
    fn a_lower_file_limit_deletes_surplus_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let each_its_own = |files| FileRetention {
            file_max_bytes: 1,
            files,
        };
        let others = ["metrics.jsonl.gz", "metrics.jsonl.1.gz", "else.jsonl.9"];
        for name in others {
            std::fs::write(dir.path().join(name), "").expect("written");
        }
        for time in 0..6 {
            append_json(dir.path(), each_its_own(4), time, &families()).expect("written");
        }
        assert_eq!(names(dir.path()).len(), others.len() + 4);
        append_json(dir.path(), each_its_own(1), 6, &families()).expect("written");
        let mut left = names(dir.path());
        left.retain(|name| !others.contains(&name.as_str()));
        assert_eq!(left, ["metrics.jsonl"]);
        assert_eq!(names(dir.path()).len(), others.len() + 1);
        let text = std::fs::read_to_string(dir.path().join("metrics.jsonl")).expect("a file");
        let line: Value = serde_json::from_str(&text).expect("one line of JSON");
        assert_eq!(line["timestamp_ms"], 6);
    }
}
