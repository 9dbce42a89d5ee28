//! The voters of the quorum with their directories and endpoints.
//!
//! With `kraft.version` 0 the set is configured (`controller.quorum.voters`) and has no
//! directories; with 1 it is in the metadata log: a `VotersRecord` in the snapshot or the log
//! (KIP-853).
//!
//! Kafka: `VoterSet`, `ReplicaKey`, `KRaftVersion`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytestring::ByteString;
use ottla_protocol::raft_records::{VotersRecord, leader_change_message, voters_record};
use ottla_types::{BrokerId, DirectoryId, LeaderEpoch};

/// The level of `kraft.version`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum KRaftVersion {
    /// Voters are configured.
    #[default]
    V0,
    /// Voters are in the log (KIP-853).
    V1,
}

/// Kafka's name for it in messages.
impl fmt::Display for KRaftVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KRAFT_VERSION_{}", self.feature_level())
    }
}

impl KRaftVersion {
    pub fn from_feature_level(level: i16) -> Option<KRaftVersion> {
        match level {
            0 => Some(KRaftVersion::V0),
            1 => Some(KRaftVersion::V1),
            _ => None,
        }
    }

    pub fn feature_level(self) -> i16 {
        match self {
            KRaftVersion::V0 => 0,
            KRaftVersion::V1 => 1,
        }
    }

    /// Whether the voter set is in the log.
    pub fn is_reconfig_supported(self) -> bool {
        self >= KRaftVersion::V1
    }
}

/// A replica of the metadata log. The directory distinguishes a voter from the same node with a
/// lost disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ReplicaKey {
    pub id: BrokerId,
    /// `None` if unknown: static voters, or peers that use `kraft.version` 0.
    pub directory_id: Option<DirectoryId>,
}

impl ReplicaKey {
    pub fn new(id: BrokerId, directory_id: DirectoryId) -> ReplicaKey {
        ReplicaKey {
            id,
            directory_id: (!directory_id.is_zero()).then_some(directory_id),
        }
    }

    /// Kafka writes version 0 of the message, which has no directory.
    pub(crate) fn to_leader_change_voter(id: BrokerId) -> leader_change_message::Voter {
        leader_change_message::Voter {
            voter_id: id.value(),
            ..Default::default()
        }
    }
}

/// The address of a voter for one listener name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VoterEndpoint {
    pub name: ByteString,
    pub host: ByteString,
    pub port: u16,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Voter {
    pub key: ReplicaKey,
    pub endpoints: Vec<VoterEndpoint>,
    /// The levels of `kraft.version` that the voter supports, both inclusive.
    pub supported_kraft_versions: (i16, i16),
}

impl Voter {
    pub fn supports_version(&self, version: KRaftVersion) -> bool {
        let (min, max) = self.supported_kraft_versions;
        (min..=max).contains(&version.feature_level())
    }
}

/// A node's address. IDs below -1 are bootstrap servers, whose node ID is unknown until they
/// respond.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Node {
    pub id: BrokerId,
    pub host: ByteString,
    pub port: u16,
}

impl Node {
    /// The node's address under `listener_name`, if it has one.
    pub fn at(id: BrokerId, endpoints: &[VoterEndpoint], listener_name: &str) -> Option<Node> {
        let endpoint = endpoints
            .iter()
            .find(|endpoint| &*endpoint.name == listener_name)?;
        Some(Node {
            id,
            host: endpoint.host.clone(),
            port: endpoint.port,
        })
    }
}

/// Why a record is not a usable voter set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VoterSetError {
    #[error("the voter set names no voter")]
    Empty,
    #[error("the voter set names voter {0} twice")]
    Duplicate(BrokerId),
    #[error("the voter set names voter {0} with a negative id")]
    Negative(BrokerId),
}

/// The voters, by ID. Empty only if no voters are known yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VoterSet {
    voters: BTreeMap<BrokerId, Voter>,
}

impl VoterSet {
    pub fn new(voters: impl IntoIterator<Item = Voter>) -> Result<VoterSet, VoterSetError> {
        let mut by_id = BTreeMap::new();
        for voter in voters {
            let id = voter.key.id;
            if id.value() < 0 {
                return Err(VoterSetError::Negative(id));
            }
            if by_id.insert(id, voter).is_some() {
                return Err(VoterSetError::Duplicate(id));
            }
        }
        if by_id.is_empty() {
            return Err(VoterSetError::Empty);
        }
        Ok(VoterSet { voters: by_id })
    }

    /// For dynamic voters, before the first snapshot or log of the quorum is known.
    pub fn empty() -> VoterSet {
        VoterSet::default()
    }

