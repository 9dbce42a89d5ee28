//! The metadata of one partition: replicas, their directories, ISR, leader, epochs.
//!
//! In Kafka: `org.apache.kafka.metadata.PartitionRegistration`.

use ottla_protocol::metadata_records::{PartitionChangeRecord, PartitionRecord};
use ottla_types::{
    BrokerId, DirectoryId, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicId, Uuid,
};

use crate::{MetadataVersion, ReplayError, ShortList};

/// Whether the leader was elected from the ISR, or in an unclean election after which it still has
/// to recover.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LeaderRecoveryState {
    #[default]
    Recovered,
    Recovering,
}

impl LeaderRecoveryState {
    /// The value in a `PartitionChangeRecord` if the state did not change.
    pub const NO_CHANGE: i8 = -1;

    pub fn from_code(code: i8) -> Option<LeaderRecoveryState> {
        match code {
            0 => Some(LeaderRecoveryState::Recovered),
            1 => Some(LeaderRecoveryState::Recovering),
            _ => None,
        }
    }

    pub fn code(self) -> i8 {
        match self {
            LeaderRecoveryState::Recovered => 0,
            LeaderRecoveryState::Recovering => 1,
        }
    }
}

/// The value in a `PartitionChangeRecord` if the leader did not change.
pub const NO_LEADER_CHANGE: i32 = -2;

/// The registration of one partition. A test bounds its size.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartitionRegistration {
    /// In order of preference: the first is the preferred leader.
    pub replicas: ShortList<BrokerId, 3>,
    /// The directory of each replica, in the order of `replicas`.
    pub directories: ShortList<DirectoryId, 1>,
    pub isr: ShortList<BrokerId, 3>,
    /// `None` if all of them are empty, as for most partitions.
    pub rare: Option<Box<RareReplicas>>,
    /// `BrokerId::NONE` if the partition has no leader.
    pub leader: BrokerId,
    pub leader_recovery_state: LeaderRecoveryState,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
}

/// The replicas of a partition that is being reassigned or has lost replicas.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RareReplicas {
    pub removing_replicas: Vec<BrokerId>,
    pub adding_replicas: Vec<BrokerId>,
    /// Replicas that are eligible to become leader without being in the ISR (KIP-966).
    pub elr: Vec<BrokerId>,
    pub last_known_elr: Vec<BrokerId>,
}

impl RareReplicas {
    /// `None` if there are none.
    fn boxed(self) -> Option<Box<RareReplicas>> {
        (self != RareReplicas::default()).then(|| Box::new(self))
    }
}

impl PartitionRegistration {
    pub fn from_record(record: &PartitionRecord) -> Result<PartitionRegistration, ReplayError> {
        let invalid = |what: &str| ReplayError::InvalidPartition {
            topic_id: record.topic_id,
            partition: record.partition_id,
            what: what.to_owned(),
        };
        let optional = |ids: &Option<Vec<i32>>| ids.as_deref().map(broker_ids).unwrap_or_default();
        let replicas = broker_ids(&record.replicas);
        Ok(PartitionRegistration {
            directories: directories_of(&record.directories, replicas.len()).map_err(invalid)?,
            replicas: replicas.into(),
            isr: broker_ids(&record.isr).into(),
            rare: RareReplicas {
                removing_replicas: broker_ids(&record.removing_replicas),
                adding_replicas: broker_ids(&record.adding_replicas),
                elr: optional(&record.eligible_leader_replicas),
                last_known_elr: optional(&record.last_known_elr),
            }
            .boxed(),
            leader: BrokerId(record.leader),
            leader_recovery_state: LeaderRecoveryState::from_code(record.leader_recovery_state)
                .ok_or_else(|| invalid("unknown leader recovery state"))?,
            leader_epoch: LeaderEpoch(record.leader_epoch),
            partition_epoch: PartitionEpoch(record.partition_epoch),
        })
    }

