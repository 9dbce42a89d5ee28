//! Computes the change of one partition after an event: its ISR, leader, replicas, and with KIP-966
//! its eligible leader replicas (ELR).
//!
//! In Kafka: `PartitionChangeBuilder`, `PartitionReassignmentReplicas`, and
//! `ReplicationControlManager.generateLeaderAndIsrUpdates`.

use std::collections::BTreeSet;

use ottla_metadata::{
    ConfigResource, LeaderRecoveryState, NO_LEADER_CHANGE, PartitionRegistration, TopicImage,
};
use ottla_protocol::metadata_records::{MetadataRecord, PartitionChangeRecord};
use ottla_types::{BrokerId, DirectoryId, PartitionIndex};

use crate::create_topics::default_directory;
use crate::decision::ControllerContext;
use crate::planted::{self, Bug};

/// Which replica an election may choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Election {
    /// The current leader if it is acceptable, otherwise an in-sync replica.
    Online,
    /// The preferred replica if it is in sync, otherwise as `Online`.
    Preferred,
    /// Any live replica, if none is in sync.
    Unclean,
}

/// Builder of a partition change. `build` returns the record, or `None` if nothing changes.
pub(crate) struct PartitionChange<'a, 'c> {
    context: &'a ControllerContext<'c>,
    topic: &'a TopicImage,
    index: PartitionIndex,
    partition: &'a PartitionRegistration,
    is_acceptable_leader: &'a dyn Fn(BrokerId) -> bool,
    pub election: Election,
    pub target_isr: Vec<BrokerId>,
    pub target_leader_recovery_state: LeaderRecoveryState,
    /// Replicas whose broker stopped without a clean shutdown. They lose their ELR membership.
    pub unclean_shutdown_replicas: Vec<BrokerId>,
    /// The new directory of one replica.
    pub target_directory: Option<(BrokerId, DirectoryId)>,
    pub target_replicas: Vec<BrokerId>,
    pub target_removing: Vec<BrokerId>,
    pub target_adding: Vec<BrokerId>,
    target_elr: Vec<BrokerId>,
    is_elr_enabled: bool,
    min_isr: usize,
}

impl<'a, 'c> PartitionChange<'a, 'c> {
    /// `is_acceptable_leader` says which brokers are live. Whether the replica's directory is
    /// online is checked here.
    pub fn new(
        context: &'a ControllerContext<'c>,
        topic: &'a TopicImage,
        index: PartitionIndex,
        partition: &'a PartitionRegistration,
        is_acceptable_leader: &'a dyn Fn(BrokerId) -> bool,
    ) -> PartitionChange<'a, 'c> {
        PartitionChange {
            context,
            topic,
            index,
            partition,
            is_acceptable_leader,
            election: Election::Online,
            target_isr: partition.isr.to_vec(),
            target_leader_recovery_state: partition.leader_recovery_state,
            unclean_shutdown_replicas: Vec::new(),
            target_directory: None,
            target_replicas: partition.replicas.to_vec(),
            target_removing: partition.removing_replicas().to_vec(),
            target_adding: partition.adding_replicas().to_vec(),
            target_elr: partition.elr().to_vec(),
            is_elr_enabled: context.image.features.is_elr_enabled(),
            min_isr: effective_min_isr(context, topic),
        }
    }

    pub fn build(mut self) -> Option<PartitionChangeRecord> {
        let mut record = PartitionChangeRecord {
            topic_id: self.topic.id,
            partition_id: self.index.value(),
            ..Default::default()
        };
        self.complete_reassignment();
        self.populate_target_elr();
        self.elect(&mut record);
        let current_leader = self.partition.leader.value();
        if record.leader == NO_LEADER_CHANGE
            && self
                .partition
                .replicas
                .iter()
                .any(|replica| !self.target_replicas.contains(replica))
        {
            // A removed replica must be fenced off by a higher leader epoch.
            record.leader = current_leader;
        }
        self.update_elr(&mut record);
        let may_be_empty = self.is_elr_enabled;
        if record.isr.is_none()
            && (may_be_empty || !self.target_isr.is_empty())
            && self.target_isr[..] != self.partition.isr[..]
        {
            record.isr = Some(numbers(&self.target_isr));
        }
        if self
            .context
            .metadata_version()
            .is_leader_epoch_bump_required_on_isr_shrink()
            && record.leader == NO_LEADER_CHANGE
            && record.isr.as_ref().is_some_and(|isr| {
                self.partition
                    .isr
                    .iter()
                    .any(|replica| !isr.contains(&replica.value()))
            })
        {
            record.leader = current_leader;
        }
        self.update_last_known_leader(&mut record);
        self.set_assignment(&mut record);
        if self.target_leader_recovery_state != self.partition.leader_recovery_state {
            record.leader_recovery_state = self.target_leader_recovery_state.code();
        }
        (!is_no_op(&record)).then_some(record)
    }

