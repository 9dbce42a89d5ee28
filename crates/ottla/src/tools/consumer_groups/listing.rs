//! Lists groups, and selects the groups that the command line names.

use ottla_client::Admin;
use ottla_client::admin::GroupListing;

use super::arguments::ConsumerGroupsArgs;

/// Groups of consumers only. This tool does not handle other groups, such as groups of Kafka
/// Connect.
pub(super) async fn consumer_groups(
    admin: &Admin,
    states: &[String],
    types: &[String],
) -> anyhow::Result<Vec<GroupListing>> {
    let mut groups = admin.list_groups(states, types).await?;
    groups.retain(|group| {
        let is_consumer = group.protocol_type.is_empty() || group.protocol_type == "consumer";
        is_consumer
            && !matches!(
                group.group_type.to_ascii_lowercase().as_str(),
                "share" | "streams"
            )
    });
    Ok(groups)
}

/// The groups that the flags select.
pub(super) async fn chosen_groups(
    args: &ConsumerGroupsArgs,
    admin: &Admin,
) -> anyhow::Result<Vec<String>> {
    if args.common.all_groups {
        let groups = consumer_groups(admin, &[], &[]).await?;
        return Ok(groups.into_iter().map(|group| group.group_id).collect());
    }
    let mut groups = args.common.group.clone();
    groups.sort_unstable();
    groups.dedup();
    Ok(groups)
}
