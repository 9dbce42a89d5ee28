//! The steps of a cleaning that the holder of the run token takes.
//!
//! Kafka: `UnifiedLog.replaceSegments`, `UnifiedLog.lastRecordsOfActiveProducers`.

use std::collections::HashMap;
use std::sync::Arc;

use ottla_types::ProducerId;

use super::Log;
use crate::error::StorageError;
use crate::producer_state::LastRecord;
use crate::reader::SegmentList;
use crate::segment::Segment;
use crate::swap::Swap;

impl Log {
    /// The last batch of each active producer.
    pub(crate) fn last_records_of_active_producers(&self) -> HashMap<ProducerId, LastRecord> {
        let producers = self.producers.producers();
        let last_record = |entry: &crate::ProducerStateEntry| LastRecord {
            last_data_offset: entry.batches().last().map(|batch| batch.last_offset),
            producer_epoch: entry.producer_epoch,
        };
        producers
            .map(|entry| (entry.producer_id, last_record(entry)))
            .collect()
    }

    /// Registers a segment that will replace `old`. `None` if `old` is no longer in the log, or if
    /// the log was truncated since `truncations` was read: the truncated records may be the reason
    /// why older ones were dropped.
    pub(crate) fn begin_swap(
        &mut self,
        new: Arc<Segment>,
        old: Vec<Arc<Segment>>,
        truncations: u64,
    ) -> Option<Arc<Swap>> {
        self.jobs.rare().swaps.retain(|swap| !swap.is_over());
        let is_planted = ottla_sync::planted::has("a cleaning goes on over a truncation");
        if u64::from(*self.shared.truncations.lock()) != truncations && !is_planted {
            return None;
        }
        find_sealed(&self.segments(), &old)?;
        let swap = Arc::new(Swap::new(self.shared.clone(), new, old));
        self.jobs.rare().swaps.push(swap.clone());
        Some(swap)
    }

    /// Publishes the new segment in place of the old ones. Returns `false` if a truncation or
    /// retention has removed one of them since the swap began.
    pub(crate) fn publish_swap(&mut self, swap: &Swap) -> bool {
        let list = self.segments();
        let Some(first) = find_sealed(&list, &swap.old).filter(|_| swap.is_prepared()) else {
            return false;
        };
        let mut segments = list.segments.clone();
        segments.splice(first..first + swap.old.len(), [swap.new.clone()]);
        self.publish_segments(segments, list.tail.clone());
        for old in &swap.old {
            if old.base_offset != swap.new.base_offset {
                self.forget_snapshot_at(old.base_offset);
            }
        }
        swap.set_published();
        true
    }

    /// Ends all swaps, so that file names match the list of segments. Blocks.
    pub(super) fn settle_swaps(&mut self) -> Result<(), StorageError> {
        let Some(rare) = &mut self.jobs.rare else {
            return Ok(());
        };
        for swap in &rare.swaps {
            swap.settle()?;
        }
        rare.swaps.clear();
        Ok(())
    }
}

/// The index of the first of `segments`, if they are neighbours in the list and all sealed.
fn find_sealed(list: &SegmentList, segments: &[Arc<Segment>]) -> Option<usize> {
    let first = segments.first()?;
    let at = list.segments.iter().position(|s| Arc::ptr_eq(s, first))?;
    let listed = list.segments.get(at..at + segments.len())?;
    let is_same = listed.iter().zip(segments).all(|(a, b)| Arc::ptr_eq(a, b));
    (is_same && at + segments.len() < list.segments.len()).then_some(at)
}
