//! Lists groups, selects the groups that the command line names, and formats errors.

use ottla_client::admin::GroupListing;
use ottla_client::{Admin, ClientError};

use super::arguments::StreamsGroupsArgs;
use crate::tools::java_exceptions;

pub(super) const STREAMS: &str = "streams";

pub(super) fn print_error(message: &str) {
    println!("\nError: {message}");
}

/// An error as Java prints it when it occurs in an asynchronous result.
pub(super) fn wrapped(error: ClientError) -> anyhow::Error {
    let shown = java_exceptions::shown(&error);
    anyhow::anyhow!("java.util.concurrent.ExecutionException: {shown}")
}

pub(super) async fn streams_groups(
    admin: &Admin,
    states: &[String],
) -> Result<Vec<GroupListing>, ClientError> {
    let mut groups = admin.list_groups(states, &[STREAMS.to_owned()]).await?;
    // A broker that does not support group types ignores the filter.
    groups.retain(|group| group.group_type.eq_ignore_ascii_case(STREAMS));
    Ok(groups)
}

/// The groups that the flags select.
pub(super) async fn chosen_groups(
    args: &StreamsGroupsArgs,
    admin: &Admin,
) -> anyhow::Result<Vec<String>> {
    if !args.common.all_groups {
        let mut groups = Vec::new();
        for group in &args.common.group {
            if !groups.contains(group) {
                groups.push(group.clone());
            }
        }
        return Ok(groups);
    }
    let groups = streams_groups(admin, &[]).await.map_err(wrapped)?;
    Ok(groups.into_iter().map(|group| group.group_id).collect())
}
