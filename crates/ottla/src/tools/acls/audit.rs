//! Where the decisions of the brokers are read: files that brokers wrote as `ottla.audit.file`, or
//! the topic that they write as `ottla.audit.topic`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use jiff::Timestamp;
use ottla_client::admin::{EndpointType, OffsetSpec};
use ottla_client::{Admin, ClientError};
use ottla_types::ErrorCode;

use super::node_settings::{NodeSettings, Reported, reported};
use super::seen::Seen;
use crate::counted::counted;
use crate::tools::local_time::now_ms;
use crate::tools::offset_reset::{offsets, parse_datetime, parse_duration};
use crate::tools::topic_records;

const TOPIC: &str = "ottla.audit.topic";
const EVENTS: &str = "ottla.audit.events";
const ALL_EVENTS: &str = "ottla.audit.events=allowed,denied";
const CONTROLLERS_ARE_MISSING: &str = "nodes that are only controllers write no decisions to a topic; \
                                       give their files with --audit-file too, because a rule may have \
                                       decided there";
const WEEK_MS: i64 = 7 * 24 * 3_600_000;
/// The maximum number of decisions that are read from a topic, the newest ones.
pub(super) const MAX_DECISIONS: i64 = 5_000_000;

// No comment for the help: it would replace that of the commands.
#[derive(Args, Debug)]
pub(super) struct AuditArgs {
    /// A file that a broker wrote as ottla.audit.file; give those of all nodes. Repeatable.
    #[arg(long, value_name = "FILE")]
    audit_file: Vec<PathBuf>,
    /// The topic to which the brokers write their decisions. Without a name, and by default if no
    /// --audit-file is given, it is ottla.audit.topic of the brokers.
    #[arg(long, value_name = "TOPIC")]
    audit_topic: Option<Option<String>>,
    /// Read the topic from this time on: a time before now as PnDTnHnMnS, or YYYY-MM-DDThh:mm:ss in
    /// UTC. By default, it is P7D.
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<i64>,
}

/// In milliseconds since 1970.
fn since(text: &str) -> Result<i64, String> {
    let time = match text.starts_with(['P', 'p']) {
        true => parse_duration(text).map(|duration| now_ms().saturating_sub(duration)),
        false => parse_datetime(text),
    };
    time.map_err(|error| error.to_string())
}

/// What was read.
#[derive(Debug)]
pub(super) struct Audit {
    /// The error is why nothing is known, and the way out.
    pub(super) seen: Result<Seen, String>,
    /// What is missing in it.
    pub(super) notes: Vec<String>,
}

impl AuditArgs {
    pub(super) fn is_given(&self) -> bool {
        !self.audit_file.is_empty() || self.audit_topic.is_some() || self.since.is_some()
    }

    /// Reads the files, the topic, or both. At most `max_decisions` are read from the topic.
    pub(super) async fn read(
        &self,
        admin: &Admin,
        endpoint_type: EndpointType,
        nodes: &NodeSettings,
        max_decisions: i64,
    ) -> anyhow::Result<Audit> {
        let mut seen = Seen::default();
        for path in &self.audit_file {
            seen.read_file(path)?;
        }
        let mut notes = Vec::new();
        let mut nothing = None;
        if self.audit_topic.is_some() || self.audit_file.is_empty() {
            let named = self.audit_topic.as_ref().and_then(Option::as_ref);
            let topic = match (endpoint_type, named) {
                (EndpointType::Controller, _) => Err(
                    "controllers serve no topic with decisions; give --bootstrap-server or --audit-file"
                        .to_owned(),
                ),
                (EndpointType::Broker, Some(name)) => Ok(name.clone()),
                (EndpointType::Broker, None) => topic_of(nodes),
            };
            let read = match topic {
                Ok(topic) => {
                    let read = self
                        .read_topic(admin, &topic, max_decisions, &mut seen)
                        .await;
                    read.map(|more| {
                        notes.extend(more);
                        notes.extend(missing_nodes(nodes, &topic));
                    })
                }
                Err(reason) => Err(anyhow!(reason)),
            };
            match read {
                Ok(()) => {
                    if self.audit_file.is_empty() && has_other_controllers(admin, nodes).await {
                        seen.set_lacks_controllers();
                        notes.push(CONTROLLERS_ARE_MISSING.to_owned());
                    }
                }
                Err(error) if named.is_some() => return Err(error),
                Err(error) => nothing = Some(format!("{error:#}")),
            }
        }
        if seen.lost() > 0 {
            notes.push(format!(
                "{} missing in {}",
                match seen.lost() {
                    1 => "1 decision is".to_owned(),
                    lost => format!("{lost} decisions are"),
                },
                seen.source()
            ));
        }
        if seen.has_uses() {
            notes.extend(nothing);
            return Ok(Audit {
                seen: Ok(seen),
                notes,
            });
        }
        let reason = nothing.unwrap_or_else(|| {
            let source = seen.source();
            format!("no request that was allowed is in {source}; set {ALL_EVENTS} on the brokers")
        });
        Ok(Audit {
            seen: Err(reason),
            notes,
        })
    }

