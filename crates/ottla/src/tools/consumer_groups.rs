//! `consumer-groups`: Kafka's `kafka-consumer-groups.sh`.

mod arguments;
pub(super) mod describe;
mod listing;
pub(super) mod reset;
pub(super) mod table;

pub use arguments::ConsumerGroupsArgs;
use listing::{chosen_groups, consumer_groups};
use table::Table;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use ottla_client::admin::GroupListing;
use ottla_client::{Admin, ClientError};

use super::{UsageError, admin_client, block_on, java_exceptions, offset_deletion};

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
        ended(act(&args).await, "consumer", ExitCode::SUCCESS)
    })
}

/// Prints an error as Kafka's group tools do. The exit status is `failed`, unless the flags were
/// invalid.
pub(super) fn ended(acted: anyhow::Result<()>, kind: &str, failed: ExitCode) -> ExitCode {
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
            failed
        }
    }
}

fn check(args: &ConsumerGroupsArgs) -> anyhow::Result<()> {
    if let Err(wrong) = args.common.check(true) {
        bail!(wrong);
    }
    if args.kind.is_some() && !args.common.list {
        bail!("--type goes with --list");
    }
    if args.common.delete_offsets && args.topic.is_empty() {
        bail!("--delete-offsets needs --topic");
    }
    if args.common.reset_offsets && !args.common.dry_run && !args.common.execute {
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
        Some(Duration::from_millis(args.common.timeout)),
    );
    let admin = connected.await?;
    if args.common.list {
        list(args, &admin).await
    } else if args.common.describe {
        describe::describe(args, &admin).await
    } else if args.common.delete {
        delete(args, &admin).await
    } else if args.common.reset_offsets {
        reset::reset(args, &admin).await
    } else {
        delete_offsets(args, &admin).await
    }
}

async fn list(args: &ConsumerGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let states = choices(
        args.common.state.as_deref(),
        ("state", "state"),
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
    let types = choices(
        args.kind.as_deref(),
        ("types", "types"),
        &["Classic", "Consumer"],
    )?;
    let groups = consumer_groups(admin, &states, &types).await?;
    if args.common.state.is_none() && args.kind.is_none() {
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
        if args.common.state.is_some() {
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

/// Prints groups of one type with their states.
pub(super) fn print_states(groups: &[GroupListing]) {
    let mut table = Table::<GroupListing>::new();
    table.growing("GROUP", 15, |group| group.group_id.clone());
    table.fixed("STATE", 0, |group| group.state.clone());
    table.print(groups);
}

/// Parses a comma-separated, case-insensitive list of valid values.
pub(super) fn choices(
    text: Option<&str>,
    (what, plural): (&str, &str),
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
                    "Invalid {what} list '{text}'. Valid {plural} are: {}",
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
    let (mut deleted, mut failed) = (Vec::new(), Vec::new());
    for (group, result) in admin.delete_groups(&groups).await {
        match result {
            Ok(()) => deleted.push(group),
            Err(error) => failed.push((group, java_exceptions::shown(&error))),
        }
    }
    report_deletion("consumer", &deleted, &failed);
    Ok(())
}

/// Prints which groups were deleted, and why the other groups were not.
pub(super) fn report_deletion(kind: &str, deleted: &[String], failed: &[(String, String)]) {
    let quoted: Vec<String> = deleted.iter().map(|group| format!("'{group}'")).collect();
    let quoted = quoted.join(", ");
    if failed.is_empty() {
        println!("Deletion of requested {kind} groups ({quoted}) was successful.");
        return;
    }
    println!("\nError: Deletion of some {kind} groups failed:");
    for (group, reason) in failed {
        println!("* Group '{group}' could not be deleted due to: {reason}");
    }
    if !deleted.is_empty() {
        println!("\nThese {kind} groups were deleted successfully: {quoted}");
    }
}

async fn delete_offsets(args: &ConsumerGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let [group] = args.common.group.as_slice() else {
        bail!(UsageError(
            "--delete-offsets needs exactly one --group".into()
        ))
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
    fn errors_have_the_names_of_java() {
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
    fn conflicting_options_are_refused() {
        let valid = ["Stable", "PreparingRebalance"];
        let choices = |text| choices(text, ("state", "states"), &valid);
        let chosen = choices(Some("stable, preparing_rebalance")).unwrap();
        assert_eq!(chosen, valid);
        assert!(choices(Some("gone")).is_err());
        assert!(choices(Some("")).unwrap().is_empty());
        assert!(choices(None).unwrap().is_empty());
    }
}
