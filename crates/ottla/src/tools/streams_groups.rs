//! `streams-groups`: Kafka's `kafka-streams-groups.sh`.

mod arguments;
mod delete;
mod delete_offsets;
mod describe;
mod internal_topics;
mod listing;
mod offsets;
mod reset;

pub use arguments::StreamsGroupsArgs;
use listing::{STREAMS, chosen_groups, print_error, streams_groups, wrapped};

use std::process::ExitCode;
use std::time::Duration;

use ottla_client::Admin;

use super::consumer_groups::{choices, ended};
use super::{UsageError, block_on};

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
        ended(acted, "streams", ExitCode::FAILURE)
    })
}

fn check(args: &StreamsGroupsArgs) -> anyhow::Result<()> {
    let usage = |message: &str| Err(UsageError(message.to_owned()).into());
    let needs_groups = args.describe || args.delete || args.reset_offsets;
    if needs_groups && args.group.is_empty() && !args.all_groups {
        return usage("give --group or --all-groups to select the groups");
    }
    if args.describe && args.state.as_deref().is_some_and(|state| !state.is_empty()) {
        return usage("--state takes no value with --describe; select states with --list");
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
            return usage("--delete-offsets needs exactly one --group");
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
    let limit = Some(Duration::from_millis(args.timeout));
    let admin = args.brokers.connect("ottla-streams-groups", limit).await?;
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

async fn list(args: &StreamsGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let Some(states) = &args.state else {
        for group in streams_groups(admin, &[]).await.map_err(wrapped)? {
            println!("{}", group.group_id);
        }
        return Ok(());
    };
    let groups =
        streams_groups(admin, &choices(Some(states), ("state", "states"), &STATES)?).await?;
    let width = groups.iter().map(|group| group.group_id.len());
    let width = width.max().unwrap_or(0).max(15);
    println!("{:<width$} STATE", "GROUP");
    for group in groups {
        println!("{:<width$} {}", group.group_id, group.state);
    }
    Ok(())
}
