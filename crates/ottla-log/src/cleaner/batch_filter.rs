//! The cleaner's decision about one batch: keep it, rewrite it with fewer records, or drop it.
//!
//! | batch | decision |
//! | --- | --- |
//! | record with a newer record of its key | dropped |
//! | record without a key | dropped, counted |
//! | tombstone, newest of its key | kept until the delete horizon of its batch, which the first cleaning sets |
//! | record after the latest offset of the offset map | kept |
//! | record of an aborted transaction | dropped |
//! | marker of a transaction that still has records | kept |
//! | marker of a transaction without records | kept until its delete horizon, which the first cleaning sets |
//! | no record left, but last batch of its producer or of the cleanable section | kept, without records |
//! | no record left otherwise | dropped |
//!
//! Kafka: `Cleaner.cleanInto`, `MemoryRecords.filterTo`.

use std::collections::HashMap;

use bytes::Bytes;
use ottla_records::control::ControlRecordType;
use ottla_records::legacy::LegacyMessage;
use ottla_records::{
    Attributes, BatchError, BatchHeader, Compression, CompressionType, RecordBatch,
    RecordBatchBuilder, RecordIter, TimestampType, decompress,
};
use ottla_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::offset_map::{KEYS_AT_ONCE, KeyHash, OffsetMap};
use super::transactions::{CleanedTransactions, Marker};
use crate::index::AbortedTxn;
use crate::producer_state::LastRecord;

/// Limit for decompressing one batch, in bytes.
pub(super) const MAX_DECOMPRESSED_BYTES: usize = 1024 * 1024 * 1024;

/// The inputs of the decision.
pub(super) struct BatchFilter<'a> {
    pub(super) map: &'a OffsetMap,
    pub(super) last_records: &'a HashMap<ProducerId, LastRecord>,
    /// The end of the cleanable section, exclusive.
    pub(super) first_uncleanable_offset: Offset,
    pub(super) now: Timestamp,
    pub(super) delete_retention_ms: i64,
    /// `max.decompressed.message.bytes`: a log with a larger record cannot be cleaned.
    pub(super) max_record_bytes: usize,
    /// Whether this segment still keeps tombstones of magic 0 and 1, which have no delete horizon.
    pub(super) are_legacy_tombstones_kept: bool,
}

/// The replacement of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Drop,
    Keep,
    Replace(RecordBatch),
}

/// A batch with the decision about it and the counts for the statistics.
#[derive(Debug)]
pub(super) struct FilteredBatch {
    pub(super) verdict: Verdict,
    pub(super) records_read: u64,
    pub(super) records_kept: u64,
    pub(super) records_without_key: u64,
    /// The entry for the transaction index of the segment that the batch is written to.
    pub(super) aborted: Option<AbortedTxn>,
}

/// The records of a batch that are kept.
#[derive(Default)]
struct Selection {
    /// One flag per record.
    is_kept: Vec<bool>,
    kept: u64,
    without_key: u64,
    has_tombstone: bool,
}

