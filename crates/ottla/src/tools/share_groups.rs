//! `share-groups`: Kafka's `kafka-share-groups.sh`.

mod arguments;
mod describe;
mod listing;
mod reset;

pub use arguments::ShareGroupsArgs;
use listing::{chosen_groups, share_groups};

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use ottla_client::Admin;
use ottla_types::ErrorCode;

use super::consumer_groups::{choices, ended, print_states, report_deletion};
use super::{block_on, java_exceptions, java_maps};

pub fn run(args: ShareGroupsArgs) -> ExitCode {
    block_on(async {
        if let Err(usage) = check(&args) {
            eprintln!("{usage}");
            return ExitCode::FAILURE;
        }
        ended(act(&args).await, "share", ExitCode::SUCCESS)
    })
}

fn check(args: &ShareGroupsArgs) -> anyhow::Result<()> {
    if let Err(wrong) = args.common.check(false) {
        bail!(wrong);
    }
    if args.common.delete_offsets && args.topic.is_empty() {
        bail!("--delete-offsets needs --topic");
    }
    if args.common.reset_offsets {
        if args.to_datetime.is_none() && !args.to_earliest && !args.to_latest {
            bail!("--reset-offsets needs --to-datetime, --to-earliest or --to-latest");
        }
        if !args.common.dry_run && !args.common.execute {
            bail!("--reset-offsets needs --dry-run, to show the changes, or --execute");
        }
        if args.common.group.is_empty() {
            bail!("--reset-offsets needs --group");
        }
        if args.topic.is_empty() && !args.all_topics {
            bail!("--reset-offsets needs --topic or --all-topics");
        }
    }
    if (args.common.reset_offsets || args.common.delete_offsets) && args.common.group.len() > 1 {
        bail!("offsets can be changed for one --group at a time");
    }
    Ok(())
}

async fn act(args: &ShareGroupsArgs) -> anyhow::Result<()> {
    let limit = Some(Duration::from_millis(args.common.timeout));
    let admin = args.brokers.connect("ottla-share-groups", limit).await?;
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

async fn list(args: &ShareGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let states = choices(
        args.common.state.as_deref(),
        ("state", "state"),
        &["Stable", "Dead", "Empty"],
    )?;
    let groups = share_groups(admin, &states).await?;
    if args.common.state.is_none() {
        for group in groups {
            println!("{}", group.group_id);
        }
        return Ok(());
    }
    print_states(&groups);
    Ok(())
}

/// Invalid groups are reported before the request; the other groups are deleted.
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
    report_deletion("share", &deleted, &failed);
    Ok(())
}

async fn delete_offsets(args: &ShareGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let group = args.common.group.first().map_or("", String::as_str);
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
        // A topic without a result is the first error that Java encounters.
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