    /// Returns what is missing.
    async fn read_topic(
        &self,
        admin: &Admin,
        topic: &str,
        max_decisions: i64,
        seen: &mut Seen,
    ) -> anyhow::Result<Option<String>> {
        let partitions = topic_records::partitions(admin, topic).await;
        let partitions = partitions.map_err(|error| unreadable(topic, error.into()))?;
        let begin_ms = self.since.unwrap_or_else(|| now_ms() - WEEK_MS).max(0);
        let starts = offsets(admin, &partitions, OffsetSpec::Earliest).await?;
        let begins = offsets(admin, &partitions, OffsetSpec::Timestamp(begin_ms)).await?;
        let ends = offsets(admin, &partitions, OffsetSpec::Latest).await?;
        let max_of_one = max_decisions / partitions.len().max(1) as i64;
        // Of these, the first record that is read may follow a later one than `begin_ms`.
        let mut incomplete = BTreeSet::new();
        let mut ranges = BTreeMap::new();
        let mut left_out = 0;
        for partition in partitions {
            let (start, end) = (starts[&partition], ends[&partition]);
            // Negative if all records are older.
            let begin = match begins[&partition] {
                ..0 => end,
                begin => begin.min(end),
            };
            let first = begin.max(end - max_of_one);
            if first > begin || begin == start && start > 0 {
                incomplete.insert(partition.1);
            }
            left_out += first - begin;
            ranges.insert(partition, first..end);
        }
        seen.set_topic(topic);
        let read = topic_records::read(admin.client(), &ranges, |record| {
            if incomplete.remove(&record.partition)
                && let Ok(time) = Timestamp::from_millisecond(record.timestamp)
            {
                seen.set_complete_since(time);
            }
            seen.take(record.value.as_deref().unwrap_or_default());
        });
        read.await.map_err(|error| unreadable(topic, error))?;
        Ok((left_out > 0).then(|| {
            format!(
                "{left_out} older decisions of the topic {topic} were not read, because at most \
                 {max_decisions} are"
            )
        }))
    }
}

/// The topic to which the brokers write. The error is why there is none, and the way out.
fn topic_of(nodes: &NodeSettings) -> Result<String, String> {
    let values = nodes
        .reported
        .iter()
        .map(|(_, configs)| reported(configs, TOPIC));
    let names: BTreeSet<String> = values
        .filter_map(|value| match value {
            Reported::Value(name) => Some(name),
            Reported::NotSet | Reported::Hidden => None,
        })
        .collect();
    let mut names = names.into_iter();
    match (names.next(), names.next()) {
        _ if nodes.reported.is_empty() => Err(format!(
            "{TOPIC} of the brokers is unknown; name it with --audit-topic, or give --audit-file"
        )),
        (None, _) => Err(format!(
            "no broker has {TOPIC}; set it with {ALL_EVENTS}, or give --audit-file"
        )),
        (Some(name), None) => Ok(name),
        (Some(one), Some(other)) => Err(format!(
            "{TOPIC} is {one} on one broker and {other} on another; name one with --audit-topic"
        )),
    }
}

/// Whether the brokers know the setting: those of Apache Kafka do not.
pub(super) fn can_be_written(nodes: &NodeSettings) -> bool {
    let mut settings = nodes.reported.iter().flat_map(|(_, configs)| configs);
    settings.any(|setting| setting.name == TOPIC)
}

/// Brokers whose decisions are not all in the topic.
fn missing_nodes(nodes: &NodeSettings, topic: &str) -> Vec<String> {
    let ids = |is_missing: &dyn Fn(&Reported, &Reported) -> bool| {
        let missing = nodes.reported.iter().filter(|(_, configs)| {
            is_missing(&reported(configs, TOPIC), &reported(configs, EVENTS))
        });
        let ids: Vec<String> = missing.map(|(id, _)| id.to_string()).collect();
        (!ids.is_empty()).then(|| ids.join(", "))
    };
    let writes = |of_node: &Reported| matches!(of_node, Reported::Value(name) if name == topic);
    let writes_all = |events: &Reported| match events {
        Reported::Value(events) => events.split(',').any(|event| event.trim() == "allowed"),
        Reported::NotSet | Reported::Hidden => false,
    };
    let others = ids(&|of_node, _| !writes(of_node));
    let only_denials = ids(&|of_node, events| writes(of_node) && !writes_all(events));
    let others = others.map(|ids| {
        format!("the decisions of broker {ids} are not in it: {TOPIC} is not {topic} there")
    });
    let only_denials =
        only_denials.map(|ids| format!("broker {ids} writes only denials; set {ALL_EVENTS} there"));
    others.into_iter().chain(only_denials).collect()
}