    /// This registration after a change: every change raises the partition epoch, and a change that
    /// names a leader raises the leader epoch, even when it names the same one.
    pub fn merge(
        &self,
        record: &PartitionChangeRecord,
    ) -> Result<PartitionRegistration, ReplayError> {
        let invalid = |what: &str| ReplayError::InvalidPartition {
            topic_id: record.topic_id,
            partition: record.partition_id,
            what: what.to_owned(),
        };
        let changed = |change: &Option<Vec<i32>>, current: &[BrokerId]| match change {
            Some(ids) => broker_ids(ids),
            None => current.to_vec(),
        };
        type Brokers = ShortList<BrokerId, 3>;
        let listed = |change: &Option<Vec<i32>>, current: &Brokers| -> Brokers {
            match change {
                Some(ids) => broker_ids(ids).into(),
                None => current.clone(),
            }
        };
        let replicas = listed(&record.replicas, &self.replicas);
        let directories = record.directories.as_deref().unwrap_or(&self.directories);
        let (leader, leader_epoch) = if record.leader == NO_LEADER_CHANGE {
            (self.leader, self.leader_epoch)
        } else {
            (
                BrokerId(record.leader),
                LeaderEpoch(self.leader_epoch.value().wrapping_add(1)),
            )
        };
        let leader_recovery_state = match record.leader_recovery_state {
            LeaderRecoveryState::NO_CHANGE => self.leader_recovery_state,
            code => LeaderRecoveryState::from_code(code)
                .ok_or_else(|| invalid("unknown leader recovery state"))?,
        };
        Ok(PartitionRegistration {
            directories: directories_of(directories, replicas.len()).map_err(invalid)?,
            replicas,
            isr: listed(&record.isr, &self.isr),
            rare: RareReplicas {
                removing_replicas: changed(&record.removing_replicas, self.removing_replicas()),
                adding_replicas: changed(&record.adding_replicas, self.adding_replicas()),
                elr: changed(&record.eligible_leader_replicas, self.elr()),
                last_known_elr: changed(&record.last_known_elr, self.last_known_elr()),
            }
            .boxed(),
            leader,
            leader_recovery_state,
            leader_epoch,
            partition_epoch: PartitionEpoch(self.partition_epoch.value().wrapping_add(1)),
        })
    }

    /// The record that creates this registration, as far as `metadata_version` can express it.
    pub fn to_record(
        &self,
        topic_id: TopicId,
        partition: PartitionIndex,
        metadata_version: MetadataVersion,
        is_elr_enabled: bool,
    ) -> PartitionRecord {
        let when_enabled =
            |ids: &[BrokerId]| (is_elr_enabled && !ids.is_empty()).then(|| numbers(ids));
        PartitionRecord {
            partition_id: partition.value(),
            topic_id,
            replicas: numbers(&self.replicas),
            isr: numbers(&self.isr),
            removing_replicas: numbers(self.removing_replicas()),
            adding_replicas: numbers(self.adding_replicas()),
            leader: self.leader.value(),
            leader_recovery_state: self.leader_recovery_state.code(),
            leader_epoch: self.leader_epoch.value(),
            partition_epoch: self.partition_epoch.value(),
            directories: if metadata_version.is_directory_assignment_supported() {
                self.directories.to_vec()
            } else {
                Vec::new()
            },
            eligible_leader_replicas: when_enabled(self.elr()),
            last_known_elr: when_enabled(self.last_known_elr()),
            ..Default::default()
        }
    }

    pub fn removing_replicas(&self) -> &[BrokerId] {
        self.rare
            .as_ref()
            .map_or(&[][..], |it| &it.removing_replicas[..])
    }

    pub fn adding_replicas(&self) -> &[BrokerId] {
        self.rare
            .as_ref()
            .map_or(&[][..], |it| &it.adding_replicas[..])
    }

    /// Replicas that are eligible to become leader without being in the ISR (KIP-966).
    pub fn elr(&self) -> &[BrokerId] {
        self.rare.as_ref().map_or(&[][..], |it| &it.elr[..])
    }

    pub fn last_known_elr(&self) -> &[BrokerId] {
        self.rare
            .as_ref()
            .map_or(&[][..], |it| &it.last_known_elr[..])
    }

    pub(crate) fn clear_elr(&mut self) {
        let rare = self.rare.take().map(|rare| RareReplicas {
            elr: Vec::new(),
            last_known_elr: Vec::new(),
            ..*rare
        });
        self.rare = rare.and_then(RareReplicas::boxed);
    }

    pub fn has_leader(&self) -> bool {
        self.leader != BrokerId::NONE
    }

    pub fn preferred_replica(&self) -> BrokerId {
        self.replicas.first().copied().unwrap_or(BrokerId::NONE)
    }

    pub fn is_replica(&self, broker: BrokerId) -> bool {
        self.replicas.contains(&broker)
    }

    /// The directory of the replica on `broker`; `None` if it has no replica.
    pub fn directory(&self, broker: BrokerId) -> Option<DirectoryId> {
        let index = self
            .replicas
            .iter()
            .position(|&replica| replica == broker)?;
        self.directories.get(index).copied()
    }

