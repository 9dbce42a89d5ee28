//! The in-sync replicas of a partition: what the controller has committed, and what was proposed to it.
//!
//! One proposal is under way at a time. What a proposal that is under way means for the high watermark:
//!
//! ```text
//! none       the committed ISR counts
//! expansion  the new member counts already: the controller may have applied it, and may elect it
//! shrinking  those that are to leave count still: the controller may not have applied it
//! ```
//!
//! That set is Kafka's "maximal ISR" (KIP-497): the larger one, so that the high watermark is right whichever
//! way the proposal went.
//!
//! Kafka: `CommittedPartitionState`, `PendingExpandIsr`, `PendingShrinkIsr`, `Partition.submitAlterPartition`.

use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, PartitionEpoch};

use crate::planted::{self, Bug};

#[cfg(test)]
mod tests;

/// A proposal to the controller: a partition of an AlterPartition request. The leader recovery state that
/// goes with it is always `RECOVERED`, since a leader recovers nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterPartition {
    pub leader_epoch: LeaderEpoch,
    /// The registration that the proposal changes; the controller refuses it if there is a newer one.
    pub partition_epoch: PartitionEpoch,
    pub new_isr: Vec<IsrMember>,
}

/// A member of a proposed ISR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IsrMember {
    pub broker_id: BrokerId,
    /// The broker epoch in which it fetched, so that the controller refuses one that was started anew since
    /// and may have lost records (KIP-903). `BrokerEpoch::UNKNOWN` is not checked: a member that has not
    /// fetched yet is in the committed ISR, and were it started anew, the partition epoch would be another.
    pub broker_epoch: BrokerEpoch,
}

/// What the controller answered: the registration as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlteredPartition {
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    pub isr: Vec<BrokerId>,
}

#[derive(Debug)]
pub(crate) struct Isr {
    committed: Vec<BrokerId>,
    partition_epoch: PartitionEpoch,
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    proposal: AlterPartition,
    /// The replica to be added; none in a proposal to shrink.
    added: Option<BrokerId>,
}

/// What an answer to a proposal came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    /// The ISR that counts may be another now.
    Changed,
    /// Nothing changed: the answer is out of date, or the metadata has to tell what became of it.
    Unchanged,
    /// The same has to be proposed again.
    Retry,
}

impl Isr {
    pub(crate) fn new(committed: Vec<BrokerId>, partition_epoch: PartitionEpoch) -> Isr {
        Isr {
            committed,
            partition_epoch,
            pending: None,
        }
    }

    pub(crate) fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    /// What the controller has committed, as far as is known.
    pub(crate) fn committed(&self) -> &[BrokerId] {
        &self.committed
    }

    pub(crate) fn contains(&self, broker_id: BrokerId) -> bool {
        self.committed.contains(&broker_id)
    }

    pub(crate) fn maximal_contains(&self, broker_id: BrokerId) -> bool {
        self.contains(broker_id) || self.added() == Some(broker_id)
    }

    pub(crate) fn maximal_len(&self) -> usize {
        self.committed.len() + usize::from(self.added().is_some())
    }

    pub(crate) fn is_proposal_pending(&self) -> bool {
        self.pending.is_some()
    }

    fn added(&self) -> Option<BrokerId> {
        if planted::has(Bug::CommittedIsrForHighWatermark) {
            return None;
        }
        self.pending.as_ref()?.added
    }

    /// The metadata has a registration of the leader epoch in force or a newer one.
    ///
    /// A registration of the same two epochs says nothing new: it is the metadata behind an answer of the
    /// controller that has arrived already. What was proposed since stays pending, for the controller may
    /// have applied it. (Kafka forgets it and is saved by waiting for replicas that have caught up lately.)
    pub(crate) fn on_registration(
        &mut self,
        isr: Vec<BrokerId>,
        partition_epoch: PartitionEpoch,
        is_new_leader_epoch: bool,
    ) {
        let is_known = partition_epoch == self.partition_epoch && !is_new_leader_epoch;
        if is_known && !planted::has(Bug::ForgetPendingOnSameEpoch) {
            return;
        }
        self.committed = isr;
        self.partition_epoch = partition_epoch;
        self.pending = None;
    }

