//! `streams-groups`: Kafka's `kafka-streams-groups.sh`.

mod delete;
mod delete_offsets;
mod describe;
mod internal_topics;
mod offsets;
mod reset;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{ArgGroup, Args};
use ottla_client::admin::GroupListing;
use ottla_client::{Admin, ClientError};

use super::offset_reset::{ResetScenario, UsageError};
use super::{admin_client, block_on, java_exceptions};

/// List and describe streams groups, delete them with their internal topics, and reset their offsets.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("action").required(true))]
#[command(group = ArgGroup::new("aspect"))]
pub struct StreamsGroupsArgs {
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
    #[arg(long, group = "action", conflicts_with_all = ["group", "input_topic"])]
    list: bool,
    /// Show groups: how far they lag behind, their --members or their --state.
    #[arg(long, group = "action", conflicts_with = "input_topic")]
    describe: bool,
    /// Delete groups without members.
    #[arg(long, group = "action", conflicts_with_all = ["input_topic", "all_input_topics"])]
    delete: bool,
    /// Move the offsets of groups without members: --dry-run shows what would be done, --execute does it.
    #[arg(long, group = "action")]
    reset_offsets: bool,
    /// Forget the offsets of a group for its input topics.
    #[arg(long, group = "action", requires = "group")]
    delete_offsets: bool,
    /// A group; repeatable.
    #[arg(long, conflicts_with = "all_groups")]
    group: Vec<String>,
    /// All streams groups.
    #[arg(long)]
    all_groups: bool,
    /// An input topic, or some of its partitions as topic:0,1,2; repeatable.
    #[arg(long, value_name = "TOPIC")]
    input_topic: Vec<String>,
    /// All input topics of the group's topology.
    #[arg(long)]
    all_input_topics: bool,
    /// With --describe: show offsets, which is what is shown anyway.
    #[arg(long, requires = "describe", group = "aspect")]
    offsets: bool,
    /// With --describe: show the members.
    #[arg(long, requires = "describe", group = "aspect")]
    members: bool,
    /// With --describe: show the state. With --list: show states, of those given only.
    #[arg(long, value_name = "STATES", num_args = 0..=1, default_missing_value = "", group = "aspect")]
    state: Option<String>,
    /// With --describe: show more.
    #[arg(long, requires = "describe")]
    verbose: bool,
    /// Show what would change.
    #[arg(long, conflicts_with = "execute", requires = "reset_offsets")]
    dry_run: bool,
    /// Do what would change.
    #[arg(long, requires = "reset_offsets")]
    execute: bool,
    /// Print the new offsets as CSV.
    #[arg(long)]
    export: bool,
    /// With --reset-offsets --execute: delete this internal topic of the group; repeatable.
    #[arg(long, value_name = "TOPIC")]
    delete_internal_topic: Vec<String>,
    /// With --delete, or with --reset-offsets --execute: delete all internal topics of the group.
    #[arg(long)]
    delete_all_internal_topics: bool,
    #[command(flatten)]
    scenario: ResetScenario,
}

/// What a column holds where there is nothing to say.
const MISSING: &str = "-";
const STREAMS: &str = "streams";
const STATES: [&str; 6] = [
    "Empty",
    "NotReady",
    "Stable",
    "Assigning",
    "Reconciling",
    "Dead",
];

pub fn run(args: StreamsGroupsArgs) -> ExitCode {
    block_on(async {
        let acted = match check(&args) {
            Ok(()) => act(&args).await,
            Err(usage) => Err(usage),
        };
        match acted {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if error.is::<UsageError>() => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
            Err(error) => {
                let message = match error.downcast_ref::<ClientError>() {
                    Some(error) => java_exceptions::shown(error),
                    None => format!("{error:#}"),
                };
                print_error(&format!(
                    "Executing streams group command failed due to {message}"
                ));
                ExitCode::FAILURE
            }
        }
    })
}

fn print_error(message: &str) {
    println!("\nError: {message}");
}

/// An error as Java shows one that it met while it waited for something else.
fn wrapped(error: ClientError) -> anyhow::Error {
    let shown = java_exceptions::shown(&error);
    anyhow::anyhow!("java.util.concurrent.ExecutionException: {shown}")
}

