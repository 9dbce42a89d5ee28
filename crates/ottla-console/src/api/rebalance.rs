//! Plans of a rebalance: the moves, their cost, and the state of each broker afterwards. Nothing is
//! changed here; `apply` carries a plan out.
//!
//! The goals of `ottla rebalance`, except bytes in: a snapshot does not measure the write rate of
//! producers.

pub(super) mod apply;
mod image;

use std::collections::BTreeSet;

use axum::Json;
use ottla_rebalance::{BrokerLoad, Image, Options, PlanError, Unmet};
use serde::{Deserialize, Serialize};

use self::image::image;
use crate::console::Visitor;
use crate::extract::Query;
use crate::problem::Problem;

/// Bytes per second that a broker sends or receives, for the estimated time.
const DEFAULT_RATE: u64 = 50_000_000;
/// Of a partition, while it is planned.
const PARTITION_BYTES: usize = 1024;

#[derive(Deserialize)]
pub(super) struct PlanQuery {
    /// Brokers, separated by commas.
    #[serde(default)]
    added: String,
    #[serde(default)]
    emptied: String,
    max_disk_percent: Option<u32>,
    tolerance_percent: Option<u32>,
    #[serde(default)]
    ignores_racks: bool,
    rate: Option<u64>,
}

#[derive(Serialize)]
pub(super) struct PlanAnswer {
    brokers: Vec<BrokerChange>,
    changes: Vec<PartitionChange>,
    /// Replicas that are copied.
    moves: usize,
    bytes: u64,
    /// At least, if no broker sends or receives more than the rate.
    seconds: u64,
    rate: u64,
    /// The broker that copies most.
    busiest: Option<i32>,
    unmet: Vec<UnmetGoal>,
}

#[derive(Serialize)]
struct BrokerChange {
    id: i32,
    rack: Option<String>,
    before: Load,
    after: Load,
}

#[derive(Serialize)]
struct Load {
    replicas: u64,
    leaders: u64,
    bytes: u64,
    disk_percent: Option<u64>,
}

#[derive(Serialize)]
struct PartitionChange {
    topic: String,
    partition: i32,
    before: Vec<i32>,
    replicas: Vec<i32>,
    added: Vec<i32>,
    removed: Vec<i32>,
    /// Of one replica.
    bytes: u64,
    changes_leader: bool,
}

#[derive(Serialize)]
struct UnmetGoal {
    goal: &'static str,
    broker: Option<i32>,
    /// Replicas or leaders; percent of a disk; partitions that crowd a rack.
    has: u64,
    lower: Option<u64>,
    upper: Option<u64>,
}

pub(super) async fn plan(
    visitor: Visitor,
    Query(query): Query<PlanQuery>,
) -> Result<Json<PlanAnswer>, Problem> {
    let options = query.options()?;
    let rate = query.rate.unwrap_or(DEFAULT_RATE);
    if rate == 0 {
        return Err(Problem::invalid(
            "rate",
            "rate=0: give bytes per second, 1 or more",
        ));
    }
    let ongoing = visitor.admin.list_partition_reassignments().await?;
    if let Some(((topic, partition), _)) = ongoing.first_key_value() {
        return Err(Problem::conflict(format!(
            "{} partitions are being reassigned, {topic}-{partition} first; wait until they are done, or cancel them",
            ongoing.len()
        )));
    }
    // The plan is about the cluster as it is now.
    visitor.view.outdate();
    let snapshot = visitor.view.snapshot().await?;
    let topics = snapshot.topics.values();
    let partitions: usize = topics.map(|it| it.info.partitions.len()).sum();
    let reservation = visitor.budget.reserve(partitions * PARTITION_BYTES)?;
    // It takes a second for very many partitions, and other tasks wait.
    let planned = tokio::task::spawn_blocking(move || {
        // Held until the plan is made, even if the caller is gone.
        let _reservation = reservation;
        let image = image(&snapshot);
        let planned = ottla_rebalance::plan(&image, &options);
        planned.map(|plan| answer(&image, &plan, rate))
    });
    let planned = planned.await;
    let planned = planned.map_err(|error| Problem::internal(error.to_string()))?;
    planned.map(Json).map_err(|error| refused(&error))
}

impl PlanQuery {
    fn options(&self) -> Result<Options, Problem> {
        let defaults = Options::default();
        let percent = |field: &'static str, given: Option<u32>, default: u32| match given {
            None => Ok(default),
            Some(it @ 1..=100) => Ok(it),
            Some(it) => Err(Problem::invalid(
                field,
                format!("{field}={it}: give 1 to 100"),
            )),
        };
        Ok(Options {
            added: brokers("added", &self.added)?,
            emptied: brokers("emptied", &self.emptied)?,
            max_disk_percent: percent(
                "max_disk_percent",
                self.max_disk_percent,
                defaults.max_disk_percent,
            )?,
            tolerance_percent: percent(
                "tolerance_percent",
                self.tolerance_percent,
                defaults.tolerance_percent,
            )?,
            ignores_racks: self.ignores_racks,
        })
    }
}

fn brokers(field: &'static str, list: &str) -> Result<BTreeSet<i32>, Problem> {
    let ids = list.split(',').map(str::trim).filter(|it| !it.is_empty());
    let ids = ids.map(|it| {
        it.parse::<i32>().map_err(|_| {
            Problem::invalid(
                field,
                format!("{field}={list}: {it} is no broker; give numbers separated by commas"),
            )
        })
    });
    ids.collect()
}

