//! Protobuf: `.proto` files of a registry, and messages as JSON.
//!
//! Names and numbers are as in Protobuf's JSON, but 64-bit numbers are numbers, so that they can be
//! compared, and well-known types are messages like others. Fields that are not set and have no
//! presence have their default.
//!
//! Files are parsed by `protox-parse`. Types and encoding are the console's own: the known crate for
//! them contains code that builds the types of Google's files, which is larger than all of this.
//!
//! Pure. The size of a message, the length and nesting of files, and the JSON with its levels are
//! bounded. Nothing looks into an `Any`, whose message could be another `Any` without end.

mod descriptor;
mod encoding;
mod google;

use std::collections::{BTreeMap, HashMap, HashSet};

use prost_types::FileDescriptorProto;
use prost_types::field_descriptor_proto::Type;

use super::json::JsonText;
use descriptor::{Field, MessageType, Types};
use encoding::{Encoded, Reader, Scalar};

/// In memory, a message takes up to 50 times its size; `registry.rs` decodes one large message at a time.
const MOST_BYTES: usize = 1 << 20;
/// The parser of files recurses. Messages can be nested 32 levels.
const MOST_NESTING: usize = 64;
/// The words and signs of a schema with all its files. Parsed, each takes some hundred bytes: all of
/// them take about what `registry.rs` reserves for reading a schema.
const MOST_TOKENS: usize = 100_000;
/// The name of the file that no other file imports.
const ROOT: &str = "schema-of-the-record.proto";

#[derive(Debug)]
pub(super) struct ProtobufSchema {
    types: Types,
}

impl ProtobufSchema {
    /// `references` are the names and the texts of other files.
    pub(super) fn parse(
        text: &str,
        references: &[(String, String)],
    ) -> Result<ProtobufSchema, String> {
        let files = read_files(text, references)?;
        Ok(ProtobufSchema {
            types: Types::resolve(&files)?,
        })
    }

    /// The JSON of the message at this place: the index of a message of the file, then of those in
    /// it.
    pub(super) fn decode(&self, place: &[usize], bytes: &[u8]) -> Result<String, String> {
        if bytes.len() > MOST_BYTES {
            return Err(format!(
                "Protobuf messages of more than {} MiB are not decoded",
                MOST_BYTES >> 20
            ));
        }
        let message = self
            .types
            .at(place)
            .ok_or_else(|| format!("the schema has no message {place:?}"))?;
        let mut json = JsonText::default();
        self.write_message(message, &[bytes], &mut json)?;
        Ok(json.finish())
    }

    /// `parts` are messages that are one: of a field that is set several times, the messages are
    /// merged.
    fn write_message(
        &self,
        message: &MessageType,
        parts: &[&[u8]],
        json: &mut JsonText,
    ) -> Result<(), String> {
        json.open('{')?;
        let found = values_of(message, parts)?;
        let mut rest = found.as_slice();
        let mut always = message.without_presence.as_slice();
        // Does not look at each field that is not set: a message of two bytes can have thousands.
        while let Some(index) = next_field(rest, always) {
            let count = rest.iter().take_while(|it| it.field == index).count();
            let (values, others) = rest.split_at(count);
            rest = others;
            if always.first() == Some(&index) {
                always = &always[1..];
            }
            let field = &message.fields[index];
            json.name(&field.json_name)?;
            self.write_field(field, values, json)?;
        }
        json.close('}');
        Ok(())
    }

    fn write_field(
        &self,
        field: &Field,
        values: &[FieldValue<'_>],
        json: &mut JsonText,
    ) -> Result<(), String> {
        match self.types.map_entry(field) {
            Some(entry) if field.is_repeated => return self.write_map(entry, values, json),
            _ if field.is_repeated => return self.write_list(field, values, json),
            _ => {}
        }
        if matches!(field.kind, Type::Message | Type::Group) {
            let parts = values.iter().map(|it| it.value.message(field.kind));
            let parts = parts.collect::<Result<Vec<&[u8]>, String>>()?;
            return self.write_message(self.types.message(field), &parts, json);
        }
        let last = values.last().map(|it| it.value);
        self.write_value(field, last.unwrap_or_else(|| self.default_of(field)), json)
    }

    fn default_of(&self, field: &Field) -> Encoded<'static> {
        match field.kind {
            Type::Enum => Encoded::Varint(i64::from(self.types.enum_default(field)) as u64),
            other => Encoded::zero(other),
        }
    }

