//! `--reset-offsets` of groups without members.

use std::collections::BTreeMap;

use anyhow::bail;
use ottla_client::Admin;
use ottla_types::ErrorCode;

use super::{ConsumerGroupsArgs, chosen_groups};
use crate::tools::UsageError;
use crate::tools::offset_reset::{Partition, named_partitions, print_csv};

pub(super) async fn reset(args: &ConsumerGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let mut results: BTreeMap<String, BTreeMap<Partition, i64>> = BTreeMap::new();
    for group in chosen_groups(args, admin).await? {
        let state = match admin.describe_consumer_group(&group).await {
            Ok(described) => described.state,
            Err(error) if error.code() == Some(ErrorCode::GroupIdNotFound) => "Dead".to_owned(),
            Err(error) => return Err(error.into()),
        };
        if state != "Empty" && state != "Dead" {
            println!(
                "\nError: Assignments can only be reset if the group '{group}' is inactive, but the \
                 current state is {state}."
            );
            results.insert(group, BTreeMap::new());
            continue;
        }
        let partitions = partitions_to_reset(args, admin, &group).await?;
        let committed = async || Ok(admin.committed_offsets(&group).await?);
        let is_single = args.common.group.len() == 1;
        let scenario = &args.scenario;
        let offsets = scenario
            .new_offsets(admin, &group, is_single, &partitions, committed)
            .await?;
        if args.common.execute && !args.common.dry_run {
            for (_, result) in admin.alter_offsets(&group, &offsets).await? {
                result?;
            }
        }
        results.insert(group, offsets);
    }
    if args.export {
        print_csv(&results, args.common.group.len() == 1)
    } else {
        print_table(&results)
    }
    Ok(())
}

async fn partitions_to_reset(
    args: &ConsumerGroupsArgs,
    admin: &Admin,
    group: &str,
) -> anyhow::Result<Vec<Partition>> {
    if args.all_topics {
        return Ok(admin.committed_offsets(group).await?.into_keys().collect());
    }
    if args.topic.is_empty() {
        if args.scenario.from_file.is_none() {
            bail!(UsageError(
                "One of the reset scopes should be defined: --all-topics, --topic.".into()
            ));
        }
        return Ok(Vec::new());
    }
    named_partitions(admin, &args.topic).await
}

pub(in crate::tools) fn print_table(results: &BTreeMap<String, BTreeMap<Partition, i64>>) {
    let group_width = results.keys().map(String::len).max().unwrap_or(0).max(15);
    let topics = results
        .values()
        .flat_map(|offsets| offsets.keys().map(|(topic, _)| topic.len()));
    let topic_width = topics.max().unwrap_or(0).max(15);
    if !results.is_empty() {
        print!(
            "\n{:<group_width$} {:<topic_width$} {:<10} NEW-OFFSET",
            "GROUP", "TOPIC", "PARTITION"
        );
    }
    for (group, offsets) in results {
        for ((topic, partition), offset) in offsets {
            print!("\n{group:<group_width$} {topic:<topic_width$} {partition:<10} {offset}");
        }
    }
    println!();
}
