//! Builds a batch of magic 2 record by record.
//!
//! Records are encoded when they are appended, after space that is reserved for the header, and
//! compressed when the batch is built. An uncompressed batch is therefore sent from the buffer in
//! which its records were encoded. Kafka's `MemoryRecordsBuilder` compresses incrementally. The
//! batches are equivalent; their bytes differ only if the codec's output depends on how its input
//! is split.

use bytes::{Bytes, BytesMut};
use ottla_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use crate::varint::{
    MAX_VARINT, MAX_VARLONG, put_varlong, size_of_varint, size_of_varlong, write_varint,
};
use crate::{
    Attributes, BatchError, BatchHeader, Compression, RecordBatch, RecordHeader, RecordView,
    TimestampType,
};

/// Collects records for one batch.
#[derive(Clone, Debug)]
pub struct RecordBatchBuilder {
    compression: Compression,
    attributes: Attributes,
    base_offset: Offset,
    partition_leader_epoch: LeaderEpoch,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: Sequence,
    /// The timestamp of all records, if the broker sets it.
    log_append_time: Option<Timestamp>,
    /// The timestamp of the first record, or the delete horizon; the others are relative to it.
    base_timestamp: Timestamp,
    max_timestamp: Timestamp,
    /// The offset delta of the last record, -1 before the first.
    last_offset_delta: i32,
    record_count: i32,
    /// Space for the header, then the records. Empty until the first record.
    buffer: Vec<u8>,
    /// Whether the records in the buffer are compressed, so that no more can be appended.
    is_compressed: bool,
}

impl RecordBatchBuilder {
    /// The spare capacity beyond the batch with which a buffer never grows.
    pub const SPARE_CAPACITY: usize = 2 * NUMBERS;

    pub fn new(compression: Compression) -> RecordBatchBuilder {
        RecordBatchBuilder {
            compression,
            attributes: Attributes::default().with_compression_type(compression.codec()),
            base_offset: Offset::ZERO,
            partition_leader_epoch: LeaderEpoch::UNKNOWN,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: Sequence::NONE,
            log_append_time: None,
            base_timestamp: Timestamp::NONE,
            max_timestamp: Timestamp::NONE,
            last_offset_delta: -1,
            record_count: 0,
            buffer: Vec::new(),
            is_compressed: false,
        }
    }

    /// Encodes into this buffer, discarding its contents and reusing its capacity.
    #[must_use]
    pub fn in_buffer(mut self, mut buffer: Vec<u8>) -> Self {
        assert!(
            self.is_empty(),
            "the buffer is given before the first record"
        );
        buffer.clear();
        self.buffer = buffer;
        self
    }

    /// Reserves space for records of this many bytes.
    #[must_use]
    pub fn capacity(mut self, bytes: usize) -> Self {
        self.buffer.reserve(BatchHeader::SIZE + bytes);
        self
    }

    #[must_use]
    pub fn base_offset(mut self, base_offset: Offset) -> Self {
        self.base_offset = base_offset;
        self
    }

    #[must_use]
    pub fn partition_leader_epoch(mut self, leader_epoch: LeaderEpoch) -> Self {
        self.partition_leader_epoch = leader_epoch;
        self
    }

    /// Sets the producer id, epoch and base sequence of an idempotent producer.
    #[must_use]
    pub fn producer(
        mut self,
        id: ProducerId,
        epoch: ProducerEpoch,
        base_sequence: Sequence,
    ) -> Self {
        (self.producer_id, self.producer_epoch, self.base_sequence) = (id, epoch, base_sequence);
        self
    }

    #[must_use]
    pub fn transactional(mut self, transactional: bool) -> Self {
        self.attributes = self.attributes.with_transactional(transactional);
        self
    }

    #[must_use]
    pub fn control(mut self, control: bool) -> Self {
        self.attributes = self.attributes.with_control(control);
        self
    }

    /// Sets the same timestamp on all records, for `LogAppendTime`.
    #[must_use]
    pub fn log_append_time(mut self, now: Timestamp) -> Self {
        self.attributes = self
            .attributes
            .with_timestamp_type(TimestampType::LogAppendTime);
        self.log_append_time = Some(now);
        self
    }

