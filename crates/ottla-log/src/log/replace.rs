//! What the cleaner asks of the holder of the run token.
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
    /// The last that each active producer wrote.
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

    /// Lets the log know of a segment that is to replace `old`; `None` where these are no longer what it has, or where
    /// the log has been truncated since there were so many truncations: what was cut off may be why a record was
    /// dropped.
    pub(crate) fn begin_swap(
        &mut self,
        new: Arc<Segment>,
        old: Vec<Arc<Segment>>,
        truncations: u64,
    ) -> Option<Arc<Swap>> {
        self.jobs.swaps.retain(|swap| !swap.is_over());
        let is_planted = ottla_sync::planted::has("a cleaning goes on over a truncation");
        if *self.shared.truncations.lock() != truncations && !is_planted {
            return None;
        }
        find_sealed(&self.segments(), &old)?;
        let swap = Arc::new(Swap::new(self.shared.clone(), new, old));
        self.jobs.swaps.push(swap.clone());
        Some(swap)
    }

    /// Has readers find the new segment in the place of the old ones. Returns whether it did: the log may have
    /// been truncated, or retention may have let go of one, since the swap began.
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

    /// Ends all swaps, so that the names of files are what the list of segments says. Blocks.
    pub(super) fn settle_swaps(&mut self) -> Result<(), StorageError> {
        for swap in &self.jobs.swaps {
            swap.settle()?;
        }
        self.jobs.swaps.clear();
        Ok(())
    }
}

/// Where these segments stand in the list, one behind the other and all before the active one.
fn find_sealed(list: &SegmentList, segments: &[Arc<Segment>]) -> Option<usize> {
    let first = segments.first()?;
    let at = list.segments.iter().position(|s| Arc::ptr_eq(s, first))?;
    let listed = list.segments.get(at..at + segments.len())?;
    let is_same = listed.iter().zip(segments).all(|(a, b)| Arc::ptr_eq(a, b));
    (is_same && at + segments.len() < list.segments.len()).then_some(at)
}