    fn complete_reassignment(&mut self) {
        if self.target_removing.is_empty() && self.target_adding.is_empty() {
            return;
        }
        let kept = |replicas: &[BrokerId]| -> Vec<BrokerId> {
            replicas
                .iter()
                .copied()
                .filter(|replica| !self.target_removing.contains(replica))
                .collect()
        };
        let (isr, replicas) = (kept(&self.target_isr), kept(&self.target_replicas));
        let is_complete = !isr.is_empty()
            && !replicas.is_empty()
            && self.target_adding.iter().all(|replica| isr.contains(replica))
            // If the number of replicas shrinks, all target replicas must be in sync, or the ISR
            // would shrink.
            && (self.target_adding.len() >= self.target_removing.len()
                || replicas.iter().all(|replica| isr.contains(replica)));
        if is_complete {
            self.target_isr = isr;
            self.target_replicas = replicas;
            self.target_removing.clear();
            self.target_adding.clear();
        }
    }

    /// Replicas that leave the ISR while it is below its minimum become ELRs, unless their broker
    /// stopped uncleanly, or they were removed: a removed replica deletes its log. Kafka 4.3 keeps
    /// it in the ELR. When it is added again, with an empty log, Kafka may elect it, and committed
    /// records are lost.
    fn populate_target_elr(&mut self) {
        if !self.is_elr_enabled {
            return;
        }
        if self.target_isr.len() >= self.min_isr {
            self.target_elr.clear();
            return;
        }
        let candidates: BTreeSet<BrokerId> = self
            .target_elr
            .iter()
            .chain(self.partition.isr.iter())
            .copied()
            .collect();
        self.target_elr = candidates
            .into_iter()
            .filter(|replica| {
                !self.target_isr.contains(replica)
                    && !self.unclean_shutdown_replicas.contains(replica)
                    && self.stays_replica(*replica)
            })
            .collect();
    }

    /// Whether it was a replica before this change and is one after it, and so keeps its log.
    fn stays_replica(&self, replica: BrokerId) -> bool {
        self.partition.replicas.contains(&replica) && self.target_replicas.contains(&replica)
    }

    fn elect(&mut self, record: &mut PartitionChangeRecord) {
        let (leader, is_unclean) = self.new_leader();
        if leader == self.partition.leader {
            return;
        }
        if self.target_elr.contains(&leader) {
            self.target_isr = vec![leader];
            self.target_elr.retain(|&replica| replica != leader);
            if self.target_isr.len() >= self.min_isr {
                // From here on, the leader can commit records alone, and the other replicas do not
                // have them.
                self.target_elr.clear();
            }
        }
        record.leader = leader.value();
        if is_unclean {
            // Records that only the other replicas have are lost: the ISR restarts with this leader
            // alone.
            record.isr = Some(vec![leader.value()]);
            if self.partition.leader_recovery_state != LeaderRecoveryState::Recovering {
                record.leader_recovery_state = LeaderRecoveryState::Recovering.code();
            }
        }
    }

    /// The leader after the election, and whether the election was unclean.
    fn new_leader(&self) -> (BrokerId, bool) {
        if self.election == Election::Preferred
            && let Some(&preferred) = self.target_replicas.first()
            && self.is_valid_new_leader(preferred)
        {
            return (preferred, false);
        }
        if self.is_valid_new_leader(self.partition.leader) {
            return (self.partition.leader, false);
        }
        if let Some(&leader) = self
            .target_replicas
            .iter()
            .find(|&&replica| self.is_valid_new_leader(replica))
        {
            return (leader, false);
        }
        if let Some(leader) = self.last_known_leader() {
            return (leader, true);
        }
        let is_unclean_allowed =
            self.election == Election::Unclean || planted::has(Bug::AlwaysElectUncleanly);
        // A replica that is being added may have nothing yet.
        let is_added = |replica: &&BrokerId| self.target_adding.contains(replica);
        let others = || self.target_replicas.iter();
        let mut by_records = (others().filter(|it| !is_added(it))).chain(others().filter(is_added));
        if is_unclean_allowed
            && let Some(&leader) = by_records.find(|&&replica| self.is_acceptable(replica))
        {
            return (leader, true);
        }
        (BrokerId::NONE, false)
    }

