//! A batch of one partition, from its first record to its completion
//! (`org.apache.kafka.clients.producer.internals.ProducerBatch`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_records::{
    BatchHeader, Compression, RecordBatch, RecordBatchBuilder, RecordHeader, replace_producer,
};
use ottla_types::{Sequence, Timestamp};

use super::buffer_pool::Grant;
use super::delivery::{Completion, Delivery, DeliveryCallback};
use super::record::RecordRef;
use super::sequences::{Identity, Ticket};
use crate::error::ClientError;

/// A compressed batch takes records until its estimated compressed size is `batch.size`. Before
/// compression it is limited to this multiple of `batch.size`, so that memory is bounded.
const MOST_EXPANSION: usize = 16;

/// The safety margin of Kafka's `CompressionRatioEstimator`.
const RATIO_MARGIN: f32 = 1.05;

pub(super) struct ProducerBatch {
    /// `Some` until the batch is sealed.
    builder: Option<RecordBatchBuilder>,
    /// The bytes to send, once it is sealed.
    sealed: Bytes,
    pub(super) record_count: u32,
    pub(super) completion: Arc<Completion>,
    /// The tags of the records, if there is a listener.
    pub(super) tags: Vec<u64>,
    pub(super) callbacks: Vec<(u32, i64, DeliveryCallback)>,
    grant: Option<Grant>,
    pub(super) created: Instant,
    /// The earliest time of the next attempt.
    pub(super) waits_until: Instant,
    pub(super) attempts: u32,
    /// The leader epoch in which the broker of the last attempt led the partition; -1 if it was
    /// unknown.
    pub(super) leader_epoch: i32,
    /// Whether the broker of the last attempt knew only an older leader epoch.
    pub(super) is_broker_behind: bool,
    /// The attempts that were repeated without the whole backoff. They count neither as retries nor
    /// towards the next backoff.
    pub(super) early_repeats: u32,
    /// Its identification and sequence among the sent batches; `None` without idempotence, and
    /// before the first attempt.
    pub(super) ticket: Option<Ticket>,
    /// The error of the last attempt.
    pub(super) last_error: Option<ClientError>,
    /// Whether the result was reported already, although the batch may still be in flight.
    pub(super) is_told: bool,
    is_closed: bool,
    uncompressed_size: usize,
    /// The largest upper bound of a record's size.
    largest_bound: usize,
    /// Kafka's size estimate of the largest record.
    largest_record: usize,
}

/// The data needed to report the result of a batch.
pub(super) struct BatchReport {
    pub(super) completion: Arc<Completion>,
    pub(super) record_count: u32,
    pub(super) records: Bytes,
    pub(super) tags: Vec<u64>,
    pub(super) callbacks: Vec<(u32, i64, DeliveryCallback)>,
}

impl ProducerBatch {
    pub(super) fn new(
        builder: RecordBatchBuilder,
        grant: Option<Grant>,
        partition: i32,
        now: Instant,
    ) -> ProducerBatch {
        let builder = match &grant {
            Some(grant) => builder.in_buffer(grant.buffer()),
            None => builder,
        };
        ProducerBatch {
            builder: Some(builder),
            sealed: Bytes::new(),
            record_count: 0,
            completion: Completion::new(partition),
            tags: Vec::new(),
            callbacks: Vec::new(),
            grant,
            created: now,
            waits_until: now,
            attempts: 0,
            leader_epoch: -1,
            is_broker_behind: false,
            early_repeats: 0,
            ticket: None,
            last_error: None,
            is_told: false,
            is_closed: false,
            uncompressed_size: 0,
            largest_bound: 0,
            largest_record: 0,
        }
    }

    /// Appends the record if it fits. `ratio` is the estimated compression ratio.
    #[inline(always)]
    pub(super) fn try_append(
        &mut self,
        record: &RecordRef<'_>,
        timestamp: i64,
        batch_size: usize,
        ratio: Option<f32>,
    ) -> Option<Delivered> {
        if self.is_closed {
            return None;
        }
        let builder = self.builder.as_mut()?;
        let size = builder.uncompressed_size();
        let bound = record.size_upper_bound();
        if self.record_count > 0 {
            // The upper bound is cheap; the exact size is computed only if the bound exceeds the
            // limit.
            let limit = room(batch_size, ratio);
            if size + bound > limit {
                let exact = builder.uncompressed_size_with(
                    Timestamp(timestamp),
                    record.key,
                    record.value,
                    record.headers,
                );
                if exact > limit {
                    return None;
                }
            }
        }
        builder.append(
            Timestamp(timestamp),
            record.key,
            record.value,
            record.headers,
        );
        let index = self.record_count;
        let bytes = builder.uncompressed_size() - size;
        self.record_count += 1;
        if bound > self.largest_bound {
            self.largest_bound = bound;
            self.largest_record = record.estimated_batch_size();
        }
        Some(Delivered { index, bytes })
    }

    #[inline(always)]
    pub(super) fn delivery(&self, index: u32, timestamp: i64) -> Delivery {
        Delivery::new(&self.completion, index, timestamp)
    }

