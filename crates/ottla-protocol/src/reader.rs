//! Decodes Kafka's primitive types from an untrusted buffer.
//!
//! Every length is checked against the remaining bytes before it is used. Slices share the buffer's
//! allocation, and keep it alive: a stored name of six letters would keep a request of 100 MB.
//! Where strings and bytes can outlive the message, they are copied ([`Reader::copying`]). Kafka
//! does the same in `ByteBufferAccessor` and `ByteUtils`.
//!
//! A struct can take thirty times the memory of its bytes, because most of its fields may be empty.
//! Bytes from a peer are therefore read with an allowance ([`Reader::untrusted`]): bytes that would
//! take more are an error before the memory is reserved. The number of elements of an array and of
//! tagged fields of a struct is limited as well, as in Kafka 4.4.

use bytes::Bytes;
use bytestring::ByteString;
use ottla_types::Uuid;

use crate::{DecodeError, Records};

/// A position in a buffer.
#[derive(Clone, Debug)]
pub struct Reader {
    buffer: Bytes,
    position: usize,
    allowance: Option<Allowance>,
    is_copying: bool,
}

/// The memory that decoded values may take in addition to the bytes that they are decoded from.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    bytes: usize,
    left: usize,
}

/// Bytes that an array may reserve before its elements are decoded. Beyond that the vector grows
/// with its elements, so that a false count does not allocate memory for missing elements.
const RESERVE_AT_MOST: usize = 64 * 1024;

/// The elements that an array of a peer may have. Kafka: `MessageUtil.MAX_ARRAY_LENGTH`.
pub(crate) const MAX_ARRAY_LENGTH: usize = 1_000_000;
/// The tagged fields that a struct of a peer may have. Kafka: `MessageUtil.MAX_TAGGED_FIELD_COUNT`.
pub(crate) const MAX_TAGGED_FIELD_COUNT: usize = 10_000;

/// The minimum memory that decoding may take, however short the bytes are.
const LEAST_ALLOWANCE: usize = 64 * 1024;
/// The memory that decoding may take for each byte. Topics with names of six letters take seven
/// times their bytes, of two letters eleven times, and only arrays of empty elements come to
/// thirty.
const ALLOWANCE_PER_BYTE: usize = 16;

/// The memory that decoding this many bytes may take if nothing else is known about them.
pub const fn fair_allowance(bytes: usize) -> usize {
    let of_bytes = bytes.saturating_mul(ALLOWANCE_PER_BYTE);
    if of_bytes > LEAST_ALLOWANCE {
        of_bytes
    } else {
        LEAST_ALLOWANCE
    }
}

impl Reader {
    /// Reads trusted bytes, such as the node's own files: arrays may take the memory that their
    /// elements need.
    pub fn new(buffer: Bytes) -> Reader {
        Reader {
            buffer,
            position: 0,
            allowance: None,
            is_copying: false,
        }
    }

    /// Copies strings and bytes instead of sharing the buffer's allocation. Records are still
    /// slices.
    pub fn copying(self) -> Reader {
        Reader {
            is_copying: true,
            ..self
        }
    }

    /// Reads bytes that a peer has sent.
    pub fn untrusted(buffer: Bytes) -> Reader {
        let bytes = fair_allowance(buffer.len());
        let mut reader = Reader::new(buffer);
        reader.set_allowance(bytes);
        reader
    }

    /// From now on, decoding may take this many bytes of memory in addition to the buffer.
    pub fn set_allowance(&mut self, bytes: usize) {
        self.allowance = Some(Allowance { bytes, left: bytes });
    }

    /// The part of the allowance that decoding has used; 0 without an allowance.
    pub fn allowance_used(&self) -> usize {
        self.allowance.map_or(0, |it| it.bytes - it.left)
    }

    /// Takes memory of the allowance, before it is allocated.
    pub(crate) fn take_allowance(&mut self, bytes: usize) -> Result<(), DecodeError> {
        let Some(allowance) = &mut self.allowance else {
            return Ok(());
        };
        match allowance.left.checked_sub(bytes) {
            Some(left) => {
                allowance.left = left;
                Ok(())
            }
            None => Err(DecodeError::AllowanceExceeded {
                position: self.position,
                needed: bytes,
                allowance: allowance.bytes,
            }),
        }
    }

    /// Continues with the remaining allowance of another reader of the same buffer.
    pub(crate) fn continue_allowance_of(&mut self, other: &Reader) {
        self.allowance = other.allowance;
    }

