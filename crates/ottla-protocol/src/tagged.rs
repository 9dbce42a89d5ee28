//! Tagged fields (KIP-482): known fields in tag order, with unknown ones preserved among them.
//!
//! Unknown fields are kept as received and parsed on access: a peer can encode one in two bytes,
//! and a separate value for each would take many times the memory of the request.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::encoder::Encoder;
use crate::reader::MAX_TAGGED_FIELD_COUNT;
use crate::{DecodeError, EncodeError, Reader};

/// A tagged field that this version of the schema does not know. It is preserved when the message
/// is encoded again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawTaggedField {
    pub tag: u32,
    pub data: Bytes,
}

/// The tagged fields of one struct that this version of the schema does not know. Usually there are
/// none, and the value is then as large as a pointer.
#[derive(Clone, Default)]
pub struct UnknownTaggedFields(Option<Box<Section>>);

#[derive(Clone)]
struct Section {
    count: usize,
    /// Tag, size and data of each field, in order.
    bytes: Bytes,
}

impl UnknownTaggedFields {
    pub const NONE: UnknownTaggedFields = UnknownTaggedFields(None);

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |section| section.count)
    }

    /// The fields in the order in which they were received.
    pub fn iter(&self) -> impl Iterator<Item = RawTaggedField> {
        let bytes = self.0.as_ref().map(|section| section.bytes.clone());
        let mut reader = Reader::new(bytes.unwrap_or_default());
        // The bytes were parsed before, so parsing fails only at their end.
        std::iter::from_fn(move || reader.raw_tagged_field().ok())
    }

    fn new(count: usize, bytes: Bytes) -> UnknownTaggedFields {
        UnknownTaggedFields((count > 0).then(|| Box::new(Section { count, bytes })))
    }
}

/// Compares parsed fields, because a tag or size can be encoded with more bytes than necessary.
impl PartialEq for UnknownTaggedFields {
    fn eq(&self, other: &UnknownTaggedFields) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for UnknownTaggedFields {}

impl fmt::Debug for UnknownTaggedFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl FromIterator<RawTaggedField> for UnknownTaggedFields {
    /// # Panics
    /// If the data of a field is larger than 2 GiB, which no message can hold.
    fn from_iter<I: IntoIterator<Item = RawTaggedField>>(fields: I) -> UnknownTaggedFields {
        let mut encoder = Encoder::new();
        let mut count = 0;
        for field in fields {
            encoder.unsigned_varint(field.tag);
            let length = length_of(field.data.len()).expect("a field of a message");
            encoder.unsigned_varint(length);
            encoder.raw(&field.data);
            count += 1;
        }
        UnknownTaggedFields::new(count, encoder.finish().into_bytes())
    }
}

impl Reader {
    /// Decodes a tag section. `known` decodes the field of a tag, or returns false for an unknown
    /// tag. A known field must consume exactly its size.
    pub fn tagged_fields(
        &mut self,
        mut known: impl FnMut(&mut Reader, u32) -> Result<bool, DecodeError>,
    ) -> Result<UnknownTaggedFields, DecodeError> {
        let count = self.unsigned_varint()?;
        self.check_count(count as usize, MAX_TAGGED_FIELD_COUNT)?;
        let mut unknown_count = 0;
        let mut unknown = Runs::default();
        // Each field takes at least two bytes, so a false count soon runs out of bytes; no
        // allocation depends on it.
        for _ in 0..count {
            let start = self.position();
            let tag = self.unsigned_varint()?;
            let size = self.unsigned_varint()? as usize;
            let position = self.position();
            self.skip(size)?;
            let mut inner = self.at(position, position + size);
            let is_known = known(&mut inner, tag)?;
            self.continue_allowance_of(&inner);
            if !is_known {
                unknown_count += 1;
                unknown.push(self, start)?;
            } else if inner.remaining() > 0 {
                return Err(DecodeError::InvalidTaggedField { position, tag });
            }
        }
        if unknown_count > 0 {
            self.take_allowance(size_of::<Section>())?;
        }
        Ok(UnknownTaggedFields::new(
            unknown_count,
            unknown.finish(self)?,
        ))
    }

    fn raw_tagged_field(&mut self) -> Result<RawTaggedField, DecodeError> {
        let tag = self.unsigned_varint()?;
        let size = self.unsigned_varint()? as usize;
        let data = self.slice(size)?;
        Ok(RawTaggedField { tag, data })
    }