impl BatchFilter<'_> {
    /// Decides about a batch of magic 2. `body` is its records, compressed or not.
    pub(super) fn judge(
        &self,
        transactions: &mut CleanedTransactions,
        header: &BatchHeader,
        body: &[u8],
    ) -> Result<FilteredBatch, BatchError> {
        let (can_discard, aborted) = self.follow_transaction(transactions, header, body)?;
        let horizon = header.delete_horizon();
        let is_past_horizon = horizon.is_some_and(|horizon| horizon <= self.now);
        let is_discarded = can_discard && (!header.is_control() || is_past_horizon);
        let mut filtered = FilteredBatch {
            verdict: Verdict::Drop,
            records_read: 0,
            records_kept: 0,
            records_without_key: 0,
            aborted,
        };
        let is_end_kept = self.is_last_of_producer(header)
            || header.next_offset() == self.first_uncleanable_offset;
        if is_discarded && !is_end_kept {
            return Ok(filtered);
        }
        filtered.records_read = header.record_count.max(0) as u64;
        if !is_discarded && header.record_count > 0 {
            let codec = header.compression_type()?;
            let decompressed;
            let records = match codec {
                CompressionType::None => body,
                codec => {
                    decompressed = decompress(codec, body, MAX_DECOMPRESSED_BYTES)?;
                    &decompressed
                }
            };
            let mut selection = Selection::default();
            self.select(header, records, &mut selection)?;
            filtered.records_kept = selection.kept;
            filtered.records_without_key = selection.without_key;
            if selection.kept > 0 {
                let needs_horizon = (selection.has_tombstone || can_discard && header.is_control())
                    && horizon.is_none();
                let is_whole = selection.kept == filtered.records_read;
                filtered.verdict = match is_whole && !needs_horizon {
                    true => Verdict::Keep,
                    false => {
                        verify_crc(header, body)?;
                        let new_horizon = self.now.0.saturating_add(self.delete_retention_ms);
                        let horizon = match needs_horizon {
                            true => Some(Timestamp(new_horizon)),
                            false => horizon,
                        };
                        Verdict::Replace(rebuild(header, codec, records, &selection, horizon)?)
                    }
                };
                return Ok(filtered);
            }
        }
        if is_end_kept {
            filtered.verdict = Verdict::Replace(empty_batch(header));
        }
        Ok(filtered)
    }

    /// Decides about a message of magic 0 or 1, uncompressed or a wrapper of compressed messages.
    /// Records that are kept are written in magic 2.
    pub(super) fn judge_legacy(
        &self,
        message: &LegacyMessage,
    ) -> Result<FilteredBatch, BatchError> {
        let records = message.records(MAX_DECOMPRESSED_BYTES)?;
        let mut filtered = FilteredBatch {
            verdict: Verdict::Drop,
            records_read: records.len() as u64,
            records_kept: 0,
            records_without_key: 0,
            aborted: None,
        };
        let mut kept = Vec::new();
        for record in &records {
            let has_value = record.value.is_some();
            let may_be_tombstone = self.are_legacy_tombstones_kept;
            let key = record.key.as_deref().map(|key| self.map.hash(key));
            match self.is_newest(record.offset, key) {
                Newest::Yes if has_value || may_be_tombstone => kept.push(record),
                Newest::NotKnown => kept.push(record),
                Newest::NoKey => filtered.records_without_key += 1,
                Newest::Yes | Newest::No => {}
            }
        }
        filtered.records_kept = kept.len() as u64;
        let Some(first) = kept.first() else {
            if message.offset.plus(1) == self.first_uncleanable_offset {
                filtered.verdict = Verdict::Replace(empty_batch(&legacy_header(message)));
            }
            return Ok(filtered);
        };
        let base_offset = first.offset;
        let mut builder = RecordBatchBuilder::new(Compression::from(message.compression_type()?))
            .base_offset(base_offset);
        if message.timestamp_type() == Some(TimestampType::LogAppendTime) {
            builder = builder.log_append_time(message.timestamp);
        }
        if kept.iter().any(|record| record.value.is_none()) {
            let horizon = self.now.0.saturating_add(self.delete_retention_ms);
            builder = builder.delete_horizon(Timestamp(horizon));
        }
        for record in kept {
            let delta = i32::try_from(record.offset.since(base_offset)).map_err(|_| {
                BatchError::MalformedMessageSet("offsets in a message are too far apart")
            })?;
            let (key, value) = (record.key.as_deref(), record.value.as_deref());
            builder.append_at(delta, record.timestamp, key, value, &record.headers);
        }
        filtered.verdict = Verdict::Replace(builder.build());
        Ok(filtered)
    }

    /// Whether the batch may be discarded as far as its transaction is concerned, and the
    /// transaction index entry to keep.
    fn follow_transaction(
        &self,
        transactions: &mut CleanedTransactions,
        header: &BatchHeader,
        body: &[u8],
    ) -> Result<(bool, Option<AbortedTxn>), BatchError> {
        if !header.is_control() {
            return Ok((transactions.on_batch(header), None));
        }
        let kind = control_kind(header, body)?;
        Ok(match transactions.on_control_batch(header, kind) {
            Marker::Discardable => (true, None),
            Marker::Needed => (false, None),
            Marker::NeededWith(txn) => (false, Some(txn)),
        })
    }

    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        header.has_producer_id()
            && (self.last_records.get(&header.producer_id)).is_some_and(|last| {
                match last.last_data_offset {
                    Some(offset) => offset == header.last_offset(),
                    None => header.is_control() && header.producer_epoch == last.producer_epoch,
                }
            })
    }

    fn select(
        &self,
        header: &BatchHeader,
        records: &[u8],
        selection: &mut Selection,
    ) -> Result<(), BatchError> {
        let are_tombstones_kept = header.delete_horizon().is_none_or(|at| self.now < at);
        let mut records = RecordIter::new(header, records).at_most(self.max_record_bytes);
        let mut some = [SeenRecord::default(); KEYS_AT_ONCE];
        loop {
            let mut count = 0;
            for record in records.by_ref().take(KEYS_AT_ONCE) {
                let record = record?;
                some[count] = SeenRecord {
                    offset: record.offset,
                    key: record.key.map(|key| self.map.hash(key)),
                    is_tombstone: record.value.is_none(),
                };
                count += 1;
            }
            let some = &some[..count];
            self.map.load(some.iter().filter_map(|record| record.key));
            for record in some {
                let is_kept = header.is_control()
                    || match self.is_newest(record.offset, record.key) {
                        Newest::Yes => !record.is_tombstone || are_tombstones_kept,
                        Newest::NotKnown => true,
                        Newest::No => false,
                        Newest::NoKey => {
                            selection.without_key += 1;
                            false
                        }
                    };
                selection.is_kept.push(is_kept);
                selection.kept += u64::from(is_kept);
                selection.has_tombstone |= is_kept && record.is_tombstone;
            }
            if count < KEYS_AT_ONCE {
                return Ok(());
            }
        }
    }

    fn is_newest(&self, offset: Offset, key: Option<KeyHash>) -> Newest {
        if self
            .map
            .latest_offset()
            .is_none_or(|latest| offset > latest)
        {
            return Newest::NotKnown;
        }
        match key {
            None => Newest::NoKey,
            Some(key) => match self.map.get(key).is_none_or(|newest| offset >= newest) {
                true => Newest::Yes,
                false => Newest::No,
            },
        }
    }
}

