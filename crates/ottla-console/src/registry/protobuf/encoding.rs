//! The binary encoding of Protobuf: the fields of a message, and the values of their types.

use prost_types::field_descriptor_proto::Type;

/// The value of a field as it is encoded. The types of different fields share an encoding.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Encoded<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
    /// The fields between the beginning and the end of a group.
    Group(&'a [u8]),
}

/// A value that is no message. An enum is the number of its value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Scalar<'a> {
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f32),
    Double(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const BYTES: u8 = 2;
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED_32: u8 = 5;

fn wire_type(of: Type) -> u8 {
    match of {
        Type::Double | Type::Fixed64 | Type::Sfixed64 => FIXED_64,
        Type::Float | Type::Fixed32 | Type::Sfixed32 => FIXED_32,
        Type::String | Type::Bytes | Type::Message => BYTES,
        Type::Group => GROUP,
        Type::Bool
        | Type::Enum
        | Type::Int32
        | Type::Int64
        | Type::Uint32
        | Type::Uint64
        | Type::Sint32
        | Type::Sint64 => VARINT,
    }
}

impl Encoded<'static> {
    /// The value of a field that is not set: 0, `false`, an empty text or an empty message.
    pub(super) fn zero(of: Type) -> Encoded<'static> {
        match wire_type(of) {
            VARINT => Encoded::Varint(0),
            FIXED_64 => Encoded::Fixed64(0),
            FIXED_32 => Encoded::Fixed32(0),
            GROUP => Encoded::Group(&[]),
            _ => Encoded::Bytes(&[]),
        }
    }
}

impl<'a> Encoded<'a> {
    /// The fields of a message.
    pub(super) fn message(self, of: Type) -> Result<&'a [u8], String> {
        match (of, self) {
            (Type::Message, Encoded::Bytes(it)) | (Type::Group, Encoded::Group(it)) => Ok(it),
            _ => Err(misfit(of)),
        }
    }

    pub(super) fn scalar(self, of: Type) -> Result<Scalar<'a>, String> {
        Ok(match (of, self) {
            (Type::Bool, Encoded::Varint(it)) => Scalar::Bool(it != 0),
            (Type::Int32 | Type::Enum, Encoded::Varint(it)) => Scalar::Signed((it as i32).into()),
            (Type::Int64, Encoded::Varint(it)) => Scalar::Signed(it as i64),
            (Type::Uint32, Encoded::Varint(it)) => Scalar::Unsigned((it as u32).into()),
            (Type::Uint64, Encoded::Varint(it)) => Scalar::Unsigned(it),
            (Type::Sint32, Encoded::Varint(it)) => Scalar::Signed(zigzag((it as u32).into())),
            (Type::Sint64, Encoded::Varint(it)) => Scalar::Signed(zigzag(it)),
            (Type::Fixed32, Encoded::Fixed32(it)) => Scalar::Unsigned(it.into()),
            (Type::Sfixed32, Encoded::Fixed32(it)) => Scalar::Signed((it as i32).into()),
            (Type::Float, Encoded::Fixed32(it)) => Scalar::Float(f32::from_bits(it)),
            (Type::Fixed64, Encoded::Fixed64(it)) => Scalar::Unsigned(it),
            (Type::Sfixed64, Encoded::Fixed64(it)) => Scalar::Signed(it as i64),
            (Type::Double, Encoded::Fixed64(it)) => Scalar::Double(f64::from_bits(it)),
            (Type::String, Encoded::Bytes(it)) => {
                Scalar::Text(std::str::from_utf8(it).map_err(|_| "a text is not UTF-8")?)
            }
            (Type::Bytes, Encoded::Bytes(it)) => Scalar::Bytes(it),
            _ => return Err(misfit(of)),
        })
    }
}

fn misfit(of: Type) -> String {
    format!("a value is not encoded as {}", of.as_str_name())
}

/// 0, -1, 1, -2 and so on are 0, 1, 2, 3.
fn zigzag(encoded: u64) -> i64 {
    (encoded >> 1) as i64 ^ -((encoded & 1) as i64)
}

