//! `consumer-groups`: Kafka's `kafka-consumer-groups.sh`.

pub(super) mod describe;
pub(super) mod reset;
pub(super) mod table;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{ArgGroup, Args};
use ottla_client::admin::GroupListing;
use ottla_client::{Admin, ClientError};

use super::offset_reset::{ResetScenario, UsageError};
use super::{admin_client, block_on, java_exceptions, offset_deletion};
use table::Table;

/// List and describe consumer groups, delete them, and reset their offsets.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("action").required(true))]
#[command(group = ArgGroup::new("aspect"))]
pub struct ConsumerGroupsArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(
        long,
        value_name = "SERVERS",
        required_unless_present = "validate_regex"
    )]
    bootstrap_server: Option<String>,
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
    /// Move the offsets of groups without members; nothing happens without --execute.
    #[arg(long, group = "action")]
    reset_offsets: bool,
    /// Forget the offsets of a group for topics.
    #[arg(long, group = "action", requires_all = ["group", "topic"])]
    delete_offsets: bool,
    /// Say whether a regular expression of topics is valid.
    #[arg(long, value_name = "REGEX", group = "action")]
    validate_regex: Option<String>,
    /// A group; repeatable.
    #[arg(long, conflicts_with_all = ["all_groups", "list"])]
    group: Vec<String>,
    /// All groups.
    #[arg(long)]
    all_groups: bool,
    /// A topic, or some of its partitions as topic:0,1,2; repeatable.
    #[arg(long)]
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
    /// With --describe: show the state. With --list: show states, of those given only.
    #[arg(long, value_name = "STATES", num_args = 0..=1, default_missing_value = "", group = "aspect")]
    state: Option<String>,
    /// With --list: show types, of those given only (classic, consumer).
    #[arg(long = "type", value_name = "TYPES", num_args = 0..=1, default_missing_value = "")]
    kind: Option<String>,
    /// With --describe: show more.
    #[arg(long, requires = "describe")]
    verbose: bool,
    /// Show what would change.
    #[arg(long, conflicts_with = "execute")]
    dry_run: bool,
    /// Do what would change.
    #[arg(long)]
    execute: bool,
    /// Print the new offsets as CSV.
    #[arg(long)]
    export: bool,
    #[command(flatten)]
    scenario: ResetScenario,
}

/// What a column holds where there is nothing to say.
pub(super) const MISSING: &str = "-";

pub fn run(args: ConsumerGroupsArgs) -> ExitCode {
    if let Some(pattern) = &args.validate_regex {
        match regex::Regex::new(pattern) {
            Ok(_) => println!("The regular expression `{pattern}` is valid."),
            Err(error) => {
                let reason = error.to_string();
                let reason = reason
                    .lines()
                    .last()
                    .unwrap_or_default()
                    .trim_start_matches("error: ");
                println!("The regular expression `{pattern}` is invalid: {reason}.");
            }
        }
        return ExitCode::SUCCESS;
    }
    block_on(async {
        if let Err(usage) = check(&args) {
            eprintln!("{usage}");
            return ExitCode::FAILURE;
        }
        ended(act(&args).await, "consumer")
    })
}

/// As Kafka's tools of these groups end: a failure is told, and the exit status stays 0 unless the flags were wrong.
pub(super) fn ended(acted: anyhow::Result<()>, kind: &str) -> ExitCode {
    match acted {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.downcast_ref::<UsageError>().is_some() => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            let message = match error.downcast_ref::<ClientError>() {
                Some(error) => java_exceptions::shown(error),
                None => format!("{error:#}"),
            };
            println!("\nError: Executing {kind} group command failed due to {message}");
            ExitCode::SUCCESS
        }
    }
}

fn check(args: &ConsumerGroupsArgs) -> anyhow::Result<()> {
    let needs_groups = args.describe || args.delete || args.reset_offsets;
    if needs_groups && args.group.is_empty() && !args.all_groups {
        bail!("give --group or --all-groups to say which groups are meant");
    }
    if args.describe && args.state.as_deref().is_some_and(|state| !state.is_empty()) {
        bail!("--state takes no value with --describe; states are selected with --list");
    }
    if args.kind.is_some() && !args.list {
        bail!("--type goes with --list");
    }
    if args.state.is_some() && !args.list && !args.describe {
        bail!("--state goes with --list or --describe");
    }
    if args.reset_offsets && !args.dry_run && !args.execute {
        eprintln!(
            "WARN: No action will be performed as the --execute option is missing. In version 5.0, \
             either --dry-run or --execute will have to be given."
        );
    }
    Ok(())
}

