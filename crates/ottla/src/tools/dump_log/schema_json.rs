//! Records of Kafka's internal topics in the JSON of Kafka's tools.
//!
//! Decodes by interpreting the schemas field by field. Any record type and version can be printed,
//! and the generated decoders of `ottla-protocol` are not used to check themselves.
//!
//! Kafka: the generated `*JsonConverter` classes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ottla_protocol::{DecodeError, Reader};
use ottla_protocol_codegen::notation;
use ottla_protocol_codegen::schema::{Field, Kind, Message, Type};
use serde_json::{Map, Value};

/// The text of a schema file.
macro_rules! schema {
    ($name:literal) => {
        include_str!(concat!(
            "../../../../ottla-protocol/schema/",
            $name,
            ".schema"
        ))
    };
}
pub(in crate::tools) use schema;

/// The schemas of one kind of record.
pub(in crate::tools) struct Schemas {
    messages: Vec<Message>,
}

impl Schemas {
    /// Parses schemas in their notation.
    pub(in crate::tools) fn parse(text: &str) -> Schemas {
        let messages = notation::parse(text).expect("the schemas that are built in are readable");
        Schemas { messages }
    }

    pub(in crate::tools) fn by_api_key(&self, kind: Kind, api_key: i16) -> Option<&Message> {
        self.messages
            .iter()
            .find(|message| message.kind == kind && message.api_key == Some(api_key))
    }

    /// The schemas of a coordinator record's key and value.
    pub(in crate::tools) fn of_coordinator(
        &self,
        record_type: i16,
    ) -> Option<(&Message, &Message)> {
        let key = self.by_api_key(Kind::CoordinatorKey, record_type)?;
        Some((key, self.by_api_key(Kind::CoordinatorValue, record_type)?))
    }

    pub(in crate::tools) fn by_name(&self, name: &str) -> Option<&Message> {
        self.messages.iter().find(|message| message.name == name)
    }
}

/// Decodes a message in one of its versions; trailing bytes stay in the reader.
pub(in crate::tools) fn decode(
    message: &Message,
    reader: &mut Reader,
    version: i16,
) -> Result<Value, String> {
    if !message.versions.contains(version) {
        return Err(format!("Can't read version {version} of {}", message.name));
    }
    let walk = Walk {
        message,
        version,
        flexible: message.flexible.contains(version),
    };
    walk.fields(&message.fields, reader)
        .map(Value::Object)
        .map_err(|error| error.to_string())
}

struct Walk<'a> {
    message: &'a Message,
    version: i16,
    flexible: bool,
}

impl<'a> Walk<'a> {
    fn fields(
        &self,
        fields: &'a [Field],
        reader: &mut Reader,
    ) -> Result<Map<String, Value>, DecodeError> {
        let present = || {
            fields
                .iter()
                .filter(|field| field.versions.contains(self.version))
        };
        let mut values: Map<String, Value> = Map::new();
        for field in present() {
            match self.tag_of(field) {
                // A placeholder that keeps the order of the object's fields, in case the field is
                // present.
                Some(_) => {
                    values.insert(json_name(field), Value::Null);
                }
                None => {
                    let value = self.field(field, reader)?;
                    values.insert(json_name(field), value);
                }
            }
        }
        let mut found = Vec::new();
        if self.flexible {
            for _ in 0..reader.unsigned_varint()? {
                let tag = reader.unsigned_varint()?;
                let size = reader.unsigned_varint()?;
                let mut bytes = Reader::new(reader.slice(size as usize)?);
                if let Some(field) = present().find(|field| self.tag_of(field) == Some(tag)) {
                    values.insert(json_name(field), self.field(field, &mut bytes)?);
                    found.push(tag);
                }
            }
        }
        // An absent tagged field has its default, which is not printed.
        for field in present() {
            if self.tag_of(field).is_some_and(|tag| !found.contains(&tag)) {
                values.shift_remove(&json_name(field));
            }
        }
        Ok(values)
    }

    fn tag_of(&self, field: &Field) -> Option<u32> {
        field
            .tag
            .filter(|(_, versions)| versions.contains(self.version))
            .map(|(tag, _)| tag)
    }

    fn field(&self, field: &'a Field, reader: &mut Reader) -> Result<Value, DecodeError> {
        let flexible = self.flexible && !field.inflexible;
        let nullable = field.nullable.contains(self.version);
        self.value(&field.kind, field, nullable, flexible, reader)
    }

