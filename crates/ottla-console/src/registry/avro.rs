//! Avro: its schemas, and its binary encoding as JSON.
//!
//! A value of a union is its branch's value alone, without the branch's name. Decimals are numbers,
//! other logical types are shown as their underlying type. Records are decoded while they are read;
//! the size and the depth of the JSON bound them: an array of nulls takes no bytes, and a record
//! that contains itself one byte a level. Decoders of libraries build the value first, and recurse
//! as deep as it is; in a broker's process, one hostile record would end the broker.
//!
//! Pure.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::json::JsonText;
use super::wire::take_varint;

/// Of one schema with its references.
const MOST_TYPES: usize = 100_000;
/// A decimal of 16 bytes has 39 digits.
const MOST_DECIMAL_BYTES: usize = 16;
const MOST_SCALE: usize = 100;

/// An index in the types of a schema.
type TypeId = usize;

#[derive(Debug)]
pub(super) struct AvroSchema {
    types: Vec<Type>,
    root: TypeId,
}

#[derive(Debug)]
enum Type {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed(usize),
    /// `fixed` is its size; `None` for `bytes`.
    Decimal {
        fixed: Option<usize>,
        scale: usize,
    },
    Enum(Vec<String>),
    Array(TypeId),
    Map(TypeId),
    Union(Vec<TypeId>),
    Record(Vec<(String, TypeId)>),
}

impl AvroSchema {
    /// `references` come before the schemas that refer to them.
    pub(super) fn parse(text: &str, references: &[&str]) -> Result<AvroSchema, String> {
        let mut parser = Parser::default();
        for reference in references {
            parser.parse_text(reference)?;
        }
        let root = parser.parse_text(text)?;
        Ok(AvroSchema {
            types: parser.types,
            root,
        })
    }

    /// The JSON of a value. The error says why the bytes are none of this schema.
    pub(super) fn decode(&self, mut bytes: &[u8]) -> Result<String, String> {
        let mut json = JsonText::default();
        self.value(self.root, &mut bytes, &mut json)?;
        match bytes.len() {
            0 => Ok(json.finish()),
            left => Err(format!("{left} bytes are left after the value")),
        }
    }

    fn value(&self, id: TypeId, bytes: &mut &[u8], json: &mut JsonText) -> Result<(), String> {
        match &self.types[id] {
            Type::Null => json.raw("null"),
            Type::Boolean => match take(bytes, 1)? {
                [0] => json.raw("false"),
                [1] => json.raw("true"),
                other => Err(format!("{other:?} is no boolean")),
            },
            Type::Int => {
                let number = long(bytes)?;
                match i32::try_from(number) {
                    Ok(number) => json.raw(&number.to_string()),
                    Err(_) => Err(format!("{number} is no int")),
                }
            }
            Type::Long => json.raw(&long(bytes)?.to_string()),
            Type::Float => json.float(f32::from_le_bytes(array(bytes)?)),
            Type::Double => json.double(f64::from_le_bytes(array(bytes)?)),
            Type::Bytes => json.bytes(sized(bytes)?),
            Type::String => json.string(text(bytes)?),
            Type::Fixed(size) => json.bytes(take(bytes, *size)?),
            Type::Decimal { fixed, scale } => {
                let digits = match fixed {
                    Some(size) => take(bytes, *size)?,
                    None => sized(bytes)?,
                };
                match decimal(digits, *scale) {
                    Some(number) => json.raw(&number),
                    None => json.bytes(digits),
                }
            }
            Type::Enum(symbols) => {
                let index = long(bytes)?;
                let symbol = usize::try_from(index).ok().and_then(|it| symbols.get(it));
                let symbol = symbol.ok_or_else(|| format!("the enum has no symbol {index}"))?;
                json.string(symbol)
            }
            Type::Union(branches) => {
                let index = long(bytes)?;
                let branch = usize::try_from(index).ok().and_then(|it| branches.get(it));
                let branch = branch.ok_or_else(|| format!("the union has no branch {index}"))?;
                self.value(*branch, bytes, json)
            }
            Type::Record(fields) => {
                json.open('{')?;
                for (name, id) in fields {
                    json.name(name)?;
                    self.value(*id, bytes, json)
                        .map_err(|error| within(name, error))?;
                }
                json.close('}');
                Ok(())
            }
            Type::Array(item) => {
                json.open('[')?;
                while let Some(count) = block(bytes)? {
                    for _ in 0..count {
                        json.separate();
                        self.value(*item, bytes, json)?;
                    }
                }
                json.close(']');
                Ok(())
            }
            Type::Map(item) => {
                json.open('{')?;
                while let Some(count) = block(bytes)? {
                    for _ in 0..count {
                        json.name(text(bytes)?)?;
                        self.value(*item, bytes, json)?;
                    }
                }
                json.close('}');
                Ok(())
            }
        }
    }
}