/// Whether there are nodes that are only controllers, or it is unknown.
async fn has_other_controllers(admin: &Admin, nodes: &NodeSettings) -> bool {
    let is_broker = |id: i32| nodes.reported.iter().any(|(broker, _)| *broker == id);
    let Ok(quorum) = admin.describe_quorum().await else {
        return true;
    };
    let mut voters = quorum.state.current_voters.iter();
    voters.any(|voter| !is_broker(voter.replica_id))
}

/// The error of a topic that cannot be read, with the way out.
fn unreadable(topic: &str, error: anyhow::Error) -> anyhow::Error {
    let code = error
        .downcast_ref::<ClientError>()
        .and_then(ClientError::code);
    match code {
        Some(ErrorCode::TopicAuthorizationFailed) => anyhow!(topic_records::way_to_read(topic)),
        Some(ErrorCode::UnknownTopicOrPartition) => anyhow!(
            "there is no topic {topic}; a broker with {TOPIC} creates it, or its log says why it cannot"
        ),
        _ => error.context(format!("the topic {topic} cannot be read")),
    }
}

/// What was read, for a person.
pub(super) fn read_in_words(seen: &Seen) -> String {
    let decisions = usize::try_from(seen.decisions()).unwrap_or(usize::MAX);
    let (source, since, until) = (seen.source(), seen.since(), seen.until());
    format!(
        "{} read from {source}, {since} to {until}",
        counted(decisions, "decision")
    )
}

#[cfg(test)]
mod tests {
    use ottla_client::admin::DescribedConfigs;
    use ottla_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;

    use super::*;

    /// A node that reports the two settings. A topic of `None` is not set.
    fn node(id: i32, topic: Option<&str>, events: &str) -> (i32, DescribedConfigs) {
        let setting = |name: &str, value: Option<&str>| DescribeConfigsResourceResult {
            name: name.into(),
            value: value.map(Into::into),
            ..Default::default()
        };
        (
            id,
            vec![setting(TOPIC, topic), setting(EVENTS, Some(events))],
        )
    }

    fn nodes(reported: Vec<(i32, DescribedConfigs)>) -> NodeSettings {
        NodeSettings {
            reported,
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_duration_may_be_as_long_as_its_number() {
        assert_eq!(since("P-106751991167D"), Ok(i64::MAX));
        assert!(since("P106751991167D").is_ok_and(|time| time < 0));
    }

    #[test]
    fn the_brokers_name_the_topic() {
        let both = "denied,allowed";
        let one = || node(1, Some("audit"), both);
        for (reported, expected) in [
            (vec![one()], Ok("audit")),
            (
                vec![node(1, None, both), node(2, Some("audit"), both)],
                Ok("audit"),
            ),
            (
                vec![node(1, None, both)],
                Err("no broker has ottla.audit.topic"),
            ),
            (
                vec![one(), node(2, Some("other"), both)],
                Err("is audit on one broker and other on"),
            ),
            (vec![], Err("--audit-topic")),
        ] {
            let found = topic_of(&nodes(reported));
            match expected {
                Ok(topic) => assert_eq!(found.as_deref(), Ok(topic)),
                Err(reason) => {
                    let error = found.expect_err(reason);
                    assert!(error.contains(reason), "{error}");
                }
            }
        }
        assert!(can_be_written(&nodes(vec![node(1, None, both)])));
        assert!(!can_be_written(&nodes(vec![(1, Vec::new())])));
    }

    #[test]
    fn brokers_whose_decisions_are_missing_are_named() {
        let all = node(1, Some("audit"), "denied, allowed");
        assert!(missing_nodes(&nodes(vec![all.clone()]), "audit").is_empty());
        let others = vec![
            all,
            node(2, Some("other"), "denied"),
            node(3, None, "denied,allowed"),
            node(4, Some("audit"), "denied"),
        ];
        assert_eq!(
            missing_nodes(&nodes(others), "audit"),
            [
                "the decisions of broker 2, 3 are not in it: ottla.audit.topic is not audit there",
                "broker 4 writes only denials; set ottla.audit.events=allowed,denied there",
            ]
        );
    }

    #[test]
    fn an_unreadable_topic_has_a_way_out() {
        for (code, says) in [
            (
                ErrorCode::TopicAuthorizationFailed,
                "--operation Read --topic audit",
            ),
            (
                ErrorCode::UnknownTopicOrPartition,
                "there is no topic audit; a broker with ottla.audit.topic creates it",
            ),
            (
                ErrorCode::KafkaStorageError,
                "the topic audit cannot be read: ",
            ),
        ] {
            let error = ClientError::broker("topic audit", code.code(), None::<&str>);
            let error = format!("{:#}", unreadable("audit", error.into()));
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_time_is_a_duration_or_a_moment() {
        assert_eq!(since("1970-01-01T00:00:01"), Ok(1_000));
        let week = since("P7D").map(|begin| now_ms() - begin);
        assert!(week.is_ok_and(|age| (WEEK_MS..WEEK_MS + 60_000).contains(&age)));
        for bad in ["7 days", "P", "2026-01-01"] {
            assert!(since(bad).is_err(), "{bad}");
        }
    }
}
