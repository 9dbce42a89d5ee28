//! Carries out a plan of `ottla-rebalance`: starts its moves, few at a time, elects leaders, and removes the throttles.
//!
//! Owns the progress of one plan, and nothing that outlasts it. After a stop at any point, the next [`Apply`] of the
//! same plan finds the moves again, because the cluster lists moves in progress, and finished moves have the planned
//! replicas. Never touches a terminal or a file: `ottla rebalance` and the console show the progress.
//!
//! Invariants:
//! 1. Nothing is started while another program moves partitions.
//! 2. No broker copies more partitions at a time than were allowed, and none gets more than its disks have room for.

#![forbid(unsafe_code)]
#![warn(clippy::iter_over_hash_type)]

mod error;

mod directories;
mod room;
mod targets;

mod elections;
mod throttles;

mod apply;
mod cancel;

pub use apply::{Apply, Count, Outcome, Outlook};
pub use cancel::{Cancelled, cancel};
pub use directories::{Directories, directories};
pub use error::ApplyError;
pub use targets::{Partition, Targets};
