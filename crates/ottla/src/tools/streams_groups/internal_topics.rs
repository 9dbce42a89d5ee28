//! The internal topics of an application, which can be deleted with its group.

use std::collections::BTreeSet;

use ottla_client::admin::DescribedStreamsGroup;
use ottla_client::{Admin, ClientError};

use super::print_error;
use crate::tools::java_exceptions;

/// The internal topics of a group. Topics without the name of an internal topic are reported and
/// omitted.
pub(super) async fn internal_topics(admin: &Admin, group: &str) -> Vec<String> {
    match admin.describe_streams_group(group).await {
        Ok(described) => named_as_such(&described),
        Err(error) => {
            tell_of_failure(admin, group, &error).await;
            Vec::new()
        }
    }
}

fn named_as_such(group: &DescribedStreamsGroup) -> Vec<String> {
    let parts = group.subtopologies.iter();
    let sources: BTreeSet<&String> = parts.clone().flat_map(|it| &it.source_topics).collect();
    let mut topics: Vec<String> = parts
        .flat_map(|it| {
            it.repartition_source_topics
                .iter()
                .chain(&it.state_changelog_topics)
        })
        .filter(|topic| !sources.contains(topic))
        .cloned()
        .collect();
    topics.retain(|topic| {
        let is_internal = is_named_internal(topic, &group.group.group_id);
        if !is_internal {
            let id = &*group.group.group_id;
            print_error(&format!(
                "The internal topic '{topic}' is not inferred as internal and thus will not be \
                 deleted with the group '{id}'."
            ));
        }
        is_internal
    });
    topics
}

async fn tell_of_failure(admin: &Admin, group: &str, error: &ClientError) {
    if !matches!(error, ClientError::Unsupported { .. }) {
        let shown = java_exceptions::shown(error);
        print_error(&format!("Retrieving internal topics failed due to {shown}"));
        return;
    }
    match admin.list_topics(false).await {
        Ok(mut topics) => {
            topics.retain(|topic| is_named_internal(topic, group));
            print_error(&format!(
                "Retrieving internal topics is not supported by the broker version.\n\
                 Internal topics: ({}).\n\
                 Use 'kafka-topics.sh' to delete the group's internal topics.",
                topics.join(",")
            ));
        }
        Err(_) => print_error(
            "Retrieving internal topics is not supported by the broker version. Use \
             'kafka-topics.sh' to list and delete the group's internal topics.",
        ),
    }
}

/// Whether Kafka Streams gives such names to its internal topics.
fn is_named_internal(topic: &str, group: &str) -> bool {
    let rest = topic.strip_prefix(group);
    let Some(rest) = rest.and_then(|rest| rest.strip_prefix('-')) else {
        return false;
    };
    let endings = [
        "-changelog",
        "-repartition",
        "-subscription-registration-topic",
        "-subscription-response-topic",
    ];
    endings.iter().any(|ending| topic.ends_with(ending))
        || is_of_foreign_key_join(rest, "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-")
        || is_of_foreign_key_join(rest, "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-")
}

/// `…KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000012-topic`
fn is_of_foreign_key_join(name: &str, kind: &str) -> bool {
    let number = name
        .strip_suffix("-topic")
        .and_then(|name| Some((name, name.rfind(kind)?)))
        .map(|(name, start)| &name[start + kind.len()..]);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::is_named_internal;

    #[test]
    fn internal_topics_are_recognized_by_name() {
        for topic in [
            "app-counts-changelog",
            "app-by-region-repartition",
            "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
            "app-x-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-1-topic",
            "app-x-subscription-response-topic",
        ] {
            assert!(is_named_internal(topic, "app"), "{topic}");
        }
        for topic in [
            "other-counts-changelog",
            "appcounts-changelog",
            "app-counts",
            "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE--topic",
            "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-x-topic",
        ] {
            assert!(!is_named_internal(topic, "app"), "{topic}");
        }
    }
}
