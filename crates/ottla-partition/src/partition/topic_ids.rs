//! The partitions whose logs have no `partition.metadata` and no records yet.

use std::sync::Weak;
use std::time::Instant;

use ottla_sync::Mutex;

use super::Partition;

#[derive(Debug, Default)]
pub(super) struct TopicIdsToWrite(pub(super) Mutex<ToWrite>);

#[derive(Debug, Default)]
pub(super) struct ToWrite {
    pub(super) partitions: Vec<Weak<Partition>>,
    /// When the first and the last of them were added; a task waits to write them while this is
    /// set.
    pub(super) came: Option<(Instant, Instant)>,
}
