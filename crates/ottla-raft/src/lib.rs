//! Pure: KRaft, the consensus on the metadata log.
//!
//! `Quorum` is a state machine: events in (`start`, `on_*`), effects out (`Effect`). It owns who leads in
//! which epoch, up to where the log is committed, and what stands in `quorum-state`. It never reads a
//! clock, a file or a socket: the shell carries out the effects, in order, and reports back.
//!
//! This version elects the one voter of a quorum of one. A larger voter set is refused at the start
//! rather than half served; it needs Vote, BeginQuorumEpoch and Fetch as further events of the same
//! machine, and no other shape.
//!
//! In Kafka: `org.apache.kafka.raft`.

#![forbid(unsafe_code)]

mod quorum;

mod election_state;

mod voter_set;

mod snapshot;

pub use election_state::{ElectionState, ElectionStateError};
pub use quorum::{ControlRecord, Effect, LogEnd, Quorum, QuorumError, QuorumOptions, Role};
pub use snapshot::{
    SnapshotId, SnapshotPolicy, SnapshotProgress, SnapshotRetention, StoredSnapshot,
};
pub use voter_set::{KRaftVersion, ReplicaKey, Voter, VoterEndpoint, VoterSet, VoterSetError};
