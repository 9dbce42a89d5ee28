//! Carrying out a plan to its end, with its progress, and cancelling it.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use ottla_rebalance_apply::{Apply, ApplyError, Targets};
use serde::{Deserialize, Serialize};

use crate::console::{Console, Visitor};
use crate::extract::Body;
use crate::problem::Problem;
use crate::rebalancing::{Rebalance, RebalanceMoment, RebalanceState, Work};
use crate::visit::Visit;

/// Partitions that move from or to one broker at a time.
const DEFAULT_MOVES: usize = 5;
const MOST_PARTITIONS: usize = 100_000;
/// Of one partition.
const MOST_REPLICAS: usize = 1000;
/// Kafka: `Topic.MAX_NAME_LENGTH`.
const MOST_TOPIC_BYTES: usize = 249;
/// Of a partition of the plan, and of each of its replicas, while it is carried out.
const PARTITION_BYTES: usize = 1024;
const REPLICA_BYTES: usize = 32;
/// As `ottla rebalance`: a slower throttle stops the brokers from following.
const LEAST_THROTTLE: u64 = 1024;

#[derive(Deserialize)]
pub(in crate::api) struct Planned {
    partitions: Vec<PlannedPartition>,
    /// Bytes per second that each broker sends and receives for moves. No throttle without it.
    throttle: Option<u64>,
    /// Partitions that move from or to one broker at a time.
    moves_per_broker: Option<usize>,
}

#[derive(Deserialize)]
struct PlannedPartition {
    topic: String,
    partition: i32,
    replicas: Vec<i32>,
}

#[derive(Serialize)]
pub(in crate::api) struct Progress {
    /// The one that is running, or the newest one, of all sessions of the user.
    rebalance: Option<RebalanceMoment>,
}

pub(in crate::api) async fn progress(
    State(console): State<Arc<Console>>,
    visitor: Visitor,
) -> Json<Progress> {
    let rebalance = newest(&console, &visitor).map(|it| it.moment());
    Json(Progress { rebalance })
}

/// Without logins, all users have one visit, which is not among the sessions.
fn newest(console: &Console, visit: &Visit) -> Option<Arc<Rebalance>> {
    let own = visit.rebalancing.newest().into_iter();
    let all = own.chain(console.sessions.rebalances_of(visit));
    all.max_by_key(|it| it.rank())
}

pub(in crate::api) async fn start(
    State(console): State<Arc<Console>>,
    visitor: Visitor,
    Body(planned): Body<Planned>,
) -> Result<Json<Progress>, Problem> {
    if let Some(throttle) = planned.throttle.filter(|it| *it < LEAST_THROTTLE) {
        return Err(Problem::invalid(
            "throttle",
            format!(
                "throttle={throttle}: give at least {LEAST_THROTTLE} bytes per second, or leave it out"
            ),
        ));
    }
    let (throttle, moves) = (planned.throttle, planned.moves_per_broker);
    let moves = moves.unwrap_or(DEFAULT_MOVES).max(1);
    let targets = targets_of(planned.partitions)?;
    visitor.rebalancing.check_free()?;
    // From before the look for moves of others: two that begin at the same time would not see each other's.
    let place = {
        let _changes = console.throttle_changes.lock().await;
        console.rebalances.clone().try_acquire_owned()
    };
    let place = place.map_err(|_| {
        Problem::conflict("a rebalance of another session is in progress; wait for its end")
    })?;
    visitor.note.names(format!(
        "{} partitions, {}",
        targets.len(),
        match throttle {
            Some(throttle) => format!("throttle {throttle} B/s"),
            None => "no throttle".to_owned(),
        }
    ));
    let reservation = visitor.budget.reserve(bytes_of(&targets))?;
    let admin = visitor.patient_admin(&console.config().client).await?;
    let apply = Apply::prepare(&admin, &targets, "the plan", moves);
    let work = Work {
        apply: apply.await.map_err(problem)?,
        admin,
        targets,
        throttle,
        _reservation: reservation,
        _place: place,
    };
    let (note, visit) = (visitor.note.clone(), visitor.visit.clone());
    let on_end = move |moment: &RebalanceMoment| {
        visit.view.outdate();
        note.later(match moment.state {
            RebalanceState::Done => "the rebalance is done",
            RebalanceState::Cancelled => "the rebalance is cancelled",
            _ => "the rebalance has failed",
        });
    };
    let visit = visitor.visit.clone();
    let gone = async move { visit.ended().await };
    let rebalance = visitor.rebalancing.start(work, gone, on_end)?;
    visitor.view.outdate();
    Ok(Json(Progress {
        rebalance: Some(rebalance.moment()),
    }))
}

/// Stops the rebalance, with the moves that are in progress.
pub(in crate::api) async fn cancel(
    State(console): State<Arc<Console>>,
    visitor: Visitor,
) -> Result<Json<Progress>, Problem> {
    let rebalance = newest(&console, &visitor).ok_or_else(|| {
        Problem::not_found("you have started no rebalance; GET /api/reassignments has what moves")
    })?;
    rebalance.cancel()?;
    visitor.note.names("the rebalance");
    Ok(Json(Progress {
        rebalance: Some(rebalance.moment()),
    }))
}

