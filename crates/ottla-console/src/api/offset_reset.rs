//! Resetting and deleting the offsets of a group, as `kafka-consumer-groups --reset-offsets` does,
//! and setting the offsets of single partitions. Of a streams group, those of its input topics.
//!
//! A preview computes the changes, and a reset applies the changes of a preview. The reset computes
//! none itself, because the end of a log, for example, may have changed since the preview.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::http::StatusCode;
use ottla_client::ClientError;
use ottla_client::admin::{ListedOffset, OffsetSpec};
use ottla_types::ErrorCode;
use serde::{Deserialize, Serialize};

use super::groups::{GroupOffset, TopicPartitions, kind_of, offsets};
use super::topics::{current_topics, unknown};
use crate::console::Visitor;
use crate::extract::{Body, Path};
use crate::list::Items;
use crate::problem::Problem;
use crate::view::{Partition, lag_behind, now_ms};

#[derive(Deserialize)]
pub(super) struct Reset {
    /// Of a preview, as are the next three.
    to: Option<Target>,
    value: Option<i64>,
    topics: Option<Vec<TopicPartitions>>,
    #[serde(default)]
    offsets: Vec<PartitionOffset>,
    #[serde(default)]
    preview: bool,
    /// For a reset: the changes from the preview.
    #[serde(default)]
    changes: Vec<PreviewedChange>,
}

impl Reset {
    /// Refuses topics of a streams group that are not among its inputs: the offsets of its internal
    /// topics belong to the state of the application.
    fn check_topics(&self, group: &str, inputs: &BTreeSet<String>) -> Result<(), Problem> {
        let selected = self.topics.iter().flatten().map(|it| &it.topic);
        let given = self.offsets.iter().map(|it| &it.topic);
        let changed = self.changes.iter().map(|it| &it.topic);
        let mut topics = selected.chain(given).chain(changed);
        match topics.find(|it| !inputs.contains(*it)) {
            None => Ok(()),
            Some(other) => {
                let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
                Err(Problem::invalid(
                    "topics",
                    format!(
                        "topic {other} is no input topic of the streams group {group}; give {}",
                        inputs.join(", ")
                    ),
                ))
            }
        }
    }
}

#[derive(Deserialize)]
struct PreviewedChange {
    topic: String,
    partition: i32,
    /// Any client can commit any offset, and JavaScript rounds large ones to a floating-point number.
    old: Option<f64>,
    new: i64,
}

