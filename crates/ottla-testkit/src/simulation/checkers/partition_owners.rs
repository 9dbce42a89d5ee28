//! Of a group, a partition has one owner in an epoch, and a new owner only when the one before has given it up or is a member no
//! more (KIP-848).
//!
//! It is looked at where coordinators take heartbeats and answer them. Answers come when what was decided is committed, so that what
//! members say meanwhile is put in its place by the numbers of the heartbeats. A broker that does not know yet that it coordinates
//! the group no more may go on to tell members what they have; what it says is not counted.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use ottla_types::{ErrorCode, LeaderEpoch};

use super::Finding;

type Group = ByteString;
type Member = ByteString;

/// A heartbeat, as its answer is told from others'.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Heartbeat {
    group: Group,
    /// In the order in which they came in.
    number: u64,
    is_joining: bool,
}

#[derive(Default)]
pub(crate) struct PartitionOwners {
    heartbeats: u64,
    /// What each member said that it has, in each of its heartbeats.
    said: BTreeMap<(Group, Member), Vec<(u64, BTreeSet<i32>)>>,
    /// By group: the newest coordinator that has told anything.
    coordinators: BTreeMap<Group, LeaderEpoch>,
    /// By group, partition and epoch.
    in_epoch: BTreeMap<(Group, i32, i32), Member>,
    /// By group and partition: who was told that it has it, and in which heartbeat after that it has given it up.
    owners: BTreeMap<(Group, i32), BTreeMap<Member, Option<u64>>>,
    /// A member and a partition of its that another was given, and who that is: the member has to go.
    displaced: BTreeMap<(Group, Member, i32), Member>,
    pub(super) finding: Finding,
}

impl PartitionOwners {
    /// A member says what it has. One that does not say so has what it had.
    pub(crate) fn on_heard(&mut self, request: &ConsumerGroupHeartbeatRequest) -> Heartbeat {
        self.heartbeats += 1;
        let (group, number) = (&request.group_id, self.heartbeats);
        if let Some(owned) = &request.topic_partitions {
            let owned: BTreeSet<i32> = owned.iter().flat_map(|it| it.partitions.clone()).collect();
            let of_group = (group.clone(), i32::MIN)..=(group.clone(), i32::MAX);
            for ((_, partition), owners) in self.owners.range_mut(of_group) {
                if let Some(given_up @ None) = owners.get_mut(&request.member_id)
                    && !owned.contains(partition)
                {
                    *given_up = Some(number);
                }
            }
            let member = (group.clone(), request.member_id.clone());
            self.said.entry(member).or_default().push((number, owned));
        }
        Heartbeat {
            group: group.clone(),
            number,
            is_joining: request.member_epoch == 0,
        }
    }

    /// A coordinator answers a heartbeat.
    pub(crate) fn on_told(
        &mut self,
        heartbeat: &Heartbeat,
        coordinator: LeaderEpoch,
        response: &ConsumerGroupHeartbeatResponse,
    ) {
        let (group, number) = (&heartbeat.group, heartbeat.number);
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
        let all =
            (group.clone(), member.clone(), i32::MIN)..=(group.clone(), member.clone(), i32::MAX);
        if heartbeat.is_joining {
            // It begins anew, without partitions.
            self.displaced.retain(|lost, _| !all.contains(lost));
        } else if let Some(((_, _, partition), by)) = self.displaced.range(all).next() {
            self.finding.report(|| {
                format!(
                    "{member} of group {group} had partition {partition}, and goes on after {by} was given it"
                )
            });
        }
        let said = self.said.get(&(group.clone(), member.clone()));
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
            let has_said_since = said.into_iter().flatten().filter(|said| said.0 > number);
            let given_up = has_said_since.filter(|(_, owned)| !owned.contains(&partition));
            owners.insert(member.clone(), given_up.map(|said| said.0).next());
            for (other, given_up) in owners.iter().filter(|(other, _)| *other != member) {
                if given_up.is_none_or(|given_up| given_up > number) {
                    let lost = (group.clone(), other.clone(), partition);
                    self.displaced.insert(lost, member.clone());
                }
            }
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.in_epoch.len()
    }
}
