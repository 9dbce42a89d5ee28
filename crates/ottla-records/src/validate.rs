//! Validates a batch before the leader appends it, and changes what the broker has to set: Kafka's
//! `LogValidator`, with the checks of `UnifiedLog.analyzeAndValidateRecords` that come before it.
//!
//! A valid batch keeps its body, and also its checksum unless the broker sets the timestamps. The
//! log assigns offset and leader epoch afterwards, in the header. Records are recompressed only if
//! the topic sets a codec (`compression.type` other than `producer`).
//!
//! There is one pass over the records, which does not allocate. A compressed batch is decompressed
//! through a window that the caller keeps in [`ValidationBuffers`].
//!
//! Stricter than Kafka in two cases, which no consumer could read correctly: offset deltas that do
//! not count up from 0 are refused in uncompressed batches too (Kafka stores them; for compressed
//! ones it fails with an unexpected exception), and so are records in compressed batches whose
//! length does not match their fields.

use std::fmt;

use bytes::Bytes;
use ottla_types::{ErrorCode, Timestamp};

use crate::compression::{CodecMemory, Decompressor};
use crate::record::{RecordLimit, record_timestamp};
use crate::source::{SliceSource, Source, StreamSource, read_record};
use crate::{BatchError, BatchHeader, Compression, CompressionType, RecordBatch, TimestampType};

/// The origin of an append. The broker's own coordinators have more rights than a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendOrigin {
    /// A produce request.
    Client,
    /// A group or transaction coordinator of this broker, which may write control records.
    Coordinator,
    /// The controller writing the metadata log: like a coordinator, and without a size limit.
    RaftLeader,
}

/// The topic's rules for a batch. One value is used for all batches of a partition until a setting
/// changes.
#[derive(Clone, Debug)]
pub struct ValidationRules {
    /// `cleanup.policy` contains `compact`: every record needs a key.
    pub compacted: bool,
    /// `max.message.bytes`: applies to the batch as received and as stored.
    pub max_message_bytes: usize,
    /// `message.timestamp.type`
    pub message_timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`
    pub message_timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`
    pub message_timestamp_after_max_ms: i64,
    /// The codec of the topic; `None` for `compression.type=producer`, which keeps that of the
    /// batch.
    pub compression: Option<Compression>,
    /// The maximum size of the decompressed records. Kafka has no such limit.
    pub max_decompressed_bytes: usize,
    /// `max.decompressed.message.bytes`: the maximum size of one record of a compressed batch.
    pub max_decompressed_record_bytes: usize,
}

impl Default for ValidationRules {
    /// Kafka's defaults for a topic.
    fn default() -> ValidationRules {
        ValidationRules {
            compacted: false,
            max_message_bytes: 1_048_588,
            message_timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_after_max_ms: 3_600_000,
            compression: None,
            max_decompressed_bytes: 512 << 20,
            max_decompressed_record_bytes: i32::MAX as usize - 8,
        }
    }
}

/// Buffers that validation reuses for every batch.
#[derive(Default)]
pub struct ValidationBuffers {
    window: Vec<u8>,
    codecs: CodecMemory,
}

/// A batch that can be appended unchanged after the log has assigned offset and leader epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValidatedBatch {
    pub batch: RecordBatch,
    /// The timestamp that the broker assigned to all records, if the topic uses `LogAppendTime`; the
    /// response to the producer contains it.
    pub log_append_time: Option<Timestamp>,
    /// Whether the body was replaced.
    pub recompressed: bool,
}

/// An invalid record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordError {
    /// The index of the record in the batch, from 0.
    pub batch_index: i32,
    pub message: String,
}

/// Why a batch is refused, in the terms of a produce response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    pub error_code: ErrorCode,
    pub message: String,
    /// The invalid records, if individual records are invalid. Only in this case does Kafka put
    /// `message` into the response (`LogAppendResult.hasCustomErrorMessage`); otherwise the client
    /// shows the standard message of the error code.
    pub record_errors: Vec<RecordError>,
}

impl Rejection {
    fn new(error_code: ErrorCode, message: impl fmt::Display) -> Rejection {
        Rejection {
            error_code,
            message: message.to_string(),
            record_errors: Vec::new(),
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error_code, self.message)
    }
}

