//! A controller of one partition with the decisions of `ReplicationControlManager`: it elects from
//! the ISR and the eligible leader replicas, and accepts or refuses proposals. Its metadata is a
//! list of images, which each node applies in order at its own pace.

use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, PartitionEpoch};

use crate::{AlterPartition, AlteredPartition, ReplicaBroker};

/// Which replicas may be elected (`unclean.leader.election.enable`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Elections {
    /// Only replicas with every committed record. Nothing is lost.
    Clean,
    /// If there is none, any live replica, and any number of disks may fail. Records are lost, and
    /// the replicas must still converge.
    Unclean,
}

/// The metadata at one moment.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) leader: BrokerId,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) partition_epoch: PartitionEpoch,
    pub(super) isr: Vec<BrokerId>,
    /// Not in sync, but known to have every committed record (KIP-966).
    pub(super) elr: Vec<BrokerId>,
    pub(super) brokers: Vec<ReplicaBroker>,
}

pub(super) struct ModelController {
    pub(super) images: Vec<Image>,
    min_insync_replicas: usize,
    elections: Elections,
    next_broker_epoch: i64,
    /// Random number that selects the member of the ISR to elect; drawn by the caller.
    pub(super) preference: u64,
}

impl ModelController {
    pub(super) fn new(
        nodes: usize,
        min_insync_replicas: usize,
        elections: Elections,
    ) -> ModelController {
        let ids: Vec<BrokerId> = (0..nodes as i32).map(BrokerId).collect();
        let brokers = ids.iter().map(|&broker_id| ReplicaBroker {
            broker_id,
            broker_epoch: BrokerEpoch(i64::from(broker_id.0) + 1),
            is_fenced: false,
            is_in_controlled_shutdown: false,
        });
        ModelController {
            images: vec![Image {
                leader: BrokerId(0),
                leader_epoch: LeaderEpoch(0),
                partition_epoch: PartitionEpoch(0),
                brokers: brokers.collect(),
                isr: ids,
                elr: Vec::new(),
            }],
            min_insync_replicas,
            elections,
            next_broker_epoch: 100,
            preference: 0,
        }
    }

    pub(super) fn now(&self) -> &Image {
        &self.images[self.images.len() - 1]
    }

    pub(super) fn broker(&self, id: BrokerId) -> ReplicaBroker {
        self.now().brokers[id.0 as usize]
    }

    /// The node's session expired or it is shutting down: it leaves the ISR.
    pub(super) fn fence(&mut self, id: BrokerId) {
        let mut image = self.now().clone();
        image.brokers[id.0 as usize].is_fenced = true;
        self.change(image, |isr, _| isr.retain(|member| *member != id));
    }

    pub(super) fn begin_controlled_shutdown(&mut self, id: BrokerId) {
        let mut image = self.now().clone();
        image.brokers[id.0 as usize].is_in_controlled_shutdown = true;
        self.change(image, |isr, _| isr.retain(|member| *member != id));
    }

    /// A node was started: it is registered with a new epoch, fenced. After an unclean stop it may
    /// have lost records.
    pub(super) fn register(&mut self, id: BrokerId, is_clean: bool) -> BrokerEpoch {
        self.next_broker_epoch += 1;
        let mut image = self.now().clone();
        let broker = &mut image.brokers[id.0 as usize];
        broker.broker_epoch = BrokerEpoch(self.next_broker_epoch);
        broker.is_fenced = true;
        broker.is_in_controlled_shutdown = false;
        self.change(image, |isr, elr| {
            isr.retain(|member| *member != id);
            if !is_clean {
                elr.retain(|member| *member != id);
            }
        });
        BrokerEpoch(self.next_broker_epoch)
    }

    pub(super) fn unfence(&mut self, id: BrokerId) {
        let mut image = self.now().clone();
        image.brokers[id.0 as usize].is_fenced = false;
        self.change(image, |_, _| {});
    }

    /// Elects another member of the ISR: a preferred election, or the end of a reassignment.
    pub(super) fn elect(&mut self, id: BrokerId) {
        let mut image = self.now().clone();
        if image.isr.contains(&id) && image.leader != id && self.may_lead(&image, id) {
            image.leader = id;
            image.leader_epoch.0 += 1;
            image.partition_epoch.0 += 1;
            self.images.push(image);
        }
    }