    /// Whether the replica is in the ISR, or in the ELR if the ISR is empty.
    fn is_valid_new_leader(&self, replica: BrokerId) -> bool {
        let is_candidate = self.target_isr.contains(&replica)
            || (self.target_isr.is_empty() && self.target_elr.contains(&replica));
        is_candidate && self.is_acceptable(replica)
    }

    fn is_acceptable(&self, replica: BrokerId) -> bool {
        let has_online_directory = || {
            let directory = self.partition.directory(replica);
            let broker = self.context.image.cluster.broker(replica);
            match (broker, directory) {
                (Some(broker), Some(directory)) => broker.has_online_directory(directory),
                (Some(_), None) => true,
                (None, _) => false,
            }
        };
        (self.is_acceptable_leader)(replica) && has_online_directory()
    }

    /// The last known leader, which may be elected without being in the ISR or ELR if there is no
    /// other candidate (KIP-966, balanced recovery).
    fn last_known_leader(&self) -> Option<BrokerId> {
        if !self.is_elr_enabled || !self.target_elr.is_empty() || !self.target_isr.is_empty() {
            return None;
        }
        match *self.partition.last_known_elr() {
            [leader] if self.stays_replica(leader) && self.is_acceptable(leader) => Some(leader),
            _ => None,
        }
    }

    fn update_elr(&mut self, record: &mut PartitionChangeRecord) {
        let was_unclean = record.isr.is_some();
        if was_unclean || !self.is_elr_enabled {
            self.target_elr.clear();
        }
        if self.target_elr != self.partition.elr() {
            record.eligible_leader_replicas = Some(numbers(&self.target_elr));
        }
    }

    fn keeps_last_known_leader(&self) -> bool {
        let mut known = self.partition.last_known_elr().iter();
        known.all(|&leader| self.stays_replica(leader))
    }

    fn update_last_known_leader(&self, record: &mut PartitionChangeRecord) {
        if !self.is_elr_enabled {
            return;
        }
        if record.leader == BrokerId::NONE.value() && self.partition.last_known_elr().is_empty() {
            record.last_known_elr = Some(vec![self.partition.leader.value()]);
        } else if !self.partition.last_known_elr().is_empty()
            && (record.leader >= 0 || !self.keeps_last_known_leader())
        {
            record.last_known_elr = Some(Vec::new());
        }
    }

    fn set_assignment(&self, record: &mut PartitionChangeRecord) {
        if !self.target_replicas.is_empty() {
            let directories = self.target_directories();
            if self
                .context
                .metadata_version()
                .is_directory_assignment_supported()
                && directories[..] != self.partition.directories[..]
            {
                record.directories = Some(directories);
            }
            if self.target_replicas[..] != self.partition.replicas[..] {
                record.replicas = Some(numbers(&self.target_replicas));
            }
        }
        if self.target_removing != self.partition.removing_replicas() {
            record.removing_replicas = Some(numbers(&self.target_removing));
        }
        if self.target_adding != self.partition.adding_replicas() {
            record.adding_replicas = Some(numbers(&self.target_adding));
        }
    }

    /// The directory of each target replica.
    fn target_directories(&self) -> Vec<DirectoryId> {
        let directory = |&replica: &BrokerId| match self.target_directory {
            Some((of, directory)) if of == replica => directory,
            _ => self
                .partition
                .directory(replica)
                .unwrap_or_else(|| default_directory(self.context, replica)),
        };
        self.target_replicas.iter().map(directory).collect()
    }
}

fn is_no_op(record: &PartitionChangeRecord) -> bool {
    record.isr.is_none()
        && record.eligible_leader_replicas.is_none()
        && record.last_known_elr.is_none()
        && record.leader == NO_LEADER_CHANGE
        && record.replicas.is_none()
        && record.removing_replicas.is_none()
        && record.adding_replicas.is_none()
        && record.leader_recovery_state == LeaderRecoveryState::NO_CHANGE
        && record.directories.is_none()
}

fn numbers(ids: &[BrokerId]) -> Vec<i32> {
    ids.iter().map(|id| id.value()).collect()
}

