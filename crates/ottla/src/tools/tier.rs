//! `tier`: describes, verifies and restores the remote storage of a cluster (KIP-405).
//!
//! Works with any Kafka cluster: the metadata comes from `__remote_log_metadata` through the client,
//! the store is opened with the settings of a broker's file. Nothing is written to either; `restore`
//! writes to a new topic.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{anyhow, bail, ensure};
use clap::{Args, Subcommand};
use ottla_client::Admin;
use ottla_tiered_storage::RemoteStorageManager;

use super::admin_client::Brokers;
use super::{block_on_while_receiving, read_properties, report_plainly};
use crate::counted::counted;
use crate::node_properties::place_of;
use crate::terminal;

mod batches;
mod describe;
mod indexes;
mod remote_log;
mod restore;
mod verify;

use remote_log::RemoteLog;

/// Show, verify and restore the remote segments of a cluster (KIP-405).
#[derive(Args, Debug)]
pub struct TierArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Show the local and remote segments of each partition, and stuck uploads and deletions.
    Describe(DescribeArgs),
    /// Verify each remote segment: its objects, sizes, checksums, indexes and leader epochs.
    ///
    /// Reads every segment completely unless --shallow is given. Fails if there is a problem.
    Verify(VerifyArgs),
    /// Restore a topic from remote storage, as it was at a given time, to a new topic.
    ///
    /// Reads all segments up to that time, reports missing records, creates the new topic and writes
    /// the records with their keys, headers and timestamps. Run the same command again to continue
    /// an interrupted restore.
    Restore(Box<restore::RestoreArgs>),
}

#[derive(Args, Debug)]
struct DescribeArgs {
    #[command(flatten)]
    brokers: Brokers,
    #[command(flatten)]
    selection: Selection,
    /// A broker's server.properties, to show the location of the store.
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// Report uploads and deletions that have taken longer than this.
    #[arg(long, value_name = "MS", default_value_t = 300_000)]
    stuck_after_ms: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct VerifyArgs {
    #[command(flatten)]
    brokers: Brokers,
    #[command(flatten)]
    selection: Selection,
    /// A broker's server.properties, whose rsm.config.* settings open the store.
    #[arg(long, value_name = "FILE")]
    config: String,
    /// Check only manifests and sizes, without reading segments.
    #[arg(long)]
    shallow: bool,
    /// Segments that are read at once.
    #[arg(long, value_name = "SEGMENTS", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    parallel: u16,
}

/// The partitions that are looked at.
#[derive(Args, Debug)]
struct Selection {
    /// Only this topic.
    #[arg(long)]
    topic: Option<String>,
    /// Only this partition of it.
    #[arg(long, requires = "topic")]
    partition: Option<i32>,
}

impl Selection {
    fn includes(&self, partition: &ottla_tiered::RemotePartition) -> bool {
        let is_topic = |topic: &String| &*partition.topic == topic.as_str();
        self.topic.as_ref().is_none_or(is_topic)
            && self.partition.is_none_or(|it| it == partition.partition.0)
    }

    /// Refuses a topic or partition that neither remote storage nor the cluster has: a report of
    /// nothing would pass for a good one.
    async fn check(&self, admin: &Admin, log: &RemoteLog) -> anyhow::Result<()> {
        let Some(name) = &self.topic else {
            return Ok(());
        };
        if log.partitions.keys().any(|it| self.includes(it)) {
            return Ok(());
        }
        let metadata = admin.client().refresh_metadata(None, false).await?;
        let Some(topic) = metadata.topics.get(name) else {
            bail!(
                "--topic {name}: neither the cluster nor remote storage has a topic of that name"
            );
        };
        let Some(partition) = self.partition else {
            return Ok(());
        };
        let has_it = topic.partitions.iter().any(|it| it.partition == partition);
        ensure!(
            has_it,
            "--partition {partition}: topic {name} has {}, numbered from 0",
            counted(topic.partitions.len(), "partition")
        );
        Ok(())
    }
}

const CLIENT_ID: &str = "ottla-tier";

pub fn run(args: TierArgs) -> ExitCode {
    block_on_while_receiving(async move {
        match args.action {
            Action::Describe(args) => report_plainly(describe(&args).await),
            Action::Verify(args) => match verify(&args).await {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::FAILURE,
                Err(error) => report_plainly(Err(error)),
            },
            Action::Restore(args) => report_plainly(restore(&args).await),
        }
    })
}

async fn describe(args: &DescribeArgs) -> anyhow::Result<()> {
    let location = match &args.config {
        Some(file) => Some(open(file)?.location()),
        None => None,
    };
    let admin = args.brokers.connect(CLIENT_ID, None).await?;
    let log = remote_log::read(admin.client(), None).await?;
    args.selection.check(&admin, &log).await?;
    let options = describe::DescribeOptions {
        now: now()?,
        stuck_after: Duration::from_millis(args.stuck_after_ms),
        location,
    };
    let includes = |partition: &_| args.selection.includes(partition);
    let description = describe::describe(&admin, &log, includes, &options).await?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&description)?);
    } else {
        print!("{}", describe::text(&description, terminal::columns()));
    }
    Ok(())
}

async fn verify(args: &VerifyArgs) -> anyhow::Result<bool> {
    let store = open(&args.config)?;
    let admin = args.brokers.connect(CLIENT_ID, None).await?;
    let log = remote_log::read(admin.client(), None).await?;
    args.selection.check(&admin, &log).await?;
    let options = verify::VerifyOptions {
        reads_segments: !args.shallow,
        parallel: args.parallel.into(),
    };
    let includes = |partition: &_| args.selection.includes(partition);
    verify::verify(store, &log, includes, &options).await
}

async fn restore(args: &restore::RestoreArgs) -> anyhow::Result<()> {
    let store = open(&args.config)?;
    let admin = args.brokers.connect(CLIENT_ID, None).await?;
    restore::restore(args, &*store, &admin).await
}

/// The store of a broker's settings, to read it.
fn open(file: &str) -> anyhow::Result<Arc<dyn RemoteStorageManager>> {
    let properties = read_properties(file)?;
    let settings = properties.clone().into_map();
    let environment = |name: &str| std::env::var(name).ok();
    ottla_tiered_storage::open_to_read(&settings, &environment).map_err(|error| {
        let error = error.to_string();
        anyhow!("{}: {error}", place_of(&properties, &error))
    })
}

/// Milliseconds since 1970.
fn now() -> anyhow::Result<i64> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_millis())?)
}
