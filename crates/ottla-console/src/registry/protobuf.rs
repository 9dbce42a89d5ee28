//! Protobuf: `.proto` files of a registry, and messages as JSON.
//!
//! Names and numbers are as in Protobuf's JSON, but 64-bit numbers are numbers, so that they can be
//! compared, and well-known types are messages like others. Fields that are not set and have no
//! presence have their default.
//!
//! Pure. The size of a message, the nesting of files, and the JSON are bounded; messages are not
//! decoded deeper than 100 levels. Nothing looks into an `Any`, whose message could be another
//! `Any` without end.

use std::collections::HashMap;

use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MapKey, MessageDescriptor};
use prost_reflect::{ReflectMessage, Value};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use super::json::JsonText;

/// In memory, a message takes up to 60 times its size; `registry.rs` decodes one large message at a time.
const MOST_BYTES: usize = 1 << 20;
/// The parser of files recurses. Messages can be nested 32 levels.
const MOST_NESTING: usize = 64;
/// The name of the file that no other file imports.
const ROOT: &str = "schema-of-the-record.proto";

#[derive(Debug)]
pub(super) struct ProtobufSchema {
    pool: DescriptorPool,
}

/// The files by their names in `import`.
struct Files(HashMap<String, String>);

impl FileResolver for Files {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.0.get(name) {
            Some(text) => File::from_source(name, text),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

impl ProtobufSchema {
    /// `references` are the names and the texts of other files.
    pub(super) fn parse(
        text: &str,
        references: &[(String, String)],
    ) -> Result<ProtobufSchema, String> {
        let mut files: HashMap<String, String> = references.iter().cloned().collect();
        files.insert(ROOT.to_owned(), text.to_owned());
        for (name, text) in &files {
            if nesting(text) > MOST_NESTING {
                return Err(format!(
                    "{name} is nested more than {MOST_NESTING} levels deep"
                ));
            }
        }
        let mut resolver = ChainFileResolver::new();
        resolver.add(Files(files));
        resolver.add(GoogleFileResolver::new());
        let mut compiler = Compiler::with_file_resolver(resolver);
        if let Err(error) = compiler.open_file(ROOT) {
            return Err(match error.file().filter(|it| *it != ROOT) {
                Some(file) => format!("{file}: {error}"),
                None => error.to_string(),
            });
        }
        Ok(ProtobufSchema {
            pool: compiler.descriptor_pool(),
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
            .message(place)
            .ok_or_else(|| format!("the schema has no message {place:?}"))?;
        let message = DynamicMessage::decode(message, bytes).map_err(|error| error.to_string())?;
        let mut json = JsonText::default();
        write_message(&message, &mut json)?;
        Ok(json.finish())
    }

    fn message(&self, place: &[usize]) -> Option<MessageDescriptor> {
        let (first, others) = place.split_first()?;
        let mut message = self.pool.get_file_by_name(ROOT)?.messages().nth(*first)?;
        for index in others {
            // The messages for the entries of maps are not in the file.
            let inner = message
                .child_messages()
                .filter(|it| !it.is_map_entry())
                .nth(*index)?;
            message = inner;
        }
        Some(message)
    }
}

/// How deep brackets are nested, besides those in comments and texts.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' | b'(' | b'<' => {
                depth += 1;
                deepest = deepest.max(depth);
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
                                _ => return usize::MAX,
                            };
                            for _ in 0..digits {
                                if bytes.next_if(u8::is_ascii_hexdigit).is_none() {
                                    return usize::MAX;
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
                        return usize::MAX;
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

fn write_message(message: &DynamicMessage, json: &mut JsonText) -> Result<(), String> {
    let descriptor = message.descriptor();
    json.open('{')?;
    for field in descriptor.fields() {
        if field.supports_presence() && !message.has_field(&field) {
            continue;
        }
        json.name(field.json_name())?;
        write(&message.get_field(&field), &field.kind(), json)?;
    }
    json.close('}');
    Ok(())
}

fn write(value: &Value, kind: &Kind, json: &mut JsonText) -> Result<(), String> {
    match value {
        Value::Bool(it) => json.raw(&it.to_string()),
        Value::I32(it) => json.raw(&it.to_string()),
        Value::I64(it) => json.raw(&it.to_string()),
        Value::U32(it) => json.raw(&it.to_string()),
        Value::U64(it) => json.raw(&it.to_string()),
        Value::F32(it) => json.float(*it),
        Value::F64(it) => json.double(*it),
        Value::String(it) => json.string(it),
        Value::Bytes(it) => json.bytes(it),
        Value::EnumNumber(number) => {
            let found = kind.as_enum().and_then(|it| it.get_value(*number));
            match found {
                Some(found) => json.string(found.name()),
                None => json.raw(&number.to_string()),
            }
        }
        Value::Message(inner) => write_message(inner, json),
        Value::List(items) => {
            json.open('[')?;
            for item in items {
                json.separate();
                write(item, kind, json)?;
            }
            json.close(']');
            Ok(())
        }
        Value::Map(entries) => {
            let kind = match kind {
                Kind::Message(entry) if entry.is_map_entry() => {
                    entry.map_entry_value_field().kind()
                }
                other => other.clone(),
            };
            let mut entries: Vec<(&MapKey, &Value)> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            json.open('{')?;
            for (key, value) in entries {
                match key {
                    MapKey::Bool(it) => json.name(&it.to_string())?,
                    MapKey::I32(it) => json.name(&it.to_string())?,
                    MapKey::I64(it) => json.name(&it.to_string())?,
                    MapKey::U32(it) => json.name(&it.to_string())?,
                    MapKey::U64(it) => json.name(&it.to_string())?,
                    MapKey::String(it) => json.name(it)?,
                }
                write(value, &kind, json)?;
            }
            json.close('}');
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        syntax = "proto3";
        package shop;
        import "inner.proto";
        import "google/protobuf/timestamp.proto";
        message Order {
          int64 big_number = 1;
          repeated string tags = 2;
          map<string, int32> counts = 3;
          State state = 4;
          Inner inner = 5;
          optional string note = 6;
          google.protobuf.Timestamp at = 7;
          bytes raw = 8;
          message Nested { bool is_ok = 1; }
        }
        enum State { NONE = 0; SOME = 1; }
        message Second { double number = 1; }
    "#;
    const INNER: &str = "syntax = \"proto3\"; package shop; message Inner { uint32 id = 1; Inner inner = 2; repeated bool many = 3; }";

    fn schema() -> ProtobufSchema {
        let references = [("inner.proto".to_owned(), INNER.to_owned())];
        ProtobufSchema::parse(FILE, &references).unwrap()
    }

    #[test]
    fn messages_are_json() {
        let schema = schema();
        let bytes = [
            0x08, 0x05, // big_number
            0x12, 0x01, b'a', // tags
            0x1a, 0x05, 0x0a, 0x01, b'k', 0x10, 0x02, // counts
            0x20, 0x01, // state
            0x2a, 0x02, 0x08, 0x01, // inner
            0x3a, 0x02, 0x08, 0x09, // at
        ];
        assert_eq!(
            schema.decode(&[0], &bytes).unwrap(),
            r#"{"bigNumber":5,"tags":["a"],"counts":{"k":2},"state":"SOME","inner":{"id":1,"many":[]},"at":{"seconds":9,"nanos":0},"raw":""}"#
        );
        assert_eq!(schema.decode(&[0, 0], &[8, 1]).unwrap(), r#"{"isOk":true}"#);
        let double = [&[9_u8][..], &1.5_f64.to_le_bytes()].concat();
        assert_eq!(schema.decode(&[1], &double).unwrap(), r#"{"number":1.5}"#);
    }

    #[test]
    fn bytes_that_do_not_fit_the_schema_are_refused() {
        let schema = schema();
        for place in [&[] as &[usize], &[2], &[0, 1], &[0, 0, 0]] {
            schema.decode(place, &[]).unwrap_err();
        }
        schema.decode(&[0], &[0x08]).unwrap_err();
        schema.decode(&[0], &[0x12, 0x09, b'a']).unwrap_err();
        let error = schema.decode(&[0], &vec![0; MOST_BYTES + 1]).unwrap_err();
        assert!(error.contains("MiB"), "{error}");
        let missing = ProtobufSchema::parse(FILE, &[]).unwrap_err();
        assert!(missing.contains("inner.proto"), "{missing}");
        ProtobufSchema::parse("message {", &[]).unwrap_err();
    }

    #[test]
    fn nesting_is_bounded() {
        // Messages in messages, which name their size.
        let mut bytes = Vec::new();
        for _ in 0..150 {
            let mut outer = vec![0x12];
            let mut size = bytes.len();
            while size >= 0x80 {
                outer.push(size as u8 | 0x80);
                size >>= 7;
            }
            outer.push(size as u8);
            outer.append(&mut bytes);
            bytes = outer;
        }
        let inner = ProtobufSchema::parse(INNER, &[]).unwrap();
        inner.decode(&[0], &bytes).unwrap_err();
        let open = "message A { option (a) = { ";
        for text in [open.repeat(5000), "message A {".repeat(5000)] {
            let error = ProtobufSchema::parse(&text, &[]).unwrap_err();
            assert!(error.contains("nested"), "{error}");
        }
        // Brackets that would be in a text if a backslash continued its line.
        let hidden = format!("message A {{ option (a) = \"\\\n{}", "{ a ".repeat(5000));
        let error = ProtobufSchema::parse(&hidden, &[]).unwrap_err();
        assert!(error.contains("nested"), "{error}");
        for wrong in ["\"\\\n{", "\"\\x\" \"{", "\"\\u004\" \"{", "'\\q'", "'\\"] {
            assert_eq!(nesting(wrong), usize::MAX, "{wrong}");
        }
        assert_eq!(nesting(r#""\x4{\101{\u0041{\U00000041\"{" '\'{' {"#), 1);
        assert_eq!(nesting("{ /* } */ [ '}' // } \n # } \n \"\\\"}\" { ] }"), 3);
    }
}