/// The effective value of a topic setting.
fn topic_setting<T: std::str::FromStr>(
    context: &ControllerContext<'_>,
    topic: &TopicImage,
    key: &str,
    default: T,
) -> T {
    context
        .image
        .configs
        .value(&ConfigResource::topic(topic.name.clone()), key)
        .and_then(|value| value.trim().to_ascii_lowercase().parse().ok())
        .unwrap_or(default)
}

/// The minimum ISR size, limited to the number of replicas.
fn effective_min_isr(context: &ControllerContext<'_>, topic: &TopicImage) -> usize {
    let default = context.config.topic_defaults.min_insync_replicas;
    let configured = topic_setting(context, topic, "min.insync.replicas", default).max(0) as usize;
    let replicas = topic
        .partitions()
        .next()
        .map_or(0, |(_, partition)| partition.replicas.len());
    configured.min(replicas)
}

pub(crate) fn is_unclean_election_enabled(
    context: &ControllerContext<'_>,
    topic: &TopicImage,
) -> bool {
    let default = context.config.topic_defaults.unclean_leader_election_enable;
    topic_setting(context, topic, "unclean.leader.election.enable", default)
}

/// A change of a broker's state that affects leaders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BrokerEvent {
    /// Fenced, unregistered or shutting down: the broker leaves all ISRs and leads nothing.
    Leaves(BrokerId),
    /// Unfenced: the broker can lead partitions that have no leader.
    Returns(BrokerId),
    /// Restarted after an unclean shutdown that may have lost unflushed records. As `Leaves`, and
    /// the broker also leaves all ELRs.
    LostUnflushed(BrokerId),
}

/// The changes of all partitions that the event affects.
pub(crate) fn leader_and_isr_updates(
    context: &ControllerContext<'_>,
    event: BrokerEvent,
) -> Vec<MetadataRecord> {
    let cluster = &context.image.cluster;
    let (leaving, returning, unclean) = match event {
        BrokerEvent::Leaves(broker) => (Some(broker), None, None),
        BrokerEvent::Returns(broker) => (None, Some(broker), None),
        BrokerEvent::LostUnflushed(broker) => (None, None, Some(broker)),
    };
    // The image has the state of the broker before the event.
    let is_acceptable = |replica: BrokerId| {
        Some(replica) != leaving
            && Some(replica) != unclean
            && (Some(replica) == returning || cluster.is_broker_active(replica))
    };
    let listed_with = match event {
        BrokerEvent::Leaves(broker) | BrokerEvent::LostUnflushed(broker) => broker,
        BrokerEvent::Returns(_) => BrokerId::NONE,
    };
    let is_touched = |partition: &PartitionRegistration| match event {
        BrokerEvent::Leaves(broker) => partition.isr.contains(&broker),
        BrokerEvent::Returns(_) | BrokerEvent::LostUnflushed(_) => true,
    };
    let mut records = Vec::new();
    for (topic, index, partition) in context.image.topics.in_sync_of(listed_with) {
        if !is_touched(partition) {
            continue;
        }
        let mut change = PartitionChange::new(context, topic, index, partition, &is_acceptable);
        if is_unclean_election_enabled(context, topic) {
            change.election = Election::Unclean;
        }
        change.unclean_shutdown_replicas.extend(unclean);
        change
            .target_isr
            .retain(|&replica| Some(replica) != leaving && Some(replica) != unclean);
        records.extend(change.build().map(MetadataRecord::PartitionChange));
    }
    records
}

/// The changes of partitions whose replica on the broker is in a failed directory: the broker
/// leaves their ISRs and no longer leads them. Its other partitions are not changed.
pub(crate) fn directory_failure_updates(
    context: &ControllerContext<'_>,
    broker: BrokerId,
    is_touched: impl Fn(&TopicImage, PartitionIndex, &PartitionRegistration) -> bool,
) -> Vec<MetadataRecord> {
    let cluster = &context.image.cluster;
    let is_acceptable = |replica: BrokerId| replica != broker && cluster.is_broker_active(replica);
    let mut records = Vec::new();
    // A failed directory affects only partitions for which the broker is in the ISR.
    for (topic, index, partition) in context.image.topics.in_sync_of(broker) {
        if !is_touched(topic, index, partition) {
            continue;
        }
        let mut change = PartitionChange::new(context, topic, index, partition, &is_acceptable);
        if is_unclean_election_enabled(context, topic) {
            change.election = Election::Unclean;
        }
        change.target_isr.retain(|&replica| replica != broker);
        records.extend(change.build().map(MetadataRecord::PartitionChange));
    }
    records
}

#[cfg(test)]
mod tests;
