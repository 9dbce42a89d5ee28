//! Reassignments and leader elections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use ottla_client::ClientError;
use ottla_client::admin::{ElectionType, EndpointType};
use ottla_types::ErrorCode;
use serde::{Deserialize, Serialize};
use tokio::sync::{MutexGuard, OwnedSemaphorePermit};

use crate::console::{Console, Visitor};
use crate::extract::{Body, Query};
use crate::list::{Items, ListQuery, Page};
use crate::problem::Problem;
use crate::view::{Partition, Snapshot};

/// Partitions in one request.
const MOST_PARTITIONS: usize = 1000;
/// Topics whose throttles are requested at a time.
const TOPICS_PER_REQUEST: usize = 500;
/// How old the sizes of the copies in progress may be. Every tab requests them every 2 s.
const PROGRESS_AGE: Duration = Duration::from_secs(5);

#[derive(Serialize)]
pub(super) struct Reassignment {
    topic: String,
    partition: i32,
    replicas: Vec<i32>,
    adding: Vec<i32>,
    removing: Vec<i32>,
    /// Of the leader's replica.
    bytes: Option<i64>,
    /// Of the new replica with the largest lag.
    copied_bytes: Option<i64>,
}

pub(super) async fn list(
    visitor: Visitor,
    Query(list): Query<ListQuery>,
) -> Result<Json<Page<Reassignment>>, Problem> {
    let reassignments = visitor.admin.list_partition_reassignments().await?;
    if !reassignments.is_empty() {
        // Sizes that tell how far the copies are.
        visitor.view.outdate_if_older(PROGRESS_AGE);
    }
    let snapshot = visitor.view.snapshot().await?;
    let items = reassignments
        .into_iter()
        .filter(|((topic, _), _)| list.matches(topic))
        .map(|(key, it)| {
            let copied = it
                .adding_replicas
                .iter()
                .map(|id| replica_bytes(&snapshot, &key, *id));
            Reassignment {
                bytes: leader_bytes(&snapshot, &key),
                copied_bytes: copied.map(|it| it.unwrap_or(0)).min(),
                topic: key.0,
                partition: key.1,
                replicas: it.replicas,
                adding: it.adding_replicas,
                removing: it.removing_replicas,
            }
        });
    Ok(Json(list.page_in_order(items.collect())?))
}

fn leader_bytes(snapshot: &Snapshot, (topic, partition): &Partition) -> Option<i64> {
    let topic = snapshot.topics.get(topic)?;
    let partitions = &topic.info.partitions;
    let index = partitions
        .iter()
        .position(|it| it.partition == *partition)?;
    topic.leader_bytes.get(index).copied().flatten()
}

fn replica_bytes(snapshot: &Snapshot, (topic, partition): &Partition, broker: i32) -> Option<i64> {
    let broker = snapshot.brokers.iter().find(|it| it.id == broker)?;
    let topics = broker.log_dirs.iter().flatten().flat_map(|dir| &dir.topics);
    let of_topic = topics.filter(|it| *it.name == **topic);
    let mut replicas = of_topic.flat_map(|it| &it.partitions);
    replicas
        .find(|it| it.partition_index == *partition)
        .map(|it| it.partition_size)
}

#[derive(Deserialize)]
pub(super) struct Plan {
    partitions: Vec<PlannedPartition>,
    /// Bytes per second that each broker sends and receives for moves. No throttle without it.
    throttle: Option<i64>,
}

#[derive(Deserialize)]
struct PlannedPartition {
    topic: String,
    partition: i32,
    /// `None` cancels a reassignment.
    replicas: Option<Vec<i32>>,
}

#[derive(Serialize)]
pub(super) struct PartitionResult {
    topic: String,
    partition: i32,
    problem: Option<String>,
}

fn check_count(count: usize) -> Result<(), Problem> {
    match count {
        1..=MOST_PARTITIONS => Ok(()),
        _ => Err(Problem::invalid(
            "partitions",
            format!("{count} partitions; give 1 to {MOST_PARTITIONS}"),
        )),
    }
}

/// The place of the only rebalance of the console, which has its own throttles. Kept, so that no rebalance starts
/// meanwhile.
async fn without_rebalance(
    console: &Console,
) -> Result<(MutexGuard<'_, ()>, OwnedSemaphorePermit), Problem> {
    let changes = console.throttle_changes.lock().await;
    match console.rebalances.clone().try_acquire_owned() {
        Ok(place) => Ok((changes, place)),
        Err(_) => Err(Problem::conflict(
            "a rebalance is in progress, and needs its throttles; wait for its end, or cancel it",
        )),
    }
}

