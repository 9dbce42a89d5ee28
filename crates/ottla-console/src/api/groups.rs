//! Groups of all types.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::http::StatusCode;
use ottla_client::ClientError;
use ottla_client::admin::{GroupMember, ListedOffset, OffsetSpec};
use ottla_types::ErrorCode;
use serde::{Deserialize, Serialize};

use super::topics::Confirmation;
use crate::console::Visitor;
use crate::extract::{Path, Query};
use crate::list::{ListQuery, Page, SortKey};
use crate::problem::Problem;
use crate::view::{Group, Partition, lag_behind, sum_of_known};

/// Topics of a group in a row of the list.
const TOPICS_SHOWN: usize = 20;

#[derive(Serialize)]
pub(super) struct GroupRow {
    group_id: String,
    #[serde(rename = "type")]
    kind: String,
    protocol_type: String,
    state: String,
    /// `None` in the list, unless the state tells.
    members: Option<usize>,
    lag: Option<i64>,
    topics: Option<Vec<String>>,
}

#[derive(Serialize)]
pub(super) struct GroupDetail {
    #[serde(flatten)]
    row: GroupRow,
    /// Why the group is not stable, or lags.
    why: Option<String>,
    coordinator: Option<i32>,
    assignor: Option<String>,
    group_epoch: Option<i32>,
    assignment_epoch: Option<i32>,
    member_list: Vec<Member>,
    partition_list: Vec<PartitionOfGroup>,
    /// Of a streams group.
    topology: Option<Topology>,
}

#[derive(Serialize)]
struct Member {
    member_id: String,
    instance_id: Option<String>,
    client_id: String,
    host: String,
    epoch: Option<i32>,
    assignment: Vec<TopicPartitions>,
    target_assignment: Option<Vec<TopicPartitions>>,
    /// Of a member of a streams group.
    tasks: Option<Vec<Tasks>>,
}

/// The tasks of a subtopology that a member has in the same role. A task has the number of the
/// partitions that it reads.
#[derive(Serialize)]
struct Tasks {
    /// `active`, `standby` or `warmup`.
    role: &'static str,
    subtopology: String,
    partitions: Vec<i32>,
}

#[derive(Serialize)]
struct Topology {
    epoch: i32,
    subtopologies: Vec<Subtopology>,
}

#[derive(Serialize)]
struct Subtopology {
    id: String,
    source_topics: Vec<String>,
    repartition_source_topics: Vec<String>,
    state_changelog_topics: Vec<String>,
}

/// Partitions of a topic; all of them without numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct TopicPartitions {
    pub(super) topic: String,
    pub(super) partitions: Option<Vec<i32>>,
}

