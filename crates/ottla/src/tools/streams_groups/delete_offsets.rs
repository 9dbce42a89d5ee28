//! `--delete-offsets`: deletes a group's committed offsets of its input topics.

use ottla_client::Admin;

use super::StreamsGroupsArgs;
use super::offsets::committed;
use crate::tools::offset_deletion::{Chosen, delete};

pub(super) async fn delete_offsets(args: &StreamsGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let group = &args.common.group[0];
    let chosen = if args.all_input_topics {
        Chosen::partitions(committed(admin, group, false).await?.into_keys())
    } else {
        Chosen::named(&args.input_topic, admin).await?
    };
    delete(admin, group, chosen).await;
    Ok(())
}
