//! The cluster image: metadata records applied to an immutable image, and deltas between images.
//!
//! The metadata log is the only representation of a cluster. Every broker and every controller
//! applies its records to the same image with `MetadataImage::apply`. This crate does not know
//! where the records come from or how a delta is used. It is pure: it has no I/O, clock or
//! randomness.
//!
//! Every record type of Kafka 4.3.1 is either interpreted or stored, so that a snapshot of the
//! image loses nothing.

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

mod metadata_version;

pub mod feature;

mod image;

mod features;

mod cluster;

mod topics;

mod partition_table;

mod isr_index;

mod partition;

mod short_list;

mod configs;

mod kept_records;

mod delta;

mod replay;

mod loader;

mod replay_error;

pub use cluster::{
    BrokerRegistration, ClusterImage, ControllerRegistration, Endpoint, SupportedFeature,
};
pub use configs::{ConfigEntries, ConfigResource, ConfigResourceType, ConfigurationsImage};
pub use delta::{LocalReplica, LocalReplicaChanges, MetadataDelta, TopicsDelta};
pub use feature::{FEATURES, Feature};
pub use features::FeaturesImage;
pub use image::{MetadataImage, Provenance};
pub use kept_records::{
    AclsImage, ClientQuotasImage, DelegationTokensImage, KeptRecords, QuotaEntity, ScramImage,
};
pub use loader::MetadataLoader;
pub use metadata_version::MetadataVersion;
pub use partition::{LeaderRecoveryState, NO_LEADER_CHANGE, PartitionRegistration, RareReplicas};
pub use replay_error::ReplayError;
pub use short_list::ShortList;
pub use topics::{TopicImage, TopicsImage};
