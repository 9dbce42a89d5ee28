//! Topics: the list, one topic, creating, growing, emptying and deleting.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use axum::Json;
use axum::http::StatusCode;
use ottla_client::ClientError;
use ottla_client::admin::{NewTopic, OffsetSpec};
use serde::{Deserialize, Serialize};

use crate::console::Visitor;
use crate::details::PartitionDetails;
use crate::extract::{Body, Path, Query};
use crate::list::{ListQuery, Page, SortKey};
use crate::problem::Problem;
use crate::view::{Group, Partition, Snapshot, Topic, sum_of_known};

/// Groups of a topic in a row of the list.
const GROUPS_SHOWN: usize = 20;

#[derive(Serialize)]
pub(super) struct TopicRow {
    name: String,
    id: String,
    is_internal: bool,
    partitions: usize,
    replication_factor: usize,
    under_replicated: usize,
    offline: usize,
    bytes: Option<i64>,
    records: Option<i64>,
    records_per_second: Option<f64>,
    records_out_per_second: Option<f64>,
    retention_ms: Option<i64>,
    retention_bytes: Option<i64>,
    cleanup_policy: Option<String>,
    groups: Vec<GroupOfTopic>,
    group_count: usize,
    lag: Option<i64>,
}

#[derive(Clone, Serialize)]
struct GroupOfTopic {
    group_id: String,
    #[serde(rename = "type")]
    kind: String,
    state: String,
    lag: Option<i64>,
}

#[derive(Serialize)]
pub(super) struct TopicDetail {
    #[serde(flatten)]
    row: TopicRow,
    partition_list: Vec<PartitionRow>,
}

#[derive(Serialize)]
struct PartitionRow {
    partition: i32,
    leader: Option<i32>,
    replicas: Vec<i32>,
    isr: Vec<i32>,
    /// Eligible leader replicas (KIP-966).
    elr: Option<Vec<i32>>,
    log_start_offset: Option<i64>,
    log_end_offset: Option<i64>,
    last_stable_offset: Option<i64>,
    bytes: Option<i64>,
    latest_timestamp: Option<i64>,
}

#[derive(Deserialize)]
pub(super) struct TopicsQuery {
    #[serde(default)]
    internal: bool,
}

pub(super) async fn list(
    visitor: Visitor,
    Query(list): Query<ListQuery>,
    Query(query): Query<TopicsQuery>,
) -> Result<Json<Page<TopicRow>>, Problem> {
    let snapshot = visitor.view.snapshot().await?;
    let mut groups = groups_by_topic(&snapshot);
    let topics = snapshot.topics.values();
    let rows = topics
        .filter(|it| (query.internal || !it.info.is_internal) && list.matches(&it.info.name))
        .map(|topic| row(topic, groups.remove(&*topic.info.name).unwrap_or_default()));
    let mut page = list.page(rows.collect(), sort_key)?;
    page.as_of = Some(snapshot.at);
    Ok(Json(page))
}

fn sort_key(row: &TopicRow, field: &str) -> Option<SortKey> {
    let number = |value: Option<i64>| SortKey::Number(value.map(|it| it as f64));
    Some(match field {
        "name" => SortKey::Text(row.name.clone()),
        "partitions" => number(Some(row.partitions as i64)),
        "replication_factor" => number(Some(row.replication_factor as i64)),
        "under_replicated" => number(Some(row.under_replicated as i64)),
        "bytes" => number(row.bytes),
        "records" => number(row.records),
        "records_per_second" => SortKey::Number(row.records_per_second),
        "records_out_per_second" => SortKey::Number(row.records_out_per_second),
        "retention_ms" => number(row.retention_ms),
        "group_count" => number(Some(row.group_count as i64)),
        "lag" => number(row.lag),
        _ => return None,
    })
}