/// The fields of a record that decide whether it is kept.
#[derive(Clone, Copy, Default)]
struct SeenRecord {
    offset: Offset,
    key: Option<KeyHash>,
    is_tombstone: bool,
}

enum Newest {
    Yes,
    No,
    /// The record is after the latest offset of the offset map.
    NotKnown,
    NoKey,
}

/// The type of the first record of a control batch; `None` if no record is left.
pub(super) fn control_kind(
    header: &BatchHeader,
    body: &[u8],
) -> Result<Option<Option<ControlRecordType>>, BatchError> {
    match RecordIter::new(header, body).next() {
        None => Ok(None),
        Some(record) => {
            let key = record?.key.unwrap_or_default();
            ControlRecordType::parse_key(key).map(Some)
        }
    }
}

/// Verifies the checksum of a batch before it is rewritten: the new checksum must not hide that the
/// old one was wrong.
pub(super) fn verify_crc(header: &BatchHeader, body: &[u8]) -> Result<(), BatchError> {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&header.to_bytes()[BatchHeader::CRC_START..]);
    digest.update(body);
    let computed = digest.finalize() as u32;
    match computed == header.crc {
        true => Ok(()),
        false => Err(BatchError::WrongCrc {
            stored: header.crc,
            computed,
        }),
    }
}

/// The batch with the selected records only.
fn rebuild(
    header: &BatchHeader,
    codec: CompressionType,
    records: &[u8],
    selection: &Selection,
    horizon: Option<Timestamp>,
) -> Result<RecordBatch, BatchError> {
    let mut builder = RecordBatchBuilder::new(Compression::from(codec))
        .capacity(records.len())
        .base_offset(header.base_offset)
        .partition_leader_epoch(header.partition_leader_epoch)
        .producer(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        )
        .transactional(header.is_transactional())
        .control(header.is_control());
    if header.attributes.timestamp_type() == TimestampType::LogAppendTime {
        builder = builder.log_append_time(header.max_timestamp);
    }
    if let Some(horizon) = horizon {
        builder = builder.delete_horizon(horizon);
    }
    let mut next_offset = header.base_offset;
    for (record, is_kept) in RecordIter::new(header, records).zip(&selection.is_kept) {
        let record = record?;
        if *is_kept {
            if record.offset < next_offset || record.offset > header.last_offset() {
                return Err(BatchError::MalformedRecord {
                    index: 0,
                    reason: "its offset is not above the previous one, within the batch",
                });
            }
            next_offset = record.offset.plus(1);
            builder.append_view(&record);
        }
    }
    builder.end_at(header.last_offset());
    Ok(builder.build())
}

/// The batch without records: it preserves the last offset and the producer's last sequence number.
fn empty_batch(header: &BatchHeader) -> RecordBatch {
    let attributes = Attributes::default()
        .with_timestamp_type(header.attributes.timestamp_type())
        .with_transactional(header.is_transactional())
        .with_control(header.is_control());
    let header = BatchHeader {
        batch_length: BatchHeader::MIN_LENGTH,
        attributes,
        base_timestamp: Timestamp::NONE,
        record_count: 0,
        ..*header
    };
    let mut batch = RecordBatch::new(header, Bytes::new());
    batch.header.crc = batch.compute_crc();
    batch
}

/// The header of a magic 2 batch at the message's last offset.
fn legacy_header(message: &LegacyMessage) -> BatchHeader {
    let timestamp_type = message.timestamp_type().unwrap_or_default();
    BatchHeader {
        base_offset: message.offset,
        batch_length: BatchHeader::MIN_LENGTH,
        partition_leader_epoch: LeaderEpoch::UNKNOWN,
        magic: BatchHeader::MAGIC,
        crc: 0,
        attributes: Attributes::default().with_timestamp_type(timestamp_type),
        last_offset_delta: 0,
        base_timestamp: Timestamp::NONE,
        max_timestamp: message.timestamp,
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch::NONE,
        base_sequence: Sequence::NONE,
        record_count: 0,
    }
}