async fn act(args: &ConsumerGroupsArgs) -> anyhow::Result<()> {
    let servers = args.bootstrap_server.as_deref().unwrap_or_default();
    let connected = admin_client::connect_within(
        servers,
        args.command_config.as_deref(),
        "ottla-consumer-groups",
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

/// The groups of consumers: others, such as those of Kafka Connect, are not this tool's.
async fn consumer_groups(
    admin: &Admin,
    states: &[String],
    types: &[String],
) -> anyhow::Result<Vec<GroupListing>> {
    let mut groups = admin.list_groups(states, types).await?;
    groups.retain(|group| {
        let is_consumer = group.protocol_type.is_empty() || group.protocol_type == "consumer";
        is_consumer
            && !matches!(
                group.group_type.to_ascii_lowercase().as_str(),
                "share" | "streams"
            )
    });
    Ok(groups)
}

/// The groups that the flags name.
async fn chosen_groups(args: &ConsumerGroupsArgs, admin: &Admin) -> anyhow::Result<Vec<String>> {
    if args.all_groups {
        let groups = consumer_groups(admin, &[], &[]).await?;
        return Ok(groups.into_iter().map(|group| group.group_id).collect());
    }
    let mut groups = args.group.clone();
    groups.sort_unstable();
    groups.dedup();
    Ok(groups)
}

async fn list(args: &ConsumerGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let states = choices(
        args.state.as_deref(),
        "state",
        &[
            "PreparingRebalance",
            "CompletingRebalance",
            "Stable",
            "Dead",
            "Empty",
            "Assigning",
            "Reconciling",
        ],
    )?;
    let types = choices(args.kind.as_deref(), "types", &["Classic", "Consumer"])?;
    let groups = consumer_groups(admin, &states, &types).await?;
    if args.state.is_none() && args.kind.is_none() {
        for group in groups {
            println!("{}", group.group_id);
        }
        return Ok(());
    }
    let longest = groups
        .iter()
        .map(|group| group.group_id.len())
        .max()
        .unwrap_or(0)
        .max(15)
        + 10;
    let print = |id: &str, kind: &str, state: &str| {
        let mut line = format!("{id:<longest$}");
        if args.kind.is_some() {
            line += &format!(" {kind:<20}");
        }
        if args.state.is_some() {
            line += &format!(" {state:<20}");
        }
        println!("{line}");
    };
    print("GROUP", "TYPE", "STATE");
    for group in groups {
        let kind = match group.group_type.to_ascii_lowercase().as_str() {
            "classic" => "Classic",
            "consumer" => "Consumer",
            _ => "Unknown",
        };
        print(&group.group_id, kind, &group.state);
    }
    Ok(())
}

/// Some of the valid values, separated by commas, whatever their capitals.
pub(super) fn choices(
    text: Option<&str>,
    what: &str,
    valid: &[&str],
) -> anyhow::Result<Vec<String>> {
    let simplified = |text: &str| text.trim().replace(['_', '-'], "").to_ascii_lowercase();
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(Vec::new());
    };
    let mut chosen = Vec::new();
    for choice in text.split(',') {
        match valid
            .iter()
            .find(|valid| simplified(valid) == simplified(choice))
        {
            Some(valid) => chosen.push((*valid).to_owned()),
            None => {
                let message = format!(
                    "Invalid {what} list '{text}'. Valid {what} are: {}",
                    valid.join(", ")
                );
                return Err(UsageError(message).into());
            }
        }
    }
    Ok(chosen)
}

async fn delete(args: &ConsumerGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let groups = chosen_groups(args, admin).await?;
    let results = admin.delete_groups(&groups).await;
    let quoted = |groups: &[&String]| {
        let quoted: Vec<String> = groups.iter().map(|group| format!("'{group}'")).collect();
        quoted.join(", ")
    };
    let deleted: Vec<&String> = results
        .iter()
        .filter(|(_, result)| result.is_ok())
        .map(|(group, _)| group)
        .collect();
    if deleted.len() == results.len() {
        println!(
            "Deletion of requested consumer groups ({}) was successful.",
            quoted(&deleted)
        );
        return Ok(());
    }
    println!("\nError: Deletion of some consumer groups failed:");
    for (group, result) in &results {
        if let Err(error) = result {
            println!(
                "* Group '{group}' could not be deleted due to: {}: {}",
                java_exceptions::class_name(error),
                error.broker_message()
            );
        }
    }
    if !deleted.is_empty() {
        println!(
            "\nThese consumer groups were deleted successfully: {}",
            quoted(&deleted)
        );
    }
    Ok(())
}

async fn delete_offsets(args: &ConsumerGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let [group] = args.group.as_slice() else {
        bail!(UsageError("--delete-offsets takes one --group".into()))
    };
    let chosen = offset_deletion::Chosen::named(&args.topic, admin).await?;
    offset_deletion::delete(admin, group, chosen).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_types::ErrorCode;

    #[test]
    fn errors_have_javas_names() {
        let name = |code: ErrorCode| {
            java_exceptions::class_name(&ClientError::broker("it", code.code(), None::<&str>))
        };
        assert_eq!(
            name(ErrorCode::GroupIdNotFound),
            "org.apache.kafka.common.errors.GroupIdNotFoundException"
        );
        assert_eq!(
            name(ErrorCode::NonEmptyGroup),
            "org.apache.kafka.common.errors.GroupNotEmptyException"
        );
    }

    #[test]
    fn choices_are_checked() {
        let valid = ["Stable", "PreparingRebalance"];
        let chosen = choices(Some("stable,preparing_rebalance"), "state", &valid).unwrap();
        assert_eq!(chosen, valid);
        assert!(choices(Some("gone"), "state", &valid).is_err());
        assert!(choices(None, "state", &valid).unwrap().is_empty());
    }
}
