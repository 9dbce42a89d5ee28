//! The edges of the metadata quorum: what it asks other nodes (`outgoing`, `network`) and gives to them (`served`), what
//! the rest of the node asks of it (`work`), and how it stands (`status`).
//!
//! The state machine is `ottla-raft`; the thread that drives it is `controller_thread`.
//!
//! In Kafka: `KafkaRaftManager`, `KafkaNetworkChannel`, `RaftUtil`.

pub mod outgoing;

pub mod served;

pub mod status;

pub mod work;

pub mod network;
