//! `share-groups`: Kafka's `kafka-share-groups.sh`.

mod describe;
mod reset;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{ArgGroup, Args};
use ottla_client::Admin;
use ottla_client::admin::GroupListing;
use ottla_types::ErrorCode;

use super::consumer_groups::{choices, ended, table::Table};
use super::{admin_client, block_on, java_exceptions, java_maps};

/// List and describe share groups, delete them, and reset or delete their offsets.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("action").required(true))]
#[command(group = ArgGroup::new("scenario"))]
#[command(group = ArgGroup::new("aspect"))]
pub struct ShareGroupsArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: String,
    /// Properties file with settings of the client.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
    /// How long each operation may take.
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    timeout: u64,
    /// List the groups.
    #[arg(long, group = "action")]
    list: bool,
    /// Show groups: their offsets and lag, their --members or their --state.
    #[arg(long, group = "action")]
    describe: bool,
    /// Delete groups without members.
    #[arg(long, group = "action", conflicts_with = "topic")]
    delete: bool,
    /// Move the offsets of a group without members; say --dry-run or --execute.
    #[arg(long, group = "action", requires = "scenario")]
    reset_offsets: bool,
    /// Forget the offsets of a group for topics.
    #[arg(long, group = "action", requires_all = ["group", "topic"])]
    delete_offsets: bool,
    /// A group; repeatable with --describe and --delete.
    #[arg(long, conflicts_with_all = ["all_groups", "list"])]
    group: Vec<String>,
    /// All share groups.
    #[arg(long)]
    all_groups: bool,
    /// A topic, with --reset-offsets also some of its partitions as topic:0,1,2; repeatable.
    #[arg(long, conflicts_with_all = ["list", "describe"])]
    topic: Vec<String>,
    /// All topics for which the group has offsets.
    #[arg(long)]
    all_topics: bool,
    /// With --describe: show offsets, which is what is shown anyway.
    #[arg(long, requires = "describe", group = "aspect")]
    offsets: bool,
    /// With --describe: show the members.
    #[arg(long, requires = "describe", group = "aspect")]
    members: bool,
    /// With --describe: show the state. With --list: show states, of those given only (Empty, Stable, Dead).
    #[arg(long, value_name = "STATES", num_args = 0..=1, default_missing_value = "", group = "aspect")]
    state: Option<String>,
    /// With --describe: show more.
    #[arg(long, requires = "describe")]
    verbose: bool,
    /// Show what would change.
    #[arg(long, conflicts_with = "execute")]
    dry_run: bool,
    /// Do what would change.
    #[arg(long)]
    execute: bool,
    /// To the first record from a time on: YYYY-MM-DDThh:mm:ss.sss.
    #[arg(long, value_name = "TIME", group = "scenario")]
    to_datetime: Option<String>,
    /// To the first record there is.
    #[arg(long, group = "scenario")]
    to_earliest: bool,
    /// Behind the last record.
    #[arg(long, group = "scenario")]
    to_latest: bool,
}

pub fn run(args: ShareGroupsArgs) -> ExitCode {
    block_on(async {
        if let Err(usage) = check(&args) {
            eprintln!("{usage}");
            return ExitCode::FAILURE;
        }
        ended(act(&args).await, "share")
    })
}

fn check(args: &ShareGroupsArgs) -> anyhow::Result<()> {
    if (args.describe || args.delete) && args.group.is_empty() && !args.all_groups {
        bail!("give --group or --all-groups to say which groups are meant");
    }
    if args.describe && args.state.as_deref().is_some_and(|state| !state.is_empty()) {
        bail!("--state takes no value with --describe; states are selected with --list");
    }
    if args.state.is_some() && !args.list && !args.describe {
        bail!("--state goes with --list or --describe");
    }
    if args.reset_offsets {
        if !args.dry_run && !args.execute {
            bail!("--reset-offsets takes --dry-run, to see what would change, or --execute");
        }
        if args.group.is_empty() {
            bail!("--reset-offsets takes --group");
        }
        if args.topic.is_empty() && !args.all_topics {
            bail!("--reset-offsets takes --topic or --all-topics");
        }
    }
    if (args.reset_offsets || args.delete_offsets) && args.group.len() > 1 {
        bail!("offsets are changed of one --group at a time");
    }
    Ok(())
}

async fn act(args: &ShareGroupsArgs) -> anyhow::Result<()> {
    let connected = admin_client::connect_within(
        &args.bootstrap_server,
        args.command_config.as_deref(),
        "ottla-share-groups",
        Some(Duration::from_millis(args.timeout)),
    );
    let admin = connected.await?;
    if args.list {
        list(args, &admin).await
    } else if args.describe {
        describe::describe(args, &admin).await
    } else if args.delete {
        delete(args, &admin).await
    } else if args.reset_offsets {
        reset::reset(args, &admin).await
    } else {
        delete_offsets(args, &admin).await
    }
}

