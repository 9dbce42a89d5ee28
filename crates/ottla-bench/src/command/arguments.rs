//! The arguments of `ottla bench`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use toml::Value;

/// Repeat published measurements, or your own, on any cluster that speaks Kafka's protocol.
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub command: BenchCommand,
}

#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Name the scenarios that are shipped.
    List,
    /// Print a scenario, or all of a group; what it prints can be changed and run as a file.
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
    /// Work out what load services make, and how many brokers carry it at what price.
    Size(SizeArgs),
}

#[derive(Args, Debug)]
pub struct RunArgs {
    /// Scenarios, groups, or files that end in .toml.
    #[arg(required_unless_present = "workload", value_name = "NAME")]
    pub names: Vec<String>,
    /// A workload file of the OpenMessaging Benchmark; may be repeated.
    #[arg(long, value_name = "FILE.yaml")]
    pub workload: Vec<PathBuf>,
    /// The driver file that goes with it: settings of clients and topics, and the brokers unless a target is given.
    #[arg(long, value_name = "FILE.yaml", requires = "workload")]
    pub driver: Option<PathBuf>,
    /// Brokers of a cluster to measure; may be given more than once to compare clusters.
    #[arg(long, value_name = "HOST:PORT,…")]
    pub bootstrap_server: Vec<String>,
    /// Properties of every client that talks to the clusters at --bootstrap-server, as Kafka's tools take them: TLS, who
    /// one is, timeouts.
    #[arg(long, value_name = "FILE.properties", requires = "bootstrap_server")]
    pub command_config: Option<PathBuf>,
    /// Where a broker of that cluster gives its metrics in the format of Prometheus; once for each broker.
    #[arg(long, value_name = "http://HOST:PORT/metrics")]
    pub metrics: Vec<String>,
    /// Brokers that are started for the run, and compared with the other targets, round by round. Without any target
    /// it is ottla.
    #[arg(long, value_enum)]
    pub target: Vec<TargetName>,
    /// A size of the run that the scenario has besides the published one, such as small.
    #[arg(long)]
    pub scale: Option<String>,
    /// So many replicas in place of the scenario's; the result says so.
    #[arg(long)]
    pub replicas: Option<u16>,
    /// So many rounds of each point.
    #[arg(long)]
    pub repetitions: Option<u32>,
    /// The measured time of each round, such as 30s.
    #[arg(long)]
    pub time: Option<String>,
    /// Another value for a key of the scenario, such as producers.settings.linger.ms=5; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Use this topic, which is made and deleted unless it exists.
    #[arg(long)]
    pub topic: Option<String>,
    /// Where brokers that are started keep their files; the system's temporary directory otherwise.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Where result and report go.
    #[arg(long, default_value = "ottla-bench")]
    pub out: PathBuf,
    /// Write results as the OpenMessaging Benchmark does as well, into this folder, a file for each workload and target.
    #[arg(long, value_name = "DIR")]
    pub openmessaging_out: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetName {
    /// This binary as broker.
    Ottla,
    /// Apache Kafka, of KAFKA_HOME or fetched with Maven.
    Kafka,
}

#[derive(Args, Debug)]
pub struct CompareArgs {
    /// A result: what it was before.
    pub first: PathBuf,
    /// A result: what it is now.
    pub second: PathBuf,
    /// End with status 1 if a figure became worse beyond noise.
    #[arg(long)]
    pub fail_on_regression: bool,
}

#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Results that `run` has written.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Where the report goes; beside the first result otherwise.
    #[arg(long)]
    pub out: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct SizeArgs {
    #[arg(long, default_value_t = 1.0)]
    pub services: f64,
    /// What one service writes in a day, such as 2GB.
    #[arg(long, required_unless_present = "load")]
    pub daily: Option<String>,
    /// Records a second that are to be carried, in place of services.
    #[arg(long, value_name = "RATE", conflicts_with = "daily")]
    pub load: Option<f64>,
    /// The hours of the day in which it does.
    #[arg(long, default_value_t = 24.0)]
    pub hours: f64,
    /// Bytes of a record.
    #[arg(long, default_value = "1KB")]
    pub record: String,
    /// A result of a search or of a throughput scenario, from which the number of brokers follows, for each target.
    #[arg(long, value_name = "RESULT.json")]
    pub result: Option<PathBuf>,
    /// Records a second that a cluster was seen to carry, in place of a result.
    #[arg(long, conflicts_with = "result")]
    pub measured: Option<f64>,
    /// The brokers of that cluster.
    #[arg(long, requires = "measured")]
    pub measured_brokers: Option<u64>,
    /// The part of a broker that is to stay free.
    #[arg(long, default_value_t = 0.0)]
    pub headroom: f64,
    /// What a broker costs an hour.
    #[arg(long)]
    pub hourly_price: Option<f64>,
}

impl RunArgs {
    /// What the command line sets, by path; later ones win.
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

/// A value as TOML would have it, else a text.
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
    fn values_are_numbers_truths_lists_or_texts() {
        assert_eq!(toml_value("5"), Value::Integer(5));
        assert_eq!(toml_value("true"), Value::Boolean(true));
        assert_eq!(toml_value("[1, 2]"), Value::Array(vec![1.into(), 2.into()]));
        assert_eq!(toml_value("30s"), Value::String("30s".into()));
        assert_eq!(toml_value("1\nx = 2"), Value::String("1\nx = 2".into()));
    }
}
