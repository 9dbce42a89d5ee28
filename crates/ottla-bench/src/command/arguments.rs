//! The arguments of `ottla bench`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use toml::Value;

/// Benchmark any cluster that speaks Kafka's protocol, with published scenarios or your own.
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub command: BenchCommand,
}

#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// List the shipped scenarios.
    List,
    /// Print a scenario, or all of a group, to edit and run as a file.
    Show {
        /// A scenario, a group, or a file that ends in .toml.
        name: String,
    },
    /// Run scenarios; write a result and a report.
    Run(Box<RunArgs>),
    /// Compare two results: ratio, confidence interval and verdict of each figure.
    Compare(CompareArgs),
    /// Write one report of one or several results.
    Report(ReportArgs),
    /// Compute the load of services, and the number and price of the brokers for it.
    Size(SizeArgs),
}

#[derive(Args, Debug)]
pub struct RunArgs {
    /// Scenarios, groups, or files that end in .toml.
    #[arg(required_unless_present = "workload", value_name = "NAME")]
    pub names: Vec<String>,
    /// A workload file of the OpenMessaging Benchmark; repeatable.
    #[arg(long, value_name = "FILE.yaml")]
    pub workload: Vec<PathBuf>,
    /// The matching driver file: settings of clients and topics, and the brokers unless a target is given.
    #[arg(long, value_name = "FILE.yaml", requires = "workload")]
    pub driver: Option<PathBuf>,
    /// Bootstrap servers of a cluster to measure; repeatable to compare clusters.
    #[arg(long, value_name = "HOST:PORT,…")]
    pub bootstrap_server: Vec<String>,
    /// Properties file for every client of the clusters at --bootstrap-server, as for Kafka's tools: TLS,
    /// authentication, timeouts.
    #[arg(long, value_name = "FILE.properties", requires = "bootstrap_server")]
    pub command_config: Option<PathBuf>,
    /// URL of a broker's metrics in Prometheus format; once per broker.
    #[arg(long, value_name = "http://HOST:PORT/metrics")]
    pub metrics: Vec<String>,
    /// Brokers to start for the run, compared with the other targets round by round. The default target is ottla.
    #[arg(long, value_enum)]
    pub target: Vec<TargetName>,
    /// A scale defined by the scenario other than the published one, such as small.
    #[arg(long)]
    pub scale: Option<String>,
    /// Number of replicas instead of the scenario's; the result reports it.
    #[arg(long)]
    pub replicas: Option<u16>,
    /// Number of rounds per point.
    #[arg(long)]
    pub repetitions: Option<u32>,
    /// Measured duration of each round, such as 30s.
    #[arg(long)]
    pub time: Option<String>,
    /// Override a key of the scenario, such as producers.settings.linger.ms=5; repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Use this topic; it is created and deleted unless it exists.
    #[arg(long)]
    pub topic: Option<String>,
    /// Directory for the files of started brokers; by default the system's temporary directory.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Output directory of result and report.
    #[arg(long, default_value = "ottla-bench")]
    pub out: PathBuf,
    /// Print the progress as lines that begin with `progress: `, for a program that reads them.
    #[arg(long, hide = true)]
    pub progress_lines: bool,
    /// Also write results in the OpenMessaging Benchmark's format to this directory, one file per workload and target.
    #[arg(long, value_name = "DIR")]
    pub openmessaging_out: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetName {
    /// This binary as the broker.
    Ottla,
    /// Apache Kafka, from KAFKA_HOME or downloaded with Maven.
    Kafka,
}

#[derive(Args, Debug)]
pub struct CompareArgs {
    /// The result before.
    pub first: PathBuf,
    /// The result after.
    pub second: PathBuf,
    /// Exit with status 1 if a figure became worse beyond noise.
    #[arg(long)]
    pub fail_on_regression: bool,
}

#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Results written by `run`.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Path of the report; by default beside the first result.
    #[arg(long)]
    pub out: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct SizeArgs {
    #[arg(long, default_value_t = 1.0)]
    pub services: f64,
    /// Bytes that one service writes per day, such as 2GB.
    #[arg(long, required_unless_present = "load")]
    pub daily: Option<String>,
    /// Load in records per second, instead of services.
    #[arg(long, value_name = "RATE", conflicts_with = "daily")]
    pub load: Option<f64>,
    /// Hours of the day over which it writes.
    #[arg(long, default_value_t = 24.0)]
    pub hours: f64,
    /// Record size in bytes.
    #[arg(long, default_value = "1KB")]
    pub record: String,
    /// A result of a search or throughput scenario, from which the number of brokers is computed for each target.
    #[arg(long, value_name = "RESULT.json")]
    pub result: Option<PathBuf>,
    /// Measured throughput of a cluster in records per second, instead of a result.
    #[arg(long, conflicts_with = "result")]
    pub measured: Option<f64>,
    /// Number of brokers of that cluster.
    #[arg(long, requires = "measured")]
    pub measured_brokers: Option<u64>,
    /// Fraction of each broker's capacity to keep free.
    #[arg(long, default_value_t = 0.0)]
    pub headroom: f64,
    /// Price of a broker per hour.
    #[arg(long)]
    pub hourly_price: Option<f64>,
}

impl RunArgs {
    /// Overrides from the command line, by key; later ones win.
    pub fn settings(&self) -> Result<Vec<(String, Value)>> {
        let mut settings = Vec::new();
        if let Some(replicas) = self.replicas {
            let replicas = Value::Integer(i64::from(replicas));
            settings.push(("topic.replicas".to_owned(), replicas));
        }
        if let Some(repetitions) = self.repetitions {
            let repetitions = Value::Integer(i64::from(repetitions));
            settings.push(("measure.repetitions".to_owned(), repetitions));
        }
        if let Some(time) = &self.time {
            settings.push(("measure.time".to_owned(), Value::String(time.clone())));
        }
        for set in &self.set {
            let (key, value) = set
                .split_once('=')
                .filter(|(key, _)| !key.is_empty())
                .with_context(|| format!("--set {set}: give KEY=VALUE"))?;
            settings.push((key.to_owned(), toml_value(value)));
        }
        Ok(settings)
    }
}

/// The value as TOML, or else as a string.
fn toml_value(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<toml::Table>().ok();
    let value = parsed.and_then(|mut table| match table.len() {
        1 => table.remove("value"),
        _ => None,
    });
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbers_booleans_lists_or_strings() {
        assert_eq!(toml_value("5"), Value::Integer(5));
        assert_eq!(toml_value("true"), Value::Boolean(true));
        assert_eq!(toml_value("[1, 2]"), Value::Array(vec![1.into(), 2.into()]));
        assert_eq!(toml_value("30s"), Value::String("30s".into()));
        assert_eq!(toml_value("1\nx = 2"), Value::String("1\nx = 2".into()));
    }
}
