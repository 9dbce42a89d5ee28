//! The partitions whose logs are without `partition.metadata` and have not been written to.

use std::sync::Weak;
use std::time::Instant;

use ottla_sync::Mutex;

use super::Partition;

#[derive(Debug, Default)]
pub(super) struct TopicIdsToWrite(pub(super) Mutex<ToWrite>);

#[derive(Debug, Default)]
pub(super) struct ToWrite {
    pub(super) partitions: Vec<Weak<Partition>>,
    /// When the first and the last of them came. A task works them off where there are such times.
    pub(super) came: Option<(Instant, Instant)>,
}
