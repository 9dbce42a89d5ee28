//! Lists groups, and selects the groups that the command line names.

use std::collections::BTreeSet;

use ottla_client::Admin;
use ottla_client::admin::GroupListing;

use super::arguments::ShareGroupsArgs;

pub(super) async fn share_groups(
    admin: &Admin,
    states: &[String],
) -> anyhow::Result<Vec<GroupListing>> {
    Ok(admin.list_groups(states, &["share".to_owned()]).await?)
}

/// The groups that the flags select, each once.
pub(super) async fn chosen_groups(
    args: &ShareGroupsArgs,
    admin: &Admin,
) -> anyhow::Result<Vec<String>> {
    if args.common.all_groups {
        let groups = share_groups(admin, &[]).await?;
        return Ok(groups.into_iter().map(|group| group.group_id).collect());
    }
    let mut seen = BTreeSet::new();
    let groups = args.common.group.iter().filter(|group| seen.insert(*group));
    Ok(groups.cloned().collect())
}
