//! `--delete-offsets` of the group tools: deletes committed offsets and prints the results with
//! Kafka's messages (`ConsumerGroupCommand.deleteOffsets`, `StreamsGroupCommand.deleteOffsets`).

use std::collections::BTreeMap;

use ottla_client::{Admin, ClientError};
use ottla_types::ErrorCode;

use super::consumer_groups::table::{Table, shown};
use super::java_exceptions;
use super::offset_reset::{Partition, parse_partitions};

/// The partitions whose offsets are deleted.
#[derive(Default)]
pub(super) struct Chosen {
    partitions: Vec<Partition>,
    /// Topics that could not be looked up, as partition -1.
    failed: BTreeMap<Partition, ClientError>,
}

impl Chosen {
    pub(super) fn partitions(partitions: impl IntoIterator<Item = Partition>) -> Chosen {
        Chosen {
            partitions: partitions.into_iter().collect(),
            failed: BTreeMap::new(),
        }
    }

    /// Parses topics, and partitions of topics as `topic:0,1,2`.
    pub(super) async fn named(topics: &[String], admin: &Admin) -> anyhow::Result<Chosen> {
        let mut chosen = Chosen::default();
        for topic in topics {
            if topic.contains(':') {
                chosen.partitions.extend(parse_partitions(topic)?);
                continue;
            }
            match admin.describe_topics(std::slice::from_ref(topic)).await {
                Ok(described) => {
                    for topic in described {
                        let numbers = topic.partitions.iter().map(|it| it.partition);
                        let partitions = numbers.map(|number| (topic.name.clone(), number));
                        chosen.partitions.extend(partitions);
                    }
                }
                Err(error) => {
                    let error = match error.code() {
                        // With Kafka's message.
                        Some(code @ ErrorCode::UnknownTopicOrPartition) => {
                            ClientError::broker(topic, code.code(), None::<&str>)
                        }
                        _ => error,
                    };
                    chosen.failed.insert((topic.clone(), -1), error);
                }
            }
        }
        chosen.partitions.sort();
        chosen.partitions.dedup();
        Ok(chosen)
    }
}

pub(super) async fn delete(admin: &Admin, group: &str, chosen: Chosen) {
    let Chosen { partitions, failed } = chosen;
    let deleted = admin.delete_offsets(group, &partitions).await;
    let first_error = match &deleted {
        Ok(results) => results.values().find_map(|result| result.as_ref().err()),
        Err(error) => Some(error),
    };
    match first_error.map(ClientError::code) {
        None => println!("Request succeeded for deleting offsets from group {group}."),
        Some(code) => {
            let outcome = outcome_of(code.unwrap_or(ErrorCode::UnknownServerError));
            println!("\nError: {outcome}");
        }
    }
    let mut statuses: BTreeMap<Partition, Option<ClientError>> = failed
        .into_iter()
        .map(|(partition, error)| (partition, Some(error)))
        .collect();
    for partition in partitions {
        let error = match &deleted {
            Ok(results) => results.get(&partition).and_then(|it| it.clone().err()),
            Err(error) => Some(error.clone()),
        };
        statuses.insert(partition, error);
    }
    print_statuses(&statuses);
}

/// The message for the error of the whole request, or of the first partition that has one.
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
    let mut rows: Vec<_> = statuses.iter().collect();
    // Sorted as strings, as in Kafka's tool: 10 comes before 2.
    rows.sort_by_key(|((topic, partition), _)| format!("{topic}{partition}"));
    let mut table = Table::<(&Partition, &Option<ClientError>)>::new();
    table.growing("TOPIC", 15, |row| row.0.0.clone());
    table.fixed("PARTITION", 10, |row| {
        shown(Some(row.0.1).filter(|partition| *partition >= 0))
    });
    table.fixed("STATUS", 15, |row| match row.1 {
        None => "Successful".to_owned(),
        Some(error) => format!("Error: {}", java_exceptions::shown(error)),
    });
    table.pad_last();
    table.print_apart(&rows);
}