/// Reads values one after the other.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The number and the value of the next field of a message; `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Encoded<'a>)>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.tag()?;
        let value = match wire_type {
            GROUP => Encoded::Group(self.group(number)?),
            other => self.value(other)?,
        };
        Ok(Some((number, value)))
    }

    /// The next value of a packed list of this type; `None` at the end.
    pub(super) fn packed(&mut self, of: Type) -> Result<Option<Encoded<'a>>, String> {
        match self.rest.is_empty() {
            true => Ok(None),
            false => self.value(wire_type(of)).map(Some),
        }
    }

    fn tag(&mut self) -> Result<(u32, u8), String> {
        let tag = u32::try_from(self.varint()?).unwrap_or(0);
        match tag >> 3 {
            0 => Err("a field has no valid number".to_owned()),
            number => Ok((number, (tag & 7) as u8)),
        }
    }

    /// A value that is no group.
    fn value(&mut self, wire_type: u8) -> Result<Encoded<'a>, String> {
        Ok(match wire_type {
            VARINT => Encoded::Varint(self.varint()?),
            FIXED_64 => Encoded::Fixed64(u64::from_le_bytes(self.fixed()?)),
            FIXED_32 => Encoded::Fixed32(u32::from_le_bytes(self.fixed()?)),
            BYTES => {
                let size = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                let (found, rest) = self.rest.split_at_checked(size).ok_or_else(cut_short)?;
                self.rest = rest;
                Encoded::Bytes(found)
            }
            GROUP_END => return Err("a group ends that did not begin".to_owned()),
            other => return Err(format!("there is no wire type {other}")),
        })
    }

    /// What follows until the end of this group, with the groups in it.
    fn group(&mut self, number: u32) -> Result<&'a [u8], String> {
        let body = self.rest;
        let mut size = 0;
        let mut open = vec![number];
        while let Some(innermost) = open.last().copied() {
            size = body.len() - self.rest.len();
            match self.tag()? {
                (number, GROUP) => open.push(number),
                (number, GROUP_END) if number == innermost => {
                    open.pop();
                }
                (_, wire_type) => {
                    self.value(wire_type)?;
                }
            }
        }
        Ok(&body[..size])
    }

    fn varint(&mut self) -> Result<u64, String> {
        let bytes = self.rest;
        let mut value = 0;
        for (index, byte) in bytes.iter().copied().enumerate().take(10) {
            // Nine bytes have 63 bits.
            if index == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.rest = &bytes[index + 1..];
                return Ok(value);
            }
        }
        Err("a number has no end".to_owned())
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (found, rest) = self.rest.split_first_chunk::<N>().ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(*found)
    }
}

fn cut_short() -> String {
    "it is cut short".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<(u32, Encoded<'_>)>, String> {
        let mut reader = Reader::new(bytes);
        let mut fields = Vec::new();
        while let Some(field) = reader.field()? {
            fields.push(field);
        }
        Ok(fields)
    }

    #[test]
    fn fields_have_numbers_and_values() {
        let bytes = [
            &[0x08, 0xac, 0x02][..],                                 // 1: 300
            &[0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0x1d, 2, 0, 0, 0],       // 2 and 3, of fixed sizes
            &[0x22, 1, b'a'],                                        // 4: a text
            &[0x2b, 0x08, 1, 0x33, 0x34, 0x2c],                      // 5: a group with a group 6
            &[0xf8, 0xff, 0xff, 0xff, 0x0f, 0],                      // the largest number
            &[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], // 1: -1
        ];
        let expected: [(u32, Encoded<'_>); 7] = [
            (1, Encoded::Varint(300)),
            (2, Encoded::Fixed64(1)),
            (3, Encoded::Fixed32(2)),
            (4, Encoded::Bytes(b"a")),
            (5, Encoded::Group(&[0x08, 1, 0x33, 0x34])),
            ((1 << 29) - 1, Encoded::Varint(0)),
            (1, Encoded::Varint(u64::MAX)),
        ];
        assert_eq!(fields(&bytes.concat()).unwrap(), expected);
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        let wrong: [&[u8]; 10] = [
            &[0x08],                                                 // no value
            &[0x00, 1],                                              // the number 0
            &[0x0e, 1],                                              // the wire type 6
            &[0x0a, 2, b'a'],                                        // a text cut short
            &[0x0d, 1, 2],                                           // so is a number
            &[0x0b, 0x08, 1],                                        // a group without an end
            &[0x0b, 0x14],                                           // with another's end
            &[0x0c],                                                 // without a beginning
            &[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2], // more than 64 bits
            &[0x88, 0x80, 0x80, 0x80, 0x10, 1], // a number of more than 29 bits
        ];
        for bytes in wrong {
            fields(bytes).unwrap_err();
        }
    }

    #[test]
    fn values_have_the_type_of_their_field() {
        let negative = Encoded::Varint(-2_i64 as u64);
        assert_eq!(negative.scalar(Type::Int32), Ok(Scalar::Signed(-2)));
        assert_eq!(negative.scalar(Type::Int64), Ok(Scalar::Signed(-2)));
        let unsigned = Scalar::Unsigned(0xffff_fffe);
        assert_eq!(negative.scalar(Type::Uint32), Ok(unsigned));
        assert_eq!(negative.scalar(Type::Bool), Ok(Scalar::Bool(true)));
        for (encoded, number) in [(0, 0), (1, -1), (2, 1), (u64::from(u32::MAX), -(1 << 31))] {
            let encoded = Encoded::Varint(encoded);
            assert_eq!(encoded.scalar(Type::Sint32), Ok(Scalar::Signed(number)));
            assert_eq!(encoded.scalar(Type::Sint64), Ok(Scalar::Signed(number)));
        }
        let all = Encoded::Varint(u64::MAX);
        assert_eq!(all.scalar(Type::Sint64), Ok(Scalar::Signed(i64::MIN)));
        let fixed = Encoded::Fixed32(u32::MAX);
        assert_eq!(fixed.scalar(Type::Sfixed32), Ok(Scalar::Signed(-1)));
        let float = Encoded::Fixed32(1.5_f32.to_bits());
        assert_eq!(float.scalar(Type::Float), Ok(Scalar::Float(1.5)));
        Encoded::Bytes(&[0xff]).scalar(Type::String).unwrap_err();
        Encoded::Varint(0).scalar(Type::Fixed32).unwrap_err();
        Encoded::Bytes(&[]).message(Type::Group).unwrap_err();
    }
}