fn check(args: &StreamsGroupsArgs) -> anyhow::Result<()> {
    let usage = |message: &str| Err(UsageError(message.to_owned()).into());
    let needs_groups = args.describe || args.delete || args.reset_offsets;
    if needs_groups && args.group.is_empty() && !args.all_groups {
        return usage("give --group or --all-groups to say which groups are meant");
    }
    if args.describe && args.state.as_deref().is_some_and(|state| !state.is_empty()) {
        return usage("--state takes no value with --describe; states are selected with --list");
    }
    if args.state.is_some() && !args.list && !args.describe {
        return usage("--state goes with --list or --describe");
    }
    if args.reset_offsets && !args.dry_run && !args.execute {
        return usage("--reset-offsets needs --execute or --dry-run");
    }
    if args.delete_offsets {
        if args.input_topic.is_empty() && !args.all_input_topics {
            return usage("--delete-offsets needs --input-topic or --all-input-topics");
        }
        if args.group.len() > 1 {
            return usage("--delete-offsets takes one --group");
        }
    }
    let resets = args.reset_offsets && args.execute;
    if args.delete_all_internal_topics && !args.delete && !resets {
        return usage(
            "--delete-all-internal-topics goes with --delete, or with --reset-offsets --execute",
        );
    }
    let deletes_some = !args.delete_internal_topic.is_empty() && !args.delete_all_internal_topics;
    if deletes_some && !resets {
        return usage("--delete-internal-topic goes with --reset-offsets --execute");
    }
    Ok(())
}

async fn act(args: &StreamsGroupsArgs) -> anyhow::Result<()> {
    let connected = admin_client::connect_within(
        &args.bootstrap_server,
        args.command_config.as_deref(),
        "ottla-streams-groups",
        Some(Duration::from_millis(args.timeout)),
    );
    let admin = connected.await?;
    if args.list {
        list(args, &admin).await
    } else if args.describe {
        describe::describe(args, &admin).await
    } else if args.delete {
        delete::delete(args, &admin).await
    } else if args.reset_offsets {
        reset::reset(args, &admin).await
    } else {
        delete_offsets::delete_offsets(args, &admin).await
    }
}

async fn streams_groups(
    admin: &Admin,
    states: &[String],
) -> Result<Vec<GroupListing>, ClientError> {
    let mut groups = admin.list_groups(states, &[STREAMS.to_owned()]).await?;
    // A broker that knows no types does not sort them out.
    groups.retain(|group| group.group_type.eq_ignore_ascii_case(STREAMS));
    Ok(groups)
}

/// The groups that the flags name.
async fn chosen_groups(args: &StreamsGroupsArgs, admin: &Admin) -> anyhow::Result<Vec<String>> {
    if !args.all_groups {
        let mut groups = Vec::new();
        for group in &args.group {
            if !groups.contains(group) {
                groups.push(group.clone());
            }
        }
        return Ok(groups);
    }
    let groups = streams_groups(admin, &[]).await.map_err(wrapped)?;
    Ok(groups.into_iter().map(|group| group.group_id).collect())
}

async fn list(args: &StreamsGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let Some(states) = &args.state else {
        for group in streams_groups(admin, &[]).await.map_err(wrapped)? {
            println!("{}", group.group_id);
        }
        return Ok(());
    };
    let groups = streams_groups(admin, &chosen_states(states)?).await?;
    let width = groups.iter().map(|group| group.group_id.len());
    let width = width.max().unwrap_or(0).max(15);
    println!("{:<width$} STATE", "GROUP");
    for group in groups {
        println!("{:<width$} {}", group.group_id, group.state);
    }
    Ok(())
}

/// States separated by commas, whatever their capitals.
fn chosen_states(text: &str) -> anyhow::Result<Vec<String>> {
    let simplified = |text: &str| text.trim().replace(['_', '-'], "").to_ascii_lowercase();
    let mut states = Vec::new();
    for choice in text.split(',').filter(|_| !text.is_empty()) {
        let mut valid = STATES.iter();
        match valid.find(|state| simplified(state) == simplified(choice)) {
            Some(state) => states.push((*state).to_owned()),
            None => bail!(UsageError(format!(
                "Invalid state list '{text}'. Valid states are: {}",
                STATES.join(", ")
            ))),
        }
    }
    Ok(states)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_checked() {
        assert_eq!(chosen_states("").unwrap(), [""; 0]);
        assert_eq!(
            chosen_states("not_ready, stable").unwrap(),
            ["NotReady", "Stable"]
        );
        assert!(chosen_states("Dead,PreparingRebalance").is_err());
    }
}