    /// Whether no further record of the same size would fit.
    pub(super) fn is_full(&self, batch_size: usize, ratio: Option<f32>) -> bool {
        self.is_closed
            || self
                .builder
                .as_ref()
                .is_none_or(|builder| builder.uncompressed_size() >= room(batch_size, ratio))
    }

    /// Closes the batch for records and compresses it.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        if let Some(builder) = &mut self.builder {
            if self.uncompressed_size == 0 {
                self.uncompressed_size = builder.uncompressed_size();
            }
            builder.compress();
        }
    }

    pub(super) fn largest_record(&self) -> usize {
        self.largest_record
    }

    /// The ratio of the records' compressed to their uncompressed size, without the header.
    pub(super) fn compression_rate(&self) -> f64 {
        let records = |size: usize| size.saturating_sub(BatchHeader::SIZE) as f64;
        records(self.size()) / records(self.uncompressed_size()).max(1.0)
    }

    /// The uncompressed size.
    pub(super) fn uncompressed_size(&self) -> usize {
        match &self.builder {
            Some(builder) if self.uncompressed_size == 0 => builder.uncompressed_size(),
            _ => self.uncompressed_size,
        }
    }

    /// The size as far as it is known: the size to send, once the batch is closed.
    pub(super) fn size(&self) -> usize {
        match &self.builder {
            Some(builder) => builder.uncompressed_size(),
            None => self.sealed.len(),
        }
    }

    /// Writes the header with the producer's identity.
    pub(super) fn seal(&mut self, producer: Option<(Identity, Sequence)>, transactional: bool) {
        self.close();
        if let Some(mut builder) = self.builder.take() {
            builder = builder.transactional(transactional);
            if let Some((identity, sequence)) = producer {
                builder = builder.producer(identity.id, identity.epoch, sequence);
            }
            self.sealed = builder.build_in_place();
        }
    }

    /// Changes the sequence of a sealed batch.
    pub(super) fn reseal(&mut self, identity: Identity, sequence: Sequence) {
        let sealed = std::mem::take(&mut self.sealed);
        self.sealed = replace_producer(sealed, identity.id, identity.epoch, sequence)
            .expect("a sealed batch can be read");
    }

    /// The bytes to send.
    pub(super) fn records(&self) -> &Bytes {
        &self.sealed
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.created)
    }

    /// Splits the batch into batches of `batch.size` before compression, or into halves if it was
    /// split before, together with the waiting callers. `None` if it has only one record.
    pub(super) fn split(
        &mut self,
        compression: Compression,
        batch_size: usize,
        now: Instant,
    ) -> Option<Vec<(u32, ProducerBatch)>> {
        if self.record_count < 2 {
            return None;
        }
        let half = self.uncompressed_size() / 2;
        let batch_size = batch_size.min(half);
        let mut sealed = self.sealed.clone();
        let batch = RecordBatch::read(&mut sealed).expect("a sealed batch can be read");
        let records = batch.records(usize::MAX).expect("they were encoded here");
        let mut parts: Vec<(u32, ProducerBatch)> = Vec::new();
        let begin = |first| {
            let builder = RecordBatchBuilder::new(compression);
            let mut part = ProducerBatch::new(builder, None, self.completion.partition, now);
            part.created = self.created;
            (first, part)
        };
        for (index, record) in records.iter().enumerate() {
            let record = record.expect("it was encoded here");
            let headers: Vec<RecordHeader> = record
                .headers
                .iter()
                .map(|(key, value)| {
                    let value = value.map(Bytes::copy_from_slice);
                    RecordHeader::new(Bytes::copy_from_slice(key), value)
                })
                .collect();
            let view = RecordRef {
                key: record.key,
                value: record.value,
                headers: &headers,
                ..RecordRef::default()
            };
            let timestamp = record.timestamp.0;
            let fits = parts.last_mut().is_some_and(|(_, part)| {
                part.try_append(&view, timestamp, batch_size, None)
                    .is_some()
            });
            if !fits {
                let (first, mut part) = begin(index as u32);
                part.try_append(&view, timestamp, batch_size, None)
                    .expect("an empty batch takes any record");
                parts.push((first, part));
            }
        }
        self.hand_over_to(&mut parts);
        Some(parts)
    }

    /// Moves the callbacks and tags of the records to the parts that contain them.
    fn hand_over_to(&mut self, parts: &mut [(u32, ProducerBatch)]) {
        for (first, part) in parts.iter_mut().rev() {
            // Either every record has a tag or none.
            part.tags = self.tags.split_off(self.tags.len().min(*first as usize));
        }
        for (index, timestamp, callback) in std::mem::take(&mut self.callbacks) {
            let behind = parts.partition_point(|(first, _)| *first <= index);
            let (first, part) = &mut parts[behind - 1];
            part.callbacks.push((index - *first, timestamp, callback));
        }
    }

    /// Takes the data needed to report the result; `None` the second time.
    pub(super) fn take_report(&mut self) -> Option<BatchReport> {
        if std::mem::replace(&mut self.is_told, true) {
            return None;
        }
        Some(BatchReport {
            completion: self.completion.clone(),
            record_count: self.record_count,
            records: self.sealed.clone(),
            tags: std::mem::take(&mut self.tags),
            callbacks: std::mem::take(&mut self.callbacks),
        })
    }

    /// Returns the memory to the pool.
    pub(super) fn release(&mut self) {
        let Some(grant) = self.grant.take() else {
            return;
        };
        let sealed = std::mem::take(&mut self.sealed);
        if sealed.is_unique() {
            grant.recycle(Vec::from(sealed));
        }
    }
}