    fn write_list(
        &self,
        field: &Field,
        values: &[FieldValue<'_>],
        json: &mut JsonText,
    ) -> Result<(), String> {
        let zero = Encoded::zero(field.kind);
        let is_packable = !matches!(zero, Encoded::Bytes(_) | Encoded::Group(_));
        json.open('[')?;
        for FieldValue { value, .. } in values {
            match value {
                Encoded::Bytes(packed) if is_packable => {
                    let mut reader = Reader::new(packed);
                    while let Some(value) = reader.packed(field.kind)? {
                        json.separate();
                        self.write_value(field, value, json)?;
                    }
                }
                _ => {
                    json.separate();
                    self.write_value(field, *value, json)?;
                }
            }
        }
        json.close(']');
        Ok(())
    }

    /// The last value of each key, ordered by keys.
    fn write_map(
        &self,
        entry: &MessageType,
        values: &[FieldValue<'_>],
        json: &mut JsonText,
    ) -> Result<(), String> {
        let [key, value] = entry.fields.as_slice() else {
            return Err("an entry of a map is not a key and a value".to_owned());
        };
        let mut entries = BTreeMap::new();
        for it in values {
            let part = it.value.message(Type::Message)?;
            let found = values_of(entry, &[part])?;
            let encoded = found.iter().rfind(|it| it.field == 0).map(|it| it.value);
            let encoded = encoded.unwrap_or_else(|| Encoded::zero(key.kind));
            entries.insert(MapKey::new(encoded.scalar(key.kind)?)?, part);
        }
        json.open('{')?;
        for (key, part) in entries {
            match key {
                MapKey::Bool(it) => json.name(&it.to_string())?,
                MapKey::Signed(it) => json.name(&it.to_string())?,
                MapKey::Unsigned(it) => json.name(&it.to_string())?,
                MapKey::Text(it) => json.name(it)?,
            }
            let found = values_of(entry, &[part])?;
            let keys = found.partition_point(|it| it.field == 0);
            self.write_field(value, &found[keys..], json)?;
        }
        json.close('}');
        Ok(())
    }

    fn write_value(
        &self,
        field: &Field,
        value: Encoded<'_>,
        json: &mut JsonText,
    ) -> Result<(), String> {
        if matches!(field.kind, Type::Message | Type::Group) {
            let part = value.message(field.kind)?;
            return self.write_message(self.types.message(field), &[part], json);
        }
        match value.scalar(field.kind)? {
            Scalar::Signed(it) if field.kind == Type::Enum => {
                match self.types.enum_name(field, it) {
                    Some(name) => json.string(name),
                    None => json.raw(&it.to_string()),
                }
            }
            Scalar::Bool(it) => json.raw(&it.to_string()),
            Scalar::Signed(it) => json.raw(&it.to_string()),
            Scalar::Unsigned(it) => json.raw(&it.to_string()),
            Scalar::Float(it) => json.float(it),
            Scalar::Double(it) => json.double(it),
            Scalar::Text(it) => json.string(it),
            Scalar::Bytes(it) => json.bytes(it),
        }
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum MapKey<'a> {
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Text(&'a str),
}

impl<'a> MapKey<'a> {
    fn new(value: Scalar<'a>) -> Result<MapKey<'a>, String> {
        Ok(match value {
            Scalar::Bool(it) => MapKey::Bool(it),
            Scalar::Signed(it) => MapKey::Signed(it),
            Scalar::Unsigned(it) => MapKey::Unsigned(it),
            Scalar::Text(it) => MapKey::Text(it),
            Scalar::Float(_) | Scalar::Double(_) | Scalar::Bytes(_) => {
                return Err("it has a map whose keys are neither numbers nor texts".to_owned());
            }
        })
    }
}

struct FieldValue<'a> {
    /// The index in the fields of the message.
    field: usize,
    value: Encoded<'a>,
}

/// The first field of those that are set and those that are written in any case.
fn next_field(set: &[FieldValue<'_>], always: &[usize]) -> Option<usize> {
    let set = set.first().map(|it| it.field);
    set.into_iter().chain(always.first().copied()).min()
}

/// The values of all fields of a message, in the order of its fields. A field that is not set has
/// none. A field that is set several times has all its values, in their order; of a oneof, only the
/// field that was set last has values.
fn values_of<'a>(message: &MessageType, parts: &[&'a [u8]]) -> Result<Vec<FieldValue<'a>>, String> {
    let mut values: Vec<FieldValue<'a>> = Vec::new();
    // By oneof: the field that is set, and since which value.
    let mut set: HashMap<i32, (usize, usize)> = HashMap::new();
    for part in parts {
        let mut reader = Reader::new(part);
        while let Some((number, value)) = reader.field()? {
            let known = message.fields.binary_search_by_key(&number, |it| it.number);
            let Ok(field) = known else {
                continue;
            };
            if let Some(oneof) = message.fields[field].oneof {
                let now = (field, values.len());
                let before = set.entry(oneof).or_insert(now);
                if before.0 != field {
                    *before = now;
                }
            }
            values.push(FieldValue { field, value });
        }
    }
    let mut index = 0;
    values.retain(|it| {
        let of_oneof = message.fields[it.field].oneof;
        let since = of_oneof
            .and_then(|oneof| set.get(&oneof))
            .map_or(0, |it| it.1);
        index += 1;
        index > since
    });
    values.sort_by_key(|it| it.field);
    Ok(values)
}

/// The file, and after it all that it imports, directly or not.
fn read_files(
    text: &str,
    references: &[(String, String)],
) -> Result<Vec<FileDescriptorProto>, String> {
    let mut texts: HashMap<&str, &str> = HashMap::new();
    for (name, text) in references {
        texts.insert(name, text);
    }
    texts.insert(ROOT, text);
    let mut files: Vec<FileDescriptorProto> = Vec::new();
    let mut names = HashSet::from([ROOT.to_owned()]);
    let mut waiting = vec![ROOT.to_owned()];
    let mut tokens = 0;
    while let Some(name) = waiting.pop() {
        let text = texts.get(name.as_str()).copied();
        let text = text
            .or_else(|| google::file(&name))
            .ok_or_else(|| format!("there is no reference for the import {name}"))?;
        let shape = Shape::of(text);
        if shape.nesting > MOST_NESTING {
            return Err(format!(
                "{name} is nested more than {MOST_NESTING} levels deep"
            ));
        }
        tokens += shape.tokens;
        if tokens > MOST_TOKENS {
            return Err(format!(
                "it and its references have more than {MOST_TOKENS} words and signs"
            ));
        }
        let parsed = protox_parse::parse(&name, text);
        let mut file = parsed.map_err(|error| match name == ROOT {
            true => error.to_string(),
            false => format!("{name}: {error}"),
        })?;
        // The places of all names and numbers in the text take more memory than all else.
        file.source_code_info = None;
        for import in &file.dependency {
            if names.insert(import.clone()) {
                waiting.push(import.clone());
            }
        }
        files.push(file);
    }
    Ok(files)
}

/// What a file costs its parser.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Shape {
    /// How deep brackets are nested, besides those in comments and texts.
    nesting: usize,
    /// Words and signs. A text or a comment is one.
    tokens: usize,
}

impl Shape {
    /// The parser would find other brackets than are found here.
    const UNKNOWN: Shape = Shape {
        nesting: usize::MAX,
        tokens: 0,
    };

