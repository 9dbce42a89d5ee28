//! `log-dirs`: Kafka's `kafka-log-dirs.sh`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::Args;
use ottla_client::ClientError;
use ottla_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use serde_json::{Value, json};

use super::admin_client::Brokers;
use super::java_text::joined as ids;
use super::{block_on, java_exceptions, report_on_stderr};

/// Print the log directories of brokers and their contents, as JSON.
#[derive(Args, Debug)]
pub struct LogDirsArgs {
    #[command(flatten)]
    brokers: Brokers,
    /// Describe the log directories.
    #[arg(long, required = true)]
    describe: bool,
    /// Only these topics, separated by commas.
    #[arg(
        long,
        value_name = "TOPICS",
        default_value = "",
        hide_default_value = true
    )]
    topic_list: String,
    /// Only these brokers, ids separated by commas.
    #[arg(
        long,
        value_name = "IDS",
        default_value = "",
        hide_default_value = true
    )]
    broker_list: String,
}

pub fn run(args: LogDirsArgs) -> ExitCode {
    block_on(async { report_on_stderr(describe(&args).await) })
}

async fn describe(args: &LogDirsArgs) -> anyhow::Result<()> {
    let parts = |list: &str| -> Vec<String> {
        let parts = list.split(',').filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    };
    let topics: BTreeSet<String> = parts(&args.topic_list).into_iter().collect();
    let wanted = parts(&args.broker_list)
        .iter()
        .map(|id| {
            // The cause, as Rust says it, adds nothing.
            id.parse::<i32>().map_err(|_| {
                anyhow!("--broker-list: {id} is not a broker ID; give IDs such as 0,1,2")
            })
        })
        .collect::<anyhow::Result<BTreeSet<i32>>>()?;
    let admin = args.brokers.connect("log-dirs-tool", None).await?;
    let existing: BTreeSet<i32> = admin.client().metadata().brokers.keys().copied().collect();
    let missing: BTreeSet<i32> = wanted.difference(&existing).copied().collect();
    if !missing.is_empty() {
        bail!(
            "ERROR: The given brokers do not exist from --broker-list: {}. Current existent brokers: {}",
            ids(&missing),
            ids(&existing)
        );
    }
    let brokers = if wanted.is_empty() { existing } else { wanted };
    println!("Querying brokers for log directories information");
    let mut described = Vec::new();
    for broker in &brokers {
        let directories = admin.describe_log_dirs(*broker).await?;
        described.push(json!({
            "broker": broker,
            "logDirs": directories
                .iter()
                .map(|directory| shown(directory, &topics))
                .collect::<Vec<Value>>(),
        }));
    }
    println!(
        "Received log directory information from brokers {}",
        ids(&brokers)
    );
    println!("{}", json!({ "brokers": described, "version": 1 }));
    Ok(())
}

/// The keys are in the order of Kafka's output.
fn shown(directory: &DescribeLogDirsResult, topics: &BTreeSet<String>) -> Value {
    let mut partitions: Vec<(String, i32, Value)> = Vec::new();
    for topic in &directory.topics {
        if !topics.is_empty() && !topics.contains(&*topic.name) {
            continue;
        }
        for partition in &topic.partitions {
            let index = partition.partition_index;
            let shown = json!({
                "partition": format!("{}-{index}", &*topic.name),
                "size": partition.partition_size,
                "offsetLag": partition.offset_lag,
                "isFuture": partition.is_future_key,
            });
            partitions.push((topic.name.to_string(), index, shown));
        }
    }
    partitions.sort_by(|left, right| (&left.0, left.1).cmp(&(&right.0, right.1)));
    let error = ClientError::check("", directory.error_code, None::<&str>).err();
    json!({
        "partitions": partitions.into_iter().map(|(_, _, shown)| shown).collect::<Vec<Value>>(),
        "error": error.map(|error| java_exceptions::class_name(&error)),
        "logDir": &*directory.log_dir,
    })
}