/// The index of a record in the batch, and its size.
pub(super) struct Delivered {
    pub(super) index: u32,
    pub(super) bytes: usize,
}

/// The maximum size of a batch before compression.
#[inline]
fn room(batch_size: usize, ratio: Option<f32>) -> usize {
    match ratio {
        None => batch_size,
        Some(ratio) => {
            let expanded = batch_size as f32 / (ratio * RATIO_MARGIN);
            (expanded as usize).clamp(batch_size / 2, MOST_EXPANSION * batch_size)
        }
    }
}

/// The estimated compression ratio after an observation
/// (`org.apache.kafka.common.record.internal.CompressionRatioEstimator`): it deteriorates at once
/// and improves slowly.
pub(super) fn next_ratio(current: f32, observed: f32) -> f32 {
    const IMPROVING_STEP: f32 = 0.005;
    const DETERIORATE_STEP: f32 = 0.05;
    if observed > current {
        (current + DETERIORATE_STEP).max(observed)
    } else {
        (current - IMPROVING_STEP).max(observed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(compression: Compression) -> ProducerBatch {
        ProducerBatch::new(
            RecordBatchBuilder::new(compression),
            None,
            0,
            ottla_sync::time::now(),
        )
    }

    #[test]
    fn records_fill_a_batch_completely() {
        let mut full = batch(Compression::None);
        let value = [7; 100];
        let record = RecordRef::new("t", &value);
        while full.try_append(&record, 5, 1000, None).is_some() {}
        assert!(
            full.size() <= 1000 && full.size() + 107 > 1000,
            "{}",
            full.size()
        );
        // A record larger than a batch gets its own batch.
        assert!(
            batch(Compression::None)
                .try_append(&record, 5, 10, None)
                .is_some()
        );
    }

    #[test]
    fn a_batch_is_split_into_the_same_records() {
        let mut whole = batch(Compression::Snappy);
        for number in 0..50u8 {
            let value = [number; 100];
            whole
                .try_append(
                    &RecordRef::new("t", &value),
                    i64::from(number),
                    1 << 20,
                    Some(1.0),
                )
                .unwrap();
        }
        whole.tags = (0..50).collect();
        whole.callbacks = (0..50)
            .step_by(3)
            .map(|index| {
                (
                    index,
                    i64::from(index),
                    Box::new(|_| ()) as DeliveryCallback,
                )
            })
            .collect();
        whole.seal(None, false);
        let parts = whole
            .split(Compression::Snappy, 1000, ottla_sync::time::now())
            .unwrap();
        assert!(parts.len() > 5);
        let mut next = 0;
        let mut called = 0;
        for (first, mut part) in parts {
            assert_eq!(first, next);
            let tags: Vec<u64> = (first..first + part.record_count).map(u64::from).collect();
            assert_eq!(part.tags, tags);
            for (index, timestamp, _) in &part.callbacks {
                assert_eq!(i64::from(first + index), *timestamp);
                assert!(*index < part.record_count);
                called += 1;
            }
            part.seal(None, false);
            let mut bytes = part.records().clone();
            let batch = RecordBatch::read(&mut bytes).unwrap();
            for record in batch.records(1 << 20).unwrap() {
                let record = record.unwrap();
                assert_eq!(record.timestamp.0, i64::from(next));
                assert_eq!(record.value.unwrap()[..], [next as u8; 100]);
                next += 1;
            }
        }
        assert_eq!((next, called), (50, 17));
    }

    #[test]
    fn the_compression_rate_is_that_of_the_records() {
        for compression in [Compression::None, Compression::Snappy] {
            let mut whole = batch(compression);
            for _ in 0..20 {
                let record = RecordRef::new("t", &[7; 500]);
                whole.try_append(&record, 5, 1 << 20, Some(1.0)).unwrap();
            }
            let unpacked = whole.uncompressed_size() - BatchHeader::SIZE;
            whole.seal(None, false);
            let packed = whole.records().len() - BatchHeader::SIZE;
            let rate = packed as f64 / unpacked as f64;
            assert_eq!(whole.compression_rate(), rate);
            assert_eq!(compression == Compression::None, rate == 1.0);
        }
    }

    #[test]
    fn the_compression_rate_is_estimated_as_in_kafka() {
        assert_eq!(next_ratio(1.0, 0.2), 0.995);
        assert_eq!(next_ratio(0.5, 0.52), 0.55);
        assert_eq!(next_ratio(0.5, 0.9), 0.9);
    }
}
