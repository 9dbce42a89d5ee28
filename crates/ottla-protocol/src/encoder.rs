//! Encodes Kafka's primitive types, and splices records without copying them.
//!
//! Kafka does the same in `SendBuilder`: a response becomes a list of buffers and file regions.

use bytes::{BufMut, Bytes, BytesMut};
use bytestring::ByteString;
use ottla_types::Uuid;

use crate::{EncodeError, FileRegion, Records};

/// Records smaller than this are copied: a separate chunk costs more than the copy.
const SPLICE_FROM: usize = 4 * 1024;

/// Collects the bytes of one or more messages.
#[derive(Debug, Default)]
pub struct Encoder {
    /// All bytes that are not spliced, contiguous; it is split at the end.
    buffer: BytesMut,
    /// Separate chunks, each with the position in `buffer` before which it belongs.
    spliced: Vec<(usize, Chunk)>,
    /// The size of `spliced`.
    spliced_len: u64,
}

/// A part of an encoded message.
#[derive(Clone, Debug, PartialEq)]
pub enum Chunk {
    Bytes(Bytes),
    File(FileRegion),
}

impl Chunk {
    /// The length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Chunk::Bytes(bytes) => bytes.len() as u64,
            Chunk::File(region) => region.len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The encoded chunks, in the order in which they are sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Encoded {
    pub chunks: Vec<Chunk>,
}

impl Encoded {
    /// The size of all chunks, in bytes.
    pub fn len(&self) -> u64 {
        self.chunks.iter().map(Chunk::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.iter().all(Chunk::is_empty)
    }

    /// As one buffer, for tools and tests. Fails if there is a file region.
    pub fn try_into_bytes(self) -> Result<Bytes, EncodeError> {
        if let [Chunk::Bytes(only)] = self.chunks.as_slice() {
            return Ok(only.clone());
        }
        let mut all = BytesMut::with_capacity(self.len() as usize);
        for chunk in &self.chunks {
            match chunk {
                Chunk::Bytes(bytes) => all.extend_from_slice(bytes),
                Chunk::File(_) => return Err(EncodeError::FileRegion),
            }
        }
        Ok(all.freeze())
    }

    /// As one buffer, for callers that know that no records are in a file.
    ///
    /// # Panics
    /// If there is a file region.
    pub fn into_bytes(self) -> Bytes {
        self.try_into_bytes()
            .expect("a message without file regions")
    }
}

impl Encoder {
    pub fn new() -> Encoder {
        Encoder::with_capacity(256)
    }

    pub fn with_capacity(bytes: usize) -> Encoder {
        Encoder {
            buffer: BytesMut::with_capacity(bytes),
            ..Encoder::default()
        }
    }

    /// The number of bytes written so far, including spliced ones.
    pub fn len(&self) -> u64 {
        self.spliced_len + self.buffer.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes over the first four bytes, for a length that is known only at the end.
    ///
    /// # Panics
    /// If nothing was written there before.
    pub fn overwrite_start(&mut self, value: i32) {
        self.buffer[..4].copy_from_slice(&value.to_be_bytes());
    }

    pub fn finish(self) -> Encoded {
        let buffer = self.buffer.freeze();
        let mut chunks = Vec::with_capacity(2 * self.spliced.len() + 1);
        let mut start = 0;
        for (position, chunk) in self.spliced {
            if start < position {
                chunks.push(Chunk::Bytes(buffer.slice(start..position)));
            }
            chunks.push(chunk);
            start = position;
        }
        if start < buffer.len() {
            let rest = match start {
                0 => buffer,
                _ => buffer.slice(start..),
            };
            chunks.push(Chunk::Bytes(rest));
        }
        Encoded { chunks }
    }

    fn splice(&mut self, chunk: Chunk) {
        self.spliced_len += chunk.len();
        self.spliced.push((self.buffer.len(), chunk));
    }

    /// Raw bytes, without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    pub fn bool(&mut self, value: bool) {
        self.buffer.put_u8(u8::from(value));
    }

    pub fn i8(&mut self, value: i8) {
        self.buffer.put_i8(value);
    }

    pub fn i16(&mut self, value: i16) {
        self.buffer.put_i16(value);
    }

    pub fn u16(&mut self, value: u16) {
        self.buffer.put_u16(value);
    }

    pub fn i32(&mut self, value: i32) {
        self.buffer.put_i32(value);
    }

    pub fn u32(&mut self, value: u32) {
        self.buffer.put_u32(value);
    }

    pub fn i64(&mut self, value: i64) {
        self.buffer.put_i64(value);
    }

    pub fn f64(&mut self, value: f64) {
        self.buffer.put_f64(value);
    }

    pub fn uuid(&mut self, value: Uuid) {
        self.buffer.put_slice(&value.0);
    }

    pub fn unsigned_varint(&mut self, value: u32) {
        let (bytes, length) = unsigned_varint_bytes(value);
        self.buffer.put_slice(&bytes[..length]);
    }

    /// A zigzag-encoded varint.
    pub fn varint(&mut self, value: i32) {
        self.unsigned_varint(((value << 1) ^ (value >> 31)) as u32);
    }