impl PreviewedChange {
    fn is_of(&self, committed: Option<i64>) -> bool {
        self.old == committed.map(|it| it as f64)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Target {
    Earliest,
    Latest,
    Current,
    Offset,
    Timestamp,
    /// A duration in milliseconds before now.
    Duration,
    /// By a number of offsets.
    Shift,
    /// An offset for each partition.
    Offsets,
}

#[derive(Deserialize)]
struct PartitionOffset {
    topic: String,
    partition: i32,
    offset: i64,
}

#[derive(Serialize)]
pub(super) struct OffsetChange {
    topic: String,
    partition: i32,
    old: Option<i64>,
    new: Option<i64>,
    log_end_offset: Option<i64>,
    /// After the change.
    lag: Option<i64>,
    problem: Option<String>,
}

pub(super) async fn reset(
    visitor: Visitor,
    Path(group): Path<String>,
    Body(reset): Body<Reset>,
) -> Result<Json<Items<OffsetChange>>, Problem> {
    if reset.preview {
        visitor.note.is_preview();
    }
    let kind = kind_or_new(&visitor, &group).await?;
    let mut old = match offsets(&visitor, &group, &kind).await {
        Ok(old) => old,
        // A reset creates the group.
        Err(problem) if problem.status() == 404 => BTreeMap::new(),
        Err(problem) => return Err(problem),
    };
    if kind == "streams" {
        let described = visitor.admin.describe_streams_group(&group).await?;
        let parts = described.subtopologies.into_iter();
        let inputs: BTreeSet<String> = parts.flat_map(|it| it.source_topics).collect();
        reset.check_topics(&group, &inputs)?;
        old.retain(|(topic, _), _| inputs.contains(topic));
    }
    let items = match reset.preview {
        true => preview(&visitor, &reset, &old).await?,
        false => apply(&visitor, &group, &kind, &reset.changes, &old).await?,
    };
    Ok(Json(Items { items }))
}

async fn preview(
    visitor: &Visitor,
    reset: &Reset,
    old: &BTreeMap<Partition, GroupOffset>,
) -> Result<Vec<OffsetChange>, Problem> {
    let to = reset
        .to
        .ok_or_else(|| Problem::invalid("to", "to is missing; give the target of the reset"))?;
    let partitions = partitions(visitor, reset, to, old).await?;
    let (starts, ends) = futures_util::future::join(
        listed(visitor, &partitions, OffsetSpec::Earliest),
        listed(visitor, &partitions, OffsetSpec::Latest),
    )
    .await;
    let wanted = wanted(visitor, reset, to, &partitions, old).await?;
    let changes = partitions.iter().map(|partition| {
        let log = starts[partition]
            .clone()
            .and_then(|start| Ok((start, ends[partition].clone()?)));
        let new = log
            .clone()
            .map_err(|error| error.to_string())
            .and_then(|(start, end)| {
                let wanted = wanted[partition].clone()?;
                // Kafka's tool moves offsets outside the log to its nearest end.
                Ok(wanted.map_or(end, |offset| offset.max(start).min(end.max(start))))
            });
        let end = log.ok().map(|(_, end)| end);
        OffsetChange {
            topic: partition.0.clone(),
            partition: partition.1,
            old: old.get(partition).and_then(|it| it.offset),
            new: new.as_ref().ok().copied(),
            log_end_offset: end,
            lag: end
                .zip(new.as_ref().ok())
                .map(|(end, new)| lag_behind(end, *new)),
            problem: new.err(),
        }
    });
    Ok(changes.collect())
}

/// Commits the changes of a preview. Commits none of them if the group or a log has changed since
/// the preview.
async fn apply(
    visitor: &Visitor,
    group: &str,
    kind: &str,
    changes: &[PreviewedChange],
    old: &BTreeMap<Partition, GroupOffset>,
) -> Result<Vec<OffsetChange>, Problem> {
    let partition_of = |it: &PreviewedChange| (it.topic.clone(), it.partition);
    let plan: BTreeMap<Partition, i64> = changes
        .iter()
        .map(|it| (partition_of(it), it.new))
        .collect();
    if plan.is_empty() || plan.len() != changes.len() {
        return Err(Problem::invalid(
            "changes",
            "give the changes that the preview answered, each partition once",
        ));
    }
    visitor.note.names(format!("{} partitions", plan.len()));
    let committed = |it: &PreviewedChange| old.get(&partition_of(it)).and_then(|it| it.offset);
    if let Some(moved) = changes.iter().find(|it| !it.is_of(committed(it))) {
        let none = || "none".to_owned();
        return Err(Problem::conflict(format!(
            "the committed offset of {group} in {}-{} is {}, and was {} in the preview; preview again",
            moved.topic,
            moved.partition,
            committed(moved).map_or_else(none, |it| it.to_string()),
            moved.old.map_or_else(none, |it| it.to_string())
        )));
    }
    let partitions: BTreeSet<Partition> = plan.keys().cloned().collect();
    let (starts, ends) = futures_util::future::join(
        listed(visitor, &partitions, OffsetSpec::Earliest),
        listed(visitor, &partitions, OffsetSpec::Latest),
    )
    .await;
    for (partition, new) in &plan {
        let (start, end) = (starts[partition].clone()?, ends[partition].clone()?);
        if *new < start || *new > end {
            return Err(Problem::conflict(format!(
                "the log of {}-{} is now from {start} to {end} (exclusive), and {new} is not in it; preview again",
                partition.0, partition.1
            )));
        }
    }
    let results = commit(visitor, group, kind, &plan).await?;
    visitor.view.outdate();
    let done = changes.iter().map(|it| {
        let partition = partition_of(it);
        let refused = results.get(&partition).and_then(|it| it.as_ref().err());
        let old = committed(it);
        let new = match refused {
            Some(_) => old,
            None => Some(it.new),
        };
        let end = ends[&partition].as_ref().ok().copied();
        OffsetChange {
            old,
            new,
            log_end_offset: end,
            lag: end.zip(new).map(|(end, new)| lag_behind(end, new)),
            problem: refused.map(|error| error.to_string()),
            topic: partition.0,
            partition: partition.1,
        }
    });
    Ok(done.collect())
}

/// The type of a group; a group that does not exist becomes a classic one.
async fn kind_or_new(visitor: &Visitor, group: &str) -> Result<String, Problem> {
    match kind_of(visitor, group).await {
        Err(problem) if problem.status() == 404 => Ok("classic".into()),
        result => result,
    }
}

type Results = BTreeMap<Partition, Result<(), ClientError>>;

async fn commit(
    visitor: &Visitor,
    group: &str,
    kind: &str,
    plan: &BTreeMap<Partition, i64>,
) -> Result<Results, Problem> {
    let admin = &visitor.admin;
    let results = match kind {
        "share" => admin.alter_share_group_offsets(group, plan).await,
        _ => admin.alter_offsets(group, plan).await,
    };
    let results = results.map_err(|error| with_way_out(group, error))?;
    // Every partition has the same reason, which then is that of the request.
    let refused = results.values().find_map(|it| it.as_ref().err());
    match refused {
        Some(error) if results.values().all(Result::is_err) => {
            Err(with_way_out(group, error.clone()))
        }
        _ => Ok(results),
    }
}

fn with_way_out(group: &str, error: ClientError) -> Problem {
    let has_members = matches!(
        error.code(),
        Some(ErrorCode::UnknownMemberId | ErrorCode::NonEmptyGroup | ErrorCode::IllegalGeneration)
    );
    match has_members {
        true => Problem::from(ClientError::broker(
            format!("group {group}"),
            ErrorCode::NonEmptyGroup.code(),
            Some("it has members, which would overwrite the offsets; stop them first"),
        )),
        false => error.into(),
    }
}

/// The partitions that a reset is about.
async fn partitions(
    visitor: &Visitor,
    reset: &Reset,
    to: Target,
    old: &BTreeMap<Partition, GroupOffset>,
) -> Result<BTreeSet<Partition>, Problem> {
    if to == Target::Offsets {
        let offsets = reset.offsets.iter();
        return Ok(offsets.map(|it| (it.topic.clone(), it.partition)).collect());
    }
    let Some(topics) = &reset.topics else {
        if old.is_empty() {
            return Err(Problem::invalid(
                "topics",
                "the group has no offsets; name the topics whose offsets it is to have",
            ));
        }
        return Ok(old.keys().cloned().collect());
    };
    selected(visitor, topics).await
}

async fn selected(
    visitor: &Visitor,
    topics: &[TopicPartitions],
) -> Result<BTreeSet<Partition>, Problem> {
    let wanted = merged(topics);
    let names: BTreeSet<String> = wanted.keys().cloned().collect();
    let mut current = current_topics(visitor, &names).await?;
    let mut selected = BTreeSet::new();
    for (topic, numbers) in wanted {
        let found = current.remove(&topic).ok_or_else(|| unknown(&topic))?;
        let Some(numbers) = numbers else {
            selected.extend(found.partitions);
            continue;
        };
        let existing: BTreeSet<i32> = found.partitions.iter().map(|(_, it)| *it).collect();
        if let Some(missing) = numbers.difference(&existing).next() {
            return Err(Problem::invalid(
                "topics",
                format!(
                    "topic {topic} has no partition {missing}; it has {}",
                    existing.len()
                ),
            ));
        }
        selected.extend(numbers.into_iter().map(|it| (topic.clone(), it)));
    }
    Ok(selected)
}

/// The partitions of each topic, which can be named several times; `None` is all of them.
fn merged(topics: &[TopicPartitions]) -> BTreeMap<String, Option<BTreeSet<i32>>> {
    let mut merged: BTreeMap<String, Option<BTreeSet<i32>>> = BTreeMap::new();
    for TopicPartitions { topic, partitions } in topics {
        let of_topic = merged
            .entry(topic.clone())
            .or_insert_with(|| Some(BTreeSet::new()));
        match partitions {
            None => *of_topic = None,
            Some(numbers) => of_topic.iter_mut().for_each(|it| it.extend(numbers)),
        }
    }
    merged
}

type Listed = BTreeMap<Partition, Result<i64, ClientError>>;

async fn listed(visitor: &Visitor, partitions: &BTreeSet<Partition>, spec: OffsetSpec) -> Listed {
    let partitions: Vec<Partition> = partitions.iter().cloned().collect();
    let listed = visitor.admin.list_offsets(&partitions, spec, false).await;
    let offset = |it: Result<ListedOffset, ClientError>| it.map(|it| it.offset);
    listed
        .into_iter()
        .map(|(partition, it)| (partition, offset(it)))
        .collect()
}

/// The wanted offset of each partition, before it is moved into the log; `None` is the end.
type Wanted = BTreeMap<Partition, Result<Option<i64>, String>>;

async fn wanted(
    visitor: &Visitor,
    reset: &Reset,
    to: Target,
    partitions: &BTreeSet<Partition>,
    old: &BTreeMap<Partition, GroupOffset>,
) -> Result<Wanted, Problem> {
    let value = || {
        reset
            .value
            .ok_or_else(|| Problem::invalid("value", "value is missing; this reset needs a number"))
    };
    let all = |offset: Option<i64>| {
        partitions
            .iter()
            .map(|it| (it.clone(), Ok(offset)))
            .collect()
    };
    let committed = |partition: &Partition| old.get(partition).and_then(|it| it.offset);
    Ok(match to {
        Target::Earliest => all(Some(0)),
        Target::Latest => all(None),
        Target::Offset => {
            let offset = value()?;
            if offset < 0 {
                return Err(Problem::invalid(
                    "value",
                    format!("value={offset}: give an offset, 0 or more"),
                ));
            }
            all(Some(offset))
        }
        // Partitions without an offset get the end, as with Kafka's tool.
        Target::Current => partitions
            .iter()
            .map(|it| (it.clone(), Ok(committed(it))))
            .collect(),
        Target::Shift => {
            let by = value()?;
            let shifted = |it: &Partition| match committed(it) {
                Some(offset) => Ok(Some(offset.saturating_add(by).max(0))),
                None => Err("it has no committed offset that could be shifted".to_owned()),
            };
            partitions
                .iter()
                .map(|it| (it.clone(), shifted(it)))
                .collect()
        }
        Target::Timestamp | Target::Duration => {
            let time = match to {
                Target::Timestamp => value()?,
                _ => now_ms().saturating_sub(value()?),
            };
            let found = listed(visitor, partitions, OffsetSpec::Timestamp(time.max(0))).await;
            let found = found.into_iter().map(|(partition, offset)| {
                let offset = offset.map(|offset| Some(offset).filter(|it| *it >= 0));
                (partition, offset.map_err(|error| error.to_string()))
            });
            found.collect()
        }
        Target::Offsets => reset
            .offsets
            .iter()
            .map(|it| ((it.topic.clone(), it.partition), Ok(Some(it.offset))))
            .collect(),
    })
}

#[derive(Deserialize)]
pub(super) struct Deletion {
    topics: Vec<TopicPartitions>,
}

pub(super) async fn delete(
    visitor: Visitor,
    Path(group): Path<String>,
    Body(deletion): Body<Deletion>,
) -> Result<StatusCode, Problem> {
    let topics: Vec<String> = deletion.topics.iter().map(|it| it.topic.clone()).collect();
    visitor.note.names(topics.join(", "));
    let admin = &visitor.admin;
    if kind_of(&visitor, &group).await? == "share" {
        if deletion.topics.iter().any(|it| it.partitions.is_some()) {
            return Err(Problem::invalid(
                "topics",
                "the offsets of a share group are deleted for whole topics; leave out the partitions",
            ));
        }
        let results = admin.delete_share_group_offsets(&group, &topics).await?;
        results.into_values().collect::<Result<(), _>>()?;
    } else {
        let partitions = selected(&visitor, &deletion.topics).await?;
        let partitions: Vec<Partition> = partitions.into_iter().collect();
        let results = admin.delete_offsets(&group, &partitions).await?;
        results.into_values().collect::<Result<(), _>>()?;
    }
    visitor.view.outdate();
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_topics_of_a_streams_group_are_not_reset() {
        let inputs = BTreeSet::from(["orders".to_owned(), "payments".to_owned()]);
        let check = |body: &str| {
            let reset: Reset = serde_json::from_str(body).unwrap();
            let checked = reset.check_topics("totals", &inputs);
            checked.map_err(|it| it.detail().to_owned())
        };
        check(r#"{"to": "earliest", "preview": true}"#).unwrap();
        check(r#"{"to": "earliest", "topics": [{"topic": "orders"}]}"#).unwrap();
        for body in [
            r#"{"to": "earliest", "topics": [{"topic": "orders"}, {"topic": "totals-by-repartition"}]}"#,
            r#"{"to": "offsets", "offsets": [{"topic": "totals-by-repartition", "partition": 0, "offset": 1}]}"#,
            r#"{"changes": [{"topic": "totals-by-repartition", "partition": 0, "new": 1}]}"#,
        ] {
            let refused = check(body).unwrap_err();
            assert!(
                refused.contains("totals-by-repartition is no input topic")
                    && refused.ends_with("give orders, payments"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_topic_that_is_named_several_times_is_selected_once() {
        let of = |topic: &str, partitions: Option<&[i32]>| TopicPartitions {
            topic: topic.to_owned(),
            partitions: partitions.map(<[i32]>::to_vec),
        };
        let some = [of("a", Some(&[2, 0])), of("a", Some(&[2, 1]))];
        let numbers = Some(BTreeSet::from([0, 1, 2]));
        assert_eq!(merged(&some)["a"], numbers);
        let all = [
            of("a", Some(&[2])),
            of("a", None),
            of("a", Some(&[1])),
            of("b", Some(&[])),
        ];
        let merged = merged(&all);
        assert_eq!(
            (&merged["a"], &merged["b"]),
            (&None, &Some(BTreeSet::new()))
        );
    }

    #[test]
    fn a_group_with_an_offset_far_outside_the_log_can_be_reset() {
        let change = |old: &str| -> PreviewedChange {
            let text = format!(r#"{{"topic": "t", "partition": 0, "old": {old}, "new": 1}}"#);
            serde_json::from_str(&text).unwrap()
        };
        // As a browser gives it back.
        assert!(change("9223372036854776000").is_of(Some(i64::MAX)));
        assert!(change("7").is_of(Some(7)) && change("null").is_of(None));
        assert!(!change("7").is_of(Some(8)) && !change("7").is_of(None));
        assert!(!change("null").is_of(Some(0)));
    }
}