    pub fn is_reassigning(&self) -> bool {
        !self.removing_replicas().is_empty() || !self.adding_replicas().is_empty()
    }
}

pub(crate) fn broker_ids(numbers: &[i32]) -> Vec<BrokerId> {
    numbers.iter().copied().map(BrokerId).collect()
}

fn numbers(ids: &[BrokerId]) -> Vec<i32> {
    ids.iter().map(|id| id.value()).collect()
}

/// Records from before KIP-858 have no directories. As in Kafka, each replica then has the
/// directory MIGRATING.
fn directories_of(
    directories: &[Uuid],
    replica_count: usize,
) -> Result<ShortList<DirectoryId, 1>, &'static str> {
    if directories
        .iter()
        .all(|&id| id == Uuid::DIRECTORY_MIGRATING)
    {
        return Ok(vec![Uuid::DIRECTORY_MIGRATING; replica_count].into());
    }
    if directories.len() != replica_count {
        return Err("the number of directories is not the number of replicas");
    }
    Ok(directories.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration() -> PartitionRegistration {
        PartitionRegistration::from_record(&PartitionRecord {
            partition_id: 0,
            topic_id: Uuid::from_u128(9),
            replicas: vec![1, 2],
            isr: vec![1, 2],
            leader: 1,
            leader_epoch: 4,
            partition_epoch: 7,
            directories: vec![Uuid::from_u128(100), Uuid::from_u128(200)],
            ..Default::default()
        })
        .unwrap()
    }

    #[test]
    fn a_change_raises_its_epochs() {
        let shrunk = registration()
            .merge(&PartitionChangeRecord {
                isr: Some(vec![1]),
                ..Default::default()
            })
            .unwrap();
        assert_eq!(shrunk.isr[..], [BrokerId(1)]);
        assert_eq!(
            (shrunk.leader_epoch, shrunk.partition_epoch),
            (LeaderEpoch(4), PartitionEpoch(8))
        );

        let elected = shrunk
            .merge(&PartitionChangeRecord {
                leader: 1,
                ..Default::default()
            })
            .unwrap();
        assert_eq!(
            (elected.leader_epoch, elected.partition_epoch),
            (LeaderEpoch(5), PartitionEpoch(9))
        );
    }

    /// Otherwise registrations with the same replicas would not be equal.
    #[test]
    fn a_registration_has_rare_replicas_only_while_there_are_some() {
        let with = |adding: Vec<i32>, elr: Vec<i32>| PartitionChangeRecord {
            adding_replicas: Some(adding),
            eligible_leader_replicas: Some(elr),
            ..Default::default()
        };
        let changed = registration().merge(&with(vec![3], vec![2])).unwrap();
        assert_eq!(changed.adding_replicas(), [BrokerId(3)]);
        assert_eq!(changed.elr(), [BrokerId(2)]);
        assert!(changed.removing_replicas().is_empty() && changed.is_reassigning());
        let mut without_elr = changed.clone();
        without_elr.clear_elr();
        assert_eq!(without_elr.adding_replicas(), [BrokerId(3)]);
        assert!(without_elr.elr().is_empty());
        let settled = changed.merge(&with(vec![], vec![])).unwrap();
        assert_eq!(settled.rare, None);
        assert!(!settled.is_reassigning());
    }

    /// A cluster has as many of them as partitions.
    #[test]
    fn a_registration_is_small() {
        assert_eq!(size_of::<PartitionRegistration>(), 80);
    }

    #[test]
    fn directories_of_old_records_are_migrating() {
        let old = PartitionRegistration::from_record(&PartitionRecord {
            replicas: vec![3],
            ..Default::default()
        })
        .unwrap();
        assert_eq!(old.directory(BrokerId(3)), Some(Uuid::DIRECTORY_MIGRATING));
        assert_eq!(old.directory(BrokerId(4)), None);
        let torn = PartitionRecord {
            replicas: vec![3, 4],
            directories: vec![Uuid::from_u128(100)],
            ..Default::default()
        };
        assert!(PartitionRegistration::from_record(&torn).is_err());
    }

    #[test]
    fn a_registration_round_trips_through_its_record() {
        let registration = registration();
        let record = registration.to_record(
            Uuid::from_u128(9),
            PartitionIndex(0),
            MetadataVersion::LATEST_PRODUCTION,
            true,
        );
        assert_eq!(
            PartitionRegistration::from_record(&record),
            Ok(registration)
        );
    }
}