    fn of(text: &str) -> Shape {
        let (mut depth, mut nesting, mut tokens) = (0_usize, 0_usize, 0_usize);
        let mut is_in_word = false;
        let mut bytes = text.bytes().peekable();
        while let Some(byte) = bytes.next() {
            let is_of_word = byte.is_ascii_alphanumeric() || byte == b'_';
            let goes_on = byte.is_ascii_whitespace() || is_of_word && is_in_word;
            tokens += usize::from(!goes_on);
            is_in_word = is_of_word;
            match byte {
                b'{' | b'[' | b'(' | b'<' => {
                    depth += 1;
                    nesting = nesting.max(depth);
                }
                b'}' | b']' | b')' | b'>' => depth = depth.saturating_sub(1),
                b'"' | b'\'' => {
                    while let Some(inner) = bytes.next() {
                        match inner {
                            b'\\' => {
                                let digits = match bytes.next() {
                                    Some(b'0'..=b'7') => 0,
                                    Some(it) if b"abfnrtv?\\'\"".contains(&it) => 0,
                                    Some(b'x' | b'X') => 1,
                                    Some(b'u') => 4,
                                    Some(b'U') => 8,
                                    // No escape: the parser continues at a different place, where this
                                    // text can be brackets.
                                    _ => return Shape::UNKNOWN,
                                };
                                for _ in 0..digits {
                                    if bytes.next_if(u8::is_ascii_hexdigit).is_none() {
                                        return Shape::UNKNOWN;
                                    }
                                }
                            }
                            // Texts end with their line.
                            b'\n' => break,
                            end if end == byte => break,
                            _ => {}
                        }
                    }
                }
                b'#' => while bytes.next_if(|it| *it != b'\n').is_some() {},
                b'/' if bytes.peek() == Some(&b'/') => {
                    while bytes.next_if(|it| *it != b'\n').is_some() {}
                }
                b'/' if bytes.peek() == Some(&b'*') => {
                    bytes.next();
                    while let Some(inner) = bytes.next() {
                        if inner == b'*' && bytes.next_if_eq(&b'/').is_some() {
                            break;
                        }
                        // An error in Protobuf, after which the parser continues at a different place.
                        if inner == b'/' && bytes.peek() == Some(&b'*') {
                            return Shape::UNKNOWN;
                        }
                    }
                }
                _ => {}
            }
        }
        Shape { nesting, tokens }
    }
}

#[cfg(test)]
mod tests;
