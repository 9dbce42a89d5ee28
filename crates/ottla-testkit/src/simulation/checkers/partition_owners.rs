//! Of a group, a partition has one owner in an epoch, and a new owner only when the one before has given it up or is a member no
//! more (KIP-848).
//!
//! It is looked at where coordinators take heartbeats and answer them. A broker that does not know yet that it coordinates the
//! group no more may go on to tell members what they have; what it says is not counted.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use ottla_types::{ErrorCode, LeaderEpoch};

use super::Finding;

type Group = ByteString;
type Member = ByteString;

#[derive(Default)]
pub(crate) struct PartitionOwners {
    /// By group: the newest coordinator that has told anything.
    coordinators: BTreeMap<Group, LeaderEpoch>,
    /// By group, partition and epoch.
    in_epoch: BTreeMap<(Group, i32, i32), Member>,
    /// Who was told that it has a partition, and has not said that it has it no more.
    owners: BTreeMap<(Group, i32), BTreeSet<Member>>,
    /// By owner: the partition that another was told since, and who that is.
    displaced: BTreeMap<(Group, Member), (i32, Member)>,
    pub(super) finding: Finding,
}

impl PartitionOwners {
    /// A member says what it has.
    pub(crate) fn on_heard(&mut self, request: &ConsumerGroupHeartbeatRequest) {
        let Some(owned) = &request.topic_partitions else {
            return;
        };
        let has = |partition: i32| owned.iter().any(|it| it.partitions.contains(&partition));
        let of_group = (request.group_id.clone(), i32::MIN)..=(request.group_id.clone(), i32::MAX);
        for ((_, partition), owners) in self.owners.range_mut(of_group) {
            if !has(*partition) {
                owners.remove(&request.member_id);
            }
        }
        let key = (request.group_id.clone(), request.member_id.clone());
        if self
            .displaced
            .get(&key)
            .is_some_and(|(lost, _)| !has(*lost))
        {
            self.displaced.remove(&key);
        }
    }

    /// A coordinator answers a heartbeat.
    pub(crate) fn on_told(
        &mut self,
        group: &Group,
        coordinator: LeaderEpoch,
        response: &ConsumerGroupHeartbeatResponse,
    ) {
        let newest = self
            .coordinators
            .entry(group.clone())
            .or_insert(coordinator);
        if coordinator < *newest {
            return;
        }
        *newest = coordinator;
        let (Some(member), epoch) = (&response.member_id, response.member_epoch) else {
            return;
        };
        if ErrorCode::from_code(response.error_code) != ErrorCode::None || epoch <= 0 {
            return;
        }
        if let Some((partition, by)) = self.displaced.get(&(group.clone(), member.clone())) {
            self.finding.report(|| {
                format!(
                    "{member} of group {group} has partition {partition}, and goes on after {by} was given it"
                )
            });
        }
        let assigned = response
            .assignment
            .iter()
            .flat_map(|it| &it.topic_partitions);
        for partition in assigned.flat_map(|topic| topic.partitions.iter().copied()) {
            let key = (group.clone(), partition, epoch);
            let known = self.in_epoch.entry(key).or_insert_with(|| member.clone());
            if known != member {
                self.finding.report(|| {
                    format!(
                        "partition {partition} of group {group} is {known}'s and {member}'s in epoch {epoch}"
                    )
                });
            }
            let owners = self.owners.entry((group.clone(), partition)).or_default();
            owners.insert(member.clone());
            for other in owners.iter().filter(|other| *other != member) {
                let key = (group.clone(), other.clone());
                self.displaced.insert(key, (partition, member.clone()));
            }
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.in_epoch.len()
    }
}