/// The memory that a plan takes while it is carried out.
fn bytes_of(targets: &Targets) -> usize {
    let replicas: usize = targets.values().map(Vec::len).sum();
    targets.len() * PARTITION_BYTES + replicas * REPLICA_BYTES
}

fn targets_of(partitions: Vec<PlannedPartition>) -> Result<Targets, Problem> {
    let invalid = |detail: String| Problem::invalid("partitions", detail);
    let count = partitions.len();
    if !(1..=MOST_PARTITIONS).contains(&count) {
        return Err(invalid(format!(
            "{count} partitions; give 1 to {MOST_PARTITIONS}"
        )));
    }
    let mut targets = Targets::new();
    for PlannedPartition {
        topic,
        partition,
        replicas,
    } in partitions
    {
        if topic.len() > MOST_TOPIC_BYTES {
            return Err(invalid(format!(
                "a topic with {} bytes; a name has at most {MOST_TOPIC_BYTES}",
                topic.len()
            )));
        }
        let name = format!("{topic}-{partition}");
        let count = replicas.len();
        if count > MOST_REPLICAS {
            return Err(invalid(format!(
                "{name} with {count} replicas; give at most {MOST_REPLICAS}"
            )));
        }
        let different: BTreeSet<&i32> = replicas.iter().collect();
        if replicas.is_empty() || different.len() < count {
            return Err(invalid(format!(
                "{name}: replicas={replicas:?}: give one broker or more, each once"
            )));
        }
        if targets.insert((topic, partition), replicas).is_some() {
            return Err(invalid(format!("{name} is there twice; give it once")));
        }
    }
    Ok(targets)
}

fn problem(error: ApplyError) -> Problem {
    match error {
        ApplyError::Client(error) => error.into(),
        ApplyError::Refused(sentence) => Problem::conflict(sentence),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ottla_client::ClientConfig;

    use super::*;
    use crate::audit::AuditNote;
    use crate::config::ConsoleConfig;

    #[tokio::test]
    async fn sessions_carry_out_one_plan_at_a_time() {
        // There is no cluster.
        let mut client = ClientConfig::new("127.0.0.1:1").unwrap();
        client.default_api_timeout = Duration::from_millis(100);
        let address = "127.0.0.1:9080".parse().unwrap();
        let console = Arc::new(Console::new(ConsoleConfig::new(client), address));
        let started = async || {
            let visitor = Visitor {
                visit: console.visit(&Default::default()).unwrap(),
                note: AuditNote::default(),
            };
            let plan = r#"{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}"#;
            let planned = serde_json::from_str(plan).unwrap();
            let started = start(State(console.clone()), visitor, Body(planned)).await;
            started.err().unwrap()
        };
        let other = console.rebalances.clone().try_acquire_owned().unwrap();
        let refused = started().await;
        assert!(
            refused.detail().contains("another session"),
            "{}",
            refused.detail()
        );
        drop(other);
        // One that cannot begin leaves the place to others.
        for _ in 0..2 {
            assert_ne!(started().await.status(), 409);
        }
    }

    #[test]
    fn a_plan_names_each_partition_and_each_broker_once() {
        let of = |text: &str| {
            let planned: Planned = serde_json::from_str(text).unwrap();
            targets_of(planned.partitions).map_err(|it| it.detail().to_owned())
        };
        let one = r#"{"topic": "t", "partition": 0, "replicas": [1, 2]}"#;
        let targets = of(&format!(r#"{{"partitions": [{one}]}}"#)).unwrap();
        assert_eq!(targets[&("t".to_owned(), 0)], [1, 2]);
        let many = format!("{:?}", (0..1001).collect::<Vec<i32>>());
        for (partitions, says) in [
            (String::new(), "0 partitions"),
            (format!("{one}, {one}"), "t-0 is there twice"),
            (one.replace("[1, 2]", "[1, 1]"), "t-0: replicas=[1, 1]"),
            (one.replace("[1, 2]", "[]"), "t-0: replicas=[]"),
            (one.replace("[1, 2]", &many), "t-0 with 1001 replicas"),
            (
                one.replace("\"t\"", &format!("\"{}\"", "t".repeat(250))),
                "a topic with 250 bytes",
            ),
        ] {
            let refused = of(&format!(r#"{{"partitions": [{partitions}]}}"#)).unwrap_err();
            assert!(refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn a_plan_with_many_replicas_takes_more_memory() {
        let of = |replicas: usize| {
            let replicas = (0..).take(replicas).collect();
            bytes_of(&Targets::from([(("t".to_owned(), 0), replicas)]))
        };
        assert_eq!(of(1000) - of(1), 999 * REPLICA_BYTES);
    }
}