#[derive(Serialize)]
struct PartitionOfGroup {
    topic: String,
    partition: i32,
    /// Of a share group, its start offset.
    committed_offset: Option<i64>,
    log_start_offset: Option<i64>,
    log_end_offset: Option<i64>,
    lag: Option<i64>,
    member_id: Option<String>,
    metadata: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct GroupsQuery {
    r#type: Option<String>,
    state: Option<String>,
}

pub(super) async fn list(
    visitor: Visitor,
    Query(list): Query<ListQuery>,
    Query(query): Query<GroupsQuery>,
) -> Result<Json<Page<GroupRow>>, Problem> {
    let snapshot = visitor.view.snapshot().await?;
    let Some(groups) = &snapshot.groups else {
        // The reason is not in the snapshot; ask for it.
        visitor.admin.list_groups(&[], &[]).await?;
        visitor.view.outdate();
        return Err(Problem::timed_out(
            "the groups could not be listed just now; try again",
        ));
    };
    let is_wanted = |group: &&Group| {
        let is = |wanted: &Option<String>, actual: &str| {
            wanted
                .as_deref()
                .is_none_or(|wanted| wanted.eq_ignore_ascii_case(actual))
        };
        is(&query.r#type, group.kind())
            && is(&query.state, &group.listing.state)
            && list.matches(&group.listing.group_id)
    };
    let rows = groups.values().filter(is_wanted).map(row);
    let mut page = list.page(rows.collect(), sort_key)?;
    page.as_of = Some(snapshot.at);
    Ok(Json(page))
}

fn sort_key(row: &GroupRow, field: &str) -> Option<SortKey> {
    let number = |value: Option<i64>| SortKey::Number(value.map(|it| it as f64));
    Some(match field {
        "group_id" => SortKey::Text(row.group_id.clone()),
        "type" => SortKey::Text(row.kind.clone()),
        "state" => SortKey::Text(row.state.clone()),
        "members" => number(row.members.map(|it| it as i64)),
        "lag" => number(row.lag),
        _ => return None,
    })
}

fn row(group: &Group) -> GroupRow {
    let listing = &group.listing;
    let topics = group.topics().into_iter().take(TOPICS_SHOWN);
    GroupRow {
        group_id: listing.group_id.clone(),
        kind: group.kind().to_owned(),
        protocol_type: listing.protocol_type.clone(),
        state: listing.state.clone(),
        members: matches!(&*listing.state, "Empty" | "Dead").then_some(0),
        lag: group.lag(),
        topics: Some(topics.map(str::to_owned).collect()),
    }
}

/// The common part of the descriptions of all group types.
struct Described {
    state: String,
    coordinator: i32,
    assignor: Option<String>,
    group_epoch: Option<i32>,
    assignment_epoch: Option<i32>,
    members: Vec<Member>,
    topology: Option<Topology>,
}

pub(super) async fn get(
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Json<GroupDetail>, Problem> {
    let kind = kind_of(&visitor, &id).await?;
    let described = match &*kind {
        "share" => share(&visitor, &id).await?,
        "streams" => streams(&visitor, &id).await?,
        _ => consumer(&visitor, &id).await?,
    };
    let offsets = offsets(&visitor, &id, &kind).await?;
    let partition_list = partitions(&visitor, &described.members, offsets).await;
    let topics: BTreeSet<&str> = partition_list.iter().map(|it| &*it.topic).collect();
    let row = GroupRow {
        group_id: id,
        protocol_type: match &*kind {
            "classic" | "consumer" => "consumer".into(),
            other => other.into(),
        },
        kind,
        state: described.state.clone(),
        members: Some(described.members.len()),
        lag: sum_of_known(partition_list.iter().map(|it| it.lag)),
        topics: Some(
            topics
                .into_iter()
                .take(TOPICS_SHOWN)
                .map(str::to_owned)
                .collect(),
        ),
    };
    Ok(Json(GroupDetail {
        why: why(&row, &described, &partition_list),
        row,
        coordinator: Some(described.coordinator),
        assignor: described.assignor,
        group_epoch: described.group_epoch,
        assignment_epoch: described.assignment_epoch,
        member_list: described.members,
        partition_list,
        topology: described.topology,
    }))
}

/// The type of a group.
pub(super) async fn kind_of(visitor: &Visitor, id: &str) -> Result<String, Problem> {
    let snapshot = visitor.view.snapshot().await?;
    if let Some(group) = snapshot.groups.as_ref().and_then(|it| it.get(id)) {
        return Ok(group.kind().to_owned());
    }
    // Created since, or the list is denied.
    let listings = visitor
        .admin
        .list_groups(&[], &[])
        .await
        .unwrap_or_default();
    match listings.into_iter().find(|it| it.group_id == id) {
        Some(listing) if listing.group_type.is_empty() => Ok("classic".into()),
        Some(listing) => Ok(listing.group_type),
        None => Err(Problem::not_found(format!(
            "group {id} does not exist, or you may not describe it; the list of groups has all that you may see"
        ))),
    }
}

async fn consumer(visitor: &Visitor, id: &str) -> Result<Described, Problem> {
    let group = visitor.admin.describe_consumer_group(id).await?;
    let member = |it: GroupMember| Member {
        assignment: by_topic(it.assignment),
        target_assignment: it.target_assignment.map(by_topic),
        tasks: None,
        member_id: it.member_id,
        instance_id: it.group_instance_id,
        client_id: it.client_id,
        host: it.host,
        epoch: it.member_epoch,
    };
    Ok(Described {
        state: group.state,
        coordinator: group.coordinator.id,
        assignor: Some(group.assignor).filter(|it| !it.is_empty()),
        group_epoch: group.group_epoch,
        assignment_epoch: group.target_assignment_epoch,
        members: group.members.into_iter().map(member).collect(),
        topology: None,
    })
}

async fn share(visitor: &Visitor, id: &str) -> Result<Described, Problem> {
    let (group, coordinator) = visitor.admin.describe_share_group(id).await?;
    let members = group.members.into_iter().map(|it| {
        let topics = it.assignment.topic_partitions.into_iter();
        let assignment = topics.map(|topic| TopicPartitions {
            topic: topic.topic_name.to_string(),
            partitions: Some(topic.partitions),
        });
        Member {
            member_id: it.member_id.to_string(),
            instance_id: None,
            client_id: it.client_id.to_string(),
            host: it.client_host.to_string(),
            epoch: Some(it.member_epoch),
            assignment: assignment.collect(),
            target_assignment: None,
            tasks: None,
        }
    });
    Ok(Described {
        state: group.group_state.to_string(),
        coordinator: coordinator.id,
        assignor: Some(group.assignor_name.to_string()),
        group_epoch: Some(group.group_epoch),
        assignment_epoch: Some(group.assignment_epoch),
        members: members.collect(),
        topology: None,
    })
}

async fn streams(visitor: &Visitor, id: &str) -> Result<Described, Problem> {
    let streams = visitor.admin.describe_streams_group(id).await?;
    let sources: BTreeMap<&str, Vec<&String>> = streams
        .subtopologies
        .iter()
        .map(|it| {
            let topics = it.source_topics.iter().chain(&it.repartition_source_topics);
            (&*it.id, topics.collect())
        })
        .collect();
    let group = &streams.group;
    let members = group.members.iter().map(|it| {
        let roles = [
            ("active", &it.assignment.active_tasks),
            ("standby", &it.assignment.standby_tasks),
            ("warmup", &it.assignment.warmup_tasks),
        ];
        let tasks = roles.into_iter().flat_map(|(role, tasks)| {
            tasks.iter().map(move |task| Tasks {
                role,
                subtopology: task.subtopology_id.to_string(),
                partitions: task.partitions.clone(),
            })
        });
        // A task of a subtopology reads the partition of its number of each source topic.
        let active = it.assignment.active_tasks.iter();
        let assigned = active.flat_map(|task| {
            let topics = sources.get(&*task.subtopology_id).into_iter().flatten();
            topics.flat_map(|topic| task.partitions.iter().map(|it| ((*topic).clone(), *it)))
        });
        Member {
            member_id: it.member_id.to_string(),
            instance_id: it.instance_id.as_ref().map(ToString::to_string),
            client_id: it.client_id.to_string(),
            host: it.client_host.to_string(),
            epoch: Some(it.member_epoch),
            assignment: by_topic(assigned.collect()),
            target_assignment: None,
            tasks: Some(tasks.collect()),
        }
    });
    let subtopologies = streams.subtopologies.iter().map(|it| Subtopology {
        id: it.id.clone(),
        source_topics: it.source_topics.clone(),
        repartition_source_topics: it.repartition_source_topics.clone(),
        state_changelog_topics: it.state_changelog_topics.clone(),
    });
    Ok(Described {
        members: members.collect(),
        topology: Some(Topology {
            epoch: streams.topology_epoch,
            subtopologies: subtopologies.collect(),
        }),
        state: group.group_state.to_string(),
        coordinator: streams.coordinator.id,
        assignor: None,
        group_epoch: Some(group.group_epoch),
        assignment_epoch: Some(group.assignment_epoch),
    })
}

fn by_topic(mut partitions: Vec<Partition>) -> Vec<TopicPartitions> {
    partitions.sort_unstable();
    partitions.dedup();
    let mut topics: Vec<TopicPartitions> = Vec::new();
    for (topic, number) in partitions {
        match topics.last_mut().filter(|it| it.topic == topic) {
            Some(last) => last.partitions.get_or_insert_default().push(number),
            None => topics.push(TopicPartitions {
                topic,
                partitions: Some(vec![number]),
            }),
        }
    }
    topics
}

/// The offset that a group has in a partition.
#[derive(Clone, Default)]
pub(super) struct GroupOffset {
    pub(super) offset: Option<i64>,
    /// `None` if it is the distance to the end of the log.
    lag: Option<i64>,
    metadata: Option<String>,
}

pub(super) async fn offsets(
    visitor: &Visitor,
    id: &str,
    kind: &str,
) -> Result<BTreeMap<Partition, GroupOffset>, Problem> {
    if kind == "share" {
        let offsets = visitor.admin.share_group_offsets(id).await?.into_iter();
        let of_partition = |it: Option<ottla_client::admin::SharePartitionOffset>| GroupOffset {
            offset: it.map(|it| it.start_offset),
            lag: it.and_then(|it| it.lag),
            metadata: None,
        };
        return Ok(offsets
            .map(|(partition, it)| (partition, of_partition(it)))
            .collect());
    }
    let committed = visitor.admin.committed_offsets(id).await?.into_iter();
    Ok(committed
        .map(|(partition, it)| {
            let offset = GroupOffset {
                offset: Some(it.offset),
                lag: None,
                metadata: Some(it.metadata).filter(|it| !it.is_empty()),
            };
            (partition, offset)
        })
        .collect())
}

async fn partitions(
    visitor: &Visitor,
    members: &[Member],
    mut offsets: BTreeMap<Partition, GroupOffset>,
) -> Vec<PartitionOfGroup> {
    let mut owners: BTreeMap<Partition, &str> = BTreeMap::new();
    for member in members {
        for topic in &member.assignment {
            for number in topic.partitions.iter().flatten() {
                owners.insert((topic.topic.clone(), *number), &member.member_id);
            }
        }
    }
    for partition in owners.keys() {
        offsets.entry(partition.clone()).or_default();
    }
    let keys: Vec<Partition> = offsets.keys().cloned().collect();
    let admin = &visitor.admin;
    let (starts, ends) = futures_util::future::join(
        admin.list_offsets_once(&keys, OffsetSpec::Earliest, false),
        admin.list_offsets_once(&keys, OffsetSpec::Latest, false),
    )
    .await;
    let rows = offsets.into_iter().map(|(key, it)| {
        let end = known(&ends, &key);
        let distance = end
            .zip(it.offset)
            .map(|(end, offset)| lag_behind(end, offset));
        PartitionOfGroup {
            committed_offset: it.offset,
            log_start_offset: known(&starts, &key),
            log_end_offset: end,
            lag: it.lag.or(distance),
            member_id: owners.get(&key).map(|it| (*it).to_owned()),
            metadata: it.metadata,
            topic: key.0,
            partition: key.1,
        }
    });
    rows.collect()
}

fn known(
    listed: &BTreeMap<Partition, Result<ListedOffset, ClientError>>,
    partition: &Partition,
) -> Option<i64> {
    Some(listed.get(partition)?.as_ref().ok()?.offset)
}

/// Why a group is not stable, or lags: the first reason that applies.
fn why(row: &GroupRow, group: &Described, partitions: &[PartitionOfGroup]) -> Option<String> {
    let lost = partitions.iter().filter(|it| {
        it.committed_offset
            .zip(it.log_start_offset)
            .is_some_and(|(offset, start)| offset < start)
    });
    let lost = lost.count();
    let converging = group.members.iter().filter(|it| {
        it.target_assignment
            .as_ref()
            .is_some_and(|target| *target != it.assignment)
    });
    let converging = converging.count();
    let unowned = partitions
        .iter()
        .filter(|it| it.member_id.is_none() && it.lag.unwrap_or(0) > 0);
    let unowned = unowned.count();
    match &*row.state {
        "PreparingRebalance" => {
            Some("It is rebalancing: the coordinator waits for all members to join again".into())
        }
        "CompletingRebalance" => Some(
            "It is rebalancing: the leader of the group has not sent the assignment yet".into(),
        ),
        "Assigning" => Some("The coordinator is computing an assignment".into()),
        "Reconciling" => Some(format!(
            "{converging} members have not yet taken over the partitions that they are to have"
        )),
        "NotReady" => Some("The topics of its topology are not all there".into()),
        "Empty" if row.lag.unwrap_or(0) > 0 => {
            Some("It has no members, and its offsets do not change: no consumer runs".into())
        }
        "Empty" => Some("It has no members".into()),
        _ if lost > 0 => Some(format!(
            "In {lost} partitions the committed offset is before the start of the log: those records are gone, and \
             auto.offset.reset decides where it continues"
        )),
        _ if unowned > 0 => Some(format!(
            "{unowned} partitions with lag are assigned to no member"
        )),
        _ => None,
    }
}

pub(super) async fn delete(
    visitor: Visitor,
    Path(id): Path<String>,
    Query(confirmation): Query<Confirmation>,
) -> Result<StatusCode, Problem> {
    confirmation.check(&id)?;
    let results = visitor.admin.delete_groups(std::slice::from_ref(&id)).await;
    visitor.view.outdate();
    match results.into_values().next() {
        Some(Err(error)) if error.code() == Some(ErrorCode::NonEmptyGroup) => {
            Err(Problem::from(ClientError::broker(
                format!("group {id}"),
                ErrorCode::NonEmptyGroup.code(),
                Some("it has members; stop them first"),
            )))
        }
        Some(result) => Ok(result.map(|()| StatusCode::NO_CONTENT)?),
        None => Ok(StatusCode::NO_CONTENT),
    }
}