    /// Reads a tag section without known tags.
    pub fn unknown_tagged_fields(&mut self) -> Result<UnknownTaggedFields, DecodeError> {
        // Fast path: the section is nearly always a single zero byte.
        if self.peek() == Some(0) {
            self.skip(1)?;
            return Ok(UnknownTaggedFields::NONE);
        }
        self.tagged_fields(|_, _| Ok(false))
    }

    #[cold]
    pub(crate) fn tag_not_valid(&self, tag: u32, version: i16) -> DecodeError {
        DecodeError::TagNotInVersion {
            position: self.position(),
            tag,
            version,
        }
    }
}

/// The unknown fields of a section: a single slice unless known fields are between them, which is
/// rare; otherwise a copy.
#[derive(Default)]
struct Runs {
    copied: BytesMut,
    /// The start and end of the last run.
    run: (usize, usize),
}

impl Runs {
    /// Adds the bytes read since `start`.
    fn push(&mut self, reader: &mut Reader, start: usize) -> Result<(), DecodeError> {
        if self.run.1 != start {
            self.copy(reader)?;
            self.run.0 = start;
        }
        self.run.1 = reader.position();
        Ok(())
    }

    fn finish(mut self, reader: &mut Reader) -> Result<Bytes, DecodeError> {
        if self.copied.is_empty() {
            return Ok(reader.between(self.run));
        }
        self.copy(reader)?;
        Ok(self.copied.freeze())
    }

    /// Appends the last run. The copy grows in powers of two.
    fn copy(&mut self, reader: &mut Reader) -> Result<(), DecodeError> {
        let run = reader.between(self.run);
        reader.take_allowance(run.len().saturating_mul(2))?;
        self.copied.extend_from_slice(&run);
        Ok(())
    }
}

/// Writes a tag section: known fields with [`TagWriter::field`], in tag order.
pub(crate) struct TagWriter<'a> {
    encoder: &'a mut Encoder,
    /// The unknown fields that are not written yet.
    unknown: Reader,
    last_tag: Option<u32>,
}

impl Encoder {
    /// Starts a tag section with the unknown fields and `known` others.
    pub(crate) fn tagged_fields<'a>(
        &'a mut self,
        unknown: &UnknownTaggedFields,
        known: usize,
    ) -> TagWriter<'a> {
        self.unsigned_varint((unknown.len() + known) as u32);
        let bytes = unknown.0.as_ref().map(|section| section.bytes.clone());
        TagWriter {
            encoder: self,
            unknown: Reader::new(bytes.unwrap_or_default()),
            last_tag: None,
        }
    }

    /// Writes a tag section without known tags.
    pub fn unknown_tagged_fields(
        &mut self,
        unknown: &UnknownTaggedFields,
    ) -> Result<(), EncodeError> {
        self.tagged_fields(unknown, 0).finish()
    }

    /// Fails if there are tagged fields, in a version without them.
    pub(crate) fn no_tagged_fields(
        &mut self,
        unknown: &UnknownTaggedFields,
        field: &'static str,
        version: i16,
    ) -> Result<(), EncodeError> {
        if unknown.is_empty() {
            Ok(())
        } else {
            Err(EncodeError::NotRepresentable { field, version })
        }
    }
}

impl TagWriter<'_> {
    /// Writes the unknown fields with lower tags, then this field.
    pub(crate) fn field(
        &mut self,
        tag: u32,
        write: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.unknown_before(Some(tag))?;
        self.begin(tag)?;
        self.encoder.sized(write)
    }

    pub(crate) fn finish(mut self) -> Result<(), EncodeError> {
        self.unknown_before(None)
    }

    fn unknown_before(&mut self, tag: Option<u32>) -> Result<(), EncodeError> {
        while self.unknown.remaining() > 0 {
            let mut rest = self.unknown.clone();
            // The bytes were parsed before.
            let Ok(first) = rest.raw_tagged_field() else {
                break;
            };
            if tag.is_some_and(|tag| first.tag >= tag) {
                break;
            }
            self.unknown = rest;
            self.begin(first.tag)?;
            self.encoder.unsigned_varint(length_of(first.data.len())?);
            self.encoder.raw(&first.data);
        }
        Ok(())
    }

    /// Checks that tags are strictly ascending, which readers may rely on.
    fn begin(&mut self, tag: u32) -> Result<(), EncodeError> {
        if self.last_tag.is_some_and(|last| last >= tag) {
            return Err(EncodeError::TagOrder { tag });
        }
        self.last_tag = Some(tag);
        self.encoder.unsigned_varint(tag);
        Ok(())
    }
}

fn length_of(length: usize) -> Result<u32, EncodeError> {
    i32::try_from(length)
        .map(|length| length as u32)
        .map_err(|_| EncodeError::TooLong { length })
}
