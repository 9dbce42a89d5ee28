//! What a plan file wants, and how far the cluster is: for each partition of the plan, whether it
//! waits, moves, or is where it shall be.
//!
//! Nothing else is remembered between two runs of `apply`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use ottla_client::Admin;
use ottla_client::admin::PartitionDescription;
use ottla_protocol::messages::list_partition_reassignments_response::OngoingPartitionReassignment;

use crate::tools::java_text::joined as ids;
use crate::tools::reassign_partitions::assignment_file::{
    Assignment, Partition, read_assignment, shown,
};
use crate::tools::reassign_partitions::is_unknown;

pub(super) type Targets = BTreeMap<Partition, Vec<i32>>;

/// Where a partition is on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// To be started. Without added brokers, only the order of the replicas changes.
    Waiting {
        added: Vec<i32>,
    },
    Moving {
        added: Vec<i32>,
    },
    /// Another reassignment moves it elsewhere.
    Elsewhere,
    /// All replicas are there, and the first could lead and does not.
    Electing,
    Done,
}

/// The cluster's side of a plan.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) phases: BTreeMap<Partition, Phase>,
    pub(super) descriptions: BTreeMap<Partition, PartitionDescription>,
    /// All that move, also those that are not part of the plan.
    pub(super) ongoing: BTreeMap<Partition, OngoingPartitionReassignment>,
}

/// Reads a plan file.
pub(super) fn read(path: &str) -> anyhow::Result<Assignment> {
    let read = || -> anyhow::Result<Assignment> {
        let assignment = read_assignment(path)?;
        assignment.checked()?;
        if let Some(((broker, partition), _)) = assignment.log_dirs.first_key_value() {
            bail!(
                "names a log directory for {} on broker {broker}; remove \"log_dirs\", or use ottla reassign-partitions",
                shown(partition)
            );
        }
        Ok(assignment)
    };
    read().with_context(|| format!("--plan {path}"))
}

/// The part of a plan whose partitions still exist.
pub(super) async fn existing(admin: &Admin, assignment: &Assignment) -> anyhow::Result<Targets> {
    let mut targets = assignment.checked()?;
    let there = descriptions(admin, &targets).await?;
    targets.retain(|partition, _| there.contains_key(partition));
    Ok(targets)
}

/// The partitions of a plan that exist. A topic may be deleted at any time.
async fn descriptions(
    admin: &Admin,
    targets: &Targets,
) -> anyhow::Result<BTreeMap<Partition, PartitionDescription>> {
    let names: BTreeSet<&String> = targets.keys().map(|(topic, _)| topic).collect();
    let mut names: Vec<String> = names.into_iter().cloned().collect();
    let described = match admin.describe_topics(&names).await {
        Err(error) if is_unknown(&error) => {
            let topics: BTreeSet<String> = admin.list_topics(true).await?.into_iter().collect();
            names.retain(|name| topics.contains(name));
            admin.describe_topics(&names).await?
        }
        described => described?,
    };
    let mut found = BTreeMap::new();
    for topic in described {
        for partition in topic.partitions {
            let key = (topic.name.clone(), partition.partition);
            if targets.contains_key(&key) {
                found.insert(key, partition);
            }
        }
    }
    Ok(found)
}

pub(super) async fn look(admin: &Admin, targets: &Targets) -> anyhow::Result<Seen> {
    // In this order, a move that ends in between is taken for one in progress.
    let ongoing = admin.list_partition_reassignments().await?;
    let descriptions = descriptions(admin, targets).await?;
    let phases = targets.iter().filter_map(|(partition, target)| {
        let now = descriptions.get(partition)?;
        Some((
            partition.clone(),
            phase(target, now, ongoing.get(partition)),
        ))
    });
    Ok(Seen {
        phases: phases.collect(),
        descriptions,
        ongoing,
    })
}

fn phase(
    target: &[i32],
    now: &PartitionDescription,
    ongoing: Option<&OngoingPartitionReassignment>,
) -> Phase {
    let set = |ids: &[i32]| ids.iter().copied().collect::<BTreeSet<i32>>();
    if let Some(ongoing) = ongoing {
        let goal = &set(&ongoing.replicas) - &set(&ongoing.removing_replicas);
        return match goal == set(target) {
            true => Phase::Moving {
                added: ongoing.adding_replicas.clone(),
            },
            false => Phase::Elsewhere,
        };
    }
    if now.replicas != target {
        let added = &set(target) - &set(&now.replicas);
        return Phase::Waiting {
            added: added.into_iter().collect(),
        };
    }
    let first = target[0];
    match now.leader != Some(first) && now.isr.contains(&first) {
        true => Phase::Electing,
        false => Phase::Done,
    }
}

