//! Tagged fields (KIP-482): known ones in the order of their tags, unknown ones kept between them.

use bytes::Bytes;

use crate::encoder::Encoder;
use crate::{DecodeError, EncodeError, Reader};

/// A tagged field that this version of the schema does not know. It is kept and written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawTaggedField {
    pub tag: u32,
    pub data: Bytes,
}

impl Reader {
    /// Reads a tag section. `known` reads the field of a tag, or says false for one it does not know.
    /// A known field must end where its size says.
    pub(crate) fn tagged_fields(
        &mut self,
        mut known: impl FnMut(&mut Reader, u32) -> Result<bool, DecodeError>,
    ) -> Result<Vec<RawTaggedField>, DecodeError> {
        let mut unknown = Vec::new();
        let count = self.unsigned_varint()?;
        // Each takes two bytes at least, so a count that lies runs out of bytes soon; no allocation
        // depends on it.
        for _ in 0..count {
            let tag = self.unsigned_varint()?;
            let size = self.unsigned_varint()? as usize;
            let position = self.position();
            let data = self.slice(size)?;
            let mut inner = self.at(position, position + size);
            if !known(&mut inner, tag)? {
                unknown.push(RawTaggedField { tag, data });
            } else if inner.remaining() > 0 {
                return Err(DecodeError::InvalidTaggedField { position, tag });
            }
        }
        Ok(unknown)
    }

    /// Reads a tag section of which no tag is known.
    pub(crate) fn unknown_tagged_fields(&mut self) -> Result<Vec<RawTaggedField>, DecodeError> {
        // Nearly always a single zero byte: then nothing else is done.
        if self.peek() == Some(0) {
            self.skip(1)?;
            return Ok(Vec::new());
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

/// Writes a tag section: known fields by [`TagWriter::field`], in the order of their tags.
pub(crate) struct TagWriter<'a> {
    encoder: &'a mut Encoder,
    unknown: &'a [RawTaggedField],
    last_tag: Option<u32>,
}

impl Encoder {
    /// Begins a tag section of the unknown fields and `known` others.
    pub(crate) fn tagged_fields<'a>(
        &'a mut self,
        unknown: &'a [RawTaggedField],
        known: usize,
    ) -> TagWriter<'a> {
        self.unsigned_varint((unknown.len() + known) as u32);
        TagWriter {
            encoder: self,
            unknown,
            last_tag: None,
        }
    }

    /// Writes a tag section of which no tag is known.
    pub(crate) fn unknown_tagged_fields(
        &mut self,
        unknown: &[RawTaggedField],
    ) -> Result<(), EncodeError> {
        self.tagged_fields(unknown, 0).finish()
    }

    /// Refuses tagged fields in a version that has none.
    pub(crate) fn no_tagged_fields(
        &mut self,
        unknown: &[RawTaggedField],
        field: &'static str,
        version: i16,
    ) -> Result<(), EncodeError> {
        match unknown.is_empty() {
            true => Ok(()),
            false => Err(EncodeError::NotRepresentable { field, version }),
        }
    }
}

impl TagWriter<'_> {
    /// Writes the unknown fields before `tag`, then this one.
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
        while let Some((first, rest)) = self.unknown.split_first() {
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

    /// Tags ascend strictly; a reader may rely on it.
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
