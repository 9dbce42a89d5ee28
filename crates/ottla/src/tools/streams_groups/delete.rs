//! `--delete`: deletes groups without members, optionally with their internal topics.

use std::collections::BTreeMap;

use ottla_client::{Admin, ClientError};
use ottla_types::ErrorCode;

use super::internal_topics::internal_topics;
use super::{StreamsGroupsArgs, chosen_groups, print_error, streams_groups, wrapped};
use crate::tools::java_exceptions;

pub(super) async fn delete(args: &StreamsGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let groups = chosen_groups(args, admin).await?;
    let mut failed = not_deletable(admin, &groups).await?;
    let groups: Vec<String> = groups
        .into_iter()
        .filter(|group| !failed.contains_key(group))
        .collect();
    let mut internal: BTreeMap<String, Vec<String>> = BTreeMap::new();
    if args.delete_all_internal_topics {
        for group in &groups {
            let topics = internal_topics(admin, group).await;
            if !topics.is_empty() {
                internal.insert(group.clone(), topics);
            }
        }
    }
    let mut deleted = Vec::new();
    for (group, result) in admin.delete_groups(&groups).await {
        match result {
            Ok(()) => deleted.push(group),
            Err(error) => {
                failed.insert(group, java_exceptions::shown(&error));
            }
        }
    }
    let mut topics_left = BTreeMap::new();
    for group in &deleted {
        let topics = internal.get(group).map_or(&[][..], Vec::as_slice);
        if let Some(error) = delete_topics(admin, topics).await {
            topics_left.insert(group.clone(), java_exceptions::shown(&error));
        }
    }
    report(&deleted, &failed);
    if !internal.is_empty() && !deleted.is_empty() {
        report_topics(&deleted, &internal, &topics_left);
    }
    Ok(())
}

/// The groups that cannot be deleted in their state, each with the exception that Kafka's tool
/// prints.
async fn not_deletable(
    admin: &Admin,
    groups: &[String],
) -> anyhow::Result<BTreeMap<String, String>> {
    let listed = streams_groups(admin, &[]).await.map_err(wrapped)?;
    let mut failed = BTreeMap::new();
    for group in groups {
        let found = listed.iter().find(|listed| listed.group_id == *group);
        let reason = match found.map(|found| found.state.as_str()) {
            None => format!(
                "java.lang.IllegalArgumentException: Group '{group}' does not exist or is not a \
                 streams group."
            ),
            Some("Dead") => format!(
                "java.lang.IllegalStateException: Streams group '{group}' group state is DEAD."
            ),
            Some("Empty") => continue,
            Some(_) => {
                let message = format!("Streams group '{group}' is not EMPTY.");
                let code = ErrorCode::NonEmptyGroup.code();
                java_exceptions::shown(&ClientError::broker("", code, Some(message)))
            }
        };
        failed.insert(group.clone(), reason);
    }
    Ok(failed)
}

/// Deletes as many topics as possible, and returns the error of the first that failed.
async fn delete_topics(admin: &Admin, topics: &[String]) -> Option<ClientError> {
    let mut first = None;
    for topic in topics {
        if let Err(error) = admin.delete_topic(topic).await {
            println!("Failed to delete internal topic: {topic}");
            first.get_or_insert(error);
        }
    }
    first
}

fn report(deleted: &[String], failed: &BTreeMap<String, String>) {
    let deleted_names = deleted.join("', '");
    if failed.is_empty() {
        println!("Deletion of requested streams groups ('{deleted_names}') was successful.");
        return;
    }
    print_error("Deletion of some streams groups failed:");
    for (group, error) in failed {
        println!("* Group '{group}' could not be deleted due to: {error}");
    }
    if !deleted.is_empty() {
        println!("\nThese streams groups were deleted successfully: '{deleted_names}'.");
    }
}

fn report_topics(
    deleted: &[String],
    internal: &BTreeMap<String, Vec<String>>,
    topics_left: &BTreeMap<String, String>,
) {
    if topics_left.is_empty() {
        let groups = deleted.iter().filter(|group| internal.contains_key(*group));
        let groups: Vec<&str> = groups.map(String::as_str).collect();
        println!(
            "Deletion of associated internal topics of the streams groups ('{}') was successful.",
            groups.join("', '")
        );
        return;
    }
    println!("Deletion of some associated internal topics failed:");
    for (group, error) in topics_left {
        println!(
            "* Internal topics of the streams group '{group}' could not be deleted due to: {error}"
        );
    }
}
