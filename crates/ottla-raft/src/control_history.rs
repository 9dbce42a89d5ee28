//! The control records of the log that the quorum itself acts by: who votes, and the level of `kraft.version`.
//!
//! They take effect when they are appended, not when they are committed, and cease when they are truncated;
//! hence a history by offset. Kept as far back as the oldest snapshot, so that a snapshot can say who voted
//! at its end.
//!
//! In Kafka: `KRaftControlRecordStateMachine`, `VoterSetHistory`, `TreeMapLogHistory`.

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

/// Why a control record cannot be acted by.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ControlRecordError {
    #[error("kraft.version {0} is not known")]
    UnknownKRaftVersion(i16),
    #[error(transparent)]
    Voters(#[from] VoterSetError),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlRecordHistory {
    /// `controller.quorum.voters`; empty where voters are data. Counts until the log names voters.
    static_voters: VoterSet,
    voters: BTreeMap<Offset, VoterSet>,
    kraft_versions: BTreeMap<Offset, KRaftVersion>,
}

impl ControlRecordHistory {
    /// The offset of what stands in the bootstrap snapshot: before the first record of the log.
    pub const BOOTSTRAP_OFFSET: Offset = Offset(-1);

    pub fn new(static_voters: VoterSet) -> ControlRecordHistory {
        ControlRecordHistory {
            static_voters,
            voters: BTreeMap::new(),
            kraft_versions: BTreeMap::new(),
        }
    }

    /// Adds the record at `offset`. Records of a snapshot stand at the offset of the last record in it.
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

    /// Who votes now; empty where neither configuration nor log say.
    pub fn last_voters(&self) -> &VoterSet {
        self.voters
            .last_key_value()
            .map_or(&self.static_voters, |(_, voters)| voters)
    }

    /// Where that stands; `None` for the configured voters.
    pub fn last_voters_offset(&self) -> Option<Offset> {
        self.voters.last_key_value().map(|(&offset, _)| offset)
    }

    pub fn last_kraft_version(&self) -> KRaftVersion {
        self.kraft_versions
            .last_key_value()
            .map(|(_, &version)| version)
            .unwrap_or_default()
    }

    /// Who voted at `offset`, by the log: `None` where only the configuration says.
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

    /// The log was cut back to `end_offset`.
    pub fn truncate_new_entries(&mut self, end_offset: Offset) {
        self.voters.split_off(&end_offset);
        self.kraft_versions.split_off(&end_offset);
    }

    /// Nothing before `start_offset` is asked for any more, but for what still holds there.
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

    /// Nothing but the configuration counts: what a snapshot says follows.
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
    fn what_is_truncated_never_was() {
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