/// Names the field of an error, and the fields in it; not all of a deep one.
fn within(name: &str, error: String) -> String {
    match error.len() < 200 && name.len() < 200 {
        true => format!("{name}: {error}"),
        false => error,
    }
}

/// The items of the next block of an array or a map; `None` after the last one.
fn block(bytes: &mut &[u8]) -> Result<Option<u64>, String> {
    let count = long(bytes)?;
    if count < 0 {
        // The size of the block, for readers that skip it.
        long(bytes)?;
    }
    Ok(Some(count.unsigned_abs()).filter(|it| *it > 0))
}

fn take<'a>(bytes: &mut &'a [u8], size: usize) -> Result<&'a [u8], String> {
    let (taken, rest) = bytes.split_at_checked(size).ok_or_else(ends_early)?;
    *bytes = rest;
    Ok(taken)
}

fn array<const SIZE: usize>(bytes: &mut &[u8]) -> Result<[u8; SIZE], String> {
    let (taken, rest) = bytes.split_first_chunk().ok_or_else(ends_early)?;
    *bytes = rest;
    Ok(*taken)
}

fn long(bytes: &mut &[u8]) -> Result<i64, String> {
    take_varint(bytes).ok_or_else(ends_early)
}

fn sized<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], String> {
    let size = long(bytes)?;
    let size = usize::try_from(size).map_err(|_| format!("{size} is no length"))?;
    take(bytes, size)
}

fn text<'a>(bytes: &mut &'a [u8]) -> Result<&'a str, String> {
    std::str::from_utf8(sized(bytes)?).map_err(|_| "a string is not UTF-8".to_owned())
}

fn ends_early() -> String {
    "the data ends early".to_owned()
}