    fn value(
        &self,
        kind: &Type,
        field: &'a Field,
        nullable: bool,
        flexible: bool,
        reader: &mut Reader,
    ) -> Result<Value, DecodeError> {
        let binary = |bytes: &[u8]| Value::from(STANDARD.encode(bytes));
        Ok(match kind {
            Type::Bool => reader.bool()?.into(),
            Type::Int8 => reader.i8()?.into(),
            Type::Int16 => reader.i16()?.into(),
            Type::Int32 => reader.i32()?.into(),
            Type::Int64 => reader.i64()?.into(),
            Type::Uint16 => reader.u16()?.into(),
            Type::Uint32 => reader.u32()?.into(),
            Type::Float64 => reader.f64()?.into(),
            Type::Uuid => reader.uuid()?.to_string().into(),
            Type::String => {
                if nullable {
                    reader
                        .nullable_string(flexible)?
                        .map(|text| text.to_string())
                        .into()
                } else {
                    reader.string(flexible)?.to_string().into()
                }
            }
            Type::Bytes | Type::Records => {
                if nullable {
                    reader
                        .nullable_bytes(flexible)?
                        .map_or(Value::Null, |it| binary(&it))
                } else {
                    binary(&reader.bytes(flexible)?)
                }
            }
            Type::Struct(name) => {
                // Presence is encoded differently in a tagged field.
                let is_there = match (nullable, self.tag_of(field)) {
                    (false, _) => true,
                    (true, Some(_)) => reader.unsigned_varint()? > 0,
                    (true, None) => reader.i8()? >= 0,
                };
                if !is_there {
                    return Ok(Value::Null);
                }
                Value::Object(self.fields(self.struct_fields(name, field), reader)?)
            }
            Type::Array(element) => {
                let element =
                    |reader: &mut Reader| self.value(element, field, false, flexible, reader);
                let items = reader.nullable_array(flexible, 1, element)?;
                items.map_or(Value::Null, Value::Array)
            }
        })
    }

    /// The fields of a struct: defined inline by its field, or by a shared struct.
    fn struct_fields(&self, name: &str, field: &'a Field) -> &'a [Field] {
        if !field.fields.is_empty() {
            return &field.fields;
        }
        let shared = self.message.structs.iter().find(|shape| shape.name == name);
        shared.map_or(&[], |shape| shape.fields.as_slice())
    }
}

/// The JSON name of a field: Kafka's name with a lower-case first letter.
fn json_name(field: &Field) -> String {
    let mut name = field.name.clone();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    name
}

/// A message preceded by its version; returns both.
pub(in crate::tools) fn decode_versioned(
    message: &Message,
    bytes: &Bytes,
) -> Result<(i16, Value), String> {
    let mut reader = Reader::new(bytes.clone());
    let version = reader.i16().map_err(|error| error.to_string())?;
    Ok((version, decode(message, &mut reader, version)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = "\
data Sample 0-1 flexible 1+
  name: string
  ids: []int32
  note: string? = null 1+ tag 0 ignorable
  inner: []Inner
  other: Inner? 1+ tag 1
struct Inner
  id: uuid
  raw: bytes
";

    #[test]
    fn values_are_in_the_order_of_the_schema() {
        let schemas = Schemas::parse(SCHEMA);
        let sample = schemas.by_name("Sample").unwrap();
        let old = [
            &[0u8, 1, b'x'][..],
            &[0, 0, 0, 1, 0, 0, 0, 7],
            &[0, 0, 0, 0],
        ]
        .concat();
        let value = decode(sample, &mut Reader::new(Bytes::from(old)), 0).unwrap();
        assert_eq!(value.to_string(), r#"{"name":"x","ids":[7],"inner":[]}"#);
        let tagged = [&[2u8, b'x'][..], &[1], &[1], &[1, 0, 2, 2, b'n']].concat();
        let value = decode(sample, &mut Reader::new(Bytes::from(tagged)), 1).unwrap();
        assert_eq!(
            value.to_string(),
            r#"{"name":"x","ids":[],"note":"n","inner":[]}"#
        );
        let null = [&[2u8, b'x'][..], &[1], &[1], &[1, 1, 1, 0]].concat();
        let value = decode(sample, &mut Reader::new(Bytes::from(null)), 1).unwrap();
        assert_eq!(
            value.to_string(),
            r#"{"name":"x","ids":[],"inner":[],"other":null}"#
        );
        let inner = [&[0u8; 16][..], &[2, b'a', 0]].concat();
        let there = [&[2u8, b'x'][..], &[1], &[1], &[1, 1, 20, 1], &inner].concat();
        let value = decode(sample, &mut Reader::new(Bytes::from(there)), 1).unwrap();
        assert_eq!(value["other"]["raw"], "YQ==");
    }

    #[test]
    fn unknown_versions_and_truncated_values_are_errors() {
        let schemas = Schemas::parse(SCHEMA);
        let sample = schemas.by_name("Sample").unwrap();
        assert!(decode(sample, &mut Reader::new(Bytes::new()), 0).is_err());
        assert!(decode(sample, &mut Reader::new(Bytes::new()), 2).is_err());
    }
}
