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

use super::consumer_groups::{choices, ended, print_states};
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
    if let Err(wrong) = args.common.check(true) {
        return usage(wrong);
    }
    if (args.common.dry_run || args.common.execute) && !args.common.reset_offsets {
        return usage("--dry-run and --execute go with --reset-offsets");
    }
    if args.common.reset_offsets && !args.common.dry_run && !args.common.execute {
        return usage("--reset-offsets needs --execute or --dry-run");
    }
    if args.common.delete_offsets {
        if args.input_topic.is_empty() && !args.all_input_topics {
            return usage("--delete-offsets needs --input-topic or --all-input-topics");
        }
        if args.common.group.len() > 1 {
            return usage("--delete-offsets needs exactly one --group");
        }
    }
    let resets = args.common.reset_offsets && args.common.execute;
    if args.delete_all_internal_topics && !args.common.delete && !resets {
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
    let limit = Some(Duration::from_millis(args.common.timeout));
    let admin = args.brokers.connect("ottla-streams-groups", limit).await?;
    if args.common.list {
        list(args, &admin).await
    } else if args.common.describe {
        describe::describe(args, &admin).await
    } else if args.common.delete {
        delete::delete(args, &admin).await
    } else if args.common.reset_offsets {
        reset::reset(args, &admin).await
    } else {
        delete_offsets::delete_offsets(args, &admin).await
    }
}

async fn list(args: &StreamsGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let Some(states) = &args.common.state else {
        for group in streams_groups(admin, &[]).await.map_err(wrapped)? {
            println!("{}", group.group_id);
        }
        return Ok(());
    };
    let groups =
        streams_groups(admin, &choices(Some(states), ("state", "states"), &STATES)?).await?;
    print_states(&groups);
    Ok(())
}
