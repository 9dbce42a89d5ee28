//! One record of magic 2, borrowed from the bytes of its batch or owning slices of them.
//!
//! ```text
//! length varint | attributes i8 | timestamp delta varlong | offset delta varint
//! | key length varint, key | value length varint, value | header count varint
//! | (key length varint, key, value length varint, value)*
//! ```
//!
//! The iterator validates a record completely, including its headers. Accessing the headers later
//! cannot fail, and costs nothing if they are not used. As in Kafka's `DefaultRecord`, any negative
//! length means null. A header key must not be null.

use std::borrow::Cow;

use bytes::Bytes;
use ottla_types::{Offset, Timestamp};

use crate::source::{RecordParts, SliceSource, read_record};
use crate::varint::{read_varint, size_of_varint};
use crate::{BatchError, BatchHeader, TimestampType};

/// A record that borrows from the bytes of its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordView<'a> {
    pub offset: Offset,
    /// The record's own timestamp, or the batch's `max_timestamp` under `LogAppendTime`.
    pub timestamp: Timestamp,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
    /// The record's bytes with its length prefix.
    pub size_in_bytes: usize,
}

/// A record that owns slices of the buffer it was read from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub offset: Offset,
    pub timestamp: Timestamp,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<RecordHeader>,
}

/// A header of a record. Kafka assumes UTF-8 keys without checking them, so they are bytes here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    pub key: Bytes,
    pub value: Option<Bytes>,
}

impl RecordHeader {
    pub fn new(key: impl Into<Bytes>, value: Option<Bytes>) -> RecordHeader {
        RecordHeader {
            key: key.into(),
            value,
        }
    }

    /// The key as text. Invalid UTF-8 is replaced by replacement characters, as in the Java client.
    pub fn key_str(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.key)
    }
}

/// The headers of a record, read as they are iterated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers<'a> {
    /// The bytes of the headers alone, which were checked when the record was read.
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Headers<'a> {
    pub const EMPTY: Headers<'static> = Headers {
        bytes: &[],
        count: 0,
    };

    pub const fn len(&self) -> usize {
        self.count
    }

    /// The headers in order, as encoded in the record after their count.
    pub(crate) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn iter(&self) -> HeaderIter<'a> {
        HeaderIter {
            bytes: self.bytes,
            remaining: self.count,
        }
    }
}

impl<'a> IntoIterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> HeaderIter<'a> {
        self.iter()
    }
}

/// An iterator over the keys and values of headers.
#[derive(Clone, Debug)]
pub struct HeaderIter<'a> {
    bytes: &'a [u8],
    remaining: usize,
}

impl<'a> HeaderIter<'a> {
    fn take(&mut self) -> Option<Option<&'a [u8]>> {
        let (length, size) = read_varint(self.bytes)?;
        self.bytes = &self.bytes[size..];
        let Ok(length) = usize::try_from(length) else {
            return Some(None);
        };
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(Some(taken))
    }
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        let key = self.take()??;
        let value = self.take()?;
        Some((key, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

/// The maximum size of the records of one batch (`max.decompressed.message.bytes`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordLimit {
    /// Without the length in front of the record.
    body_bytes: usize,
    size_in_bytes: usize,
}

impl RecordLimit {
    pub(crate) const NONE: RecordLimit = RecordLimit {
        body_bytes: usize::MAX,
        size_in_bytes: usize::MAX,
    };

    /// Applies to compressed batches. Others are bounded by their own size.
    pub(crate) fn of(header: &BatchHeader, body_bytes: usize) -> RecordLimit {
        if !header.attributes.is_compressed() {
            return RecordLimit::NONE;
        }
        let length_bytes = size_of_varint(body_bytes.min(i32::MAX as usize) as i32);
        RecordLimit {
            body_bytes,
            size_in_bytes: body_bytes.saturating_add(length_bytes),
        }
    }

    /// Whether a record of this size, including its length prefix, is too large.
    #[inline]
    pub(crate) fn is_below(self, size_in_bytes: usize) -> bool {
        size_in_bytes > self.size_in_bytes
    }

    #[cold]
    pub(crate) fn error(self, index: i32, size: usize) -> BatchError {
        BatchError::RecordTooLarge {
            index,
            size,
            limit: self.body_bytes,
        }
    }
}

/// The records of one batch, uncompressed. Iterating it gives records that own slices of the buffer;
/// [`BatchRecords::iter`] gives borrowed ones and does not allocate.
#[derive(Clone, Debug)]
pub struct BatchRecords {
    header: BatchHeader,
    bytes: Bytes,
    position: usize,
    read: i32,
    failed: bool,
    limit: RecordLimit,
}

impl BatchRecords {
    pub(crate) fn new(header: BatchHeader, bytes: Bytes) -> Result<BatchRecords, BatchError> {
        if header.record_count < 0 {
            return Err(BatchError::InvalidRecordCount {
                count: header.record_count,
            });
        }
        Ok(BatchRecords {
            header,
            bytes,
            position: 0,
            read: 0,
            failed: false,
            limit: RecordLimit::NONE,
        })
    }

    /// As [`RecordIter::at_most`].
    pub fn at_most(mut self, max_record_bytes: usize) -> BatchRecords {
        self.limit = RecordLimit::of(&self.header, max_record_bytes);
        self
    }

    /// The number of records according to the header.
    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }

    /// The offset of the first record that the batch was written with.
    pub fn base_offset(&self) -> Offset {
        self.header.base_offset
    }

    /// The number of bytes that have been iterated over.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The uncompressed records in sequence.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// All records from the first, borrowed.
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter {
            limit: self.limit,
            ..RecordIter::new(&self.header, &self.bytes)
        }
    }
}