async fn share_groups(admin: &Admin, states: &[String]) -> anyhow::Result<Vec<GroupListing>> {
    Ok(admin.list_groups(states, &["share".to_owned()]).await?)
}

/// The groups that the flags name, each once.
async fn chosen_groups(args: &ShareGroupsArgs, admin: &Admin) -> anyhow::Result<Vec<String>> {
    if args.all_groups {
        let groups = share_groups(admin, &[]).await?;
        return Ok(groups.into_iter().map(|group| group.group_id).collect());
    }
    let mut seen = BTreeSet::new();
    let groups = args.group.iter().filter(|group| seen.insert(*group));
    Ok(groups.cloned().collect())
}

async fn list(args: &ShareGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let states = choices(args.state.as_deref(), "state", &["Stable", "Dead", "Empty"])?;
    let groups = share_groups(admin, &states).await?;
    if args.state.is_none() {
        for group in groups {
            println!("{}", group.group_id);
        }
        return Ok(());
    }
    let mut table = Table::new(&[("GROUP", 15, true), ("STATE", 0, false)]);
    for group in groups {
        table.row(vec![group.group_id, group.state]);
    }
    table.print();
    Ok(())
}

/// What is wrong is found out before the cluster is asked, and the rest is deleted.
async fn delete(args: &ShareGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let listed = share_groups(admin, &[]).await?;
    let mut failed: Vec<(String, String)> = Vec::new();
    let mut wanted = Vec::new();
    for group in chosen_groups(args, admin).await? {
        let state = listed.iter().find(|listed| listed.group_id == group);
        let reason = match state.map(|group| group.state.as_str()) {
            None => {
                format!("java.lang.IllegalArgumentException: Group '{group}' is not a share group.")
            }
            Some("Dead") => format!(
                "java.lang.IllegalStateException: Share group '{group}' group state is DEAD."
            ),
            Some("Empty") => {
                wanted.push(group);
                continue;
            }
            Some(_) => format!(
                "org.apache.kafka.common.errors.GroupNotEmptyException: Share group '{group}' is not EMPTY."
            ),
        };
        failed.push((group, reason));
    }
    let mut deleted = Vec::new();
    for (group, result) in admin.delete_groups(&wanted).await {
        match result {
            Ok(()) => deleted.push(group),
            Err(error) => failed.push((group, java_exceptions::shown(&error))),
        }
    }
    java_maps::sort_by_hash(&mut deleted, |group| group);
    java_maps::sort_by_hash(&mut failed, |(group, _)| group);
    let quoted: Vec<String> = deleted.iter().map(|group| format!("'{group}'")).collect();
    let quoted = quoted.join(", ");
    if failed.is_empty() {
        println!("Deletion of requested share groups ({quoted}) was successful.");
        return Ok(());
    }
    println!("\nError: Deletion of some share groups failed:");
    for (group, reason) in failed {
        println!("* Group '{group}' could not be deleted due to: {reason}");
    }
    if !deleted.is_empty() {
        println!("\nThese share groups were deleted successfully: {quoted}");
    }
    Ok(())
}

async fn delete_offsets(args: &ShareGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let group = args.group.first().map_or("", String::as_str);
    let deleted = admin.delete_share_group_offsets(group, &args.topic).await;
    let status = |topic: &String| -> String {
        let error = match &deleted {
            Ok(results) => match results.get(topic) {
                Some(Ok(())) => return "Successful".to_owned(),
                Some(Err(error)) => error.broker_message(),
                None => format!(
                    "Offset deletion result for topic \"{topic}\" was not included in the response"
                ),
            },
            Err(error) => error.broker_message(),
        };
        format!("Error: {error}")
    };
    let topics: BTreeMap<&String, String> = args
        .topic
        .iter()
        .map(|topic| (topic, status(topic)))
        .collect();
    match &deleted {
        Err(error) => match error.code() {
            Some(
                ErrorCode::InvalidGroupId
                | ErrorCode::GroupIdNotFound
                | ErrorCode::GroupAuthorizationFailed
                | ErrorCode::NonEmptyGroup,
            ) => println!("\nError: {}", error.broker_message()),
            _ => println!(
                "\nError: Encounter some unknown error: {}",
                java_exceptions::shown(error)
            ),
        },
        // One of those that are not answered is what Java meets first.
        Ok(results) if topics.keys().any(|topic| !results.contains_key(*topic)) => {
            let missing = topics.keys().find(|topic| !results.contains_key(**topic));
            let missing = missing.map_or("", |topic| topic.as_str());
            println!(
                "\nError: Encounter some unknown error: java.lang.IllegalArgumentException: Offset deletion result for \
                 topic \"{missing}\" was not included in the response"
            );
        }
        Ok(_) => {}
    }
    let longest = topics.keys().map(|topic| topic.len());
    let longest = longest.max().unwrap_or(0).max(15);
    print!("\n{:<longest$} STATUS", "TOPIC");
    for (topic, status) in topics {
        print!("\n{topic:<longest$} {status}");
    }
    println!();
    Ok(())
}