    /// A zigzag-encoded varlong.
    pub fn varlong(&mut self, value: i64) {
        let mut rest = ((value << 1) ^ (value >> 63)) as u64;
        while rest >= 0x80 {
            self.buffer.put_u8(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.buffer.put_u8(rest as u8);
    }

    fn string_length(&mut self, flexible: bool, length: usize) -> Result<(), EncodeError> {
        let short = i16::try_from(length).map_err(|_| EncodeError::TooLong { length })?;
        if flexible {
            self.unsigned_varint(short as u32 + 1)
        } else {
            self.i16(short)
        }
        Ok(())
    }

    fn long_length(&mut self, flexible: bool, length: u64) -> Result<(), EncodeError> {
        let error = EncodeError::TooLong {
            length: length as usize,
        };
        let length = i32::try_from(length).map_err(|_| error)?;
        if flexible {
            self.unsigned_varint(length as u32 + 1)
        } else {
            self.i32(length)
        }
        Ok(())
    }

    fn long_null(&mut self, flexible: bool) {
        if flexible {
            self.unsigned_varint(0)
        } else {
            self.i32(-1)
        }
    }

    pub fn string(&mut self, flexible: bool, value: &str) -> Result<(), EncodeError> {
        self.string_length(flexible, value.len())?;
        self.raw(value.as_bytes());
        Ok(())
    }

    pub fn nullable_string(
        &mut self,
        flexible: bool,
        value: Option<&ByteString>,
    ) -> Result<(), EncodeError> {
        match (value, flexible) {
            (Some(value), _) => return self.string(flexible, value),
            (None, true) => self.unsigned_varint(0),
            (None, false) => self.i16(-1),
        }
        Ok(())
    }

    pub fn bytes(&mut self, flexible: bool, value: &[u8]) -> Result<(), EncodeError> {
        self.long_length(flexible, value.len() as u64)?;
        self.raw(value);
        Ok(())
    }

    pub fn nullable_bytes(
        &mut self,
        flexible: bool,
        value: Option<&Bytes>,
    ) -> Result<(), EncodeError> {
        match value {
            Some(value) => self.bytes(flexible, value),
            None => {
                self.long_null(flexible);
                Ok(())
            }
        }
    }

    /// The length, then the records, which become a separate chunk unless they are small.
    pub fn records(&mut self, flexible: bool, value: &Records) -> Result<(), EncodeError> {
        self.long_length(flexible, value.len())?;
        match value {
            Records::Bytes(bytes) if bytes.len() < SPLICE_FROM => self.raw(bytes),
            Records::Bytes(bytes) => {
                self.splice(Chunk::Bytes(bytes.clone()));
            }
            Records::File(region) if region.len == 0 => {}
            Records::File(region) => {
                self.splice(Chunk::File(region.clone()));
            }
        }
        Ok(())
    }

    pub fn nullable_records(
        &mut self,
        flexible: bool,
        value: Option<&Records>,
    ) -> Result<(), EncodeError> {
        match value {
            Some(value) => self.records(flexible, value),
            None => {
                self.long_null(flexible);
                Ok(())
            }
        }
    }

    pub fn array<T>(
        &mut self,
        flexible: bool,
        elements: &[T],
        mut element: impl FnMut(&mut Encoder, &T) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.long_length(flexible, elements.len() as u64)?;
        elements.iter().try_for_each(|value| element(self, value))
    }

    pub fn nullable_array<T>(
        &mut self,
        flexible: bool,
        elements: Option<&[T]>,
        element: impl FnMut(&mut Encoder, &T) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        match elements {
            Some(elements) => self.array(flexible, elements, element),
            None => {
                self.long_null(flexible);
                Ok(())
            }
        }
    }

    pub fn strings(&mut self, flexible: bool, values: &[ByteString]) -> Result<(), EncodeError> {
        self.array(flexible, values, |w, value| w.string(flexible, value))
    }

    pub fn nullable_strings(
        &mut self,
        flexible: bool,
        values: Option<&[ByteString]>,
    ) -> Result<(), EncodeError> {
        self.nullable_array(flexible, values, |w, value| w.string(flexible, value))
    }

    /// Writes the size of what `write` writes, followed by that. Tagged fields are small and hold
    /// no records, so moving them to make room for the size is cheaper than measuring in advance.
    pub(crate) fn sized(
        &mut self,
        write: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let spliced = self.spliced.len();
        let start = self.buffer.len();
        write(self)?;
        assert_eq!(
            spliced,
            self.spliced.len(),
            "no schema has records in a tagged field"
        );
        let length = self.buffer.len() - start;
        let size = i32::try_from(length).map_err(|_| EncodeError::TooLong { length })?;
        let (bytes, prefix) = unsigned_varint_bytes(size as u32);
        self.buffer.put_slice(&bytes[..prefix]);
        self.buffer[start..].rotate_right(prefix);
        Ok(())
    }
}

fn unsigned_varint_bytes(value: u32) -> ([u8; 5], usize) {
    let mut bytes = [0; 5];
    let mut rest = value;
    let mut length = 0;
    while rest >= 0x80 {
        bytes[length] = rest as u8 | 0x80;
        rest >>= 7;
        length += 1;
    }
    bytes[length] = rest as u8;
    (bytes, length + 1)
}
