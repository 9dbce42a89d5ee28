//! The custom metadata of a segment, which the broker keeps for the store: a section of tagged
//! fields (KIP-482).
//!
//! 0 `remote_size` (varlong), 1 `object_prefix`, 2 `object_key` (compact strings). No field, no
//! bytes. The numbers are part of the format.
//!
//! Aiven's plugin: `SegmentCustomMetadataField`, `SegmentCustomMetadataSerde`.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A field that `custom.metadata.fields.include` can name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CustomMetadataField {
    RemoteSize,
    ObjectPrefix,
    ObjectKey,
}

impl CustomMetadataField {
    pub const ALL: [CustomMetadataField; 3] = [
        CustomMetadataField::RemoteSize,
        CustomMetadataField::ObjectPrefix,
        CustomMetadataField::ObjectKey,
    ];

    /// As the setting spells it.
    pub const fn name(self) -> &'static str {
        match self {
            CustomMetadataField::RemoteSize => "REMOTE_SIZE",
            CustomMetadataField::ObjectPrefix => "OBJECT_PREFIX",
            CustomMetadataField::ObjectKey => "OBJECT_KEY",
        }
    }
}

/// The fields of one segment.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CustomMetadataFields {
    /// Bytes of the three objects together.
    pub remote_size: Option<i64>,
    pub object_prefix: Option<String>,
    pub object_key: Option<String>,
}

/// The bytes are no section of tagged fields.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the custom metadata is not a section of tagged fields: {0}")]
pub struct CustomMetadataError(&'static str);

impl CustomMetadataFields {
    pub fn encode(&self) -> Bytes {
        let mut fields: Vec<(u32, BytesMut)> = Vec::new();
        if let Some(size) = self.remote_size {
            let mut value = BytesMut::new();
            // A zigzag varint of 64 bits.
            put_varlong(&mut value, ((size << 1) ^ (size >> 63)) as u64);
            fields.push((0, value));
        }
        for (tag, text) in [(1, &self.object_prefix), (2, &self.object_key)] {
            if let Some(text) = text {
                let mut value = BytesMut::new();
                put_varlong(&mut value, text.len() as u64 + 1);
                value.put_slice(text.as_bytes());
                fields.push((tag, value));
            }
        }
        if fields.is_empty() {
            return Bytes::new();
        }
        let mut section = BytesMut::new();
        put_varlong(&mut section, fields.len() as u64);
        for (tag, value) in fields {
            put_varlong(&mut section, tag.into());
            put_varlong(&mut section, value.len() as u64);
            section.put_slice(&value);
        }
        section.freeze()
    }

    /// Skips unknown tags.
    pub fn decode(bytes: &[u8]) -> Result<CustomMetadataFields, CustomMetadataError> {
        let mut fields = CustomMetadataFields::default();
        if bytes.is_empty() {
            return Ok(fields);
        }
        let mut rest = bytes;
        for _ in 0..varlong(&mut rest)? {
            let tag = varlong(&mut rest)?;
            let size = varlong(&mut rest)?;
            let size =
                usize::try_from(size).map_err(|_| CustomMetadataError("a field is too long"))?;
            if size > rest.len() {
                return Err(CustomMetadataError("a field is longer than the rest"));
            }
            let (mut value, after) = rest.split_at(size);
            rest = after;
            match tag {
                0 => {
                    let zigzag = varlong(&mut value)?;
                    fields.remote_size = Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64));
                }
                1 => fields.object_prefix = Some(compact_string(value)?),
                2 => fields.object_key = Some(compact_string(value)?),
                _ => {}
            }
        }
        Ok(fields)
    }
}

fn put_varlong(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn varlong(bytes: &mut &[u8]) -> Result<u64, CustomMetadataError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        if !bytes.has_remaining() {
            return Err(CustomMetadataError("it ends within a number"));
        }
        let byte = bytes.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(CustomMetadataError("a number has more than ten bytes"))
}

fn compact_string(mut value: &[u8]) -> Result<String, CustomMetadataError> {
    let size = varlong(&mut value)?;
    if size != value.len() as u64 + 1 {
        return Err(CustomMetadataError(
            "a text has another length than its field",
        ));
    }
    String::from_utf8(value.to_vec()).map_err(|_| CustomMetadataError("a text is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_bytes_of_the_plugin() {
        let fields = CustomMetadataFields {
            remote_size: Some(100),
            object_prefix: Some("p/".to_owned()),
            object_key: None,
        };
        // Two fields: tag 0 with the zigzag 200, tag 1 with a compact string.
        let bytes = [2, 0, 2, 0xc8, 1, 1, 3, 3, b'p', b'/'];
        assert_eq!(fields.encode(), bytes.as_slice());
        assert_eq!(CustomMetadataFields::decode(&bytes), Ok(fields));
        assert!(CustomMetadataFields::default().encode().is_empty());
        let empty = CustomMetadataFields::decode(&[]).unwrap();
        assert_eq!(empty, CustomMetadataFields::default());
    }

    #[test]
    fn unknown_tags_are_skipped_and_damage_is_an_error() {
        let fields = CustomMetadataFields::decode(&[2, 0, 1, 5, 9, 2, 1, 1]).unwrap();
        assert_eq!(fields.remote_size, Some(-3));
        for damaged in [
            &[1][..],
            &[1, 0, 5, 1],
            &[1, 1, 2, 9, b'a'],
            &[0x80; 12],
            &[1, 1, 2, 2, 0xff],
        ] {
            assert!(
                CustomMetadataFields::decode(damaged).is_err(),
                "{damaged:?}"
            );
        }
    }
}
