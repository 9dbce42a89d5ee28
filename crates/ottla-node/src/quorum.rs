//! The interfaces of the metadata quorum: the requests that it sends (`outgoing`, `network`), its
//! responses to other nodes (`served`), the work that the rest of the node gives to its thread
//! (`work`), and its status (`status`).
//!
//! The state machine is `ottla-raft`. `controller_thread` is the thread that drives it.
//!
//! In Kafka: `KafkaRaftManager`, `KafkaNetworkChannel`, `RaftUtil`.

pub mod outgoing;

pub mod served;

pub mod status;

pub mod work;

pub mod network;