/// A number in decimal digits; `None` if it is too long for that.
fn decimal(bytes: &[u8], scale: usize) -> Option<String> {
    if bytes.len() > MOST_DECIMAL_BYTES || scale > MOST_SCALE {
        return None;
    }
    let is_negative = bytes.first().is_some_and(|it| it & 0x80 != 0);
    let mut number: i128 = if is_negative { -1 } else { 0 };
    for byte in bytes {
        number = number << 8 | i128::from(*byte);
    }
    let digits = format!("{:0>width$}", number.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if is_negative { "-" } else { "" };
    Some(match scale {
        0 => format!("{sign}{whole}"),
        _ => format!("{sign}{whole}.{fraction}"),
    })
}

#[derive(Default)]
struct Parser {
    types: Vec<Type>,
    names: HashMap<String, TypeId>,
}

impl Parser {
    fn parse_text(&mut self, text: &str) -> Result<TypeId, String> {
        // A primitive type may be written without quotes around its name.
        if let Some(primitive) = primitive(text.trim()) {
            return self.push(primitive);
        }
        let schema: Value =
            serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        self.parse(&schema, "")
    }

    fn push(&mut self, it: Type) -> Result<TypeId, String> {
        if self.types.len() >= MOST_TYPES {
            return Err(format!("it has more than {MOST_TYPES} types"));
        }
        self.types.push(it);
        Ok(self.types.len() - 1)
    }

    /// The depth is that of the JSON, which is bounded.
    fn parse(&mut self, schema: &Value, namespace: &str) -> Result<TypeId, String> {
        match schema {
            Value::String(name) => self.named(name, namespace),
            Value::Array(branches) => {
                let mut union = Vec::with_capacity(branches.len());
                for branch in branches {
                    let id = self.parse(branch, namespace)?;
                    if let Type::Union(_) = self.types[id] {
                        return Err("a union is directly in a union".into());
                    }
                    union.push(id);
                }
                self.push(Type::Union(union))
            }
            Value::Object(object) => self.parse_object(object, namespace),
            other => Err(format!("{other} is no type")),
        }
    }

    fn parse_object(
        &mut self,
        object: &Map<String, Value>,
        namespace: &str,
    ) -> Result<TypeId, String> {
        let kind = match object.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            Some(inner) => return self.parse(inner, namespace),
            None => return Err("a type has no \"type\"".into()),
        };
        match kind {
            "record" | "error" => self.parse_record(object, namespace),
            "enum" => {
                let symbols = object.get("symbols").and_then(Value::as_array);
                let symbols = symbols.ok_or("an enum has no symbols")?;
                let symbols = symbols.iter().map(|it| it.as_str().map(str::to_owned));
                let symbols: Option<Vec<String>> = symbols.collect();
                let symbols = symbols.ok_or("a symbol of an enum is no string")?;
                let id = self.push(Type::Enum(symbols))?;
                self.define(&full_name(object, namespace)?, id)
            }
            "fixed" => {
                let size = object.get("size").and_then(Value::as_u64);
                let size = size.and_then(|it| usize::try_from(it).ok());
                let size = size.ok_or("a fixed has no size")?;
                let it = match scale(object, Some(size)) {
                    Some(scale) => Type::Decimal {
                        fixed: Some(size),
                        scale,
                    },
                    None => Type::Fixed(size),
                };
                let id = self.push(it)?;
                self.define(&full_name(object, namespace)?, id)
            }
            "array" => {
                let items = object.get("items").ok_or("an array has no items")?;
                let items = self.parse(items, namespace)?;
                self.push(Type::Array(items))
            }
            "map" => {
                let values = object.get("values").ok_or("a map has no values")?;
                let values = self.parse(values, namespace)?;
                self.push(Type::Map(values))
            }
            "bytes" => match scale(object, None) {
                Some(scale) => self.push(Type::Decimal { fixed: None, scale }),
                None => self.push(Type::Bytes),
            },
            name => self.named(name, namespace),
        }
    }

    fn parse_record(
        &mut self,
        object: &Map<String, Value>,
        namespace: &str,
    ) -> Result<TypeId, String> {
        let name = full_name(object, namespace)?;
        // Its fields may have its own type.
        let id = self.push(Type::Record(Vec::new()))?;
        self.define(&name, id)?;
        let namespace = name.rsplit_once('.').map_or("", |(namespace, _)| namespace);
        let fields = object.get("fields").and_then(Value::as_array);
        let fields = fields.ok_or_else(|| format!("record {name} has no fields"))?;
        let mut parsed = Vec::with_capacity(fields.len());
        for field in fields {
            let named = field.get("name").and_then(Value::as_str);
            let (Some(named), Some(kind)) = (named, field.get("type")) else {
                return Err(format!("a field of record {name} has no name or no type"));
            };
            parsed.push((named.to_owned(), self.parse(kind, namespace)?));
        }
        self.types[id] = Type::Record(parsed);
        Ok(id)
    }

    fn define(&mut self, name: &str, id: TypeId) -> Result<TypeId, String> {
        match self.names.insert(name.to_owned(), id) {
            None => Ok(id),
            Some(_) => Err(format!("type {name} is defined twice")),
        }
    }

    /// A primitive type, or one that was defined before.
    fn named(&mut self, name: &str, namespace: &str) -> Result<TypeId, String> {
        if let Some(primitive) = primitive(name) {
            return self.push(primitive);
        }
        let qualified = match name.contains('.') || namespace.is_empty() {
            true => name.to_owned(),
            false => format!("{namespace}.{name}"),
        };
        let found = self.names.get(&qualified).or_else(|| self.names.get(name));
        let found = found.copied();
        found.ok_or_else(|| format!("type {qualified} is neither in it nor in its references"))
    }
}

