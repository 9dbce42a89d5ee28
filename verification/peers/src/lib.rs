//! The brokers that Ottla is compared with, each described by `peers/NAME.toml`.
//!
//! A peer is installed once (Maven artefacts below the target directory, or a release build of this
//! workspace) and started any number of times. Each node has its own folder, ports and
//! configuration, derived from `peers/server.properties`, which is the same for every peer. The
//! product does not link any of this.
//!
//! The peer `kafka` is the reference, by default the version that `peers/kafka.toml` names; see
//! [`reference`].

mod archive;
mod cluster;
mod description;
pub mod java;
mod node;
mod probe;
pub mod reference;
pub mod replicas;
pub mod secured;
mod settle;
pub mod tiered;

pub use cluster::{Cluster, Member, Quorum};
pub use description::{InstalledPeer, Peer, class_path, resolve_with_maven};
pub use node::{
    Node, NodeOptions, Place, QUICK_HEARTBEATS, Role, Voters, is_orderly, parse_override,
};
pub use probe::{
    AdvertisedApi, Asker, Known, Partition, Served, advertised_apis, connect, fewest_in_sync,
    refuses_plaintext,
};
pub use settle::settle;
