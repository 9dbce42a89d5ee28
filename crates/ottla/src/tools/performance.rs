//! Shared by the three performance tools: settings, and output in addition to Kafka's lines.
//!
//! Standard output contains only Kafka's lines, so that scripts that read the last one keep
//! working. Additional output goes to standard error.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use ottla_bench::workload::latencies::Latencies;
use ottla_bench::workload::percentiles::write_percentiles;
use ottla_client::Metrics;

use super::java_numbers::fixed;

/// Why a tool could not start.
#[derive(Debug)]
pub(super) enum Trouble {
    /// An uncaught exception, as the JVM prints it: class and message.
    Uncaught(&'static str, String),
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Trouble {
    fn from(error: E) -> Trouble {
        Trouble::Other(error.into())
    }
}

pub(super) const ILLEGAL_ARGUMENT: &str = "java.lang.IllegalArgumentException";
pub(super) const CONFIG_EXCEPTION: &str = "org.apache.kafka.common.config.ConfigException";
const NO_SUCH_FILE: &str = "java.nio.file.NoSuchFileException";

pub(super) fn end(result: Result<(), Trouble>) -> ExitCode {
    match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Trouble::Uncaught(class, text)) => {
            eprintln!("Exception in thread \"main\" {class}: {text}");
        }
        Err(Trouble::Other(error)) => eprintln!("{error:#}"),
    }
    ExitCode::FAILURE
}

/// The settings of a file.
pub(super) fn settings_of_file(path: Option<&str>) -> Result<BTreeMap<String, String>, Trouble> {
    match path {
        None => Ok(BTreeMap::new()),
        Some(path) if !Path::new(path).exists() => {
            Err(Trouble::Uncaught(NO_SUCH_FILE, path.to_owned()))
        }
        Some(path) => Ok(super::load_client_properties(path)?),
    }
}

/// Fails without `bootstrap.servers`, as Kafka's clients do.
pub(super) fn require_servers(settings: &BTreeMap<String, String>) -> Result<(), Trouble> {
    if settings.contains_key("bootstrap.servers") {
        Ok(())
    } else {
        Err(Trouble::Uncaught(
            CONFIG_EXCEPTION,
            "Missing required configuration \"bootstrap.servers\" which has no default value."
                .into(),
        ))
    }
}

/// Prints metrics sorted by name, as Kafka's tools do (`ToolsUtils.printMetrics`).
pub(super) fn print_metrics(metrics: Metrics) {
    let named = metrics
        .into_iter()
        .map(|metric| (metric.to_string(), metric.value));
    let mut named: Vec<(String, f64)> = named.collect();
    named.sort_by(|(a, _), (b, _)| a.cmp(b));
    let width = named.iter().map(|(name, _)| name.len()).max();
    let width = width.unwrap_or_default();
    println!("\n{:<width$}   Value", "Metric Name");
    for (name, value) in &named {
        println!("{name:<width$} : {}", fixed(*value, 3));
    }
}

/// Prints a distribution in one line on standard error.
pub(super) fn show_latency(what: &str, latencies: &Latencies) {
    let Some(report) = latencies.report() else {
        return;
    };
    eprintln!(
        "{what}, µs: mean {:.1}, 50th {:.1}, 90th {:.1}, 99th {:.1}, 99.9th {:.1}, 99.99th {:.1}, max {:.1} \
         ({} records)",
        report.mean_us,
        report.p50_us,
        report.p90_us,
        report.p99_us,
        report.p99_9_us,
        report.p99_99_us,
        report.max_us,
        report.count
    );
}

/// Writes a distribution to the file of `--histogram-out`.
pub(super) fn write_histogram(path: &Path, latencies: &Latencies) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        write_percentiles(latencies, &mut file)?;
        file.flush()
    };
    write().with_context(|| format!("--histogram-out {} cannot be written", path.display()))
}

/// The path of the second file: `run.hgrm` -> `run.sent.hgrm`.
pub(super) fn beside(path: &Path, which: &str) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(".");
    name.push(which);
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_file_is_written_beside_the_first() {
        for (path, second) in [
            ("a/run.hgrm", "a/run.sent.hgrm"),
            ("run", "run.sent"),
            ("a.b/run", "a.b/run.sent"),
        ] {
            assert_eq!(beside(Path::new(path), "sent"), PathBuf::from(second));
        }
    }
}
