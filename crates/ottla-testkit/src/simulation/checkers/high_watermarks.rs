//! The high watermark never moves back within a leader epoch: neither the leader's, nor a follower's within its process.

use std::collections::BTreeMap;

use ottla_types::{LeaderEpoch, Offset, TopicIdPartition};

use super::Finding;

#[derive(Default)]
pub(crate) struct HighWatermarks {
    led: BTreeMap<(TopicIdPartition, LeaderEpoch), Offset>,
    followed: BTreeMap<(TopicIdPartition, LeaderEpoch, i32, u64), Offset>,
    pub(super) finding: Finding,
}

impl HighWatermarks {
    pub(crate) fn on_led(
        &mut self,
        id: i32,
        partition: TopicIdPartition,
        epoch: LeaderEpoch,
        high_watermark: Offset,
    ) {
        let before = self.led.insert((partition, epoch), high_watermark);
        if let Some(before) = before.filter(|&before| before > high_watermark) {
            self.finding.report(|| {
                format!("leader {id} of epoch {epoch} goes back from {before} to {high_watermark}")
            });
        }
    }

    pub(crate) fn on_followed(
        &mut self,
        id: i32,
        life: u64,
        partition: TopicIdPartition,
        epoch: LeaderEpoch,
        high_watermark: Offset,
    ) {
        let key = (partition, epoch, id, life);
        let before = self.followed.insert(key, high_watermark);
        if let Some(before) = before.filter(|&before| before > high_watermark) {
            self.finding.report(|| {
                format!(
                    "follower {id} in epoch {epoch} goes back from {before} to {high_watermark}"
                )
            });
        }
    }
}
