//! The state of the producers that write to a log: sequences, epochs, open transactions.
//!
//! Owns one entry per idempotent or transactional producer seen within `producer.id.expiration.ms`,
//! the open transactions, and the ended transactions whose marker is not yet below the high
//! watermark. Checking a batch changes nothing; a batch is applied only after it is in the file.
//!
//! Kafka: `ProducerStateManager`.

use std::collections::{BTreeMap, HashMap};

use ottla_records::RecordBatch;
use ottla_types::{Offset, ProducerId, Timestamp};

mod check;
mod entry;
mod snapshot;
mod snapshot_offsets;
mod snapshots;
#[cfg(test)]
mod tests;
mod verifications;

use check::end_txn_marker;
pub use check::{AppendOrigin, ProducerError, ProducerStage, ProducerVerdict, TransactionVersion};
pub use entry::{BatchMetadata, LastRecord, ProducerStateEntry};
pub(crate) use snapshot::{
    PendingSnapshot, is_whole as is_whole_snapshot, of_no_producers as snapshot_of_no_producers,
};
use snapshot_offsets::SnapshotOffsets;
pub use verifications::{TransactionStart, Verifications};

pub struct ProducerState {
    /// `None` before the first producer, and after all have expired: most logs are idle.
    known: Option<Box<Known>>,
    /// Snapshot files that exist, by offset.
    snapshots: SnapshotOffsets,
    /// Batches below this offset have been applied.
    map_end_offset: Offset,
    /// The offset of the last snapshot.
    last_snapshot_offset: Offset,
    /// `producer.id.expiration.ms`
    expiration_ms: i64,
    /// `None` unless recovery has written some.
    unforced: Option<Box<UnforcedSnapshots>>,
}

/// Snapshots that were written without fsync.
#[derive(Default)]
struct UnforcedSnapshots(Vec<PendingSnapshot>);

/// The producers and their transactions.
#[derive(Default)]
struct Known {
    producers: HashMap<ProducerId, ProducerStateEntry>,
    /// Open transactions by their first offset.
    ongoing: BTreeMap<Offset, ProducerId>,
    /// Ended transactions whose marker is not below the high watermark, from their first offset to
    /// that of the marker. Their records are not stable yet.
    unreplicated: BTreeMap<Offset, Offset>,
}

impl Known {
    fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.ongoing.is_empty() && self.unreplicated.is_empty()
    }
}

/// A transaction ended by a marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletedTxn {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
    /// The marker's offset.
    pub last_offset: Offset,
    pub is_aborted: bool,
}

impl ProducerState {
    pub fn new(expiration_ms: i64) -> Self {
        Self {
            known: None,
            snapshots: SnapshotOffsets::default(),
            map_end_offset: Offset::ZERO,
            last_snapshot_offset: Offset::ZERO,
            expiration_ms,
            unforced: None,
        }
    }

    /// Batches below this offset have been applied.
    pub fn map_end_offset(&self) -> Offset {
        self.map_end_offset
    }

    pub(crate) fn set_map_end_offset(&mut self, offset: Offset) {
        self.map_end_offset = offset;
    }

    pub fn producer(&self, producer_id: ProducerId) -> Option<&ProducerStateEntry> {
        self.known.as_ref()?.producers.get(&producer_id)
    }

    /// All producers, for DescribeProducers, in no order.
    pub fn producers(&self) -> impl Iterator<Item = &ProducerStateEntry> {
        let known = self.known.iter();
        known.flat_map(|known| known.producers.values())
    }