/// The groups with offsets in each topic, the largest lag first.
fn groups_by_topic(snapshot: &Snapshot) -> HashMap<&str, Vec<GroupOfTopic>> {
    let mut by_topic: HashMap<&str, Vec<GroupOfTopic>> = HashMap::new();
    for group in snapshot.groups.iter().flat_map(BTreeMap::values) {
        // One pass over the offsets, which are in the order of the topics.
        let mut lags: Vec<(&str, Option<i64>)> = Vec::new();
        for ((topic, _), (_, lag)) in &group.offsets {
            match lags.last_mut().filter(|(last, _)| last == topic) {
                Some((_, sum)) => *sum = sum_of_known([*sum, *lag].into_iter()),
                None => lags.push((topic, *lag)),
            }
        }
        for (topic, lag) in lags {
            by_topic
                .entry(topic)
                .or_default()
                .push(of_topic(group, lag));
        }
    }
    for groups in by_topic.values_mut() {
        groups.sort_by_key(|it| std::cmp::Reverse(it.lag));
    }
    by_topic
}

fn of_topic(group: &Group, lag: Option<i64>) -> GroupOfTopic {
    GroupOfTopic {
        group_id: group.listing.group_id.clone(),
        kind: group.kind().to_owned(),
        state: group.listing.state.clone(),
        lag,
    }
}

fn row(topic: &Topic, mut groups: Vec<GroupOfTopic>) -> TopicRow {
    let group_count = groups.len();
    let lag = groups.first().and_then(|it| it.lag);
    groups.truncate(GROUPS_SHOWN);
    let settings = topic.settings.as_ref();
    let partitions = &topic.info.partitions;
    TopicRow {
        name: topic.info.name.clone(),
        id: topic.info.topic_id.to_string(),
        is_internal: topic.info.is_internal,
        partitions: partitions.len(),
        replication_factor: partitions.first().map_or(0, |it| it.replicas.len()),
        under_replicated: topic.under_replicated(),
        offline: topic.offline(),
        bytes: topic.bytes,
        records: topic.records(),
        records_per_second: topic.records_per_second,
        records_out_per_second: topic.records_out_per_second,
        retention_ms: settings.and_then(|it| it.retention_ms),
        retention_bytes: settings.and_then(|it| it.retention_bytes),
        cleanup_policy: settings.and_then(|it| it.cleanup_policy.clone()),
        groups,
        group_count,
        lag,
    }
}

