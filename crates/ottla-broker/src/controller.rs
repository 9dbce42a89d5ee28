//! The controller on this node: who asks it, the thread that it is, and how its directory begins.
//!
//! A request is decided by a pure function of `ottla-controller`; the thread appends the records, forces
//! them to disk, publishes the image, and only then answers.

pub mod format;

pub(crate) mod controller_thread;

pub(crate) mod handle;

pub(crate) mod channel;

pub(crate) mod heartbeats;

pub(crate) mod lost_brokers;

pub(crate) mod requests;

pub(crate) mod lifecycle;
mod local_host;

pub(crate) mod own_settings;

pub(crate) mod producer_id_blocks;

pub(crate) mod dir_assignments;

pub(crate) mod dir_reports;

pub(crate) mod auto_topic_creation;

pub use crate::quorum::QuorumStatus;
pub use handle::ControllerHandle;
pub use lifecycle::Membership;
pub use requests::{ControllerRequest, Facts};