    /// Sets the time from which the cleaner may drop the batch's tombstones and markers (KIP-534).
    /// It replaces the timestamp of the first record as base timestamp, so it must be set before
    /// the first record.
    #[must_use]
    pub fn delete_horizon(mut self, horizon: Timestamp) -> Self {
        assert!(self.is_empty(), "timestamps are relative to the horizon");
        self.attributes = self.attributes.with_delete_horizon(true);
        self.base_timestamp = horizon;
        self
    }

    /// Appends a record at the next offset.
    #[inline(always)]
    pub fn append(
        &mut self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader],
    ) {
        let offset_delta = self.last_offset_delta.checked_add(1);
        let offset_delta = offset_delta.expect("a batch has fewer than 2^31 records");
        self.append_at(offset_delta, timestamp, key, value, headers);
    }

    /// Appends a record at `offset_delta`, which must be larger than that of the previous record.
    /// Gaps are allowed, as after compaction.
    #[inline(always)]
    pub fn append_at(
        &mut self,
        offset_delta: i32,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader],
    ) {
        assert!(
            offset_delta > self.last_offset_delta,
            "offsets increase within a batch"
        );
        let timestamp_delta = self.on_record(offset_delta, timestamp);
        write_record(
            &mut self.buffer,
            timestamp_delta,
            offset_delta,
            key,
            value,
            headers,
        );
    }

    /// Appends a record of another batch with its offset, timestamp and headers.
    pub fn append_view(&mut self, record: &RecordView<'_>) {
        let offset_delta = i32::try_from(record.offset.since(self.base_offset))
            .expect("a record is within 2^31 offsets of its batch");
        assert!(
            offset_delta > self.last_offset_delta,
            "offsets increase within a batch"
        );
        let timestamp_delta = self.on_record(offset_delta, record.timestamp);
        let (key, value, headers) = (record.key, record.value, record.headers);
        let size = 1
            + size_of_varlong(timestamp_delta)
            + size_of_varint(offset_delta)
            + nullable_size(key)
            + nullable_size(value)
            + size_of_varint(headers.len() as i32)
            + headers.bytes().len();
        let out = &mut self.buffer;
        write_start(out, size, timestamp_delta, offset_delta, key, value);
        write_varint(out, headers.len() as i32);
        out.extend_from_slice(headers.bytes());
    }

    /// Updates the batch's fields for a record, and returns the record's timestamp delta.
    #[inline]
    fn on_record(&mut self, offset_delta: i32, timestamp: Timestamp) -> i64 {
        assert!(
            !self.is_compressed,
            "a compressed batch takes no more records"
        );
        if self.buffer.is_empty() {
            self.buffer.resize(BatchHeader::SIZE, 0);
        }
        if self.record_count == 0 && !self.attributes.has_delete_horizon() {
            self.base_timestamp = timestamp;
        }
        self.last_offset_delta = offset_delta;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.record_count += 1;
        timestamp.0.wrapping_sub(self.base_timestamp.0)
    }

    /// Sets the last offset of the batch to one after its last record. Compaction keeps the last
    /// offsets of batches, and with them the last sequence numbers of producers.
    pub fn end_at(&mut self, last_offset: Offset) {
        let delta = i32::try_from(last_offset.since(self.base_offset));
        let delta = delta.expect("a batch spans fewer than 2^31 offsets");
        self.last_offset_delta = self.last_offset_delta.max(delta);
    }

    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// The largest timestamp appended so far, -1 before the first.
    pub fn max_timestamp(&self) -> Timestamp {
        self.max_timestamp
    }

    /// The size of the batch without compression.
    #[inline]
    pub fn uncompressed_size(&self) -> usize {
        self.buffer.len().max(BatchHeader::SIZE)
    }

    /// The uncompressed size of the batch if this record were appended next.
    pub fn uncompressed_size_with(
        &self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader],
    ) -> usize {
        let timestamp_delta = match self.record_count {
            0 => 0,
            _ => timestamp.0.wrapping_sub(self.base_timestamp.0),
        };
        let offset_delta = self.last_offset_delta.saturating_add(1);
        let body = record_body_size(timestamp_delta, offset_delta, key, value, headers);
        self.uncompressed_size() + size_of_varint(body as i32) + body
    }

    /// Compresses the records, if a codec is set; no more can be appended.
    /// [`RecordBatchBuilder::build`] is then cheap on any thread.
    pub fn compress(&mut self) {
        if self.is_compressed || self.compression == Compression::None {
            return;
        }
        let records = self.buffer.get(BatchHeader::SIZE..).unwrap_or_default();
        let compressed = self.compression.compress(records);
        self.buffer.resize(BatchHeader::SIZE, 0);
        self.buffer.extend_from_slice(&compressed);
        self.is_compressed = true;
    }

    /// Compresses the records and puts the header in front.
    pub fn build(mut self) -> RecordBatch {
        self.compress();
        let mut header = self.header();
        let mut body = Bytes::from(self.buffer);
        body = body.slice(BatchHeader::SIZE.min(body.len())..);
        header.crc = header.compute_crc(&body);
        RecordBatch::new(header, body)
    }

    /// As [`RecordBatchBuilder::build`], as one buffer and without a copy: the header is written
    /// into the space before the records.
    pub fn build_in_place(mut self) -> Bytes {
        self.compress();
        let mut header = self.header();
        self.buffer
            .resize(self.buffer.len().max(BatchHeader::SIZE), 0);
        header.crc = header.compute_crc(&self.buffer[BatchHeader::SIZE..]);
        self.buffer[..BatchHeader::SIZE].copy_from_slice(&header.to_bytes());
        Bytes::from(self.buffer)
    }

    fn header(&self) -> BatchHeader {
        let body_size = self.uncompressed_size() - BatchHeader::SIZE;
        let batch_length = i32::try_from(body_size)
            .ok()
            .and_then(|length| length.checked_add(BatchHeader::MIN_LENGTH))
            .expect("a batch is smaller than 2 GiB");
        BatchHeader {
            base_offset: self.base_offset,
            batch_length,
            partition_leader_epoch: self.partition_leader_epoch,
            magic: BatchHeader::MAGIC,
            crc: 0,
            attributes: self.attributes,
            last_offset_delta: self.last_offset_delta.max(0),
            base_timestamp: self.base_timestamp,
            max_timestamp: self.log_append_time.unwrap_or(self.max_timestamp),
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            record_count: self.record_count,
        }
    }
}