impl std::error::Error for Rejection {}

impl From<BatchError> for Rejection {
    fn from(error: BatchError) -> Rejection {
        Rejection::new(error.error_code(), error)
    }
}

/// The maximum number of invalid records in one response. Kafka has no such limit, but a batch of
/// well compressed tombstones could produce a response of gigabytes.
const MAX_RECORD_ERRORS: usize = 10_000;

/// Reads the single batch of magic 2 in a partition of a produce request (version 3 and later). As
/// in Kafka, bytes after it that are not a complete batch are dropped.
pub fn read_produced_batch(records: Bytes) -> Result<RecordBatch, Rejection> {
    let mut batches = RecordBatch::read_all(records);
    let invalid = |message| Rejection::new(ErrorCode::InvalidRecord, message);
    let batch = match batches.next() {
        Some(Ok(batch)) => batch,
        Some(Err(BatchError::LegacyMagic { .. })) => {
            return Err(invalid(
                "produce requests may only hold record batches of magic 2",
            ));
        }
        Some(Err(error)) => return Err(error.into()),
        None => {
            return Err(invalid(
                "produce requests must hold one record batch per partition",
            ));
        }
    };
    match batches.next() {
        None => Ok(batch),
        Some(Err(error)) if error.error_code() == ErrorCode::CorruptMessage => Err(error.into()),
        Some(_) => Err(invalid(
            "produce requests may hold only one record batch per partition",
        )),
    }
}

/// Validates a batch that a leader appends to its log at `now`, and sets the timestamps that the
/// broker has to set. `partition` is used in error messages.
pub fn validate(
    mut batch: RecordBatch,
    rules: &ValidationRules,
    origin: AppendOrigin,
    partition: &dyn fmt::Display,
    now: Timestamp,
    buffers: &mut ValidationBuffers,
) -> Result<ValidatedBatch, Rejection> {
    check_batch(&batch, rules, origin, partition)?;
    let source_codec = batch.header.compression_type()?;
    // Kafka does not compress uncompressed control records.
    let target = match rules.compression {
        Some(target) if !(source_codec == CompressionType::None && batch.header.is_control()) => {
            Some(target).filter(|target| target.codec() != source_codec)
        }
        _ => None,
    };

    let checks = RecordChecks {
        header: &batch.header,
        rules,
        partition,
        now,
    };
    let (scan, recompressed) = match (source_codec, target) {
        (CompressionType::None, None) => (checks.scan_slice(batch.body())?, None),
        (_, None) => (
            checks.scan_stream(source_codec, batch.body(), buffers)?,
            None,
        ),
        (_, Some(target)) => {
            let limit = rules.max_decompressed_bytes;
            let records = match source_codec {
                CompressionType::None => batch.body().clone(),
                codec => crate::decompress(codec, batch.body(), limit)?,
            };
            let scan = checks.scan_slice(&records)?;
            let body = match target {
                Compression::None => records,
                target => Bytes::from(target.compress(&records)),
            };
            (scan, Some((target.codec(), body)))
        }
    };

    let recompressed = match recompressed {
        None => false,
        Some((codec, body)) => {
            batch = with_body(&batch.header, codec, body, rules, origin)?;
            true
        }
    };
    let log_append_time = match rules.message_timestamp_type {
        TimestampType::CreateTime => None,
        TimestampType::LogAppendTime => Some(now),
    };
    let max_timestamp = log_append_time.unwrap_or(scan.max_timestamp);
    batch.set_max_timestamp(rules.message_timestamp_type, max_timestamp);
    Ok(ValidatedBatch {
        batch,
        log_append_time,
        recompressed,
    })
}

