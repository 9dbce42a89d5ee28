//! `--reset-offsets`: the new offsets of groups without members, and the internal topics to delete.

use std::collections::BTreeMap;

use anyhow::{anyhow, bail};
use ottla_client::{Admin, ClientError};
use ottla_types::ErrorCode;

use super::internal_topics::internal_topics;
use super::offsets::committed;
use super::{StreamsGroupsArgs, chosen_groups, print_error, wrapped};
use crate::tools::UsageError;
use crate::tools::java_exceptions;
use crate::tools::offset_reset::{Partition, check_exist, named_partitions, print_csv};

pub(super) async fn reset(args: &StreamsGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let mut results: BTreeMap<String, BTreeMap<Partition, i64>> = BTreeMap::new();
    for group in chosen_groups(args, admin).await? {
        let state = match admin.describe_streams_group(&group).await {
            Ok(described) => Some(described.group.group_state),
            Err(error) if error.code() == Some(ErrorCode::GroupIdNotFound) => None,
            Err(error) => return Err(wrapped(error)),
        };
        let offsets = match state.as_deref() {
            None => reset_group(args, admin, &group).await?,
            Some("Empty" | "Dead") => {
                let offsets = reset_group(args, admin, &group).await?;
                if args.common.execute {
                    delete_internal_topics(args, admin, &group).await;
                }
                offsets
            }
            Some(state) => {
                print_error(&format!(
                    "Assignments can only be reset if the group '{group}' is inactive, but the \
                     current state is {state}."
                ));
                BTreeMap::new()
            }
        };
        results.insert(group, offsets);
    }
    if args.export {
        print_csv(&results, args.common.group.len() == 1)
    } else {
        print_table(&results)
    }
    Ok(())
}

async fn reset_group(
    args: &StreamsGroupsArgs,
    admin: &Admin,
    group: &str,
) -> anyhow::Result<BTreeMap<Partition, i64>> {
    let partitions = partitions_to_reset(args, admin, group).await?;
    let is_single = args.common.group.len() == 1;
    let committed = async || committed(admin, group, true).await;
    let offsets = args
        .scenario
        .new_offsets(admin, group, is_single, &partitions, committed)
        .await?;
    if args.common.execute {
        // Kafka's tool prints only the message of this error.
        let words = |error: ClientError| anyhow!("{}", error.broker_message());
        let results = admin.alter_offsets(group, &offsets).await.map_err(words)?;
        for (_, result) in results {
            result.map_err(words)?;
        }
    }
    Ok(offsets)
}

async fn partitions_to_reset(
    args: &StreamsGroupsArgs,
    admin: &Admin,
    group: &str,
) -> anyhow::Result<Vec<Partition>> {
    if args.all_input_topics {
        let committed = committed(admin, group, false).await?;
        return Ok(committed.into_keys().collect());
    }
    if args.input_topic.is_empty() {
        if args.scenario.from_file.is_none() {
            bail!(UsageError(
                "One of the reset scopes should be defined: --all-input-topics, --input-topic."
                    .into()
            ));
        }
        return Ok(Vec::new());
    }
    let partitions = named_partitions(admin, &args.input_topic).await?;
    check_exist(admin, &partitions).await?;
    let known = admin.committed_offsets(group).await.map_err(wrapped)?;
    if partitions.iter().all(|it| known.contains_key(it)) {
        return Ok(partitions);
    }
    print_error(&format!(
        "One or more topics are not part of the group '{group}'."
    ));
    Ok(Vec::new())
}

async fn delete_internal_topics(args: &StreamsGroupsArgs, admin: &Admin, group: &str) {
    let topics = if args.delete_all_internal_topics {
        internal_topics(admin, group).await
    } else {
        args.delete_internal_topic.clone()
    };
    let mut first = None;
    for topic in &topics {
        if let Err(error) = admin.delete_topic(topic).await {
            first.get_or_insert(error);
        }
    }
    let Some(error) = first else { return };
    match error.code() {
        Some(ErrorCode::UnknownTopicOrPartition) => print_error(&format!(
            "Deleting internal topics for group '{group}' failed because the topics do not exist."
        )),
        _ => print_error(&format!(
            "Deleting internal topics for group '{group}' failed due to {}",
            java_exceptions::shown(&error)
        )),
    }
}

fn print_table(results: &BTreeMap<String, BTreeMap<Partition, i64>>) {
    let print = |group: &str, topic: &str, partition: &str, offset: &str| {
        print!("\n{group:<30} {topic:<30} {partition:<10} {offset:<15}");
    };
    if !results.is_empty() {
        print("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET");
    }
    for (group, offsets) in results {
        for ((topic, partition), offset) in offsets {
            print(group, topic, &partition.to_string(), &offset.to_string());
        }
    }
    println!();
}