    pub fn producer_count(&self) -> usize {
        let known = self.known.as_ref();
        known.map_or(0, |known| known.producers.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        let known = self.known.as_ref();
        known.is_none_or(|it| it.producers.is_empty() && it.unreplicated.is_empty())
    }

    /// The state of a producer, including the batches in `stage`.
    pub fn staged_producer<'a>(
        &'a self,
        stage: &'a ProducerStage,
        producer_id: ProducerId,
    ) -> Option<&'a ProducerStateEntry> {
        let known = self.known.as_ref();
        stage.known(known.map(|known| &known.producers), producer_id)
    }

    /// Checks a batch with an assigned offset against the log and `stage`, and adds it to the stage
    /// if it is in sequence.
    pub fn check(
        &self,
        stage: &mut ProducerStage,
        batch: &RecordBatch,
        origin: AppendOrigin,
        transaction_version: TransactionVersion,
    ) -> Result<ProducerVerdict, ProducerError> {
        let known = self.known.as_ref();
        let producers = known.map(|known| &known.producers);
        stage.check(producers, batch, origin, transaction_version)
    }

    /// The first offset of the oldest transaction that is open or whose marker is not below the
    /// high watermark.
    pub fn first_unstable_offset(&self) -> Option<Offset> {
        let known = self.known.as_ref()?;
        let ongoing = known.ongoing.keys().next();
        let unreplicated = known.unreplicated.keys().next();
        ongoing.into_iter().chain(unreplicated).min().copied()
    }

    /// The first offset of the oldest open transaction.
    pub fn first_undecided_offset(&self) -> Option<Offset> {
        self.known.as_ref()?.ongoing.keys().next().copied()
    }

    /// Applies a batch that is in the log. Returns the transaction that it ended, if any.
    pub fn apply(&mut self, batch: &RecordBatch) -> Option<CompletedTxn> {
        let header = &batch.header;
        if !header.has_producer_id() {
            return None;
        }
        let producer_id = header.producer_id;
        let marker = match header.is_control() {
            true => Some(end_txn_marker(batch)?),
            false => None,
        };
        let Known {
            producers, ongoing, ..
        } = &mut **self.known.get_or_insert_default();
        let entry = producers
            .entry(producer_id)
            .or_insert_with(|| ProducerStateEntry::empty(producer_id));
        let Some(marker) = marker else {
            if entry.append_data(header) {
                ongoing.insert(header.base_offset, producer_id);
            }
            return None;
        };
        let first_offset = entry.append_marker(header.producer_epoch, &marker)?;
        Some(CompletedTxn {
            producer_id,
            first_offset,
            last_offset: header.base_offset,
            is_aborted: marker.is_abort,
        })
    }

    /// The last stable offset when a transaction ends: the start of the oldest open transaction of
    /// another producer, or the offset after the marker.
    pub(crate) fn last_stable_offset_after(&self, completed: &CompletedTxn) -> Offset {
        let mut ongoing = self.known.iter().flat_map(|it| &it.ongoing);
        let other = ongoing.find(|(_, producer_id)| **producer_id != completed.producer_id);
        other.map_or(completed.last_offset.plus(1), |(first, _)| *first)
    }

    /// Moves an ended transaction from the open ones to those waiting for the high watermark.
    pub fn complete(&mut self, completed: &CompletedTxn) {
        let known = self.known.get_or_insert_default();
        known.ongoing.remove(&completed.first_offset);
        known
            .unreplicated
            .insert(completed.first_offset, completed.last_offset);
    }

    /// Removes ended transactions whose markers are below `offset`.
    pub fn on_high_watermark(&mut self, offset: Offset) {
        if let Some(known) = &mut self.known
            && !known.unreplicated.is_empty()
        {
            known.unreplicated.retain(|_, marker| *marker >= offset);
        }
    }

    /// Removes producers that have no open transaction and have not written for
    /// `producer.id.expiration.ms`. Returns how many.
    pub fn remove_expired(&mut self, now: Timestamp) -> usize {
        let Some(known) = &mut self.known else {
            return 0;
        };
        let before = known.producers.len();
        let expiration_ms = self.expiration_ms;
        known
            .producers
            .retain(|_, entry| !entry.is_expired(now, expiration_ms));
        let removed = before - known.producers.len();
        if known.is_empty() {
            self.known = None;
        }
        removed
    }

    /// Removes state that a snapshot does not preserve, because Kafka reloads the state from a
    /// snapshot after recovery.
    pub(crate) fn keep_what_snapshots_hold(&mut self, now: Timestamp) {
        self.remove_expired(now);
        if let Some(known) = &mut self.known {
            known.unreplicated.clear();
        }
    }

    pub(crate) fn expiration_ms(&self) -> i64 {
        self.expiration_ms
    }

    pub fn set_expiration_ms(&mut self, expiration_ms: i64) {
        self.expiration_ms = expiration_ms;
    }

    pub(crate) fn on_log_start_offset(&mut self, log_start_offset: Offset) {
        self.on_high_watermark(log_start_offset);
        self.map_end_offset = self.map_end_offset.max(log_start_offset);
        self.last_snapshot_offset = self.latest_snapshot().unwrap_or(log_start_offset);
    }

    fn load_entry(&mut self, entry: ProducerStateEntry) {
        let known = self.known.get_or_insert_default();
        if let Some(first) = entry.current_txn_first_offset {
            known.ongoing.insert(first, entry.producer_id);
        }
        known.producers.insert(entry.producer_id, entry);
    }

    fn clear(&mut self) {
        self.known = None;
    }
}
