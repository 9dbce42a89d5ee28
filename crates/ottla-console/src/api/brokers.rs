//! One broker with its log directories, and the activity of the broker beside which the console runs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use ottla_protocol::ApiKey;
use ottla_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use ottla_types::ErrorCode;
use serde::Serialize;

use super::cluster::{BrokerRow, broker_row};
use crate::console::{Console, Visitor};
use crate::extract::Path;
use crate::from_broker::{Activity, FromBroker};
use crate::problem::Problem;

/// Replicas of a log directory in the response.
const LARGEST: usize = 50;

#[derive(Serialize)]
pub(super) struct BrokerDetail {
    #[serde(flatten)]
    row: BrokerRow,
    dirs: Vec<LogDir>,
    api_versions: Vec<Api>,
    /// Of the broker beside which the console runs.
    activity: Option<Activity>,
}

#[derive(Serialize)]
struct LogDir {
    path: String,
    problem: Option<&'static str>,
    total_bytes: Option<i64>,
    usable_bytes: Option<i64>,
    is_cordoned: bool,
    bytes: i64,
    replicas: usize,
    /// The largest replicas.
    largest: Vec<Replica>,
}

#[derive(Serialize)]
struct Replica {
    topic: String,
    partition: i32,
    bytes: i64,
    offset_lag: i64,
    is_future: bool,
}

#[derive(Serialize)]
struct Api {
    api: String,
    min: i16,
    max: i16,
}

pub(super) async fn get(
    State(console): State<Arc<Console>>,
    visitor: Visitor,
    Path(id): Path<i32>,
) -> Result<Json<BrokerDetail>, Problem> {
    let snapshot = visitor.view.snapshot().await?;
    let broker = snapshot
        .brokers
        .iter()
        .find(|it| it.id == id)
        .ok_or_else(|| {
            Problem::not_found(format!(
                "broker {id} is not registered; the overview lists the brokers"
            ))
        })?;
    let versions = match broker.is_fenced {
        true => None,
        false => visitor.admin.api_versions(Some(id)).await.ok(),
    };
    let apis = versions
        .into_iter()
        .flat_map(|it| it.api_keys)
        .map(|it| Api {
            api: match ApiKey::from_code(it.api_key) {
                Some(known) => known.name().to_owned(),
                None => it.api_key.to_string(),
            },
            min: it.min_version,
            max: it.max_version,
        });
    // The broker does not decide who may see it: it is for users that may see the log directories. Old versions of the
    // request have no error, and a user without the right sees none.
    let dirs = broker.log_dirs.as_deref().unwrap_or_default();
    let activity = console.config().activity.as_ref();
    let activity = activity.filter(|_| !dirs.is_empty());
    let activity = activity.map(FromBroker::read).unwrap_or_default();
    Ok(Json(BrokerDetail {
        row: broker_row(&snapshot, broker),
        dirs: dirs.iter().map(log_dir).collect(),
        api_versions: apis.collect(),
        activity: activity.into_iter().find(|it| it.broker_id == id),
    }))
}

fn log_dir(dir: &DescribeLogDirsResult) -> LogDir {
    let mut replicas: Vec<Replica> = dir
        .topics
        .iter()
        .flat_map(|topic| {
            topic.partitions.iter().map(|it| Replica {
                topic: topic.name.to_string(),
                partition: it.partition_index,
                bytes: it.partition_size,
                offset_lag: it.offset_lag,
                is_future: it.is_future_key,
            })
        })
        .collect();
    let (count, bytes) = (replicas.len(), replicas.iter().map(|it| it.bytes).sum());
    replicas.sort_by_key(|it| std::cmp::Reverse(it.bytes));
    replicas.truncate(LARGEST);
    LogDir {
        path: dir.log_dir.to_string(),
        problem: (dir.error_code != 0).then(|| ErrorCode::from_code(dir.error_code).message()),
        total_bytes: Some(dir.total_bytes).filter(|it| *it >= 0),
        usable_bytes: Some(dir.usable_bytes).filter(|it| *it >= 0),
        is_cordoned: dir.is_cordoned,
        bytes,
        replicas: count,
        largest: replicas,
    }
}
