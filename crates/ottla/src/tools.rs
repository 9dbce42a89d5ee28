//! Kafka's command line tools, with Kafka's flags, output and exit statuses.
//!
//! The tools talk to any Kafka cluster through `ottla-client`, or read the files of a log directory; they
//! never need a broker of ours. What they print to standard output is what Kafka 4.3's tools print, so
//! that scripts go on working; what they say on standard error when something is wrong is our own.
//!
//! Exit statuses: 0 for success, 1 for everything else, as with Kafka's. `--help` succeeds.

mod admin_client;
mod broken_pipe;
mod retired_flags;
mod topic_filter;

mod configs;
mod console_consumer;
mod console_producer;
mod consumer_groups;
mod dump_log;
mod get_offsets;
mod storage;
mod topics;

use std::collections::BTreeMap;
use std::future::Future;
use std::process::ExitCode;

use clap::Subcommand;

pub use retired_flags::advice as advice_for_retired_flags;

/// The tools.
#[derive(Subcommand, Debug)]
pub enum Tool {
    /// Create, list, describe, alter and delete topics.
    Topics(Box<topics::TopicsArgs>),
    /// Show and change settings of topics, brokers and groups.
    Configs(Box<configs::ConfigsArgs>),
    /// Print the offsets of partitions.
    GetOffsets(get_offsets::GetOffsetsArgs),
    /// List, describe, delete and reset consumer groups.
    ConsumerGroups(Box<consumer_groups::ConsumerGroupsArgs>),
    /// Format the directories of a node, and look at them.
    Storage(storage::StorageArgs),
    /// Print what stands in segments, indexes and snapshots.
    DumpLog(dump_log::DumpLogArgs),
    /// Send the lines of standard input as records.
    ConsoleProducer(Box<console_producer::ConsoleProducerArgs>),
    /// Print the records of a topic.
    ConsoleConsumer(Box<console_consumer::ConsoleConsumerArgs>),
}

/// The names under which the tools can be called directly, by a link named as Kafka's script is:
/// `kafka-topics.sh`, `kafka-topics`.
pub const TOOL_NAMES: &[&str] = &[
    "topics",
    "configs",
    "consumer-groups",
    "get-offsets",
    "storage",
    "dump-log",
    "console-producer",
    "console-consumer",
];

/// Runs a tool to its end.
pub fn run(tool: Tool) -> ExitCode {
    // The console clients still have records to send, or offsets to commit.
    if !matches!(tool, Tool::ConsoleProducer(_) | Tool::ConsoleConsumer(_)) {
        broken_pipe::end_with_it();
    }
    match tool {
        Tool::Topics(args) => topics::run(*args),
        Tool::Configs(args) => configs::run(*args),
        Tool::GetOffsets(args) => get_offsets::run(args),
        Tool::ConsumerGroups(args) => consumer_groups::run(*args),
        Tool::Storage(args) => storage::run(args),
        Tool::DumpLog(args) => dump_log::run(args),
        Tool::ConsoleProducer(args) => console_producer::run(*args),
        Tool::ConsoleConsumer(args) => console_consumer::run(*args),
    }
}

/// Runs a tool that talks to a cluster.
fn block_on<F: Future<Output = ExitCode>>(tool: F) -> ExitCode {
    match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime.block_on(tool),
        Err(error) => {
            eprintln!("the runtime cannot be started: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads a properties file given on the command line.
fn load_properties(path: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let bytes = std::fs::read(path)
        .map_err(|error| anyhow::anyhow!("{path} cannot be read: {error}; check the path"))?;
    let properties = ottla_config::Properties::parse_bytes(&bytes, path)?;
    Ok(properties
        .effective()
        .map(|it| (it.key.clone(), it.value.clone()))
        .collect())
}

/// `key=value` arguments; a missing value is an empty one, as in Kafka's tools.
fn key_values(arguments: &[String]) -> BTreeMap<String, String> {
    let split = |argument: &String| match argument.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (argument.clone(), String::new()),
    };
    arguments.iter().map(split).collect()
}

/// Whether Kafka keeps a topic for itself (`Topic.isInternal`).
fn is_internal_topic(name: &str) -> bool {
    matches!(
        name,
        "__consumer_offsets" | "__transaction_state" | "__share_group_state"
    )
}