/// Changes the producer and the sequence numbers of a batch that is already built. Copies the batch
/// if it is shared.
pub fn replace_producer(
    batch: Bytes,
    id: ProducerId,
    epoch: ProducerEpoch,
    base_sequence: Sequence,
) -> Result<Bytes, BatchError> {
    let mut header = BatchHeader::parse(&batch)?;
    let mut bytes = match batch.try_into_mut() {
        Ok(bytes) => bytes,
        Err(shared) => BytesMut::from(&shared[..]),
    };
    (
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    ) = (id, epoch, base_sequence);
    header.crc = header.compute_crc(&bytes[BatchHeader::SIZE..]);
    bytes[..BatchHeader::SIZE].copy_from_slice(&header.to_bytes());
    Ok(bytes.freeze())
}

#[inline(always)]
fn write_record(
    out: &mut Vec<u8>,
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[RecordHeader],
) {
    if headers.is_empty() && write_small(out, timestamp_delta, offset_delta, key, value) {
        return;
    }
    write_any(out, timestamp_delta, offset_delta, key, value, headers);
}

#[inline(never)]
fn write_any(
    out: &mut Vec<u8>,
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[RecordHeader],
) {
    let size = record_body_size(timestamp_delta, offset_delta, key, value, headers);
    write_start(out, size, timestamp_delta, offset_delta, key, value);
    write_varint(out, headers.len() as i32);
    for header in headers {
        write_nullable(out, Some(&header.key));
        write_nullable(out, header.value.as_deref());
    }
}

