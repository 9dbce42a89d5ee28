//! `--reset-offsets`: the new start offsets of a share group without members.

use std::collections::BTreeMap;

use anyhow::bail;
use ottla_client::Admin;
use ottla_client::admin::OffsetSpec;
use ottla_types::ErrorCode;

use super::ShareGroupsArgs;
use crate::tools::UsageError;
use crate::tools::consumer_groups::reset::print_table;
use crate::tools::offset_reset::{
    Partition, by_time, check_exist, named_partitions, offsets, parse_datetime,
};

pub(super) async fn reset(args: &ShareGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let group = args.common.group.first().map_or("", String::as_str);
    match admin.describe_share_group(group).await {
        Ok((group, _)) if matches!(&*group.group_state, "Empty" | "Dead") => {}
        Ok(_) => bail!(UsageError(format!("Share group '{group}' is not empty."))),
        Err(error) if error.code() == Some(ErrorCode::GroupIdNotFound) => {}
        Err(error) => bail!(UsageError(error.broker_message())),
    }
    let partitions: Vec<Partition> = if args.topic.is_empty() {
        admin
            .share_group_offsets(group)
            .await?
            .into_keys()
            .collect()
    } else {
        named_partitions(admin, &args.topic).await?
    };
    let offsets = new_offsets(args, admin, &partitions).await?;
    if args.common.execute {
        alter(admin, group, &offsets).await?;
    }
    print_table(&BTreeMap::from([(group.to_owned(), offsets)]));
    Ok(())
}

async fn new_offsets(
    args: &ShareGroupsArgs,
    admin: &Admin,
    partitions: &[Partition],
) -> anyhow::Result<BTreeMap<Partition, i64>> {
    check_exist(admin, partitions).await?;
    if args.to_earliest {
        return offsets(admin, partitions, OffsetSpec::Earliest).await;
    }
    match &args.to_datetime {
        Some(text) => by_time(admin, partitions, parse_datetime(text)?).await,
        None => offsets(admin, partitions, OffsetSpec::Latest).await,
    }
}

async fn alter(
    admin: &Admin,
    group: &str,
    offsets: &BTreeMap<Partition, i64>,
) -> anyhow::Result<()> {
    let results = match admin.alter_share_group_offsets(group, offsets).await {
        Ok(results) => results,
        // An error of the group applies to each partition.
        Err(error) => {
            let partitions = offsets.keys();
            partitions
                .map(|partition| (partition.clone(), Err(error.clone())))
                .collect()
        }
    };
    let failed: Vec<String> = results
        .iter()
        .filter(|(_, result)| result.is_err())
        .map(|((topic, partition), _)| format!("{topic}-{partition}"))
        .collect();
    let error = results.into_values().find_map(Result::err);
    match error {
        None => Ok(()),
        Some(_) => bail!(
            "Failed altering group offsets for the following partitions: [{}]",
            failed.join(", ")
        ),
    }
}
