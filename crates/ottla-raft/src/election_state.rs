//! The persistent state of a voter: epoch, vote and leader. Stored in `quorum-state` as one line of
//! JSON, in version 0 with `kraft.version` 0 and in version 1 with 1.
//!
//! Kafka: `ElectionState`, `FileQuorumStateStore`, `QuorumStateData`.

use std::collections::BTreeSet;

use ottla_types::{BrokerId, DirectoryId, LeaderEpoch};
use serde_json::{Map, Value, json};

use crate::{KRaftVersion, ReplicaKey};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ElectionState {
    pub epoch: LeaderEpoch,
    pub leader: Option<BrokerId>,
    pub voted: Option<ReplicaKey>,
    /// Only in version 0, where the voters are configured.
    pub voters: BTreeSet<BrokerId>,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ElectionStateError {
    #[error("it is not one JSON object: {0}")]
    NotJson(String),
    #[error("data_version {0} is not known; this release reads 0 and 1")]
    UnknownVersion(i64),
    #[error("the field {0} is missing, has the wrong type or is out of range")]
    Field(&'static str),
}

impl ElectionState {
    /// The state of a node without `quorum-state`.
    pub fn initial() -> ElectionState {
        ElectionState {
            epoch: LeaderEpoch(0),
            leader: None,
            voted: None,
            voters: BTreeSet::new(),
        }
    }

    /// Parses the first line of the file.
    pub fn from_json(text: &str) -> Result<ElectionState, ElectionStateError> {
        let line = text.lines().next().unwrap_or_default();
        let value: Value = serde_json::from_str(line)
            .map_err(|error| ElectionStateError::NotJson(error.to_string()))?;
        let object = value
            .as_object()
            .ok_or_else(|| ElectionStateError::NotJson("another kind of value".to_owned()))?;
        let version = number(object, "data_version")?;
        if !(0..=1).contains(&version) {
            return Err(ElectionStateError::UnknownVersion(version));
        }
        let int = |field| -> Result<i32, ElectionStateError> {
            i32::try_from(number(object, field)?).map_err(|_| ElectionStateError::Field(field))
        };
        let leader = int("leaderId")?;
        let voted = int("votedId")?;
        let mut directory_id = DirectoryId::ZERO;
        let mut voters = BTreeSet::new();
        if version == 1 {
            directory_id = object
                .get("votedDirectoryId")
                .and_then(Value::as_str)
                .and_then(|id| id.parse().ok())
                .ok_or(ElectionStateError::Field("votedDirectoryId"))?;
        } else if let Some(Value::Array(entries)) = object.get("currentVoters") {
            for entry in entries {
                let id = entry
                    .get("voterId")
                    .and_then(Value::as_i64)
                    .and_then(|id| i32::try_from(id).ok())
                    .ok_or(ElectionStateError::Field("currentVoters"))?;
                voters.insert(BrokerId(id));
            }
        }
        let epoch = int("leaderEpoch")?;
        // The next election increments the epoch.
        if !(0..i32::MAX).contains(&epoch) {
            return Err(ElectionStateError::Field("leaderEpoch"));
        }
        Ok(ElectionState {
            epoch: LeaderEpoch(epoch),
            leader: (leader >= 0).then_some(BrokerId(leader)),
            voted: (voted >= 0).then(|| ReplicaKey::new(BrokerId(voted), directory_id)),
            voters,
        })
    }

    /// The content of the file, in the version for `kraft_version`.
    pub fn to_json(&self, kraft_version: KRaftVersion) -> String {
        let leader_id = self.leader.unwrap_or(BrokerId(-1)).value();
        let voted_id = self.voted.map_or(-1, |key| key.id.value());
        match kraft_version {
            KRaftVersion::V0 => {
                let voters: Vec<Value> = self
                    .voters
                    .iter()
                    .map(|id| json!({ "voterId": id.value() }))
                    .collect();
                json!({
                    "clusterId": "",
                    "leaderId": leader_id,
                    "leaderEpoch": self.epoch.value(),
                    "votedId": voted_id,
                    "appliedOffset": 0,
                    "currentVoters": voters,
                    "data_version": 0,
                })
            }
            KRaftVersion::V1 => {
                let directory = self
                    .voted
                    .and_then(|key| key.directory_id)
                    .unwrap_or_default();
                json!({
                    "leaderId": leader_id,
                    "leaderEpoch": self.epoch.value(),
                    "votedId": voted_id,
                    "votedDirectoryId": directory.to_string(),
                    "data_version": 1,
                })
            }
        }
        .to_string()
    }
}

fn number(object: &Map<String, Value>, field: &'static str) -> Result<i64, ElectionStateError> {
    object
        .get(field)
        .and_then(Value::as_i64)
        .ok_or(ElectionStateError::Field(field))
}

#[cfg(test)]
mod tests {
    use ottla_types::Uuid;

    use super::*;

    #[test]
    fn version_0_names_the_voters() {
        let text = r#"{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}"#;
        let state = ElectionState::from_json(text).unwrap();
        assert_eq!(
            state,
            ElectionState {
                epoch: LeaderEpoch(3),
                leader: Some(BrokerId(1)),
                voted: None,
                voters: BTreeSet::from([BrokerId(1), BrokerId(2)]),
            }
        );
        assert_eq!(state.to_json(KRaftVersion::V0), text);
    }

    #[test]
    fn version_1_names_the_directory_voted_for() {
        let text = r#"{"leaderId":-1,"leaderEpoch":7,"votedId":1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAZA","data_version":1}"#;
        let state = ElectionState::from_json(text).unwrap();
        assert_eq!(
            state.voted,
            Some(ReplicaKey::new(BrokerId(1), Uuid::from_u128(100)))
        );
        assert_eq!(state.leader, None);
        assert_eq!(state.to_json(KRaftVersion::V1), text);
    }

    #[test]
    fn an_invalid_quorum_state_is_refused() {
        let error = |text: &str| ElectionState::from_json(text).unwrap_err();
        assert!(matches!(error(""), ElectionStateError::NotJson(_)));
        assert!(matches!(error("[]"), ElectionStateError::NotJson(_)));
        assert_eq!(error("{}"), ElectionStateError::Field("data_version"));
        assert_eq!(
            error(r#"{"data_version":2}"#),
            ElectionStateError::UnknownVersion(2)
        );
        assert_eq!(
            error(r#"{"leaderId":9999999999,"leaderEpoch":1,"votedId":1,"data_version":0}"#),
            ElectionStateError::Field("leaderId")
        );
    }
}
