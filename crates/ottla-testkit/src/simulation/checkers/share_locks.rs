//! A record of a share partition is locked by one member at a time: nobody is given what another holds whose lock runs, and nobody
//! settles it (KIP-932).
//!
//! Locks are the leader's, by its clock, and end when it gives the share partition up: a new leader knows of none, and neither does
//! the same one that takes it up again.

use std::collections::BTreeMap;

use ottla_coordinator::share_partition::{AcknowledgeType, AcknowledgementBatch, AcquiredBatch};
use ottla_types::{LeaderEpoch, TopicIdPartition};

use super::Finding;
use crate::simulation::share_partitions::SHARE_SETTINGS;

/// A share partition, as one leader has it.
type Of = (TopicIdPartition, LeaderEpoch);

#[derive(Default)]
pub(crate) struct ShareLocks {
    /// By offset: who holds the record, and until when.
    held: BTreeMap<(Of, i64), (String, u64)>,
    pub(super) finding: Finding,
}

impl ShareLocks {
    pub(crate) fn on_acquired(&mut self, of: Of, member: &str, batch: &AcquiredBatch, now_ms: u64) {
        let until_ms = now_ms + SHARE_SETTINGS.record_lock_duration_ms;
        for offset in batch.first_offset.0..=batch.last_offset.0 {
            let lock = (member.to_owned(), until_ms);
            let before = self.held.insert((of, offset), lock);
            if let Some((holder, until_ms)) = before.filter(|(_, until_ms)| *until_ms > now_ms) {
                self.finding.report(|| {
                    let partition = of.0.partition;
                    format!(
                        "{member} is given {offset} of partition {partition} at {now_ms}, and {holder} holds it until {until_ms}"
                    )
                });
            }
        }
    }

    /// The leader takes what a member says.
    pub(crate) fn on_acknowledged(
        &mut self,
        of: Of,
        member: &str,
        batch: &AcknowledgementBatch,
        now_ms: u64,
    ) {
        for (index, offset) in (batch.first_offset.0..=batch.last_offset.0).enumerate() {
            let Some((holder, until_ms)) = self.held.get_mut(&(of, offset)) else {
                continue;
            };
            if holder != member && *until_ms > now_ms {
                self.finding.report(|| {
                    let partition = of.0.partition;
                    format!(
                        "{member} settles {offset} of partition {partition}, which {holder} holds"
                    )
                });
            }
            match batch.types.get(index).or(batch.types.first()) {
                Some(AcknowledgeType::Renew) => {
                    *until_ms = now_ms + SHARE_SETTINGS.record_lock_duration_ms;
                }
                _ => {
                    self.held.remove(&(of, offset));
                }
            }
        }
    }

    /// The leader gives the share partition up, and its locks with it.
    pub(crate) fn on_closed(&mut self, of: Of) {
        self.held.retain(|(held_of, _), _| *held_of != of);
    }

    /// What the member holds there it holds no longer.
    pub(crate) fn on_gone(&mut self, of: Of, member: &str) {
        self.held
            .retain(|(held_of, _), (holder, _)| *held_of != of || holder != member);
    }
}
