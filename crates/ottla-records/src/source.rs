//! Iterates over records in a slice or in a decompressed stream.
//!
//! One reader of the record layout, [`read_record`], works on both sources. On a slice it returns
//! the parts of the record. On a stream it only skips them, so that validating a compressed batch
//! needs one window of memory, however large its records are.

use crate::BatchError;
use crate::compression::Decompressor;
use crate::varint::{MAX_VARINT, MAX_VARLONG, read_varint, read_varlong};

/// Why a record could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Broken {
    Malformed(&'static str),
    /// The underlying stream failed: invalid compressed data, or more data than the limit.
    Stream(BatchError),
}

impl Broken {
    pub(crate) fn at(self, index: i32) -> BatchError {
        match self {
            Broken::Malformed(reason) => BatchError::MalformedRecord { index, reason },
            Broken::Stream(error) => error,
        }
    }
}

const ENDS_EARLY: Broken = Broken::Malformed("the bytes end within it, or a number is too long");

/// A source of records.
pub(crate) trait Source {
    /// The result of skipping bytes: the bytes themselves, or nothing.
    type Chunk;

    fn byte(&mut self) -> Result<u8, Broken>;
    fn varint(&mut self) -> Result<i32, Broken>;
    fn varlong(&mut self) -> Result<i64, Broken>;
    fn take(&mut self, length: usize) -> Result<Self::Chunk, Broken>;
    /// The number of bytes read since the start.
    fn position(&self) -> usize;
    /// Whether `length` more bytes can exist. A stream cannot know, and returns true.
    fn may_have(&self, length: usize) -> bool;
    /// Reads a record on a fast path, if the source has one and the record is simple enough.
    /// Otherwise reads nothing.
    fn plain_record(&mut self) -> Option<RecordParts<Self::Chunk>> {
        None
    }
}

/// The fields of a record. `C` is the type of key and value.
pub(crate) struct RecordParts<C> {
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i32,
    pub(crate) key: Option<C>,
    pub(crate) value: Option<C>,
    pub(crate) header_count: usize,
    /// The position of the first header in the source.
    pub(crate) headers_at: usize,
    /// The size of the record including its length prefix.
    pub(crate) size_in_bytes: usize,
}

/// Reads and checks the record at the current position.
#[inline(always)]
pub(crate) fn read_record<S: Source>(source: &mut S) -> Result<RecordParts<S::Chunk>, Broken> {
    match source.plain_record() {
        Some(parts) => Ok(parts),
        None => read_any_record(source),
    }
}

fn read_any_record<S: Source>(source: &mut S) -> Result<RecordParts<S::Chunk>, Broken> {
    let start = source.position();
    let length = source.varint()?;
    let body_start = source.position();
    if length < 0 || !source.may_have(length as usize) {
        return Err(Broken::Malformed("its length is not that of the bytes"));
    }
    let _attributes = source.byte()?;
    let timestamp_delta = source.varlong()?;
    let offset_delta = source.varint()?;
    let key = take_nullable(source)?;
    let value = take_nullable(source)?;
    let header_count = source.varint()?;
    let headers_at = source.position();
    if header_count != 0 {
        pass_headers(source, header_count)?;
    }
    if source.position() - body_start != length as usize {
        return Err(Broken::Malformed("its length is not that of its fields"));
    }
    Ok(RecordParts {
        timestamp_delta,
        offset_delta,
        key,
        value,
        header_count: header_count as usize,
        headers_at,
        size_in_bytes: source.position() - start,
    })
}

#[inline(always)]
fn take_nullable<S: Source>(source: &mut S) -> Result<Option<S::Chunk>, Broken> {
    let length = source.varint()?;
    if length < 0 {
        return Ok(None);
    }
    source.take(length as usize).map(Some)
}

fn pass_headers<S: Source>(source: &mut S, count: i32) -> Result<(), Broken> {
    // A header takes at least two bytes, so the number of bytes limits this loop.
    if count < 0 || !source.may_have(count as usize) {
        return Err(Broken::Malformed("its number of headers is impossible"));
    }
    for _ in 0..count {
        if take_nullable(source)?.is_none() {
            return Err(Broken::Malformed("a header has no key"));
        }
        take_nullable(source)?;
    }
    Ok(())
}

/// Records in memory.
#[derive(Clone, Debug)]
pub(crate) struct SliceSource<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> SliceSource<'a> {
    pub(crate) fn at(bytes: &'a [u8], position: usize) -> SliceSource<'a> {
        SliceSource { bytes, position }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.position == self.bytes.len()
    }

    /// The bytes from `position` to the current position.
    pub(crate) fn since(&self, position: usize) -> &'a [u8] {
        &self.bytes[position..self.position]
    }
}

impl<'a> Source for SliceSource<'a> {
    type Chunk = &'a [u8];

    #[inline(always)]
    fn byte(&mut self) -> Result<u8, Broken> {
        let byte = *self.bytes.get(self.position).ok_or(ENDS_EARLY)?;
        self.position += 1;
        Ok(byte)
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<i32, Broken> {
        let rest = self.bytes.get(self.position..).ok_or(ENDS_EARLY)?;
        let (value, size) = read_varint(rest).ok_or(ENDS_EARLY)?;
        self.position += size;
        Ok(value)
    }

    #[inline(always)]
    fn varlong(&mut self) -> Result<i64, Broken> {
        let rest = self.bytes.get(self.position..).ok_or(ENDS_EARLY)?;
        let (value, size) = read_varlong(rest).ok_or(ENDS_EARLY)?;
        self.position += size;
        Ok(value)
    }

    #[inline(always)]
    fn take(&mut self, length: usize) -> Result<&'a [u8], Broken> {
        let rest = self.bytes.get(self.position..).ok_or(ENDS_EARLY)?;
        let taken = rest.get(..length).ok_or(ENDS_EARLY)?;
        self.position += length;
        Ok(taken)
    }

