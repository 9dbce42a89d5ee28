//! Where a record names its schema: the wire format of Confluent's serializers.
//!
//! ```text
//! value:  0 | schema ID, 4 bytes big-endian | (Protobuf: message indexes) | data
//! header: 0 | schema ID                     | (Protobuf: message indexes)
//!         1 | schema GUID, 16 bytes         | (Protobuf: message indexes)
//! ```
//!
//! The header is `__key_schema_id` or `__value_schema_id`; then the key or value is data alone. The
//! message indexes are a count and as many numbers, zigzag varints; a count of 0 is the first
//! message.
//!
//! Pure. Confluent does the same in `SchemaId` and `MessageIndexes`.

use std::fmt;

/// Message indexes are as many as messages are nested, which is bounded.
const MOST_INDEXES: usize = 64;
const MAGIC_ID: u8 = 0;
const MAGIC_GUID: u8 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum SchemaId {
    Number(u32),
    Guid([u8; 16]),
}

/// A number, or a GUID as `01234567-89ab-cdef-0123-456789abcdef`.
impl fmt::Display for SchemaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemaId::Number(number) => write!(f, "{number}"),
            SchemaId::Guid(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    if matches!(at, 4 | 6 | 8 | 10) {
                        f.write_str("-")?;
                    }
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

/// A key or a value with the ID of its schema.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Framed<'a> {
    pub(super) id: SchemaId,
    /// What follows the ID in the header; `None` if the ID is not in a header.
    after_header_id: Option<&'a [u8]>,
    /// The data; with message indexes before it, if the ID is not in a header.
    body: &'a [u8],
}

impl<'a> Framed<'a> {
    /// `None` if the bytes name no schema.
    pub(super) fn read(bytes: &'a [u8], header: Option<&'a [u8]>) -> Option<Framed<'a>> {
        if let Some((id, rest)) = header.and_then(id_of_header) {
            return Some(Framed {
                id,
                after_header_id: Some(rest),
                body: bytes,
            });
        }
        let (id, body) = numbered(bytes)?;
        Some(Framed {
            id,
            after_header_id: None,
            body,
        })
    }

    /// The data of a schema without message indexes.
    pub(super) fn data(&self) -> &'a [u8] {
        self.body
    }

    /// The place of a Protobuf message in its file, and the data.
    pub(super) fn message(&self) -> Result<(Vec<usize>, &'a [u8]), String> {
        let malformed = || "the message indexes after the schema ID are malformed".to_owned();
        match self.after_header_id {
            Some([]) => Ok((vec![0], self.body)),
            Some(rest) => {
                let (indexes, _) = indexes(rest).ok_or_else(malformed)?;
                Ok((indexes, self.body))
            }
            None => indexes(self.body).ok_or_else(malformed),
        }
    }
}

fn id_of_header(header: &[u8]) -> Option<(SchemaId, &[u8])> {
    match header.first()? {
        &MAGIC_GUID => {
            let (guid, rest) = header[1..].split_first_chunk::<16>()?;
            Some((SchemaId::Guid(*guid), rest))
        }
        _ => numbered(header),
    }
}

/// Registries number schemas from 1. An ID of 0 is more likely the beginning of a small number of 8
/// bytes.
fn numbered(bytes: &[u8]) -> Option<(SchemaId, &[u8])> {
    if *bytes.first()? != MAGIC_ID {
        return None;
    }
    let (id, rest) = bytes[1..].split_first_chunk::<4>()?;
    let id = u32::from_be_bytes(*id);
    (id > 0 && id <= i32::MAX as u32).then_some((SchemaId::Number(id), rest))
}

fn indexes(mut bytes: &[u8]) -> Option<(Vec<usize>, &[u8])> {
    let count = usize::try_from(take_varint(&mut bytes)?).ok()?;
    if count == 0 {
        return Some((vec![0], bytes));
    }
    if count > MOST_INDEXES {
        return None;
    }
    let mut indexes = Vec::with_capacity(count);
    for _ in 0..count {
        indexes.push(usize::try_from(take_varint(&mut bytes)?).ok()?);
    }
    Some((indexes, bytes))
}

/// A zigzag varint of up to 64 bits, as in Avro and in message indexes.
pub(super) fn take_varint(bytes: &mut &[u8]) -> Option<i64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((number >> 1) as i64 ^ -((number & 1) as i64));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_stands_before_the_data_or_in_a_header() {
        let framed = Framed::read(&[0, 0, 0, 1, 2, 9], None).unwrap();
        assert_eq!(
            (framed.id, framed.data()),
            (SchemaId::Number(258), &[9][..])
        );
        let header = [0, 0, 0, 0, 7];
        let framed = Framed::read(&[0, 0, 0, 1, 2, 9], Some(&header)).unwrap();
        assert_eq!(framed.id, SchemaId::Number(7));
        assert_eq!(framed.data(), [0, 0, 0, 1, 2, 9]);
        let mut guid = vec![1];
        guid.extend(0..16);
        let framed = Framed::read(b"x", Some(&guid)).unwrap();
        assert_eq!(
            framed.id.to_string(),
            "00010203-0405-0607-0809-0a0b0c0d0e0f"
        );
    }

    #[test]
    fn other_bytes_name_no_schema() {
        for bytes in [
            &b""[..],
            b"text",
            &[0],
            &[0, 0, 0, 1],
            &[0, 0, 0, 0, 0],
            &[0, 0xff, 0, 0, 0, 1],
            &[1, 0, 0, 0, 1],
        ] {
            assert_eq!(Framed::read(bytes, None), None, "{bytes:?}");
        }
        // A header of something else.
        assert_eq!(Framed::read(b"x", Some(b"7")), None);
    }

    #[test]
    fn message_indexes_are_a_count_and_numbers() {
        let message = |rest: &[u8]| {
            let bytes = [&[0, 0, 0, 0, 1][..], rest].concat();
            let framed = Framed::read(&bytes, None).unwrap();
            framed.message().map(|(place, data)| (place, data.to_vec()))
        };
        assert_eq!(message(&[0, 9]).unwrap(), (vec![0], vec![9]));
        assert_eq!(message(&[4, 2, 0, 9]).unwrap(), (vec![1, 0], vec![9]));
        for malformed in [
            &[] as &[u8],
            &[4, 2],
            &[1],
            &[2, 1],
            &[0xfe, 0xff, 0x7f],
            &[0xff; 12],
        ] {
            message(malformed).unwrap_err();
        }
        let header = [0, 0, 0, 0, 1, 2, 6];
        let framed = Framed::read(&[9], Some(&header)).unwrap();
        assert_eq!(framed.message().unwrap(), (vec![3], &[9][..]));
    }
}
