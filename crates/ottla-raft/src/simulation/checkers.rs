//! The invariants of every run.
//!
//! 1. One leader per epoch, and one vote per node and epoch.
//! 2. Log matching: if two logs have a record of the same epoch at the same offset, they are equal
//!    up to there.
//! 3. Commits are never undone: one value per committed offset, and no node truncates it.
//! 4. Leader completeness: a new leader has every committed record.
//! 5. The high watermark of an epoch's leader never decreases; its committed records are on the
//!    disks of a majority and end with a record of its own epoch.
//! 6. After healing, all nodes agree (`world::heal`).

use std::collections::BTreeMap;

use ottla_types::{BrokerId, LeaderEpoch};

use super::disk::{Disk, Entry};
use super::node::SimNode;
use crate::{ReplicaKey, Role};

#[derive(Default, Debug)]
pub(super) struct Checkers {
    leaders: BTreeMap<LeaderEpoch, (i32, u64)>,
    votes: BTreeMap<(ReplicaKey, LeaderEpoch), ReplicaKey>,
    /// By offset.
    pub committed: Vec<Entry>,
    high_watermarks: BTreeMap<LeaderEpoch, i64>,
}

type Checked = Result<(), String>;

impl Checkers {
    pub fn on_leader(&mut self, node: &SimNode, epoch: LeaderEpoch) -> Checked {
        let leader = (node.id, node.life);
        let known = *self.leaders.entry(epoch).or_insert(leader);
        if known != leader {
            return Err(format!(
                "epoch {epoch} is led by {known:?} and by {leader:?}"
            ));
        }
        for (offset, entry) in self.committed.iter().enumerate() {
            if !same(node.disk.known(offset as i64), Some(entry)) {
                return Err(format!(
                    "the leader {} of epoch {epoch} lacks offset {offset}, which is committed",
                    node.id
                ));
            }
        }
        Ok(())
    }

    pub fn on_vote(
        &mut self,
        voter: ReplicaKey,
        epoch: LeaderEpoch,
        candidate: ReplicaKey,
    ) -> Checked {
        let known = *self.votes.entry((voter, epoch)).or_insert(candidate);
        if known == candidate {
            Ok(())
        } else {
            Err(format!(
                "{voter:?} votes for {known:?} and for {candidate:?} in epoch {epoch}"
            ))
        }
    }

    /// A node considers everything before `end` committed.
    pub fn on_committed(&mut self, node: &SimNode, from: i64, end: i64) -> Checked {
        for offset in from..end {
            let entry = node.disk.known(offset);
            let Some(entry) = entry else {
                return Err(format!(
                    "{} commits offset {offset} and does not have it",
                    node.id
                ));
            };
            match self.committed.get(offset as usize) {
                Some(known) if !same(Some(known), Some(entry)) => {
                    return Err(format!(
                        "offset {offset} is committed as {known:?} and, by {}, as {entry:?}",
                        node.id
                    ));
                }
                Some(_) => {}
                None => self.committed.push(entry.clone()),
            }
        }
        Ok(())
    }

    /// A leader considers everything before `end` committed.
    pub fn on_leader_committed(
        &mut self,
        nodes: &BTreeMap<i32, SimNode>,
        leader: i32,
        end: i64,
    ) -> Checked {
        let node = &nodes[&leader];
        let Some(quorum) = node.quorum.as_ref() else {
            return Ok(());
        };
        if !matches!(quorum.role(), Role::Leader { .. }) {
            return Ok(());
        }
        let highest = self.high_watermarks.entry(quorum.epoch()).or_insert(end);
        if end < *highest {
            return Err(format!(
                "the high watermark of {leader} goes back from {highest} to {end}"
            ));
        }
        *highest = end;
        let last = node.disk.known(end - 1);
        if last.is_none_or(|last| last.epoch != quorum.epoch()) {
            return Err(format!(
                "{leader} commits up to {end} in epoch {}, by {last:?} of another epoch",
                quorum.epoch()
            ));
        }
        let holders = quorum
            .voters()
            .voters()
            .filter(|voter| {
                let disk = nodes.get(&voter.key.id.value()).map(|node| &node.disk);
                disk.is_some_and(|disk: &Disk| {
                    disk.is_durable(end - 1) && same(disk.known(end - 1), last)
                })
            })
            .count();
        let voters = quorum.voters().len();
        if holders * 2 <= voters {
            return Err(format!(
                "{leader} commits up to {end}, which {holders} of {voters} voters have on disk"
            ));
        }
        Ok(())
    }

    pub fn on_truncated(&self, node: i32, start: i64, before: &[Entry], end: i64) -> Checked {
        for (index, entry) in before.iter().enumerate() {
            let offset = start + index as i64;
            let committed = self.committed.get(offset as usize);
            if offset >= end && same(committed, Some(entry)) {
                return Err(format!(
                    "{node} cuts off offset {offset}, which is committed"
                ));
            }
        }
        Ok(())
    }

    pub fn check_logs_match(&self, nodes: &BTreeMap<i32, SimNode>) -> Checked {
        let nodes: Vec<&SimNode> = nodes.values().collect();
        for (index, one) in nodes.iter().enumerate() {
            for other in &nodes[index + 1..] {
                let end = one.disk.end().min(other.disk.end());
                let agreed = (0..end).rev().find(|&offset| {
                    match (one.disk.entry(offset), other.disk.entry(offset)) {
                        (Some(one), Some(other)) => one.epoch == other.epoch,
                        _ => false,
                    }
                });
                for offset in 0..=agreed.unwrap_or(-1) {
                    let entries = (one.disk.entry(offset), other.disk.entry(offset));
                    if let (Some(first), Some(second)) = entries
                        && first != second
                    {
                        return Err(format!(
                            "{} and {} differ at offset {offset}, and agree after it",
                            one.id, other.id
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    pub fn leader_of(&self, epoch: LeaderEpoch) -> Option<BrokerId> {
        self.leaders.get(&epoch).map(|&(id, _)| BrokerId(id))
    }
}

fn same(one: Option<&Entry>, other: Option<&Entry>) -> bool {
    one == other
}