    #[inline(always)]
    fn position(&self) -> usize {
        self.position
    }

    #[inline(always)]
    fn may_have(&self, length: usize) -> bool {
        length <= self.bytes.len() - self.position
    }

    /// Fast path for a record without headers whose varints fit two bytes, which is nearly every
    /// record. All other records, including malformed ones, are left to the general reader, so this
    /// path returns no errors.
    #[inline(always)]
    fn plain_record(&mut self) -> Option<RecordParts<&'a [u8]>> {
        let rest = self.bytes.get(self.position..)?;
        let (length, mut at) = short_varint(rest)?;
        let end = at + usize::try_from(length).ok()?;
        // The last byte is the number of headers. The attributes come first and are unused.
        let body = rest.get(..end)?;
        if at >= end || body[end - 1] != 0 {
            return None;
        }
        let fields = &body[..end - 1];
        at += 1;
        let timestamp_delta = short_varint_at(fields, &mut at)?;
        let offset_delta = short_varint_at(fields, &mut at)?;
        let key = short_nullable_at(fields, &mut at)?;
        let value = short_nullable_at(fields, &mut at)?;
        if at != fields.len() {
            return None;
        }
        self.position += end;
        Some(RecordParts {
            timestamp_delta: i64::from(timestamp_delta),
            offset_delta,
            key,
            value,
            header_count: 0,
            headers_at: self.position,
            size_in_bytes: end,
        })
    }
}

#[inline(always)]
fn short_varint(bytes: &[u8]) -> Option<(i32, usize)> {
    let first = i32::from(*bytes.first()?);
    let (raw, size) = if first < 0x80 {
        (first, 1)
    } else {
        let second = i32::from(*bytes.get(1)?);
        if second >= 0x80 {
            return None;
        }
        (first & 0x7f | second << 7, 2)
    };
    Some((raw >> 1 ^ -(raw & 1), size))
}

#[inline(always)]
fn short_varint_at(bytes: &[u8], at: &mut usize) -> Option<i32> {
    let (value, size) = short_varint(bytes.get(*at..)?)?;
    *at += size;
    Some(value)
}

#[inline(always)]
fn short_nullable_at<'a>(bytes: &'a [u8], at: &mut usize) -> Option<Option<&'a [u8]>> {
    let length = short_varint_at(bytes, at)?;
    let Ok(length) = usize::try_from(length) else {
        return Some(None);
    };
    let start = *at;
    *at += length;
    bytes.get(start..*at).map(Some)
}

/// Records of a decompressed stream, read through a reused window.
pub(crate) struct StreamSource<'a> {
    decompressor: Decompressor<'a>,
    window: &'a mut Vec<u8>,
    /// The start of the unread bytes in the window.
    start: usize,
    end: usize,
    position: usize,
    ended: bool,
}

const WINDOW_BYTES: usize = 64 * 1024;

impl<'a> StreamSource<'a> {
    pub(crate) fn new(decompressor: Decompressor<'a>, window: &'a mut Vec<u8>) -> StreamSource<'a> {
        window.resize(WINDOW_BYTES, 0);
        StreamSource {
            decompressor,
            window,
            start: 0,
            end: 0,
            position: 0,
            ended: false,
        }
    }

    /// Makes `wanted` bytes available, or all that are left. `wanted` must be less than the window.
    #[inline(always)]
    fn fill(&mut self, wanted: usize) -> Result<&[u8], Broken> {
        if self.end - self.start < wanted && !self.ended {
            self.refill(wanted)?;
        }
        Ok(&self.window[self.start..self.end])
    }

    fn refill(&mut self, wanted: usize) -> Result<(), Broken> {
        self.window.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < wanted && !self.ended {
            let space = &mut self.window[self.end..];
            let read = self.decompressor.read(space).map_err(Broken::Stream)?;
            self.end += read;
            self.ended = read == 0;
        }
        Ok(())
    }

    fn consume(&mut self, length: usize) {
        self.start += length;
        self.position += length;
    }

    pub(crate) fn is_at_end(&mut self) -> Result<bool, BatchError> {
        match self.fill(1) {
            Ok(rest) => Ok(rest.is_empty()),
            Err(broken) => Err(broken.at(0)),
        }
    }
}

impl Source for StreamSource<'_> {
    type Chunk = ();

    fn byte(&mut self) -> Result<u8, Broken> {
        let byte = *self.fill(1)?.first().ok_or(ENDS_EARLY)?;
        self.consume(1);
        Ok(byte)
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<i32, Broken> {
        let (value, size) = read_varint(self.fill(MAX_VARINT)?).ok_or(ENDS_EARLY)?;
        self.consume(size);
        Ok(value)
    }

    #[inline(always)]
    fn varlong(&mut self) -> Result<i64, Broken> {
        let (value, size) = read_varlong(self.fill(MAX_VARLONG)?).ok_or(ENDS_EARLY)?;
        self.consume(size);
        Ok(value)
    }

    fn take(&mut self, mut length: usize) -> Result<(), Broken> {
        loop {
            let available = self.end - self.start;
            if available >= length {
                self.consume(length);
                return Ok(());
            }
            self.consume(available);
            length -= available;
            if self.fill(1)?.is_empty() {
                return Err(ENDS_EARLY);
            }
        }
    }

    fn position(&self) -> usize {
        self.position
    }

    fn may_have(&self, _length: usize) -> bool {
        true
    }
}