    pub fn from_record(record: &VotersRecord) -> Result<VoterSet, VoterSetError> {
        VoterSet::new(record.voters.iter().map(|voter| {
            Voter {
                key: ReplicaKey::new(BrokerId(voter.voter_id), voter.voter_directory_id),
                endpoints: voter
                    .endpoints
                    .iter()
                    .map(|endpoint| VoterEndpoint {
                        name: endpoint.name.clone(),
                        host: endpoint.host.clone(),
                        port: endpoint.port,
                    })
                    .collect(),
                supported_kraft_versions: (
                    voter.kraft_version_feature.min_supported_version,
                    voter.kraft_version_feature.max_supported_version,
                ),
            }
        }))
    }

    pub fn to_record(&self) -> VotersRecord {
        VotersRecord {
            version: 0,
            voters: self
                .voters
                .values()
                .map(|voter| voters_record::Voter {
                    voter_id: voter.key.id.value(),
                    voter_directory_id: voter.key.directory_id.unwrap_or_default(),
                    endpoints: voter
                        .endpoints
                        .iter()
                        .map(|endpoint| voters_record::Endpoint {
                            name: endpoint.name.clone(),
                            host: endpoint.host.clone(),
                            port: endpoint.port,
                            ..Default::default()
                        })
                        .collect(),
                    kraft_version_feature: voters_record::KRaftVersionFeature {
                        min_supported_version: voter.supported_kraft_versions.0,
                        max_supported_version: voter.supported_kraft_versions.1,
                        ..Default::default()
                    },
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }
    }

    /// Sorted by ID.
    pub fn voters(&self) -> impl Iterator<Item = &Voter> {
        self.voters.values()
    }

    pub fn len(&self) -> usize {
        self.voters.len()
    }

    pub fn is_empty(&self) -> bool {
        self.voters.is_empty()
    }

    pub fn voter(&self, id: BrokerId) -> Option<&Voter> {
        self.voters.get(&id)
    }

    /// Whether `key` is a voter. A voter with an unknown directory matches by ID.
    pub fn is_voter(&self, key: ReplicaKey) -> bool {
        self.voter(key.id).is_some_and(|voter| {
            voter.key.directory_id.is_none() || voter.key.directory_id == key.directory_id
        })
    }

    pub fn is_only_voter(&self, key: ReplicaKey) -> bool {
        self.len() == 1 && self.is_voter(key)
    }

    pub fn ids(&self) -> BTreeSet<BrokerId> {
        self.voters.keys().copied().collect()
    }

    /// The endpoints of a voter; empty for other nodes.
    pub fn endpoints(&self, id: BrokerId) -> &[VoterEndpoint] {
        self.voter(id).map_or(&[], |voter| &voter.endpoints)
    }

    /// Whether `voter` is in the set with different endpoints or versions.
    pub fn needs_update(&self, voter: &Voter) -> bool {
        self.is_voter(voter.key) && self.voter(voter.key.id) != Some(voter)
    }

    /// This set with `voter` added; `None` if its ID is in the set.
    pub fn with(&self, voter: Voter) -> Option<VoterSet> {
        if self.voters.contains_key(&voter.key.id) {
            return None;
        }
        let mut voters = self.voters.clone();
        voters.insert(voter.key.id, voter);
        Some(VoterSet { voters })
    }

    /// This set without `key`; `None` if its ID and directory are not in the set, or if it is the
    /// only voter.
    pub fn without(&self, key: ReplicaKey) -> Option<VoterSet> {
        if self.len() < 2 || self.voter(key.id)?.key != key {
            return None;
        }
        let mut voters = self.voters.clone();
        voters.remove(&key.id);
        Some(VoterSet { voters })
    }

    /// This set with the entry of the same replica replaced; `None` if there is none.
    pub fn updated(&self, voter: Voter) -> Option<VoterSet> {
        self.is_voter(voter.key)
            .then(|| self.replaced(voter))
            .flatten()
    }

    /// The same by ID only, for voters with unknown directories.
    pub fn updated_ignoring_directory_id(&self, voter: Voter) -> Option<VoterSet> {
        self.replaced(voter)
    }

    fn replaced(&self, voter: Voter) -> Option<VoterSet> {
        let mut voters = self.voters.clone();
        let entry = voters.get_mut(&voter.key.id)?;
        *entry = voter;
        Some(VoterSet { voters })
    }

    /// Whether all voters support a level of `kraft.version`.
    pub fn supports_version(&self, version: KRaftVersion) -> bool {
        self.voters().all(|voter| voter.supports_version(version))
    }
}

/// Why `kraft.version` is not raised, with Kafka's messages.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpgradeError {
    #[error("Upgrade kraft version failed because this node does not lead epoch {0}")]
    NotLeader(LeaderEpoch),
    #[error("Invalid upgrade of kraft.version from version {from} to {to}")]
    Invalid {
        from: KRaftVersion,
        to: KRaftVersion,
    },
    /// Also while some static voter has not reported itself to the leader: only level 0 is known of
    /// it.
    #[error("Invalid upgrade of kraft.version to {0} because not all of the voters support it")]
    Unsupported(KRaftVersion),
    #[error("Directory id must be known for all of the voters: {0} has not told the leader")]
    UnknownDirectory(BrokerId),
}