/// Whether all brokers of a plan run.
pub(super) fn check_brokers(admin: &Admin, targets: &Targets) -> anyhow::Result<()> {
    let running: BTreeSet<i32> = admin.client().metadata().brokers.keys().copied().collect();
    for (partition, target) in targets {
        if let Some(broker) = target.iter().find(|id| !running.contains(id)) {
            bail!(
                "broker {broker}, to which the plan assigns {}, does not run; start it, or make a new plan for brokers {}",
                shown(partition),
                ids(&running)
            );
        }
    }
    Ok(())
}

/// Whether all partitions still have as many replicas as the plan gives them. Only brokers from Kafka
/// 4.1 on can be told to refuse another number.
pub(super) fn check_numbers(seen: &Seen, targets: &Targets, plan: &str) -> anyhow::Result<()> {
    for (partition, phase) in &seen.phases {
        let (has, gets) = (
            seen.descriptions[partition].replicas.len(),
            targets[partition].len(),
        );
        if matches!(phase, Phase::Waiting { .. }) && has != gets {
            bail!(
                "{} has {has} replicas, and {gets} in --plan {plan}; make a new plan",
                shown(partition)
            );
        }
    }
    Ok(())
}

/// Whether nothing but the plan moves partitions: two tools would remove each other's throttles.
pub(super) fn check_alone(seen: &Seen, targets: &Targets, plan: &str) -> anyhow::Result<()> {
    let elsewhere = seen
        .phases
        .iter()
        .find(|(_, phase)| **phase == Phase::Elsewhere);
    if let Some((partition, _)) = elsewhere {
        bail!(
            "{} is being moved to other brokers than --plan {plan} says; wait until that is done, or cancel it with ottla \
             reassign-partitions --cancel",
            shown(partition)
        );
    }
    match seen.ongoing.keys().find(|it| !targets.contains_key(*it)) {
        None => Ok(()),
        Some(partition) => bail!(
            "{} is being reassigned, and is not part of --plan {plan}; wait until it is done (ottla reassign-partitions \
             --list), or cancel it",
            shown(partition)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_recognised() {
        let now = |leader: i32, replicas: &[i32], isr: &[i32]| PartitionDescription {
            partition: 0,
            leader: Some(leader),
            replicas: replicas.to_vec(),
            isr: isr.to_vec(),
            eligible_leader_replicas: None,
            last_known_elr: None,
        };
        let ongoing =
            |replicas: &[i32], adding: &[i32], removing: &[i32]| OngoingPartitionReassignment {
                replicas: replicas.to_vec(),
                adding_replicas: adding.to_vec(),
                removing_replicas: removing.to_vec(),
                ..Default::default()
            };
        let before = now(1, &[1, 2], &[1, 2]);
        let waiting = |added: &[i32]| Phase::Waiting {
            added: added.to_vec(),
        };
        assert_eq!(phase(&[3, 1], &before, None), waiting(&[3]));
        assert_eq!(phase(&[2, 1], &before, None), waiting(&[]));
        assert_eq!(phase(&[1, 2], &before, None), Phase::Done);
        let led_by_two = now(2, &[1, 2], &[1, 2]);
        assert_eq!(phase(&[1, 2], &led_by_two, None), Phase::Electing);
        let one_is_behind = now(2, &[1, 2], &[2]);
        assert_eq!(phase(&[1, 2], &one_is_behind, None), Phase::Done);
        let moving = ongoing(&[3, 1, 2], &[3], &[2]);
        assert_eq!(
            phase(&[3, 1], &before, Some(&moving)),
            Phase::Moving { added: vec![3] }
        );
        assert_eq!(phase(&[4, 1], &before, Some(&moving)), Phase::Elsewhere);
    }

    #[test]
    fn a_plan_does_not_change_the_number_of_replicas() {
        let partition = ("t".to_owned(), 0);
        let description = PartitionDescription {
            partition: 0,
            leader: Some(1),
            replicas: vec![1, 2, 3],
            isr: vec![1, 2, 3],
            eligible_leader_replicas: None,
            last_known_elr: None,
        };
        let error = |target: &[i32]| {
            let targets = BTreeMap::from([(partition.clone(), target.to_vec())]);
            let phases = BTreeMap::from([(partition.clone(), phase(target, &description, None))]);
            let seen = Seen {
                phases,
                descriptions: BTreeMap::from([(partition.clone(), description.clone())]),
                ongoing: BTreeMap::new(),
            };
            check_numbers(&seen, &targets, "plan.json")
                .err()
                .map(|error| error.to_string())
        };
        assert_eq!(error(&[4, 2, 3]), None);
        assert_eq!(
            error(&[4, 2]).as_deref(),
            Some("t-0 has 3 replicas, and 2 in --plan plan.json; make a new plan")
        );
    }
}