fn primitive(name: &str) -> Option<Type> {
    Some(match name {
        "null" => Type::Null,
        "boolean" => Type::Boolean,
        "int" => Type::Int,
        "long" => Type::Long,
        "float" => Type::Float,
        "double" => Type::Double,
        "bytes" => Type::Bytes,
        "string" => Type::String,
        _ => return None,
    })
}

/// The scale of a decimal; `None` for everything else. A decimal without a precision, or with one
/// that its scale or its size does not allow, is the bytes that it is made of, as in Avro's own
/// libraries.
fn scale(object: &Map<String, Value>, fixed: Option<usize>) -> Option<usize> {
    if object.get("logicalType")? != "decimal" {
        return None;
    }
    let precision = object.get("precision")?.as_u64()?;
    let scale = object.get("scale").map_or(Some(0), Value::as_u64)?;
    // The digits of the largest number of this size.
    let most = fixed.map(|size| ((8.0 * size as f64 - 1.0) * f64::log10(2.0)).floor());
    let is_valid =
        precision > 0 && scale <= precision && most.is_none_or(|it| precision as f64 <= it);
    usize::try_from(scale).ok().filter(|_| is_valid)
}

fn full_name(object: &Map<String, Value>, namespace: &str) -> Result<String, String> {
    let name = object.get("name").and_then(Value::as_str);
    let name = name.ok_or("a named type has no name")?;
    let namespace = object
        .get("namespace")
        .map_or(namespace, |it| it.as_str().unwrap_or(""));
    Ok(match name.contains('.') || namespace.is_empty() {
        true => name.to_owned(),
        false => format!("{namespace}.{name}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(schema: &str, bytes: &[u8]) -> Result<String, String> {
        AvroSchema::parse(schema, &[]).unwrap().decode(bytes)
    }

    #[test]
    fn values_of_every_type() {
        for (schema, bytes, json) in [
            ("\"null\"", &[] as &[u8], "null"),
            ("boolean", &[1], "true"),
            ("\"int\"", &[0x7f], "-64"),
            ("\"long\"", &[0x80, 0x01], "64"),
            ("\"float\"", &[0, 0, 0xc0, 0x3f], "1.5"),
            (
                "\"double\"",
                &[0, 0, 0, 0, 0, 0, 0xf0, 0x7f],
                "\"Infinity\"",
            ),
            ("\"bytes\"", &[4, 0xff, 0], "\"/wA=\""),
            ("\"string\"", &[6, b'a', b'"', b'b'], "\"a\\\"b\""),
            (
                r#"{"type": "fixed", "name": "F", "size": 2}"#,
                &[1, 2],
                "\"AQI=\"",
            ),
            (
                r#"{"type": "enum", "name": "E", "symbols": ["A", "B"]}"#,
                &[2],
                "\"B\"",
            ),
            (
                r#"{"type": "array", "items": "int"}"#,
                &[4, 2, 4, 1, 2, 6, 0],
                "[1,2,3]",
            ),
            (
                r#"{"type": "map", "values": "null"}"#,
                &[2, 2, b'k', 0],
                "{\"k\":null}",
            ),
            (r#"["null", "long"]"#, &[2, 10], "5"),
            (
                r#"{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}"#,
                &[4, 0xff, 0x38],
                "-2.00",
            ),
            (
                r#"{"type": "fixed", "name": "D", "size": 1, "logicalType": "decimal", "precision": 2, "scale": 2}"#,
                &[7],
                "0.07",
            ),
            (
                r#"{"type": "long", "logicalType": "timestamp-millis"}"#,
                &[2],
                "1",
            ),
        ] {
            assert_eq!(decoded(schema, bytes).unwrap(), json, "{schema}");
        }
    }

    #[test]
    fn decimals_that_cannot_be_are_bytes() {
        for wrong in [
            r#""scale": 1"#,
            r#""precision": 0"#,
            r#""precision": 2, "scale": 3"#,
            r#""precision": 2, "scale": -1"#,
            r#""precision": "2""#,
        ] {
            let schema = format!(r#"{{"type": "bytes", "logicalType": "decimal", {wrong}}}"#);
            assert_eq!(decoded(&schema, &[2, 7]).unwrap(), "\"Bw==\"", "{wrong}");
        }
        // A byte has two digits.
        let fixed = r#"{"type": "fixed", "name": "D", "size": 1, "logicalType": "decimal", "precision": 3}"#;
        assert_eq!(decoded(fixed, &[7]).unwrap(), "\"Bw==\"");
    }

    #[test]
    fn names_are_found_in_namespaces_and_references() {
        let address = r#"{"type": "record", "name": "Address", "namespace": "a.b",
            "fields": [{"name": "city", "type": "string"}]}"#;
        let person = r#"{"type": "record", "name": "a.b.Person", "fields": [
            {"name": "address", "type": "Address"},
            {"name": "former", "type": {"type": "array", "items": "a.b.Address"}},
            {"name": "friend", "type": ["null", "Person"]}]}"#;
        let missing = AvroSchema::parse(person, &[]).unwrap_err();
        assert!(missing.contains("a.b.Address"), "{missing}");
        let schema = AvroSchema::parse(person, &[address]).unwrap();
        let bytes = [2, b'x', 0, 2, 2, b'y', 2, 2, b'z', 0, 0];
        assert_eq!(
            schema.decode(&bytes).unwrap(),
            r#"{"address":{"city":"x"},"former":[],"friend":{"address":{"city":"y"},"former":[{"city":"z"}],"friend":null}}"#
        );
    }

    #[test]
    fn bytes_of_another_schema_are_refused() {
        let record =
            r#"{"type": "record", "name": "R", "fields": [{"name": "n", "type": "string"}]}"#;
        for (schema, bytes, reason) in [
            (record, &[8, b'a'][..], "n: the data ends early"),
            (record, &[2, b'a', 0], "1 bytes are left"),
            (record, &[2, 0xff], "not UTF-8"),
            (record, &[1], "no length"),
            (record, &[], "ends early"),
            ("\"boolean\"", &[2], "no boolean"),
            ("\"int\"", &[0xfe, 0xff, 0xff, 0xff, 0x7f], "no int"),
            (r#"["null"]"#, &[2], "no branch 1"),
            (
                r#"{"type": "enum", "name": "E", "symbols": []}"#,
                &[0],
                "no symbol 0",
            ),
        ] {
            let error = decoded(schema, bytes).unwrap_err();
            assert!(error.contains(reason), "{schema}: {error}");
        }
        for broken in [
            "",
            "7",
            "{}",
            r#"{"type": "record", "name": "R"}"#,
            r#"{"type": "array"}"#,
            r#"[["null"]]"#,
            r#""Missing""#,
        ] {
            AvroSchema::parse(broken, &[]).unwrap_err();
        }
    }

    #[test]
    fn a_small_record_cannot_stand_for_a_large_value() {
        // As many nulls as there are numbers, in a few bytes.
        let nulls = r#"{"type": "array", "items": "null"}"#;
        let mut many = vec![0xfe; 8];
        many.push(0x7f);
        let error = decoded(nulls, &many).unwrap_err();
        assert!(error.contains("MiB"), "{error}");
        // A value in itself, a byte a level.
        let nested =
            r#"{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}"#;
        let error = decoded(nested, &[2; 1 << 20]).unwrap_err();
        assert!(error.contains("nested"), "{error}");
        // Without any byte.
        let endless = r#"{"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}"#;
        assert!(decoded(endless, &[]).is_err());
    }

    #[test]
    fn schemas_nested_too_deeply_are_refused() {
        let open = r#"{"type": "array", "items": "#;
        let schema = format!("{}\"int\"{}", open.repeat(10_000), "}".repeat(10_000));
        AvroSchema::parse(&schema, &[]).unwrap_err();
    }
}