/// Fast path for a record without headers whose varints all fit three bytes, which is nearly every record. Returns
/// false, and writes nothing, for any other.
///
/// The varints are assembled in registers and written eight bytes at a time. Writing them byte by
/// byte and copying them at once would stall until the bytes reach the cache, which takes as long
/// as everything else.
#[inline(always)]
fn write_small(
    out: &mut Vec<u8>,
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> bool {
    let timestamp = zigzag(timestamp_delta);
    let offset = zigzag(i64::from(offset_delta));
    let key_length = zigzag(nullable_length(key));
    let value_length = zigzag(nullable_length(value));
    let largest = timestamp | offset | key_length | value_length;
    // Leaves space for the other numbers in the length of the record.
    if largest >= ShortNumbers::LIMIT / 4 {
        return false;
    }
    // Record attributes are unused.
    let first = ShortNumbers::default().with(0).with(timestamp);
    let second = ShortNumbers::default().with(offset).with(key_length);
    let third = ShortNumbers::default().with(value_length);
    let (key, value) = (key.unwrap_or_default(), value.unwrap_or_default());
    // Plus one byte for the number of headers.
    let size = first.bytes + second.bytes + third.bytes + key.len() + value.len() + 1;
    let length = ShortNumbers::default().with(zigzag(size as i64));
    out.reserve(size + RecordBatchBuilder::SPARE_CAPACITY);
    length.followed_by(first).append_to(out);
    if key.is_empty() {
        second.followed_by(third).append_to(out);
    } else {
        second.append_to(out);
        out.extend_from_slice(key);
        third.append_to(out);
    }
    out.extend_from_slice(value);
    out.push(0);
    true
}

/// Consecutive unsigned varints of at most three bytes each, at most eight bytes in all.
#[derive(Clone, Copy, Default)]
struct ShortNumbers {
    /// The first byte is the lowest.
    bits: u64,
    bytes: usize,
}

impl ShortNumbers {
    /// Numbers from here on need more than three bytes.
    const LIMIT: u64 = 1 << 21;

    #[inline(always)]
    fn with(self, number: u64) -> ShortNumbers {
        debug_assert!(number < ShortNumbers::LIMIT);
        let spread = number & 0x7f | (number & 0x3f80) << 1 | (number & 0x1f_c000) << 2;
        let (is_two, is_three) = (u64::from(number >= 1 << 7), u64::from(number >= 1 << 14));
        let continued = is_two << 7 | is_three << 15;
        self.followed_by(ShortNumbers {
            bits: spread | continued,
            bytes: 1 + (is_two + is_three) as usize,
        })
    }

    #[inline(always)]
    fn followed_by(self, next: ShortNumbers) -> ShortNumbers {
        debug_assert!(self.bytes + next.bytes <= 8);
        ShortNumbers {
            // The shift is never 64: if something follows, the first part has at most seven bytes.
            bits: self.bits | next.bits << (8 * self.bytes),
            bytes: self.bytes + next.bytes,
        }
    }

    /// Copies all eight bytes and truncates the surplus: a copy of constant length is one
    /// instruction, any other is a call.
    #[inline(always)]
    fn append_to(self, out: &mut Vec<u8>) {
        let end = out.len() + self.bytes;
        out.extend_from_slice(&self.bits.to_le_bytes());
        out.truncate(end);
    }
}

#[inline(always)]
const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// The maximum size of the numbers of a record: its length, attributes, timestamp and offset
/// deltas, and the lengths of key and value.
const NUMBERS: usize = MAX_VARINT + 1 + MAX_VARLONG + MAX_VARINT + MAX_VARINT + MAX_VARINT;

/// Writes a record up to its headers. `size` is its length without the length prefix.
///
/// The varints before the key, and those between key and value, are assembled separately and
/// appended at once, because appending byte by byte would check the capacity for each byte.
#[inline]
fn write_start(
    out: &mut Vec<u8>,
    size: usize,
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) {
    let length = i32::try_from(size).expect("a record is smaller than 2 GiB");
    out.reserve(size + RecordBatchBuilder::SPARE_CAPACITY);
    let mut numbers = [0; NUMBERS];
    let mut at = put_varlong(&mut numbers, 0, i64::from(length));
    // Record attributes are unused.
    at += 1;
    at = put_varlong(&mut numbers, at, timestamp_delta);
    at = put_varlong(&mut numbers, at, i64::from(offset_delta));
    at = put_varlong(&mut numbers, at, nullable_length(key));
    if let Some(key) = key {
        append_first(out, &numbers, at);
        out.extend_from_slice(key);
        at = 0;
    }
    at = put_varlong(&mut numbers, at, nullable_length(value));
    append_first(out, &numbers, at);
    out.extend_from_slice(value.unwrap_or_default());
}

/// Appends the first `count` of these bytes. Copies all and truncates the surplus: a copy of
/// constant length is a few instructions, any other is a call.
#[inline(always)]
fn append_first(out: &mut Vec<u8>, bytes: &[u8; NUMBERS], count: usize) {
    let end = out.len() + count;
    out.extend_from_slice(bytes);
    out.truncate(end);
}

/// The encoded length: -1 for null.
#[inline]
fn nullable_length(bytes: Option<&[u8]>) -> i64 {
    bytes.map_or(-1, |bytes| bytes.len() as i64)
}

fn write_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            write_varint(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
        None => write_varint(out, -1),
    }
}

