//! How keys, values and headers are shown: as text, as JSON, as hexadecimal digits, or decoded with
//! a schema of a schema registry.
//!
//! Pure. The output for each value is bounded; the bytes can be arbitrary.

use bytes::Bytes;
use ottla_client::FetchedBatch;
use ottla_records::{RecordView, TimestampType};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::registry::{Decoded, DecodedRecord, Kind};

/// Headers of a record that are shown. A header of two bytes takes hundreds when it is shown, and
/// records can have millions.
const MOST_HEADERS: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// Decoded with a schema, if the bytes name one. JSON for objects and arrays, text for readable
    /// UTF-8, otherwise hexadecimal digits.
    #[default]
    Auto,
    Avro,
    Protobuf,
    Text,
    Json,
    Hex,
}

/// A key, a value or the value of a header.
#[derive(PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Data {
    format: &'static str,
    text: String,
    /// The size of the original.
    bytes: usize,
    /// Whether `text` is not all of it.
    cut: bool,
    schema: Option<SchemaName>,
    /// Why it is not shown in the requested format.
    problem: Option<String>,
}

/// The schema that the bytes name.
#[derive(PartialEq, Eq, Debug, Serialize)]
struct SchemaName {
    /// A number, or a GUID.
    id: String,
    /// `avro`, `protobuf` or `json`; `None` if the schema cannot be read.
    #[serde(rename = "type")]
    kind: Option<&'static str>,
    subject: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Record {
    partition: i32,
    offset: i64,
    timestamp: Option<i64>,
    timestamp_type: &'static str,
    key: Option<Data>,
    value: Option<Data>,
    headers: Vec<Header>,
    /// Headers that are not among them.
    headers_left_out: usize,
}

#[derive(Debug, Serialize)]
struct Header {
    key: String,
    value: Option<Data>,
}

impl Record {
    /// At most `max_bytes` of each part are shown, and the first headers.
    pub(crate) fn new(
        batch: &FetchedBatch,
        record: &RecordView<'_>,
        decoded: &DecodedRecord,
        format: Format,
        max_bytes: usize,
    ) -> Record {
        let show = |bytes: &[u8], decoded: &Option<Decoded>| {
            Data::of_schema(bytes, decoded.as_ref(), format, max_bytes)
        };
        Record {
            partition: batch.partition,
            offset: record.offset.0,
            timestamp: Some(record.timestamp.0).filter(|it| *it >= 0),
            timestamp_type: match batch.timestamp_type {
                TimestampType::CreateTime => "create_time",
                TimestampType::LogAppendTime => "log_append_time",
            },
            key: record.key.map(|it| show(it, &decoded.key)),
            value: record.value.map(|it| show(it, &decoded.value)),
            headers: shown_headers(record, max_bytes),
            headers_left_out: record.headers.len().saturating_sub(MOST_HEADERS),
        }
    }

    /// About its size as JSON.
    pub(crate) fn size(&self) -> usize {
        let size = |data: &Option<Data>| data.as_ref().map_or(0, |it| it.text.len() + 80);
        let headers = self.headers.iter();
        let headers: usize = headers.map(|it| it.key.len() + size(&it.value)).sum();
        100 + size(&self.key) + size(&self.value) + headers
    }
}

fn shown_headers(record: &RecordView<'_>, max_bytes: usize) -> Vec<Header> {
    let headers = record.headers.iter().take(MOST_HEADERS);
    let shown = headers.map(|(key, value)| Header {
        key: String::from_utf8_lossy(&key[..key.len().min(max_bytes)]).into_owned(),
        value: value.map(|it| Data::new(it, Format::Auto, max_bytes)),
    });
    shown.collect()
}

impl Data {
    /// Shows bytes that may name a schema. If they cannot be decoded with it, they are shown as
    /// digits, with the reason.
    fn of_schema(
        bytes: &[u8],
        decoded: Option<&Decoded>,
        format: Format,
        max_bytes: usize,
    ) -> Data {
        let wanted = match format {
            Format::Avro => Some(Kind::Avro),
            Format::Protobuf => Some(Kind::Protobuf),
            _ => None,
        };
        let Some(decoded) = decoded else {
            return match wanted {
                Some(kind) => Data::hex(bytes, max_bytes, Some(without_schema(kind))),
                None => Data::new(bytes, format, max_bytes),
            };
        };
        let data = match (format, &decoded.outcome) {
            (Format::Text | Format::Hex, _) => Data::new(bytes, format, max_bytes),
            (Format::Json, Err(_)) => Data::new(bytes, format, max_bytes),
            (_, Err(reason)) => Data::hex(bytes, max_bytes, Some(reason.clone())),
            (_, Ok(json)) => match (wanted, decoded.kind) {
                (Some(wanted), Some(kind)) if wanted != kind => {
                    let (id, kind, wanted) = (decoded.schema, kind.title(), wanted.title());
                    let problem = format!("its schema {id} is of type {kind}, not {wanted}");
                    Data::hex(bytes, max_bytes, Some(problem))
                }
                (_, kind) => {
                    let name = kind.map_or("json", Kind::name);
                    Data {
                        bytes: bytes.len(),
                        ..Data::text(name, json, max_bytes, None)
                    }
                }
            },
        };
        Data {
            schema: Some(SchemaName {
                id: decoded.schema.to_string(),
                kind: decoded.kind.map(Kind::name),
                subject: decoded.subject.clone(),
            }),
            ..data
        }
    }

