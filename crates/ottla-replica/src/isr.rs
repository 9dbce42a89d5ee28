//! The in-sync replicas of a partition: the committed ISR and the pending proposal.
//!
//! One proposal is pending at a time. Its effect on the high watermark:
//!
//! ```text
//! none       the committed ISR counts
//! expansion  the new member counts already: the controller may have applied it and may elect it
//! shrink     the removed members still count: the controller may not have applied it
//! ```
//!
//! This is Kafka's "maximal ISR" (KIP-497): the larger set, so that the high watermark is right in
//! either case.
//!
//! Kafka: `CommittedPartitionState`, `PendingExpandIsr`, `PendingShrinkIsr`, `Partition.submitAlterPartition`.

use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, PartitionEpoch};

use crate::planted::{self, Bug};

#[cfg(test)]
mod tests;

/// A proposal to the controller: one partition of an AlterPartition request. The leader recovery
/// state is always `RECOVERED`, because a leader recovers nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterPartition {
    pub leader_epoch: LeaderEpoch,
    /// The registration that the proposal changes; the controller refuses it if there is a newer
    /// one.
    pub partition_epoch: PartitionEpoch,
    pub new_isr: Vec<IsrMember>,
}

/// A member of a proposed ISR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IsrMember {
    pub broker_id: BrokerId,
    /// The broker epoch of its last fetch, so that the controller refuses a member that has
    /// restarted since and may have lost records (KIP-903). `BrokerEpoch::UNKNOWN` is not checked:
    /// a member that has not fetched yet is in the committed ISR, and a restart would have changed
    /// the partition epoch.
    pub broker_epoch: BrokerEpoch,
}

/// The controller's response: the current registration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlteredPartition {
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    pub isr: Vec<BrokerId>,
}

#[derive(Debug)]
pub(crate) struct Isr {
    committed: Box<[BrokerId]>,
    partition_epoch: PartitionEpoch,
    /// Boxed, because it is rare and most partitions are idle.
    pending: Option<Box<Pending>>,
}

#[derive(Debug)]
struct Pending {
    proposal: AlterPartition,
    /// The replica to add; `None` in a proposal to shrink.
    added: Option<BrokerId>,
}

/// The result of a response to a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    /// The effective ISR may have changed.
    Changed,
    /// Nothing changed: the response is outdated, or the metadata must tell the result.
    Unchanged,
    /// The proposal must be sent again.
    Retry,
}

impl Isr {
    pub(crate) fn new(committed: Vec<BrokerId>, partition_epoch: PartitionEpoch) -> Isr {
        Isr {
            committed: committed.into(),
            partition_epoch,
            pending: None,
        }
    }

    pub(crate) fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    /// The last known committed ISR.
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

    /// Applies a registration of the current leader epoch or a newer one.
    ///
    /// A registration with both epochs unchanged is not new: it is the metadata of a response that
    /// has already arrived. A later proposal stays pending, because the controller may have applied
    /// it. (Kafka drops it, and is safe because it waits for replicas that have caught up
    /// recently.)
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
        self.committed = isr.into();
        self.partition_epoch = partition_epoch;
        self.pending = None;
    }

    /// Proposes to add a replica. No proposal may be pending.
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

    /// Proposes to remove replicas. No proposal may be pending.
    pub(crate) fn propose_shrinking(
        &mut self,
        removed: &[BrokerId],
        leader_epoch: LeaderEpoch,
        broker_epoch_of: impl Fn(BrokerId) -> BrokerEpoch,
    ) -> AlterPartition {
        let mut new_isr = self.committed.to_vec();
        new_isr.retain(|member| !removed.contains(member));
        if planted::has(Bug::ShrinkBeforeItIsCommitted) {
            self.committed = new_isr.clone().into();
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
        self.pending = Some(Box::new(Pending {
            proposal: proposal.clone(),
            added,
        }));
        proposal
    }

    /// Applies the controller's response. A response is valid in the current leader epoch if its
    /// proposal is the pending one.
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
                self.committed = altered.isr.into();
                self.partition_epoch = altered.partition_epoch;
                self.pending = None;
                Settled::Changed
            }
            Err(error) => self.on_refused(error),
        }
    }

    fn on_refused(&mut self, error: ErrorCode) -> Settled {
        match error {
            // The controller confirms the partition epoch and has applied nothing, so the committed
            // ISR is correct and a new proposal may be made.
            ErrorCode::OperationNotAttempted | ErrorCode::IneligibleReplica => {
                self.pending = None;
                Settled::Changed
            }
            // The registration is newer or gone. It may be the result of the proposal itself,
            // applied when first sent and refused when repeated; the proposal stays pending until
            // the metadata tells.
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