    /// The number of bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.buffer.len() - self.position
    }

    /// The number of bytes read so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The remaining bytes, as one slice.
    pub fn rest(&mut self) -> Bytes {
        let rest = self.buffer.slice(self.position..);
        self.position = self.buffer.len();
        rest
    }

    /// Fails if there are unread bytes.
    pub fn expect_end(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            remaining => Err(DecodeError::TrailingBytes {
                position: self.position,
                remaining,
            }),
        }
    }

    /// A reader of `start..end` of the same buffer. The range must have been read already.
    pub(crate) fn at(&self, start: usize, end: usize) -> Reader {
        Reader {
            buffer: self.buffer.slice(..end),
            position: start,
            allowance: self.allowance,
            is_copying: self.is_copying,
        }
    }

    /// The bytes between two positions.
    pub(crate) fn between(&self, (start, end): (usize, usize)) -> Bytes {
        self.buffer.slice(start..end)
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.buffer.get(self.position).copied()
    }

    pub(crate) fn skip(&mut self, count: usize) -> Result<(), DecodeError> {
        self.check(count)?;
        self.position += count;
        Ok(())
    }

    #[inline]
    fn check(&self, needed: usize) -> Result<(), DecodeError> {
        let remaining = self.remaining();
        if needed <= remaining {
            return Ok(());
        }
        Err(DecodeError::UnexpectedEnd {
            position: self.position,
            needed,
            remaining,
        })
    }

    /// The next `count` bytes, as a slice of the buffer.
    pub fn slice(&mut self, count: usize) -> Result<Bytes, DecodeError> {
        self.check(count)?;
        let slice = self.buffer.slice(self.position..self.position + count);
        self.position += count;
        Ok(slice)
    }

    #[inline]
    fn array_of<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.buffer[self.position..].first_chunk::<N>() {
            Some(bytes) => {
                self.position += N;
                Ok(*bytes)
            }
            None => Err(DecodeError::UnexpectedEnd {
                position: self.position,
                needed: N,
                remaining: self.remaining(),
            }),
        }
    }

    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? != 0)
    }

    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        self.array_of().map(i8::from_be_bytes)
    }

    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        self.array_of().map(i16::from_be_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array_of().map(u16::from_be_bytes)
    }

    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.array_of().map(i32::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array_of().map(u32::from_be_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.array_of().map(i64::from_be_bytes)
    }

    pub fn f64(&mut self) -> Result<f64, DecodeError> {
        self.array_of().map(f64::from_be_bytes)
    }

    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        self.array_of().map(Uuid)
    }

    /// At most five bytes; the fifth may set only the four bits that remain of 32.
    pub fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        let position = self.position;
        let mut value = 0u32;
        for shift in (0..35).step_by(7) {
            let byte = self.i8()? as u8;
            if shift == 28 && byte > 0x0f {
                return Err(DecodeError::VarintTooLong { position });
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::VarintTooLong { position })
    }

    /// A zigzag-encoded number of at most five bytes.
    pub fn varint(&mut self) -> Result<i32, DecodeError> {
        let value = self.unsigned_varint()?;
        Ok((value >> 1) as i32 ^ -((value & 1) as i32))
    }

    /// A zigzag-encoded number of at most ten bytes.
    pub fn varlong(&mut self) -> Result<i64, DecodeError> {
        let position = self.position;
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.i8()? as u8;
            if shift == 63 && byte > 0x01 {
                return Err(DecodeError::VarintTooLong { position });
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(DecodeError::VarintTooLong { position })
    }

    /// The length of a compact type, encoded as length + 1; zero is null.
    fn compact_length(&mut self) -> Result<Option<usize>, DecodeError> {
        let position = self.position;
        match self.unsigned_varint()? {
            0 => Ok(None),
            length if length <= i32::MAX as u32 => Ok(Some(length as usize - 1)),
            length => Err(DecodeError::InvalidLength {
                position,
                length: i64::from(length) - 1,
            }),
        }
    }

    fn string_length(&mut self, flexible: bool) -> Result<Option<usize>, DecodeError> {
        let position = self.position;
        let length = if flexible {
            self.compact_length()?
        } else {
            let length = self.i16()?;
            (length >= 0).then_some(length as usize)
        };
        match length {
            // Kafka limits strings to 32767 bytes, including compact ones.
            Some(length) if length > i16::MAX as usize => Err(DecodeError::InvalidLength {
                position,
                length: length as i64,
            }),
            length => Ok(length),
        }
    }

    /// The length of bytes, records or an array.
    fn long_length(&mut self, flexible: bool) -> Result<Option<usize>, DecodeError> {
        if flexible {
            return self.compact_length();
        }
        let length = self.i32()?;
        Ok((length >= 0).then_some(length as usize))
    }

    #[cold]
    fn unexpected_null(&self) -> DecodeError {
        DecodeError::UnexpectedNull {
            position: self.position,
        }
    }

    /// The next `count` bytes, copied if this reader copies.
    fn owned(&mut self, count: usize) -> Result<Bytes, DecodeError> {
        if !self.is_copying {
            return self.slice(count);
        }
        self.check(count)?;
        self.take_allowance(count)?;
        Ok(Bytes::copy_from_slice(&self.slice(count)?))
    }

    fn utf8(&mut self, length: usize) -> Result<ByteString, DecodeError> {
        let position = self.position;
        ByteString::try_from(self.owned(length)?).map_err(|_| DecodeError::NotUtf8 { position })
    }

    pub fn string(&mut self, flexible: bool) -> Result<ByteString, DecodeError> {
        match self.string_length(flexible)? {
            Some(length) => self.utf8(length),
            None => Err(self.unexpected_null()),
        }
    }

    pub fn nullable_string(&mut self, flexible: bool) -> Result<Option<ByteString>, DecodeError> {
        self.string_length(flexible)?
            .map(|length| self.utf8(length))
            .transpose()
    }

    pub fn bytes(&mut self, flexible: bool) -> Result<Bytes, DecodeError> {
        match self.long_length(flexible)? {
            Some(length) => self.owned(length),
            None => Err(self.unexpected_null()),
        }
    }

    pub fn nullable_bytes(&mut self, flexible: bool) -> Result<Option<Bytes>, DecodeError> {
        self.long_length(flexible)?
            .map(|length| self.owned(length))
            .transpose()
    }

    pub fn records(&mut self, flexible: bool) -> Result<Records, DecodeError> {
        match self.nullable_records(flexible)? {
            Some(records) => Ok(records),
            None => Err(self.unexpected_null()),
        }
    }

    pub fn nullable_records(&mut self, flexible: bool) -> Result<Option<Records>, DecodeError> {
        self.long_length(flexible)?
            .map(|length| self.slice(length).map(Records::Bytes))
            .transpose()
    }

    /// An array whose elements are each encoded in at least `least_size` bytes.
    pub fn array<T>(
        &mut self,
        flexible: bool,
        least_size: usize,
        element: impl FnMut(&mut Reader) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        match self.nullable_array(flexible, least_size, element)? {
            Some(elements) => Ok(elements),
            None => Err(self.unexpected_null()),
        }
    }

    pub fn nullable_array<T>(
        &mut self,
        flexible: bool,
        least_size: usize,
        mut element: impl FnMut(&mut Reader) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let position = self.position;
        let Some(count) = self.long_length(flexible)? else {
            return Ok(None);
        };
        let remaining = self.remaining();
        if count > remaining / least_size.max(1) {
            let count = count as u64;
            return Err(DecodeError::TooManyElements {
                position,
                count,
                remaining,
            });
        }
        self.check_count(count, MAX_ARRAY_LENGTH)?;
        let size = size_of::<T>().max(1);
        let reserve = match self.allowance {
            // All of it is allowed for, and nothing is taken for growing.
            Some(_) => {
                self.take_allowance(count.saturating_mul(size))?;
                count
            }
            None => count.min(RESERVE_AT_MOST / size),
        };
        let mut elements = Vec::with_capacity(reserve);
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }

    /// Fails if a peer has sent more elements than one may.
    pub(crate) fn check_count(&self, count: usize, allowed: usize) -> Result<(), DecodeError> {
        match self.allowance {
            Some(_) if count > allowed => Err(DecodeError::OverLimit {
                position: self.position,
                count: count as u64,
                allowed,
            }),
            _ => Ok(()),
        }
    }

    pub fn strings(&mut self, flexible: bool) -> Result<Vec<ByteString>, DecodeError> {
        self.array(flexible, least_string_size(flexible), |r| {
            r.string(flexible)
        })
    }

    pub fn nullable_strings(
        &mut self,
        flexible: bool,
    ) -> Result<Option<Vec<ByteString>>, DecodeError> {
        self.nullable_array(flexible, least_string_size(flexible), |r| {
            r.string(flexible)
        })
    }
}

fn least_string_size(flexible: bool) -> usize {
    if flexible { 1 } else { 2 }
}