    pub(crate) fn new(bytes: &[u8], format: Format, max_bytes: usize) -> Data {
        let text = std::str::from_utf8(bytes);
        match (format, text) {
            (Format::Auto, Ok(text)) if looks_like_json(text) && is_json(bytes).is_ok() => {
                Data::text("json", text, max_bytes, None)
            }
            (Format::Auto, Ok(text)) if is_readable(text) => {
                Data::text("text", text, max_bytes, None)
            }
            (Format::Text, Ok(text)) => Data::text("text", text, max_bytes, None),
            (Format::Text, Err(_)) => {
                let problem =
                    Some("it is not UTF-8; invalid bytes are shown as \u{fffd}".to_owned());
                let text = String::from_utf8_lossy(&bytes[..bytes.len().min(max_bytes)]);
                let shown = Data::text("text", &text, max_bytes, problem);
                Data {
                    bytes: bytes.len(),
                    cut: bytes.len() > max_bytes,
                    ..shown
                }
            }
            (Format::Json, Ok(text)) => match is_json(bytes) {
                Ok(()) => Data::text("json", text, max_bytes, None),
                Err(error) => Data::text(
                    "text",
                    text,
                    max_bytes,
                    Some(format!("it is not JSON: {error}")),
                ),
            },
            (Format::Json, Err(_)) => {
                Data::hex(bytes, max_bytes, Some("it is not JSON, nor UTF-8".into()))
            }
            (Format::Hex | Format::Auto | Format::Avro | Format::Protobuf, _) => {
                Data::hex(bytes, max_bytes, None)
            }
        }
    }

    fn text(format: &'static str, text: &str, max_bytes: usize, problem: Option<String>) -> Data {
        let end = text.floor_char_boundary(max_bytes.min(text.len()));
        Data {
            format,
            text: text[..end].to_owned(),
            bytes: text.len(),
            cut: end < text.len(),
            schema: None,
            problem,
        }
    }

