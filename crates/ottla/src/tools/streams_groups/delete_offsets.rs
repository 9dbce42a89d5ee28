//! `--delete-offsets`: what a group has committed for its input topics is forgotten.

use std::collections::BTreeMap;

use ottla_client::{Admin, ClientError};
use ottla_types::ErrorCode;

use super::offsets::committed_inputs;
use super::{MISSING, StreamsGroupsArgs, print_error};
use crate::tools::java_exceptions;
use crate::tools::offset_reset::{Partition, parse_partitions};

pub(super) async fn delete_offsets(args: &StreamsGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let group = &args.group[0];
    // A topic that cannot be described has the partition -1.
    let mut failed: BTreeMap<Partition, ClientError> = BTreeMap::new();
    let partitions = match args.all_input_topics {
        true => committed_inputs(admin, group).await?.into_keys().collect(),
        false => chosen_partitions(&args.input_topic, admin, &mut failed).await?,
    };
    let deleted = admin.delete_offsets(group, &partitions).await;
    let first_error = match &deleted {
        Ok(results) => results.values().find_map(|result| result.as_ref().err()),
        Err(error) => Some(error),
    };
    match first_error.map(ClientError::code) {
        None => println!("Request succeeded for deleting offsets from group {group}."),
        Some(code) => print_error(&outcome_of(code.unwrap_or(ErrorCode::UnknownServerError))),
    }
    let mut statuses: BTreeMap<Partition, Option<ClientError>> = failed
        .into_iter()
        .map(|(partition, error)| (partition, Some(error)))
        .collect();
    for partition in partitions {
        let error = match &deleted {
            Ok(results) => match results.get(&partition) {
                Some(Err(error)) => Some(error.clone()),
                Some(Ok(())) | None => None,
            },
            Err(error) => Some(error.clone()),
        };
        statuses.insert(partition, error);
    }
    print_statuses(&statuses);
    Ok(())
}

async fn chosen_partitions(
    topics: &[String],
    admin: &Admin,
    failed: &mut BTreeMap<Partition, ClientError>,
) -> anyhow::Result<Vec<Partition>> {
    let mut partitions = Vec::new();
    for topic in topics {
        if topic.contains(':') {
            partitions.extend(parse_partitions(topic)?);
            continue;
        }
        match admin.describe_topics(std::slice::from_ref(topic)).await {
            Ok(described) => {
                for topic in described {
                    let numbers = topic.partitions.iter();
                    partitions.extend(numbers.map(|it| (topic.name.clone(), it.partition)));
                }
            }
            Err(error) => {
                let error = match error.code() {
                    // This client's word for a topic that does not exist.
                    Some(ErrorCode::InvalidTopicException) => {
                        let code = ErrorCode::UnknownTopicOrPartition.code();
                        ClientError::broker(topic, code, None::<&str>)
                    }
                    _ => error,
                };
                failed.insert((topic.clone(), -1), error);
            }
        }
    }
    partitions.sort();
    partitions.dedup();
    Ok(partitions)
}

/// What is said of the error of the whole request, or of the first partition that has one.
fn outcome_of(error: ErrorCode) -> String {
    match error {
        ErrorCode::InvalidGroupId
        | ErrorCode::GroupIdNotFound
        | ErrorCode::GroupAuthorizationFailed
        | ErrorCode::NonEmptyGroup => error.message().to_owned(),
        ErrorCode::GroupSubscribedToTopic
        | ErrorCode::TopicAuthorizationFailed
        | ErrorCode::UnknownTopicOrPartition => {
            "Encountered some partition-level error, see the follow-up details.".to_owned()
        }
        error => format!("Encountered some unknown error: {}", error.name()),
    }
}

fn print_statuses(statuses: &BTreeMap<Partition, Option<ClientError>>) {
    let width = statuses.keys().map(|(topic, _)| topic.len());
    let width = width.max().unwrap_or(0).max(15);
    let mut rows: Vec<_> = statuses.iter().collect();
    // As one text, as Kafka's tool sorts them: 10 comes before 2.
    rows.sort_by_key(|((topic, partition), _)| format!("{topic}{partition}"));
    print!("\n{:<width$} {:<10} {:<15}", "TOPIC", "PARTITION", "STATUS");
    for ((topic, partition), error) in rows {
        let partition = match *partition {
            0.. => partition.to_string(),
            _ => MISSING.to_owned(),
        };
        let status = match error {
            None => "Successful".to_owned(),
            Some(error) => format!("Error: {}", java_exceptions::shown(error)),
        };
        print!("\n{topic:<width$} {partition:<10} {status:<15}");
    }
    println!();
}