    /// Proposes to add a replica. None may be pending.
    pub(crate) fn propose_expansion(
        &mut self,
        added: BrokerId,
        leader_epoch: LeaderEpoch,
        broker_epoch_of: impl Fn(BrokerId) -> BrokerEpoch,
    ) -> AlterPartition {
        let new_isr = self.committed.iter().copied().chain([added]);
        self.propose(
            new_isr.collect(),
            Some(added),
            leader_epoch,
            broker_epoch_of,
        )
    }

    /// Proposes to leave some out. None may be pending.
    pub(crate) fn propose_shrinking(
        &mut self,
        removed: &[BrokerId],
        leader_epoch: LeaderEpoch,
        broker_epoch_of: impl Fn(BrokerId) -> BrokerEpoch,
    ) -> AlterPartition {
        let mut new_isr = self.committed.clone();
        new_isr.retain(|member| !removed.contains(member));
        if planted::has(Bug::ShrinkBeforeItIsCommitted) {
            self.committed.clone_from(&new_isr);
        }
        self.propose(new_isr, None, leader_epoch, broker_epoch_of)
    }

    fn propose(
        &mut self,
        new_isr: Vec<BrokerId>,
        added: Option<BrokerId>,
        leader_epoch: LeaderEpoch,
        broker_epoch_of: impl Fn(BrokerId) -> BrokerEpoch,
    ) -> AlterPartition {
        assert!(self.pending.is_none(), "one proposal at a time");
        let members = new_isr.into_iter().map(|broker_id| IsrMember {
            broker_id,
            broker_epoch: broker_epoch_of(broker_id),
        });
        let proposal = AlterPartition {
            leader_epoch,
            partition_epoch: self.partition_epoch,
            new_isr: members.collect(),
        };
        self.pending = Some(Pending {
            proposal: proposal.clone(),
            added,
        });
        proposal
    }

    /// Takes the controller's answer to a proposal. Whether the proposal was made in the leader epoch in
    /// force follows from its being the one that is pending.
    pub(crate) fn on_answer(
        &mut self,
        proposal: &AlterPartition,
        result: Result<AlteredPartition, ErrorCode>,
    ) -> Settled {
        let is_pending = self
            .pending
            .as_ref()
            .is_some_and(|p| p.proposal == *proposal);
        if !is_pending {
            return Settled::Unchanged;
        }
        match result {
            Ok(altered)
                if altered.leader_epoch != proposal.leader_epoch
                    || altered.partition_epoch < self.partition_epoch =>
            {
                Settled::Unchanged
            }
            Ok(altered) => {
                self.committed = altered.isr;
                self.partition_epoch = altered.partition_epoch;
                self.pending = None;
                Settled::Changed
            }
            Err(error) => self.on_refused(error),
        }
    }

    fn on_refused(&mut self, error: ErrorCode) -> Settled {
        match error {
            // The controller says that the partition epoch is right and that nothing was applied; so the
            // committed ISR is the one that is known, and another proposal may be made.
            ErrorCode::OperationNotAttempted | ErrorCode::IneligibleReplica => {
                self.pending = None;
                Settled::Changed
            }
            // There is a newer registration, or none any more. It may be the proposal itself, applied when it
            // was sent first and refused when it was sent again: so it stays pending until the metadata tells.
            ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::InvalidUpdateVersion
            | ErrorCode::InvalidRequest
            | ErrorCode::NewLeaderElected => {
                if planted::has(Bug::ForgetPendingOnInvalidVersion) {
                    self.pending = None;
                    return Settled::Changed;
                }
                Settled::Unchanged
            }
            _ => Settled::Retry,
        }
    }
}