    fn hex(bytes: &[u8], max_bytes: usize, problem: Option<String>) -> Data {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let shown = &bytes[..bytes.len().min(max_bytes / 2)];
        let mut text = String::with_capacity(shown.len() * 2);
        for byte in shown {
            text.push(DIGITS[usize::from(byte >> 4)].into());
            text.push(DIGITS[usize::from(byte & 15)].into());
        }
        Data {
            format: "hex",
            text,
            bytes: bytes.len(),
            cut: shown.len() < bytes.len(),
            schema: None,
            problem,
        }
    }
}

fn without_schema(kind: Kind) -> String {
    format!(
        "it names no {} schema, by a zero byte and a schema ID or in a header, or the console has no schema registry \
         (--schema-registry)",
        kind.title()
    )
}

fn looks_like_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

fn is_json(bytes: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<IgnoredAny>(bytes).map(drop)
}

/// Whether a text has no control characters besides whitespace.
fn is_readable(text: &str) -> bool {
    text.chars()
        .all(|it| !it.is_control() || matches!(it, '\n' | '\r' | '\t'))
}

/// The bytes of a text of a request. The error names the mistake.
pub(crate) fn encoded(text: &str, encoding: Encoding) -> Result<Bytes, String> {
    use base64::Engine;
    match encoding {
        Encoding::Text => Ok(Bytes::copy_from_slice(text.as_bytes())),
        Encoding::Base64 => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map(Bytes::from)
            .map_err(|error| format!("it is not base64: {error}")),
        Encoding::Hex => {
            let digits: Vec<u8> = text
                .bytes()
                .filter(|it| !it.is_ascii_whitespace())
                .collect();
            if !digits.len().is_multiple_of(2) {
                return Err("it has an odd number of hexadecimal digits".into());
            }
            let digit = |byte: u8| char::from(byte).to_digit(16).map(|it| it as u8);
            let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
            let bytes: Option<Vec<u8>> = digits.chunks_exact(2).map(byte).collect();
            bytes
                .map(Bytes::from)
                .ok_or_else(|| "it has something else than hexadecimal digits".into())
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Encoding {
    #[default]
    Text,
    Hex,
    Base64,
}

#[cfg(test)]
mod tests {
    use ottla_records::{Compression, RecordBatchBuilder, RecordHeader};
    use ottla_types::Timestamp;

    use super::*;
    use crate::registry::SchemaId;

    #[test]
    fn the_headers_that_are_shown_are_bounded() {
        let header = RecordHeader::new(Bytes::from("key"), Some(Bytes::from("value")));
        let headers = vec![header; MOST_HEADERS + 1];
        let mut builder = RecordBatchBuilder::new(Compression::None);
        builder.append(Timestamp(0), None, None, &headers);
        let batch = builder.build();
        let records = batch.records(1 << 20).unwrap();
        let record = records.iter().next().unwrap().unwrap();
        let shown = shown_headers(&record, 2);
        assert_eq!((shown.len(), &*shown[0].key), (MOST_HEADERS, "ke"));
        assert_eq!(shown[0].value.as_ref().unwrap().text, "va");
    }

    fn shown(bytes: &[u8], format: Format, max_bytes: usize) -> (&'static str, String, bool) {
        let data = Data::new(bytes, format, max_bytes);
        assert_eq!(data.bytes, bytes.len());
        (data.format, data.text, data.cut)
    }

    #[test]
    fn the_format_is_chosen_by_the_bytes() {
        for (bytes, format, text) in [
            (&b"{\"a\": 1}"[..], "json", "{\"a\": 1}"),
            (b"[1, 2]", "json", "[1, 2]"),
            (b"{broken", "text", "{broken"),
            (b"42", "text", "42"),
            ("Grüße\n".as_bytes(), "text", "Grüße\n"),
            (b"\x00\x01abc", "hex", "0001616263"),
            (b"\xff\xfe", "hex", "fffe"),
            (b"", "text", ""),
        ] {
            assert_eq!(
                shown(bytes, Format::Auto, 100),
                (format, text.to_owned(), false)
            );
        }
    }

    #[test]
    fn the_shown_text_is_bounded() {
        // Not within a character.
        assert_eq!(
            shown("aé".as_bytes(), Format::Auto, 2),
            ("text", "a".into(), true)
        );
        assert_eq!(
            shown(&[0xab; 10], Format::Hex, 6),
            ("hex", "ababab".into(), true)
        );
        let (_, text, cut) = shown(&[0xff; 1000], Format::Text, 10);
        assert!(text.len() <= 10 && cut);
        assert_eq!(
            shown(b"abc", Format::Auto, 0),
            ("text", String::new(), true)
        );
    }

    #[test]
    fn a_format_that_does_not_fit_is_explained() {
        let data = Data::new(b"{broken", Format::Json, 100);
        assert_eq!((data.format, &*data.text), ("text", "{broken"));
        assert!(data.problem.unwrap().starts_with("it is not JSON"));
        let data = Data::new(b"\xff", Format::Json, 100);
        assert_eq!((data.format, &*data.text), ("hex", "ff"));
        assert!(Data::new(b"\xff", Format::Text, 100).problem.is_some());
    }

    #[test]
    fn bytes_are_shown_by_their_schema() {
        let bytes = b"\0\0\0\0\x07\x02";
        let mut decoded = Decoded {
            schema: SchemaId::Number(7),
            kind: Some(Kind::Avro),
            subject: Some("t-value".into()),
            is_unread: false,
            outcome: Ok("{\"a\":1}".into()),
        };
        let shown = |decoded: Option<&Decoded>, format| {
            let data = Data::of_schema(bytes, decoded, format, 100);
            assert_eq!(data.bytes, bytes.len());
            data
        };
        for format in [Format::Auto, Format::Avro, Format::Json] {
            let data = shown(Some(&decoded), format);
            assert_eq!((data.format, &*data.text), ("avro", "{\"a\":1}"));
            assert_eq!((data.problem, data.cut), (None, false));
            let json = serde_json::to_string(&data.schema).unwrap();
            assert_eq!(json, r#"{"id":"7","type":"avro","subject":"t-value"}"#);
        }
        let hex = "000000000702";
        let data = shown(Some(&decoded), Format::Hex);
        assert_eq!((data.format, &*data.text, data.problem), ("hex", hex, None));
        let data = shown(Some(&decoded), Format::Protobuf);
        assert_eq!((data.format, &*data.text), ("hex", hex));
        assert!(data.problem.unwrap().contains("type Avro, not Protobuf"));
        decoded.outcome = Err("no answer".into());
        let data = shown(Some(&decoded), Format::Auto);
        assert_eq!((data.format, &*data.text), ("hex", hex));
        assert_eq!(data.problem.as_deref(), Some("no answer"));
        assert!(data.schema.is_some());
        let data = shown(None, Format::Avro);
        assert_eq!((data.format, data.schema), ("hex", None));
        assert!(data.problem.unwrap().contains("--schema-registry"));
    }

    #[test]
    fn encodings_are_decoded() {
        assert_eq!(encoded("0a FF", Encoding::Hex).unwrap(), &b"\x0a\xff"[..]);
        assert_eq!(encoded("Cv8=", Encoding::Base64).unwrap(), &b"\x0a\xff"[..]);
        assert_eq!(encoded("0a", Encoding::Text).unwrap(), &b"0a"[..]);
        assert!(encoded("0a1", Encoding::Hex).is_err());
        assert!(encoded("zz", Encoding::Hex).is_err());
        assert!(encoded("Cv8", Encoding::Base64).is_err());
    }
}