/// Checks that need only the header.
fn check_batch(
    batch: &RecordBatch,
    rules: &ValidationRules,
    origin: AppendOrigin,
    partition: &dyn fmt::Display,
) -> Result<(), Rejection> {
    let header = &batch.header;
    let invalid = |message: fmt::Arguments<'_>| {
        Err(Rejection::new(
            ErrorCode::InvalidRecord,
            format_args!("{message} in {partition}"),
        ))
    };
    let client = origin == AppendOrigin::Client;
    if client && header.base_offset.0 != 0 {
        return invalid(format_args!(
            "the base offset of a produced batch must be 0, not {}",
            header.base_offset
        ));
    }
    if origin != AppendOrigin::RaftLeader {
        check_size(batch.size_in_bytes(), rules)?;
    }
    batch.verify_crc()?;
    if !client {
        return Ok(());
    }
    if header.last_offset_delta < 0 {
        return invalid(format_args!(
            "invalid last offset delta {}",
            header.last_offset_delta
        ));
    }
    if header.record_count <= 0 {
        return invalid(format_args!("invalid record count {}", header.record_count));
    }
    if i64::from(header.last_offset_delta) + 1 != i64::from(header.record_count) {
        return invalid(format_args!(
            "the batch says {} records, but its offsets are for {}",
            header.record_count,
            i64::from(header.last_offset_delta) + 1
        ));
    }
    if header.is_control() {
        return invalid(format_args!("clients may not write control records"));
    }
    if header.has_producer_id() && header.base_sequence.0 < 0 {
        return invalid(format_args!(
            "invalid sequence {} of producer id {}",
            header.base_sequence, header.producer_id
        ));
    }
    Ok(())
}

fn check_size(size: usize, rules: &ValidationRules) -> Result<(), Rejection> {
    if size > rules.max_message_bytes {
        return Err(Rejection::new(
            ErrorCode::MessageTooLarge,
            format_args!(
                "a batch of {size} bytes exceeds max.message.bytes={}",
                rules.max_message_bytes
            ),
        ));
    }
    Ok(())
}

/// The batch with the same records in another codec. The offset deltas are known to count up from
/// 0, so the records themselves do not change.
fn with_body(
    header: &BatchHeader,
    codec: CompressionType,
    body: Bytes,
    rules: &ValidationRules,
    origin: AppendOrigin,
) -> Result<RecordBatch, Rejection> {
    let size = BatchHeader::SIZE + body.len();
    if origin != AppendOrigin::RaftLeader {
        check_size(size, rules)?;
    }
    let batch_length = i32::try_from(size - crate::BatchPrefix::LOG_OVERHEAD).map_err(|_| {
        Rejection::new(
            ErrorCode::MessageTooLarge,
            "the batch decompresses to more than 2 GiB",
        )
    })?;
    let header = BatchHeader {
        batch_length,
        attributes: header.attributes.with_compression_type(codec),
        ..*header
    };
    let mut batch = RecordBatch::new(header, body);
    batch.header.crc = batch.compute_crc();
    Ok(batch)
}

/// The result of the pass over the records.
struct Scan {
    /// -1 if there are no records or no timestamps.
    max_timestamp: Timestamp,
}

struct RecordChecks<'a> {
    header: &'a BatchHeader,
    rules: &'a ValidationRules,
    partition: &'a dyn fmt::Display,
    now: Timestamp,
}