#[inline]
fn record_body_size(
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[RecordHeader],
) -> usize {
    let headers_size = match headers {
        [] => 0,
        headers => size_of_headers(headers),
    };
    1 + size_of_varlong(timestamp_delta)
        + size_of_varint(offset_delta)
        + nullable_size(key)
        + nullable_size(value)
        + size_of_varint(headers.len() as i32)
        + headers_size
}

fn size_of_headers(headers: &[RecordHeader]) -> usize {
    headers
        .iter()
        .map(|header| nullable_size(Some(&header.key)) + nullable_size(header.value.as_deref()))
        .sum()
}

#[inline]
fn nullable_size(bytes: Option<&[u8]>) -> usize {
    match bytes {
        Some(bytes) => size_of_varint(bytes.len() as i32) + bytes.len(),
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(builder: RecordBatchBuilder) -> RecordBatchBuilder {
        let mut builder = builder;
        let header = RecordHeader::new("h", None);
        builder.append(Timestamp(5), None, Some(&[b'v'; 300]), &[]);
        builder.append(Timestamp(1 << 40), Some(b"k"), None, &[header]);
        builder
    }

    proptest::proptest! {
        /// The fast path and the general path write the same bytes, for lengths on both sides of
        /// each limit.
        #[test]
        fn the_short_path_writes_the_same_bytes_as_the_long_one(
            timestamp_delta in proptest::sample::select(vec![
                0i64, 1, -1, 63, 64, -64, -65, 8191, 8192, -8193, 262_143, 262_144, 1 << 20, 1 << 40, i64::MIN,
            ]),
            offset_delta in proptest::sample::select(vec![0i32, 63, 64, 8191, 8192, 262_143, 262_144, i32::MAX]),
            lengths in (0usize..3, 0usize..3, 0usize..300, 0usize..20_000),
        ) {
            let bytes = vec![b'x'; 20_000];
            let part = |kind: usize, length: usize| match kind {
                0 => None,
                1 => Some(&bytes[..0]),
                _ => Some(&bytes[..length]),
            };
            let (key, value) = (part(lengths.0, lengths.2), part(lengths.1, lengths.3));
            let (mut short, mut long) = (vec![1, 2], vec![1, 2]);
            write_any(&mut long, timestamp_delta, offset_delta, key, value, &[]);
            let is_short = write_small(&mut short, timestamp_delta, offset_delta, key, value);
            let fits = timestamp_delta.unsigned_abs() < 262_144 && offset_delta < 262_144;
            proptest::prop_assert_eq!(is_short, fits);
            proptest::prop_assert_eq!(&short[..], if fits { &long[..] } else { &[1, 2] });
        }
    }

    #[test]
    fn a_batch_in_one_piece_is_the_same_batch() {
        for compression in [Compression::None, Compression::Snappy] {
            let reused = vec![7; 1000];
            let room = reused.as_ptr();
            let whole =
                filled(RecordBatchBuilder::new(compression).in_buffer(reused)).build_in_place();
            let parts = filled(RecordBatchBuilder::new(compression))
                .build()
                .to_bytes();
            assert_eq!(whole, parts);
            assert_eq!(whole.as_ptr(), room, "no copy");
            let (id, epoch, sequence) = (ProducerId(4), ProducerEpoch(2), Sequence(9));
            let moved = replace_producer(whole, id, epoch, sequence).unwrap();
            let builder = RecordBatchBuilder::new(compression).producer(id, epoch, sequence);
            assert_eq!(moved, filled(builder).build().to_bytes());
        }
    }
}