    /// `ReplicationControlManager.alterPartition`.
    pub(super) fn alter_partition(
        &mut self,
        from: BrokerId,
        broker_epoch: BrokerEpoch,
        proposal: &AlterPartition,
    ) -> Result<AlteredPartition, ErrorCode> {
        let now = self.now().clone();
        if self.broker(from).broker_epoch != broker_epoch {
            return Err(ErrorCode::StaleBrokerEpoch);
        }
        if proposal.leader_epoch > now.leader_epoch
            || proposal.partition_epoch > now.partition_epoch
        {
            return Err(ErrorCode::NotController);
        }
        if proposal.leader_epoch < now.leader_epoch {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        if from != now.leader {
            return Err(ErrorCode::InvalidRequest);
        }
        if proposal.partition_epoch < now.partition_epoch {
            return Err(ErrorCode::InvalidUpdateVersion);
        }
        let is_ineligible = proposal.new_isr.iter().any(|member| {
            let broker = self.broker(member.broker_id);
            broker.is_fenced
                || broker.is_in_controlled_shutdown
                || member.broker_epoch != BrokerEpoch::UNKNOWN
                    && member.broker_epoch != broker.broker_epoch
        });
        if is_ineligible {
            return Err(ErrorCode::IneligibleReplica);
        }
        let members = proposal.new_isr.iter().map(|member| member.broker_id);
        let new_isr: Vec<BrokerId> = members.collect();
        self.change(now, |isr, _| *isr = new_isr);
        let now = self.now();
        Ok(AlteredPartition {
            leader_epoch: now.leader_epoch,
            partition_epoch: now.partition_epoch,
            isr: now.isr.clone(),
        })
    }

    /// Changes ISR and ELR, elects a leader if there is none, and publishes the image
    /// (`PartitionChangeBuilder`).
    fn change(
        &mut self,
        mut image: Image,
        change: impl FnOnce(&mut Vec<BrokerId>, &mut Vec<BrokerId>),
    ) {
        let before = self.now().clone();
        let (mut isr, mut elr) = (before.isr.clone(), before.elr.clone());
        // Replicas with every committed record, unless the change says that they lost it.
        for member in &isr {
            if !elr.contains(member) {
                elr.push(*member);
            }
        }
        change(&mut isr, &mut elr);
        elr.retain(|member| !isr.contains(member));
        if isr.len() >= self.min_insync_replicas {
            elr.clear();
        }
        let leads_on = isr.contains(&before.leader) && self.may_lead(&image, before.leader);
        if !leads_on {
            let candidates = isr.iter().chain(&elr).copied();
            let mut candidates: Vec<BrokerId> =
                candidates.filter(|id| self.may_lead(&image, *id)).collect();
            // The ELR is used only if the ISR has no candidate.
            if candidates.iter().any(|id| isr.contains(id)) {
                candidates.retain(|id| isr.contains(id));
            }
            if candidates.is_empty() && self.elections == Elections::Unclean {
                let ids = image.brokers.iter().map(|broker| broker.broker_id);
                candidates = ids.filter(|id| self.may_lead(&image, *id)).collect();
            }
            let at = self.preference as usize % candidates.len().max(1);
            let elected = candidates.get(at).copied().unwrap_or(BrokerId::NONE);
            if elected != BrokerId::NONE && !isr.contains(&elected) {
                elr.retain(|member| *member != elected);
                isr = vec![elected];
                if isr.len() >= self.min_insync_replicas {
                    elr.clear();
                }
            }
            if elected != before.leader {
                image.leader_epoch.0 += 1;
            }
            image.leader = elected;
        }
        image.isr = isr;
        image.elr = elr;
        if image.isr != before.isr || image.elr != before.elr || image.leader != before.leader {
            image.partition_epoch.0 += 1;
        }
        self.images.push(image);
    }

    fn may_lead(&self, image: &Image, id: BrokerId) -> bool {
        let broker = usize::try_from(id.0).ok().map(|id| image.brokers[id]);
        broker.is_some_and(|broker| !broker.is_fenced && !broker.is_in_controlled_shutdown)
    }
}
