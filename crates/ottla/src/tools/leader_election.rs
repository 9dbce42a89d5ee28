//! `leader-election`: Kafka's `kafka-leader-election.sh`.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{ArgGroup, Args};
use ottla_client::ClientError;
use ottla_client::admin::ElectionType;
use ottla_types::ErrorCode;

use super::{admin_client, block_on, java_exceptions, report_on_stderr, topic_partitions_file};

/// Elect leaders of partitions: the preferred ones, or, at the risk of losing records, any.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").required(true))]
pub struct LeaderElectionArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: String,
    /// Properties file with settings of the client.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
    /// Deprecated: write --command-config.
    #[arg(
        long = "admin.config",
        value_name = "FILE",
        hide = true,
        conflicts_with = "command_config"
    )]
    admin_config: Option<String>,
    /// JSON file that names partitions: {"partitions": [{"topic": "t", "partition": 0}]}.
    #[arg(long, value_name = "FILE", group = "what")]
    path_to_json_file: Option<String>,
    /// A topic.
    #[arg(long, group = "what", requires = "partition")]
    topic: Option<String>,
    /// The partition of --topic.
    #[arg(long, requires = "topic")]
    partition: Option<i32>,
    /// All partitions that need an election.
    #[arg(long, group = "what")]
    all_topic_partitions: bool,
    /// preferred: for partitions that their preferred leader does not lead; unclean: for partitions
    /// without a leader.
    #[arg(long, value_name = "TYPE", ignore_case = true, value_parser = ["preferred", "unclean"])]
    election_type: String,
}

pub fn run(args: LeaderElectionArgs) -> ExitCode {
    if args.admin_config.is_some() {
        println!(
            "Option --admin.config has been deprecated and will be removed in a future version. Use \
             --command-config instead."
        );
    }
    block_on(async { report_on_stderr(elect(&args).await) })
}

async fn elect(args: &LeaderElectionArgs) -> anyhow::Result<()> {
    let (how, name) = if args.election_type.eq_ignore_ascii_case("unclean") {
        (ElectionType::Unclean, "UNCLEAN")
    } else {
        (ElectionType::Preferred, "PREFERRED")
    };
    let partitions = wanted(args)?;
    let config = args
        .command_config
        .as_deref()
        .or(args.admin_config.as_deref());
    let limit = Some(Duration::from_secs(30));
    let admin = admin_client::connect_within(
        &args.bootstrap_server,
        config,
        "ottla-leader-election",
        limit,
    )
    .await?;
    let results = match admin.elect_leaders(how, partitions.as_ref()).await {
        Ok(results) => results,
        Err(error) => {
            match error.code() {
                Some(ErrorCode::RequestTimedOut) => {
                    println!("Timeout waiting for election results")
                }
                Some(ErrorCode::ClusterAuthorizationFailed) => {
                    println!("Not authorized to perform leader election");
                }
                _ => {}
            }
            return Err(error.into());
        }
    };
    let (mut elected, mut not_needed, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for topic in &results {
        for result in &topic.partition_result {
            let partition = format!("{}-{}", &*topic.topic, result.partition_id);
            let message = result.error_message.as_ref();
            match ClientError::check("", result.error_code, message) {
                Ok(()) => elected.push(partition),
                Err(error) if error.code() == Some(ErrorCode::ElectionNotNeeded) => {
                    not_needed.push(partition);
                }
                Err(error) => failed.push((partition, error)),
            }
        }
    }
    if !elected.is_empty() {
        println!(
            "Successfully completed leader election ({name}) for partitions {}",
            elected.join(", ")
        );
    }
    if !not_needed.is_empty() {
        println!(
            "Valid replica already elected for partitions {}",
            not_needed.join(", ")
        );
    }
    for (partition, error) in &failed {
        println!(
            "Error completing leader election ({name}) for partition: {partition}: {}",
            java_exceptions::shown(error)
        );
    }
    if !failed.is_empty() {
        bail!("{} replica(s) could not be elected", failed.len());
    }
    Ok(())
}

/// The selected partitions; `None` means all.
fn wanted(args: &LeaderElectionArgs) -> anyhow::Result<Option<BTreeSet<(String, i32)>>> {
    if let (Some(topic), Some(partition)) = (&args.topic, args.partition) {
        return Ok(Some(BTreeSet::from([(topic.clone(), partition)])));
    }
    let Some(path) = &args.path_to_json_file else {
        return Ok(None);
    };
    let mut partitions = BTreeSet::new();
    for entry in topic_partitions_file::read(path)? {
        let name = format!("{}-{}", entry.topic, entry.partition);
        if !partitions.insert((entry.topic, entry.partition)) {
            bail!("Replica election data contains duplicate partitions: {name} in {path}");
        }
    }
    Ok(Some(partitions))
}