/// The error in the words of this API.
fn refused(error: &PlanError) -> Problem {
    let text = error.to_string();
    let text = text
        .replace("--max-disk-used", "max_disk_percent")
        .replace("give --ignore-racks", "ignore racks");
    Problem::conflict(text)
}

fn answer(image: &Image, plan: &ottla_rebalance::Plan, rate: u64) -> PlanAnswer {
    let changes = plan.changes.iter().map(|change| {
        let partition = &image.partitions[change.partition];
        PartitionChange {
            topic: partition.topic.clone(),
            partition: partition.number,
            before: partition.replicas.iter().map(|it| it.broker).collect(),
            replicas: change.replicas.clone(),
            added: change.added.clone(),
            removed: change.removed.clone(),
            bytes: partition.size_bytes,
            changes_leader: change.changes_leader,
        }
    });
    let brokers = image.brokers.iter().zip(&plan.brokers);
    PlanAnswer {
        changes: changes.collect(),
        brokers: brokers
            .map(|(broker, (before, after))| BrokerChange {
                id: broker.id,
                rack: broker.rack.clone(),
                before: load(before),
                after: load(after),
            })
            .collect(),
        moves: plan.moves(),
        bytes: plan.cost.bytes(),
        seconds: plan.cost.seconds_at(rate),
        rate,
        busiest: plan.cost.busiest().map(|(broker, _)| broker),
        unmet: plan.unmet.iter().map(unmet).collect(),
    }
}

fn load(load: &BrokerLoad) -> Load {
    Load {
        replicas: load.replicas,
        leaders: load.leaders,
        bytes: load.bytes,
        disk_percent: load.disk_percent,
    }
}

fn unmet(goal: &Unmet) -> UnmetGoal {
    let of = |goal, broker, has, range: Option<(u64, u64)>| UnmetGoal {
        goal,
        broker,
        has,
        lower: range.map(|it| it.0),
        upper: range.map(|it| it.1),
    };
    match *goal {
        Unmet::Racks { partitions, .. } => of("racks", None, partitions as u64, None),
        Unmet::Disk { broker, percent } => of("disk", Some(broker), percent, None),
        Unmet::Replicas {
            broker,
            has,
            lower,
            upper,
        } => of("replicas", Some(broker), has, Some((lower, upper))),
        Unmet::Leaders {
            broker,
            has,
            lower,
            upper,
        } => of("leaders", Some(broker), has, Some((lower, upper))),
        Unmet::BytesIn {
            broker,
            has,
            lower,
            upper,
        } => of("bytes_in", Some(broker), has, Some((lower, upper))),
    }
}

#[cfg(test)]
mod tests {
    use ottla_rebalance::{Broker, LogDir, Partition, Replica};

    use super::*;

    /// One broker with all partitions, and an empty one.
    fn lopsided(partitions: i32) -> Image {
        let broker = |id| Broker {
            id,
            rack: None,
            is_alive: true,
            log_dirs: vec![LogDir {
                total_bytes: None,
                used_bytes: 0,
                accepts_replicas: true,
            }],
        };
        let partition = |number| Partition {
            topic: "t".into(),
            number,
            replicas: vec![Replica {
                broker: 1,
                log_dir: Some(0),
                is_in_sync: true,
            }],
            leader: Some(1),
            size_bytes: 1000,
            bytes_in: 0,
            is_movable: true,
        };
        Image {
            brokers: vec![broker(1), broker(2)],
            partitions: (0..partitions).map(partition).collect(),
        }
    }

    #[test]
    fn a_plan_says_what_moves_and_what_it_costs() {
        let image = lopsided(20);
        let plan = ottla_rebalance::plan(&image, &Options::default()).unwrap();
        let answer = answer(&image, &plan, 100);
        assert!(answer.moves >= 8 && answer.moves <= 12, "{}", answer.moves);
        assert_eq!(answer.bytes, answer.moves as u64 * 1000);
        assert_eq!(answer.seconds, answer.bytes / 100);
        let (one, other) = (&answer.brokers[0], &answer.brokers[1]);
        assert_eq!((one.before.replicas, other.before.replicas), (20, 0));
        assert_eq!(other.after.replicas, answer.moves as u64);
        assert!(answer.changes.iter().all(|it| it.added == [2]));
    }

    #[test]
    fn brokers_and_percentages_are_checked() {
        let query = |text: &str| -> PlanQuery { serde_json::from_str(text).unwrap() };
        let options = query(r#"{"added": "4, 5", "emptied": ""}"#)
            .options()
            .unwrap();
        assert_eq!(options.added, BTreeSet::from([4, 5]));
        assert!(options.emptied.is_empty());
        for wrong in [
            r#"{"added": "four"}"#,
            r#"{"max_disk_percent": 0}"#,
            r#"{"tolerance_percent": 101}"#,
        ] {
            let refused = query(wrong).options().err();
            assert_eq!(refused.map(|it| it.status()), Some(422), "{wrong}");
        }
        let impossible = ottla_rebalance::plan(
            &lopsided(1),
            &Options {
                emptied: BTreeSet::from([1, 2]),
                ..Options::default()
            },
        );
        assert_eq!(refused(&impossible.unwrap_err()).status(), 409);
    }
}
