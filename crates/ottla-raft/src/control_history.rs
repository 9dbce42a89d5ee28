//! The control records that the quorum itself applies: the voters and the level of `kraft.version`.
//!
//! They take effect when appended, not when committed, and are undone by a truncation; therefore
//! this is a history by offset. It reaches back to the oldest snapshot, so that a snapshot can
//! contain the voters at its end offset.
//!
//! Kafka: `KRaftControlRecordStateMachine`, `VoterSetHistory`, `TreeMapLogHistory`.

use std::collections::BTreeMap;

use ottla_protocol::raft_records::{KRaftVersionRecord, LeaderChangeMessage, VotersRecord};
use ottla_types::Offset;

use crate::{KRaftVersion, VoterSet, VoterSetError};

/// A control record of the metadata log.
#[derive(Clone, PartialEq, Debug)]
pub enum ControlRecord {
    LeaderChange(LeaderChangeMessage),
    KRaftVersion(KRaftVersionRecord),
    Voters(VotersRecord),
}

/// Why a control record cannot be applied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ControlRecordError {
    #[error("kraft.version {0} is not known")]
    UnknownKRaftVersion(i16),
    #[error(transparent)]
    Voters(#[from] VoterSetError),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlRecordHistory {
    /// `controller.quorum.voters`; empty for dynamic voters. Used until the log has a voter set.
    static_voters: VoterSet,
    voters: BTreeMap<Offset, VoterSet>,
    kraft_versions: BTreeMap<Offset, KRaftVersion>,
}

impl ControlRecordHistory {
    /// The offset of the bootstrap snapshot's records: before the first record of the log.
    pub const BOOTSTRAP_OFFSET: Offset = Offset(-1);

    pub fn new(static_voters: VoterSet) -> ControlRecordHistory {
        ControlRecordHistory {
            static_voters,
            voters: BTreeMap::new(),
            kraft_versions: BTreeMap::new(),
        }
    }

    /// Adds the record at `offset`. Records of a snapshot have the offset of its last record.
    pub fn add(
        &mut self,
        offset: Offset,
        record: &ControlRecord,
    ) -> Result<(), ControlRecordError> {
        match record {
            ControlRecord::LeaderChange(_) => {}
            ControlRecord::KRaftVersion(record) => {
                let version = KRaftVersion::from_feature_level(record.kraft_version).ok_or(
                    ControlRecordError::UnknownKRaftVersion(record.kraft_version),
                )?;
                self.set_kraft_version(offset, version);
            }
            ControlRecord::Voters(record) => {
                self.set_voters(offset, VoterSet::from_record(record)?);
            }
        }
        Ok(())
    }

    pub fn set_voters(&mut self, offset: Offset, voters: VoterSet) {
        self.voters.insert(offset, voters);
    }

    pub fn set_kraft_version(&mut self, offset: Offset, version: KRaftVersion) {
        self.kraft_versions.insert(offset, version);
    }

    pub fn set_static_voters(&mut self, static_voters: VoterSet) {
        self.static_voters = static_voters;
    }

    /// The current voters; empty if neither configuration nor log has any.
    pub fn last_voters(&self) -> &VoterSet {
        self.voters
            .last_key_value()
            .map_or(&self.static_voters, |(_, voters)| voters)
    }

    /// The offset of the current voter set; `None` for the configured voters.
    pub fn last_voters_offset(&self) -> Option<Offset> {
        self.voters.last_key_value().map(|(&offset, _)| offset)
    }

    pub fn last_kraft_version(&self) -> KRaftVersion {
        self.kraft_versions
            .last_key_value()
            .map(|(_, &version)| version)
            .unwrap_or_default()
    }

    /// The voter set of the log at `offset`; `None` if only the configuration has one.
    pub fn voters_at(&self, offset: Offset) -> Option<&VoterSet> {
        let (_, voters) = self.voters.range(..=offset).next_back()?;
        Some(voters)
    }

    pub fn kraft_version_at(&self, offset: Offset) -> KRaftVersion {
        self.kraft_versions
            .range(..=offset)
            .next_back()
            .map(|(_, &version)| version)
            .unwrap_or_default()
    }

    /// Removes records at or after `end_offset`, because the log was truncated.
    pub fn truncate_new_entries(&mut self, end_offset: Offset) {
        self.voters.split_off(&end_offset);
        self.kraft_versions.split_off(&end_offset);
    }

    /// Removes records before `start_offset` that are no longer in effect there.
    pub fn truncate_old_entries(&mut self, start_offset: Offset) {
        fn truncate<T>(entries: &mut BTreeMap<Offset, T>, start_offset: Offset) {
            let last = entries.range(..=start_offset).next_back();
            if let Some((&last, _)) = last {
                *entries = entries.split_off(&last);
            }
        }
        truncate(&mut self.voters, start_offset);
        truncate(&mut self.kraft_versions, start_offset);
    }

    /// Resets to the configuration, before the records of a snapshot are added.
    pub fn clear(&mut self) {
        self.voters.clear();
        self.kraft_versions.clear();
    }
}

#[cfg(test)]
mod tests {
    use ottla_types::BrokerId;

    use super::*;
    use crate::{ReplicaKey, Voter};

    fn voters(ids: &[i32]) -> VoterSet {
        VoterSet::new(ids.iter().map(|&id| Voter {
            key: ReplicaKey {
                id: BrokerId(id),
                directory_id: None,
            },
            endpoints: Vec::new(),
            supported_kraft_versions: (0, 1),
        }))
        .expect("voters")
    }

    #[test]
    fn a_truncation_removes_control_records() {
        let mut history = ControlRecordHistory::new(voters(&[9]));
        assert_eq!(history.last_voters(), &voters(&[9]));
        assert_eq!(history.last_voters_offset(), None);
        history.set_kraft_version(ControlRecordHistory::BOOTSTRAP_OFFSET, KRaftVersion::V1);
        for (offset, ids) in [(-1, &[1][..]), (10, &[1, 2]), (20, &[1, 2, 3])] {
            history.set_voters(Offset(offset), voters(ids));
        }
        assert_eq!(history.last_voters(), &voters(&[1, 2, 3]));
        history.truncate_new_entries(Offset(20));
        assert_eq!(history.last_voters(), &voters(&[1, 2]));
        assert_eq!(history.last_voters_offset(), Some(Offset(10)));
        assert_eq!(history.voters_at(Offset(9)), Some(&voters(&[1])));
        history.truncate_old_entries(Offset(15));
        assert_eq!(history.voters_at(Offset(9)), None);
        assert_eq!(history.voters_at(Offset(15)), Some(&voters(&[1, 2])));
        assert_eq!(history.last_kraft_version(), KRaftVersion::V1);
        history.clear();
        assert_eq!(history.last_voters(), &voters(&[9]));
        assert_eq!(history.last_kraft_version(), KRaftVersion::V0);
    }

    #[test]
    fn an_unknown_level_is_an_error() {
        let mut history = ControlRecordHistory::new(VoterSet::empty());
        let record = ControlRecord::KRaftVersion(KRaftVersionRecord {
            kraft_version: 7,
            ..Default::default()
        });
        assert_eq!(
            history.add(Offset(0), &record),
            Err(ControlRecordError::UnknownKRaftVersion(7))
        );
        assert_eq!(
            history.add(Offset(0), &ControlRecord::Voters(VotersRecord::default())),
            Err(ControlRecordError::Voters(VoterSetError::Empty))
        );
    }
}
