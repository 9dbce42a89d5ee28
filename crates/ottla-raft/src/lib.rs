//! KRaft, the consensus on the metadata log, as a pure state machine.
//!
//! `Quorum` takes an `Event` and returns `Effect`s. It owns the leader of each epoch, the voters,
//! the high watermark, and the content of `quorum-state`. It never reads a clock, a file or a
//! socket: the shell executes the effects in order and reports back. Time and a random number come
//! with each event. A quorum of one is no special case: its only voter wins every election at once.
//!
//! Reading order: `event` and `message` are the inputs and outputs, `epoch_state` and
//! `leader_state` the state of the roles. Below `quorum`, each file has one concern: `transitions`
//! between roles, `polling` by time, `elections`, the `leader`'s and the `follower`'s side of
//! replication, and `voter_changes`. `wire` converts the messages to Kafka's requests and responses
//! and back.
//!
//! Kafka: `org.apache.kafka.raft`.

#![forbid(unsafe_code)]
#![warn(clippy::iter_over_hash_type)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::iter_over_hash_type
    )
)]

mod event;
mod message;
pub mod wire;

mod quorum;

mod epoch_state;
mod leader_state;
mod request_manager;

mod control_history;
mod election_state;
mod log_state;
mod snapshot;
mod voter_set;

#[cfg(not(any(test, feature = "planted-bugs")))]
mod planted;
#[cfg(any(test, feature = "planted-bugs"))]
pub mod planted;

#[cfg(test)]
mod simulation;

pub use control_history::{ControlRecord, ControlRecordError, ControlRecordHistory};
pub use election_state::{ElectionState, ElectionStateError};
pub use epoch_state::Role;
pub use event::{Effect, Event, Moment, QuorumConfig, QuorumError, QuorumOptions};
pub use leader_state::ReplicaState;
pub use log_state::{EpochStart, LogEnd, LogState, OffsetValidity};
pub use message::{
    AddVoterRequest, ApiVersionsResponse, BeginQuorumEpochRequest, CurrentLeader,
    EndQuorumEpochRequest, FetchData, FetchRequest, FetchResponse, FetchSnapshotRequest,
    FetchSnapshotResponse, LogBatch, QuorumEpochResponse, RemoveVoterRequest, Request, RequestId,
    Response, UpdateVoterRequest, VoteRequest, VoteResponse, VoterChangeResponse,
};
pub use quorum::Quorum;
pub use snapshot::{
    SnapshotId, SnapshotPolicy, SnapshotProgress, SnapshotRetention, StoredSnapshot,
};
pub use voter_set::{
    KRaftVersion, Node, ReplicaKey, UpgradeError, Voter, VoterEndpoint, VoterSet, VoterSetError,
};