pub(super) async fn get(
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Json<TopicDetail>, Problem> {
    let snapshot = visitor.view.snapshot().await?;
    let topic = snapshot.topics.get(&name).ok_or_else(|| unknown(&name))?;
    let groups = groups_by_topic(&snapshot).remove(&*name);
    let numbers = partitions_of(topic);
    let details = visitor
        .details
        .of_topic(&visitor.admin, &name, &numbers)
        .await;
    let nothing = PartitionDetails::default();
    let partitions = topic.info.partitions.iter().enumerate();
    let partition_list = partitions.map(|(index, it)| {
        let details = details.get(&it.partition).unwrap_or(&nothing);
        let offsets = topic.offsets.get(index).copied().unwrap_or_default();
        PartitionRow {
            partition: it.partition,
            leader: Some(it.leader).filter(|it| *it >= 0),
            replicas: it.replicas.clone(),
            isr: it.isr.clone(),
            elr: details.elr.clone(),
            log_start_offset: offsets.start,
            log_end_offset: offsets.end,
            last_stable_offset: details.last_stable_offset,
            bytes: topic.leader_bytes.get(index).copied().flatten(),
            latest_timestamp: details.latest_timestamp,
        }
    });
    Ok(Json(TopicDetail {
        partition_list: partition_list.collect(),
        row: row(topic, groups.unwrap_or_default()),
    }))
}

pub(super) fn unknown(topic: &str) -> Problem {
    Problem::not_found(format!(
        "topic {topic} does not exist, or you may not describe it; the list of topics has all that you may see"
    ))
}

fn partitions_of(topic: &Topic) -> Vec<Partition> {
    let partitions = topic.info.partitions.iter();
    partitions
        .map(|it| (topic.info.name.clone(), it.partition))
        .collect()
}

/// A topic as the cluster has it now.
pub(super) struct CurrentTopic {
    /// All zeros if the cluster has no topic IDs.
    pub(super) topic_id: String,
    pub(super) partitions: Vec<Partition>,
}

impl CurrentTopic {
    /// Refuses an action that was previewed for an earlier topic of the same name.
    pub(super) fn check_id(&self, topic: &str, previewed: Option<&str>) -> Result<(), Problem> {
        match previewed {
            Some(id) if id != self.topic_id => Err(Problem::conflict(format!(
                "topic {topic} is {} and was {id} in the preview: it was deleted and created again; preview again",
                self.topic_id
            ))),
            _ => Ok(()),
        }
    }
}

/// The current partitions of a topic, from the cluster itself.
pub(super) async fn current_partitions(
    visitor: &Visitor,
    topic: &str,
) -> Result<Vec<Partition>, Problem> {
    Ok(current_topic(visitor, topic).await?.partitions)
}

pub(super) async fn current_topic(visitor: &Visitor, topic: &str) -> Result<CurrentTopic, Problem> {
    let names = BTreeSet::from([topic.to_owned()]);
    let mut topics = current_topics(visitor, &names).await?;
    topics.remove(topic).ok_or_else(|| unknown(topic))
}

/// All of these topics, by one request.
pub(super) async fn current_topics(
    visitor: &Visitor,
    names: &BTreeSet<String>,
) -> Result<BTreeMap<String, CurrentTopic>, Problem> {
    let listed: Vec<String> = names.iter().cloned().collect();
    let metadata = visitor
        .client()
        .refresh_metadata(Some(listed.as_slice()), false)
        .await?;
    let mut topics = BTreeMap::new();
    for topic in listed {
        let found = metadata.topics.get(&topic);
        let found = found.ok_or_else(|| unknown(&topic))?;
        ClientError::check(format!("topic {topic}"), found.error.code(), None::<&str>)?;
        let partitions = found.partitions.iter();
        let current = CurrentTopic {
            topic_id: found.topic_id.to_string(),
            partitions: partitions.map(|it| (topic.clone(), it.partition)).collect(),
        };
        topics.insert(topic, current);
    }
    Ok(topics)
}

#[derive(Deserialize)]
pub(super) struct Creation {
    name: String,
    partitions: Option<i32>,
    replication_factor: Option<i16>,
    #[serde(default)]
    configs: BTreeMap<String, String>,
    #[serde(default)]
    preview: bool,
}

#[derive(Serialize)]
pub(super) struct Created {
    name: String,
    partitions: i32,
    replication_factor: i16,
}

pub(super) async fn create(
    visitor: Visitor,
    Body(creation): Body<Creation>,
) -> Result<Json<Created>, Problem> {
    visitor.note.names(format!("topic {}", creation.name));
    if creation.preview {
        visitor.note.is_preview();
    }
    if let Some(partitions) = creation.partitions.filter(|it| *it < 1) {
        return Err(Problem::invalid(
            "partitions",
            format!("partitions={partitions}: give 1 or more"),
        ));
    }
    let topic = NewTopic {
        name: creation.name.clone(),
        partitions: creation.partitions,
        replication_factor: creation.replication_factor,
        configs: creation.configs,
        ..NewTopic::default()
    };
    let results = visitor
        .admin
        .create_topics(&[topic], creation.preview)
        .await?;
    let result = results.first().ok_or_else(|| {
        Problem::from(ClientError::broker(
            &creation.name,
            -1,
            Some("there was no answer"),
        ))
    })?;
    let what = format!("creating topic {}", creation.name);
    ClientError::check(what, result.error_code, result.error_message.as_ref())?;
    if !creation.preview {
        visitor.view.outdate();
    }
    Ok(Json(Created {
        name: creation.name,
        partitions: result.num_partitions,
        replication_factor: result.replication_factor,
    }))
}

#[derive(Deserialize)]
pub(super) struct Confirmation {
    #[serde(default)]
    pub(super) confirm: String,
}

impl Confirmation {
    /// Refuses a deletion whose name was not typed.
    pub(super) fn check(&self, name: &str) -> Result<(), Problem> {
        match self.confirm == name {
            true => Ok(()),
            false => Err(Problem::invalid(
                "confirm",
                format!(
                    "confirm={}: give the name, {name}, to confirm",
                    self.confirm
                ),
            )),
        }
    }
}

pub(super) async fn delete(
    visitor: Visitor,
    Path(name): Path<String>,
    Query(confirmation): Query<Confirmation>,
) -> Result<StatusCode, Problem> {
    confirmation.check(&name)?;
    visitor.admin.delete_topic(&name).await?;
    visitor.view.outdate();
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
pub(super) struct Growth {
    count: i32,
}

pub(super) async fn add_partitions(
    visitor: Visitor,
    Path(name): Path<String>,
    Body(growth): Body<Growth>,
) -> Result<StatusCode, Problem> {
    visitor.note.names(format!("{} partitions", growth.count));
    visitor
        .admin
        .create_partitions(&name, growth.count, None)
        .await?;
    visitor.view.outdate();
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
pub(super) struct Emptying {
    /// Partition number to the first offset that stays. A preview without it is about all records.
    before: Option<BTreeMap<i32, i64>>,
    /// Of the preview.
    topic_id: Option<String>,
    #[serde(default)]
    confirm: String,
    #[serde(default)]
    preview: bool,
}

#[derive(Serialize)]
pub(super) struct Emptied {
    topic_id: String,
    records: i64,
    partitions: Vec<EmptiedPartition>,
}

#[derive(Serialize)]
struct EmptiedPartition {
    partition: i32,
    /// After the change.
    log_start_offset: i64,
    records: i64,
    problem: Option<String>,
}

pub(super) async fn empty(
    visitor: Visitor,
    Path(name): Path<String>,
    Body(emptying): Body<Emptying>,
) -> Result<Json<Emptied>, Problem> {
    if emptying.preview {
        visitor.note.is_preview();
    } else {
        let confirm = emptying.confirm.clone();
        Confirmation { confirm }.check(&name)?;
        // Without offsets it would also delete records written since the preview.
        if emptying.before.is_none() {
            return Err(Problem::invalid(
                "before",
                "before is missing; give the offsets that the preview answered",
            ));
        }
    }
    let topic = current_topic(&visitor, &name).await?;
    topic.check_id(&name, emptying.topic_id.as_deref())?;
    let mut partitions = topic.partitions;
    let existing: BTreeSet<i32> = partitions.iter().map(|(_, number)| *number).collect();
    if let Some(before) = &emptying.before {
        if let Some(missing) = before.keys().find(|it| !existing.contains(it)) {
            return Err(Problem::invalid(
                "before",
                format!("topic {name} has no partition {missing}"),
            ));
        }
        partitions.retain(|(_, number)| before.contains_key(number));
    }
    let admin = &visitor.admin;
    let starts = admin
        .list_offsets(&partitions, OffsetSpec::Earliest, false)
        .await;
    let ends = admin
        .list_offsets(&partitions, OffsetSpec::Latest, false)
        .await;
    let mut plan = BTreeMap::new();
    let mut emptied = Vec::new();
    for partition in &partitions {
        let offset = |listed: &BTreeMap<Partition, Result<_, ClientError>>| {
            listed[partition]
                .clone()
                .map(|it: ottla_client::admin::ListedOffset| it.offset)
        };
        let (start, end) = (offset(&starts)?, offset(&ends)?);
        let wanted = emptying
            .before
            .as_ref()
            .and_then(|it| it.get(&partition.1).copied());
        if let Some(wanted) = wanted.filter(|it| *it < 0 || *it > end) {
            return Err(Problem::invalid(
                "before",
                format!(
                    "partition {}: offset {wanted} is not in the log; give 0 to {end}",
                    partition.1
                ),
            ));
        }
        let to = wanted.unwrap_or(end).max(start);
        plan.insert(partition.clone(), to);
        emptied.push(EmptiedPartition {
            partition: partition.1,
            log_start_offset: to,
            records: to - start,
            problem: None,
        });
    }
    if !emptying.preview {
        let results = admin.delete_records(&plan).await?;
        for it in &mut emptied {
            match results.get(&(name.clone(), it.partition)) {
                Some(Ok(low_watermark)) => it.log_start_offset = *low_watermark,
                Some(Err(error)) => {
                    it.problem = Some(error.to_string());
                    it.records = 0;
                }
                None => {}
            }
        }
        visitor.view.outdate();
    }
    let records = emptied.iter().map(|it| it.records).sum();
    visitor.note.names(format!("{records} records"));
    Ok(Json(Emptied {
        topic_id: topic.topic_id,
        records,
        partitions: emptied,
    }))
}