pub(super) async fn start(
    State(console): State<Arc<Console>>,
    visitor: Visitor,
    Body(plan): Body<Plan>,
) -> Result<Json<Items<PartitionResult>>, Problem> {
    check_count(plan.partitions.len())?;
    let throttle = plan.throttle;
    if let Some(throttle) = throttle.filter(|it| *it < 1) {
        return Err(Problem::invalid(
            "throttle",
            format!("throttle={throttle}: give bytes per second, 1 or more, or leave it out"),
        ));
    }
    let _place = match throttle {
        Some(_) => Some(without_rebalance(&console).await?),
        None => None,
    };
    let plan: BTreeMap<Partition, Option<Vec<i32>>> = plan
        .partitions
        .into_iter()
        .map(|it| ((it.topic, it.partition), it.replicas))
        .collect();
    let names = named(plan.keys());
    match throttle {
        Some(throttle) => {
            visitor
                .note
                .names(format!("throttle {throttle} B/s: {names}"));
            limit(&visitor, &plan, throttle).await?;
        }
        None => visitor.note.names(names),
    }
    let results = visitor
        .admin
        .alter_partition_reassignments(&plan, true)
        .await?;
    visitor.view.outdate();
    let items = results
        .into_iter()
        .map(|(partition, result)| PartitionResult {
            topic: partition.0,
            partition: partition.1,
            problem: result.err().map(|error| error.to_string()),
        });
    Ok(Json(Items {
        items: items.collect(),
    }))
}

/// Throttles these moves and those in progress, before they start.
async fn limit(
    visitor: &Visitor,
    plan: &BTreeMap<Partition, Option<Vec<i32>>>,
    throttle: i64,
) -> Result<(), Problem> {
    let started = plan.iter();
    let started = started.filter_map(|(key, it)| Some((key.clone(), it.clone()?)));
    let mut proposed: BTreeMap<Partition, Vec<i32>> = started.collect();
    let topics: BTreeSet<&String> = proposed.keys().map(|(topic, _)| topic).collect();
    let topics: Vec<String> = topics.into_iter().cloned().collect();
    let metadata = visitor
        .client()
        .refresh_metadata(Some(topics.as_slice()), false)
        .await?;
    let running: BTreeSet<i32> = metadata.brokers.keys().copied().collect();
    let mut current: BTreeMap<Partition, Vec<i32>> = BTreeMap::new();
    for topic in metadata.topics.values() {
        for it in &topic.partitions {
            let replicas = among(&running, &it.replicas);
            current.insert((topic.name.clone(), it.partition), replicas);
        }
    }
    for replicas in proposed.values_mut() {
        *replicas = among(&running, replicas);
    }
    let mut ongoing = visitor.admin.list_partition_reassignments().await?;
    for it in ongoing.values_mut() {
        it.replicas = among(&running, &it.replicas);
        it.adding_replicas = among(&running, &it.adding_replicas);
    }
    visitor
        .admin
        .limit_replication(&ongoing, &current, &proposed, throttle)
        .await?;
    Ok(())
}

/// A broker that does not run cannot be configured, and sends and receives nothing. One that stays a
/// replica must not keep the others from being throttled.
fn among(running: &BTreeSet<i32>, replicas: &[i32]) -> Vec<i32> {
    let replicas = replicas.iter().copied();
    replicas.filter(|id| running.contains(id)).collect()
}

#[derive(Serialize)]
pub(super) struct Unthrottled {
    brokers: usize,
    topics: usize,
}

/// Removes the throttles of moves, also throttles that another tool has set. Refused while
/// partitions move, and during a rebalance of the console, in which sometimes none do.
pub(super) async fn unthrottle(
    State(console): State<Arc<Console>>,
    visitor: Visitor,
) -> Result<Json<Unthrottled>, Problem> {
    let _place = without_rebalance(&console).await?;
    let ongoing = visitor.admin.list_partition_reassignments().await?;
    if !ongoing.is_empty() {
        return Err(Problem::conflict(format!(
            "{} partitions are being reassigned, and need their throttles; wait until they are done, or cancel them",
            ongoing.len()
        )));
    }
    let cluster = visitor
        .admin
        .describe_cluster(EndpointType::Broker, false)
        .await?;
    let brokers: BTreeSet<i32> = cluster.brokers.iter().map(|it| it.broker_id).collect();
    visitor.admin.clear_throttle_rates(&brokers).await?;
    let snapshot = visitor.view.snapshot().await?;
    let names: Vec<String> = snapshot.topics.keys().cloned().collect();
    let mut topics = 0;
    for names in names.chunks(TOPICS_PER_REQUEST) {
        let throttled = visitor.admin.throttled_topics(names).await?;
        let throttled: Vec<&str> = throttled.iter().map(String::as_str).collect();
        visitor.admin.clear_throttled_replicas(&throttled).await?;
        topics += throttled.len();
    }
    let brokers = brokers.len();
    visitor
        .note
        .names(format!("{brokers} brokers, {topics} topics"));
    Ok(Json(Unthrottled { brokers, topics }))
}

