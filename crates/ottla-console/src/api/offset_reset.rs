//! Resetting and deleting the offsets of a group, as `kafka-consumer-groups --reset-offsets` does,
//! and setting those of single partitions.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::http::StatusCode;
use ottla_client::ClientError;
use ottla_client::admin::{ListedOffset, OffsetSpec};
use ottla_types::ErrorCode;
use serde::{Deserialize, Serialize};

use super::groups::{GroupOffset, TopicPartitions, kind_of, offsets};
use super::topics::current_partitions;
use crate::console::Visitor;
use crate::extract::{Body, Path};
use crate::list::Items;
use crate::problem::Problem;
use crate::view::{Partition, now_ms};

#[derive(Deserialize)]
pub(super) struct Reset {
    to: Target,
    value: Option<i64>,
    topics: Option<Vec<TopicPartitions>>,
    #[serde(default)]
    offsets: Vec<PartitionOffset>,
    #[serde(default)]
    preview: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Target {
    Earliest,
    Latest,
    Current,
    Offset,
    Timestamp,
    /// So many milliseconds before now.
    Duration,
    /// By so many offsets.
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
    let old = match offsets(&visitor, &group, &kind).await {
        Ok(old) => old,
        // A reset creates the group.
        Err(problem) if problem.status() == 404 => BTreeMap::new(),
        Err(problem) => return Err(problem),
    };
    let partitions = partitions(&visitor, &reset, &old).await?;
    let (starts, ends) = futures_util::future::join(
        listed(&visitor, &partitions, OffsetSpec::Earliest),
        listed(&visitor, &partitions, OffsetSpec::Latest),
    )
    .await;
    let wanted = wanted(&visitor, &reset, &partitions, &old).await?;
    let mut changes = BTreeMap::new();
    let mut plan = BTreeMap::new();
    for partition in &partitions {
        let committed = old.get(partition).and_then(|it| it.offset);
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
        if let Ok(new) = &new {
            plan.insert(partition.clone(), *new);
        }
        let end = log.ok().map(|(_, end)| end);
        let change = OffsetChange {
            topic: partition.0.clone(),
            partition: partition.1,
            old: committed,
            new: new.as_ref().ok().copied(),
            log_end_offset: end,
            lag: end.zip(new.as_ref().ok()).map(|(end, new)| end - new),
            problem: new.err(),
        };
        changes.insert(partition.clone(), change);
    }
    if !reset.preview {
        visitor.note.names(format!("{} partitions", plan.len()));
        let results = commit(&visitor, &group, &kind, &plan).await?;
        for (partition, result) in results {
            if let (Some(change), Err(error)) = (changes.get_mut(&partition), result) {
                change.problem = Some(error.to_string());
                change.new = change.old;
                change.lag = change
                    .log_end_offset
                    .zip(change.old)
                    .map(|(end, old)| end - old);
            }
        }
        visitor.view.outdate();
    }
    let items = changes.into_values().collect();
    Ok(Json(Items { items }))
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
    old: &BTreeMap<Partition, GroupOffset>,
) -> Result<BTreeSet<Partition>, Problem> {
    if reset.to == Target::Offsets {
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
    let mut selected = BTreeSet::new();
    for topic in topics {
        let current = current_partitions(visitor, &topic.topic).await?;
        let Some(numbers) = &topic.partitions else {
            selected.extend(current);
            continue;
        };
        for number in numbers {
            let partition = (topic.topic.clone(), *number);
            if !current.contains(&partition) {
                return Err(Problem::invalid(
                    "topics",
                    format!(
                        "topic {} has no partition {number}; it has {}",
                        topic.topic,
                        current.len()
                    ),
                ));
            }
            selected.insert(partition);
        }
    }
    Ok(selected)
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
    Ok(match reset.to {
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
            let time = match reset.to {
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
