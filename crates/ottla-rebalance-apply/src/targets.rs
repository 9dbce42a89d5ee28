//! The targets of a plan and the progress of the cluster: for each partition of the plan, whether
//! it waits, moves, or has reached its target.
//!
//! Nothing else is remembered between two runs.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::admin::PartitionDescription;
use ottla_client::{Admin, ClientError};
use ottla_protocol::messages::list_partition_reassignments_response::OngoingPartitionReassignment;
use ottla_types::ErrorCode;

use crate::error::ApplyError;

/// Topic and number.
pub type Partition = (String, i32);

/// The replicas of each partition of a plan; the first one is to lead.
pub type Targets = BTreeMap<Partition, Vec<i32>>;

/// Where a partition is on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
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
pub(crate) struct Seen {
    pub(crate) phases: BTreeMap<Partition, Phase>,
    pub(crate) descriptions: BTreeMap<Partition, PartitionDescription>,
    /// All moving partitions, also partitions outside the plan.
    pub(crate) ongoing: BTreeMap<Partition, OngoingPartitionReassignment>,
}

/// The part of a plan whose partitions still exist.
pub(crate) async fn existing(admin: &Admin, targets: &Targets) -> Result<Targets, ClientError> {
    let mut targets = targets.clone();
    let there = descriptions(admin, &targets).await?;
    targets.retain(|partition, _| there.contains_key(partition));
    Ok(targets)
}

/// The partitions of a plan that exist. A topic may be deleted at any time.
async fn descriptions(
    admin: &Admin,
    targets: &Targets,
) -> Result<BTreeMap<Partition, PartitionDescription>, ClientError> {
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

pub(crate) async fn look(admin: &Admin, targets: &Targets) -> Result<Seen, ClientError> {
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

/// The error is that the topic or the partition does not exist.
pub(crate) fn is_unknown(error: &ClientError) -> bool {
    matches!(
        error.code(),
        Some(ErrorCode::InvalidTopicException | ErrorCode::UnknownTopicOrPartition)
    )
}

/// Formats `t-0`.
pub(crate) fn shown((topic, partition): &Partition) -> String {
    format!("{topic}-{partition}")
}

/// Whether all brokers of a plan run.
pub(crate) fn check_brokers(admin: &Admin, targets: &Targets) -> Result<(), ApplyError> {
    let running: BTreeSet<i32> = admin.client().metadata().brokers.keys().copied().collect();
    for (partition, target) in targets {
        if let Some(broker) = target.iter().find(|id| !running.contains(id)) {
            let running: Vec<String> = running.iter().map(i32::to_string).collect();
            return Err(ApplyError::refused(format!(
                "broker {broker}, to which the plan assigns {}, does not run; start it, or make a new plan for brokers {}",
                shown(partition),
                running.join(",")
            )));
        }
    }
    Ok(())
}

/// Whether all partitions still have as many replicas as the plan gives them. Only brokers from
/// Kafka 4.1 on can refuse another number.
pub(crate) fn check_numbers(seen: &Seen, targets: &Targets, plan: &str) -> Result<(), ApplyError> {
    for (partition, phase) in &seen.phases {
        let (has, gets) = (
            seen.descriptions[partition].replicas.len(),
            targets[partition].len(),
        );
        if matches!(phase, Phase::Waiting { .. }) && has != gets {
            return Err(ApplyError::refused(format!(
                "{} has {has} replicas, and {gets} in {plan}; make a new plan",
                shown(partition)
            )));
        }
    }
    Ok(())
}

/// Whether only the plan moves partitions: two tools would remove each other's throttles.
pub(crate) fn check_alone(seen: &Seen, targets: &Targets, plan: &str) -> Result<(), ApplyError> {
    let elsewhere = seen
        .phases
        .iter()
        .find(|(_, phase)| **phase == Phase::Elsewhere);
    if let Some((partition, _)) = elsewhere {
        return Err(ApplyError::refused(format!(
            "{} is being moved to other brokers than {plan} says; wait until that is done, or cancel it with ottla \
             reassign-partitions --cancel",
            shown(partition)
        )));
    }
    match seen.ongoing.keys().find(|it| !targets.contains_key(*it)) {
        None => Ok(()),
        Some(partition) => Err(ApplyError::refused(format!(
            "{} is being reassigned, and is not part of {plan}; wait until it is done (ottla reassign-partitions \
             --list), or cancel it",
            shown(partition)
        ))),
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
            check_numbers(&seen, &targets, "--plan plan.json")
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