fn named<'a>(partitions: impl Iterator<Item = &'a Partition>) -> String {
    let names: Vec<String> = partitions
        .map(|(topic, it)| format!("{topic}-{it}"))
        .collect();
    names.join(", ")
}

#[derive(Deserialize)]
pub(super) struct Election {
    r#type: Kind,
    partitions: Option<Vec<ElectedPartition>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Preferred,
    Unclean,
}

#[derive(Deserialize)]
struct ElectedPartition {
    topic: String,
    partition: i32,
}

pub(super) async fn elect(
    visitor: Visitor,
    Body(election): Body<Election>,
) -> Result<Json<Items<PartitionResult>>, Problem> {
    let partitions = election.partitions.map(|partitions| {
        let keys = partitions.into_iter().map(|it| (it.topic, it.partition));
        keys.collect::<BTreeSet<Partition>>()
    });
    match &partitions {
        Some(partitions) => {
            check_count(partitions.len())?;
            visitor.note.names(named(partitions.iter()));
        }
        None if election.r#type == Kind::Unclean => {
            return Err(Problem::invalid(
                "partitions",
                "an unclean election loses records; name the partitions",
            ));
        }
        None => {}
    }
    let how = match election.r#type {
        Kind::Preferred => ElectionType::Preferred,
        Kind::Unclean => ElectionType::Unclean,
    };
    let results = visitor
        .admin
        .elect_leaders(how, partitions.as_ref())
        .await?;
    visitor.view.outdate();
    let items = results.into_iter().flat_map(|topic| {
        let name = topic.topic.to_string();
        topic.partition_result.into_iter().map(move |it| {
            // The leader is the one that was to be elected.
            let is_done = matches!(
                ErrorCode::from_code(it.error_code),
                ErrorCode::None | ErrorCode::ElectionNotNeeded
            );
            let what = format!("electing a leader of {name}-{}", it.partition_id);
            let error = ClientError::check(what, it.error_code, it.error_message.as_ref()).err();
            PartitionResult {
                topic: name.clone(),
                partition: it.partition_id,
                problem: error.filter(|_| !is_done).map(|it| it.to_string()),
            }
        })
    });
    Ok(Json(Items {
        items: items.collect(),
    }))
}

#[cfg(test)]
mod tests {
    use ottla_client::ClientConfig;

    use super::*;
    use crate::audit::AuditNote;
    use crate::config::ConsoleConfig;

    #[tokio::test]
    async fn a_rebalance_of_any_session_keeps_its_throttles() {
        // There is no cluster.
        let mut client = ClientConfig::new("127.0.0.1:1").unwrap();
        client.default_api_timeout = Duration::from_millis(100);
        let address = "127.0.0.1:9080".parse().unwrap();
        let console = Arc::new(Console::new(ConsoleConfig::new(client), address));
        let visitor = || Visitor {
            visit: console.visit(&Default::default()).unwrap(),
            note: AuditNote::default(),
        };
        let removing = async || {
            let removed = unthrottle(State(console.clone()), visitor()).await;
            removed.err().unwrap().status()
        };
        let starting = async |throttle: Option<i64>| {
            let moved = PlannedPartition {
                topic: "t".into(),
                partition: 0,
                replicas: Some(vec![1]),
            };
            let plan = Plan {
                partitions: vec![moved],
                throttle,
            };
            let started = start(State(console.clone()), visitor(), Body(plan)).await;
            started.err().unwrap().status()
        };
        let rebalance = console.rebalances.clone().try_acquire_owned().unwrap();
        assert_eq!((removing().await, starting(Some(5)).await), (409, 409));
        // It needs no throttle, and meets the cluster.
        assert_eq!(starting(None).await, 502);
        drop(rebalance);
        assert_eq!((removing().await, starting(Some(5)).await), (502, 502));
        // One waits for the other.
        let both = tokio::join!(starting(Some(5)), starting(Some(6)));
        assert_eq!(both, (502, 502));
    }

    #[test]
    fn brokers_that_do_not_run_are_not_throttled() {
        let running = BTreeSet::from([1, 3, 4]);
        assert_eq!(among(&running, &[3, 2, 1]), [3, 1]);
        assert!(among(&running, &[2]).is_empty());
    }
}