impl Iterator for BatchRecords {
    type Item = Result<Record, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut iter = RecordIter {
            header: &self.header,
            source: SliceSource::at(&self.bytes, self.position),
            read: self.read,
            failed: self.failed,
            limit: self.limit,
        };
        let item = iter.next()?;
        let (position, read, failed) = (iter.source.position(), iter.read, iter.failed);
        let slice = |part: &[u8]| self.bytes.slice_ref(part);
        let item = item.map(|view| Record {
            offset: view.offset,
            timestamp: view.timestamp,
            key: view.key.map(slice),
            value: view.value.map(slice),
            headers: view
                .headers
                .iter()
                .map(|(key, value)| RecordHeader {
                    key: slice(key),
                    value: value.map(slice),
                })
                .collect(),
        });
        (self.position, self.read, self.failed) = (position, read, failed);
        Some(item)
    }
}

/// Borrowed records of one batch. An error ends the iteration.
#[derive(Clone, Debug)]
pub struct RecordIter<'a> {
    header: &'a BatchHeader,
    source: SliceSource<'a>,
    read: i32,
    failed: bool,
    limit: RecordLimit,
}

impl<'a> RecordIter<'a> {
    /// The records of a batch with this header, whose uncompressed records are `bytes`.
    pub fn new(header: &'a BatchHeader, bytes: &'a [u8]) -> RecordIter<'a> {
        RecordIter {
            header,
            source: SliceSource::at(bytes, 0),
            read: 0,
            failed: false,
            limit: RecordLimit::NONE,
        }
    }

    /// Takes a larger record of a compressed batch for an error (`max.decompressed.message.bytes`).
    /// Other batches are bounded by their own size.
    pub fn at_most(mut self, max_record_bytes: usize) -> RecordIter<'a> {
        self.limit = RecordLimit::of(self.header, max_record_bytes);
        self
    }

    fn view(&self, parts: RecordParts<&'a [u8]>) -> RecordView<'a> {
        RecordView {
            offset: record_offset(self.header, parts.offset_delta),
            timestamp: record_timestamp(self.header, parts.timestamp_delta),
            key: parts.key,
            value: parts.value,
            headers: Headers {
                bytes: self.source.since(parts.headers_at),
                count: parts.header_count,
            },
            size_in_bytes: parts.size_in_bytes,
        }
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<RecordView<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.read >= self.header.record_count {
            return None;
        }
        let index = self.read;
        self.read += 1;
        let parts = match read_record(&mut self.source) {
            Ok(parts) => parts,
            Err(broken) => {
                self.failed = true;
                return Some(Err(broken.at(index)));
            }
        };
        if self.limit.is_below(parts.size_in_bytes) {
            self.failed = true;
            return Some(Err(self.limit.error(index, parts.size_in_bytes)));
        }
        if self.read == self.header.record_count && !self.source.is_at_end() {
            self.failed = true;
            return Some(Err(BatchError::TrailingBytes {
                count: self.header.record_count,
            }));
        }
        Some(Ok(self.view(parts)))
    }
}

/// The offset of the record with this delta. Both come from outside, so the sum wraps, as in Java.
pub(crate) fn record_offset(header: &BatchHeader, offset_delta: i32) -> Offset {
    Offset(header.base_offset.0.wrapping_add(i64::from(offset_delta)))
}

/// The timestamp of the record with this delta: its own, or the batch's if the broker set it.
pub(crate) fn record_timestamp(header: &BatchHeader, timestamp_delta: i64) -> Timestamp {
    match header.attributes.timestamp_type() {
        TimestampType::CreateTime => {
            Timestamp(header.base_timestamp.0.wrapping_add(timestamp_delta))
        }
        TimestampType::LogAppendTime => header.max_timestamp,
    }
}
