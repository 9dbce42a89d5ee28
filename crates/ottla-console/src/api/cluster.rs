//! The overview of the cluster.

use axum::Json;
use ottla_protocol::messages::describe_quorum_response::ReplicaState;
use serde::Serialize;

use super::health::{self, Health};
use crate::console::Visitor;
use crate::problem::Problem;
use crate::view::{Broker, Feature, Group, Snapshot, Topic, sum_of_known};

#[derive(Serialize)]
pub(super) struct Cluster {
    as_of: i64,
    cluster_id: Option<String>,
    #[serde(flatten)]
    health: Health,
    brokers: Vec<BrokerRow>,
    quorum: Option<Quorum>,
    features: Vec<Feature>,
    totals: Totals,
}

#[derive(Serialize)]
pub(super) struct BrokerRow {
    id: i32,
    host: String,
    port: i32,
    rack: Option<String>,
    is_fenced: bool,
    leaders: usize,
    replicas: usize,
    bytes: Option<i64>,
    log_dirs: Option<usize>,
    offline_log_dirs: Option<usize>,
    total_bytes: Option<i64>,
    usable_bytes: Option<i64>,
}

#[derive(Serialize)]
struct Quorum {
    leader: i32,
    leader_epoch: i32,
    high_watermark: i64,
    voters: Vec<QuorumNode>,
    observers: Vec<QuorumNode>,
}

#[derive(Serialize)]
struct QuorumNode {
    id: i32,
    log_end_offset: i64,
    lag: i64,
    last_fetch: Option<i64>,
    last_caught_up: Option<i64>,
}

#[derive(Serialize)]
struct Totals {
    topics: usize,
    partitions: usize,
    under_replicated: usize,
    under_min_isr: usize,
    offline: usize,
    bytes: Option<i64>,
    records: Option<i64>,
    groups: Option<usize>,
    lag: Option<i64>,
    records_per_second: Option<f64>,
}

pub(super) async fn get(visitor: Visitor) -> Result<Json<Cluster>, Problem> {
    let snapshot = visitor.view.snapshot().await?;
    let brokers = snapshot.brokers.iter();
    Ok(Json(Cluster {
        as_of: snapshot.at,
        cluster_id: snapshot.cluster_id.clone(),
        health: health::of(&snapshot),
        brokers: brokers.map(|it| broker_row(&snapshot, it)).collect(),
        quorum: quorum(&snapshot),
        features: snapshot.features.clone(),
        totals: totals(&snapshot),
    }))
}

pub(super) fn broker_row(snapshot: &Snapshot, broker: &Broker) -> BrokerRow {
    let partitions = || snapshot.topics.values().flat_map(|it| &it.info.partitions);
    let dirs = broker.log_dirs.as_deref();
    let sum = |of: fn(
        &ottla_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult,
    ) -> i64| {
        let known = dirs?.iter().map(of).filter(|bytes| *bytes >= 0);
        let known: Vec<i64> = known.collect();
        (!known.is_empty()).then(|| known.iter().sum())
    };
    BrokerRow {
        id: broker.id,
        host: broker.host.clone(),
        port: broker.port,
        rack: broker.rack.clone(),
        is_fenced: broker.is_fenced,
        leaders: partitions().filter(|it| it.leader == broker.id).count(),
        replicas: partitions()
            .filter(|it| it.replicas.contains(&broker.id))
            .count(),
        bytes: dirs.map(|dirs| {
            let topics = dirs.iter().flat_map(|dir| &dir.topics);
            let partitions = topics.flat_map(|topic| &topic.partitions);
            partitions.map(|it| it.partition_size).sum()
        }),
        log_dirs: dirs.map(<[_]>::len),
        offline_log_dirs: dirs.map(|dirs| dirs.iter().filter(|it| it.error_code != 0).count()),
        total_bytes: sum(|dir| dir.total_bytes),
        usable_bytes: sum(|dir| dir.usable_bytes),
    }
}

fn quorum(snapshot: &Snapshot) -> Option<Quorum> {
    let state = &snapshot.quorum.as_ref()?.state;
    let voters = &state.current_voters;
    let end = voters
        .iter()
        .find(|it| it.replica_id == state.leader_id)
        .map_or(state.high_watermark, |it| it.log_end_offset);
    let node = |it: &ReplicaState| QuorumNode {
        id: it.replica_id,
        log_end_offset: it.log_end_offset,
        lag: (end - it.log_end_offset).max(0),
        last_fetch: Some(it.last_fetch_timestamp).filter(|it| *it >= 0),
        last_caught_up: Some(it.last_caught_up_timestamp).filter(|it| *it >= 0),
    };
    Some(Quorum {
        leader: state.leader_id,
        leader_epoch: state.leader_epoch,
        high_watermark: state.high_watermark,
        voters: voters.iter().map(node).collect(),
        observers: state.observers.iter().map(node).collect(),
    })
}

fn totals(snapshot: &Snapshot) -> Totals {
    let topics = || snapshot.topics.values();
    let rates: Vec<f64> = topics().filter_map(|it| it.records_per_second).collect();
    let groups = snapshot.groups.as_ref();
    Totals {
        topics: topics().count(),
        partitions: topics().map(|it| it.info.partitions.len()).sum(),
        under_replicated: topics().map(Topic::under_replicated).sum(),
        under_min_isr: topics().map(Topic::under_min_isr).sum(),
        offline: topics().map(Topic::offline).sum(),
        bytes: sum_of_known(topics().map(|it| it.bytes)),
        records: sum_of_known(topics().map(Topic::records)),
        groups: groups.map(|it| it.len()),
        lag: groups.and_then(|it| sum_of_known(it.values().map(Group::lag))),
        records_per_second: (!rates.is_empty()).then(|| rates.iter().sum()),
    }
}