impl RecordChecks<'_> {
    fn scan_slice(&self, records: &[u8]) -> Result<Scan, Rejection> {
        let mut source = SliceSource::at(records, 0);
        let scan = self.scan(&mut source)?;
        self.check_end(source.is_at_end())?;
        Ok(scan)
    }

    fn scan_stream(
        &self,
        codec: CompressionType,
        body: &[u8],
        buffers: &mut ValidationBuffers,
    ) -> Result<Scan, Rejection> {
        let ValidationBuffers { window, codecs } = buffers;
        let limit = self.rules.max_decompressed_bytes;
        let decompressor = Decompressor::new(codec, body, limit, codecs)?;
        let mut source = StreamSource::new(decompressor, window);
        let scan = self.scan(&mut source)?;
        self.check_end(source.is_at_end()?)?;
        Ok(scan)
    }

    fn check_end(&self, is_at_end: bool) -> Result<(), Rejection> {
        let count = self.header.record_count;
        // Kafka does not check the body of a batch without records.
        if is_at_end || count == 0 {
            return Ok(());
        }
        Err(BatchError::TrailingBytes { count }.into())
    }

    fn scan<S: Source>(&self, source: &mut S) -> Result<Scan, Rejection> {
        let count = self.header.record_count;
        if count < 0 {
            return Err(BatchError::InvalidRecordCount { count }.into());
        }
        let mut max_timestamp = Timestamp::NONE;
        let mut faults = Faults::default();
        let limit = RecordLimit::of(self.header, self.rules.max_decompressed_record_bytes);
        for index in 0..count {
            let record = read_record(source).map_err(|broken| broken.at(index))?;
            if limit.is_below(record.size_in_bytes) {
                return Err(self.too_large(limit.error(index, record.size_in_bytes)));
            }
            if record.offset_delta != index {
                let reason = "its offset delta is not its place in the batch";
                return Err(BatchError::MalformedRecord { index, reason }.into());
            }
            let timestamp = record_timestamp(self.header, record.timestamp_delta);
            max_timestamp = max_timestamp.max(timestamp);
            if self.rules.compacted && record.key.is_none() {
                faults.add(index, ErrorCode::InvalidRecord, || self.no_key());
            } else if !self.is_timestamp_valid(timestamp) {
                faults.add(index, ErrorCode::InvalidTimestamp, || {
                    self.bad_timestamp(index, timestamp)
                });
            }
        }
        faults.into_result()?;
        Ok(Scan { max_timestamp })
    }

    #[inline(always)]
    fn is_timestamp_valid(&self, timestamp: Timestamp) -> bool {
        let rules = self.rules;
        if rules.message_timestamp_type == TimestampType::CreateTime && timestamp != Timestamp::NONE
        {
            // Wraps as in Java, for extreme timestamps with the default "no limit".
            let age = self.now.0.wrapping_sub(timestamp.0);
            age <= rules.message_timestamp_before_max_ms
                && age.wrapping_neg() <= rules.message_timestamp_after_max_ms
        } else {
            self.header.attributes.timestamp_type() == TimestampType::CreateTime
        }
    }

    #[cold]
    fn too_large(&self, error: BatchError) -> Rejection {
        Rejection::new(
            error.error_code(),
            format_args!("{error} in {}", self.partition),
        )
    }

    fn no_key(&self) -> String {
        format!(
            "Compacted topic cannot accept message without key in topic partition {}",
            self.partition
        )
    }

    fn bad_timestamp(&self, index: i32, timestamp: Timestamp) -> String {
        if self.rules.message_timestamp_type == TimestampType::CreateTime
            && timestamp != Timestamp::NONE
        {
            let now = self.now.0;
            return format!(
                "Timestamp {timestamp} of message with offset {index} is out of range. The timestamp \
                 should be within [{}, {}]",
                now.wrapping_sub(self.rules.message_timestamp_before_max_ms),
                now.wrapping_add(self.rules.message_timestamp_after_max_ms)
            );
        }
        format!(
            "Invalid timestamp type in message with offset {index}. Producer should not set timestamp \
             type to LogAppendTime."
        )
    }
}

/// Collects the invalid records.
#[derive(Default)]
struct Faults {
    errors: Vec<RecordError>,
    count: usize,
    any_timestamp: bool,
}

impl Faults {
    #[cold]
    fn add(&mut self, index: i32, error_code: ErrorCode, message: impl FnOnce() -> String) {
        self.count += 1;
        self.any_timestamp |= error_code == ErrorCode::InvalidTimestamp;
        if self.errors.len() < MAX_RECORD_ERRORS {
            self.errors.push(RecordError {
                batch_index: index,
                message: message(),
            });
        }
    }

    fn into_result(self) -> Result<(), Rejection> {
        let Some(first) = self.errors.first() else {
            return Ok(());
        };
        let (error_code, message) = if self.any_timestamp {
            let message =
                "One or more records have been rejected due to invalid timestamp".to_owned();
            (ErrorCode::InvalidTimestamp, message)
        } else {
            let message = format!(
                "One or more records have been rejected due to {} record errors in total, the first at \
                 index {}: {}",
                self.count, first.batch_index, first.message
            );
            (ErrorCode::InvalidRecord, message)
        };
        Err(Rejection {
            error_code,
            message,
            record_errors: self.errors,
        })
    }
}

#[cfg(test)]
mod tests;
