//! A record as a line of a file. It is written from the fetched bytes: a record can have millions of
//! headers, and a copy of each would take many times their size.
//!
//! Pure.

use std::fmt::{self, Display, Formatter};
use std::io::{self, Write};

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use ottla_records::{Headers, RecordView};
use serde::{Serialize, Serializer};

use crate::registry::{Decoded, DecodedRecord};

/// Keys and values that were decoded are the text of their JSON. Others that are no UTF-8 are base64,
/// and `base64` names them.
#[derive(Serialize)]
pub(crate) struct Line<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    timestamp: i64,
    key: Option<Part<'a>>,
    value: Option<Part<'a>>,
    headers: HeaderList<'a>,
    #[serde(skip_serializing_if = "Encoded::is_empty")]
    base64: Encoded<'a>,
}

impl<'a> Line<'a> {
    pub(crate) fn new(
        topic: &'a str,
        partition: i32,
        record: &RecordView<'a>,
        decoded: &'a DecodedRecord,
    ) -> Line<'a> {
        let part = |bytes: Option<&'a [u8]>, decoded: &'a Option<Decoded>| {
            let json = decoded.as_ref().and_then(Decoded::json);
            json.map(Part::Text).or_else(|| bytes.map(Part::new))
        };
        let key = part(record.key, &decoded.key);
        let value = part(record.value, &decoded.value);
        Line {
            topic,
            partition,
            offset: record.offset.0,
            timestamp: record.timestamp.0,
            key,
            value,
            headers: HeaderList(record.headers),
            base64: Encoded {
                key,
                value,
                headers: record.headers,
            },
        }
    }

    /// Fields as in RFC 4180. No value is an empty field, and an empty text is `""`. Anybody who may
    /// write to a topic could have a spreadsheet run a formula, so texts that are formulas begin with
    /// an apostrophe, unless the file is for programs, which take records as they are.
    pub(crate) fn write_csv(&self, text: &mut Vec<u8>, is_for_programs: bool) {
        let numbers = format!("{},{},{},", self.partition, self.offset, self.timestamp);
        text.extend_from_slice(numbers.as_bytes());
        for part in [&self.key, &self.value] {
            if let Some(part) = part {
                let mark = match part.is_formula() && !is_for_programs {
                    true => "'",
                    false => "",
                };
                quote(text, |to| write!(to, "{mark}{part}"));
            }
            text.push(b',');
        }
        quote(text, |to| Ok(serde_json::to_writer(to, &self.headers)?));
        text.push(b',');
        quote(text, |to| {
            for (index, name) in self.base64.names().enumerate() {
                let space = if index == 0 { "" } else { " " };
                write!(to, "{space}{name}")?;
            }
            Ok(())
        });
        text.extend_from_slice(b"\r\n");
    }
}

/// A key, a value or the value of a header.
#[derive(Clone, Copy)]
enum Part<'a> {
    Text(&'a str),
    /// Bytes that are not text are base64.
    Bytes(&'a [u8]),
}

impl<'a> Part<'a> {
    fn new(bytes: &'a [u8]) -> Part<'a> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Part::Text(text),
            Err(_) => Part::Bytes(bytes),
        }
    }

    fn is_base64(&self) -> bool {
        matches!(self, Part::Bytes(_))
    }

    /// Whether a spreadsheet takes it for a formula, also in its wide characters or after white space. Base64 has no
    /// brackets, which the call of a function needs.
    fn is_formula(&self) -> bool {
        const BEGINNINGS: [char; 11] = [
            '=', '+', '-', '@', '\t', '\r', '\n', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}',
        ];
        match self {
            Part::Text(text) => text.starts_with(BEGINNINGS) && text.parse::<f64>().is_err(),
            Part::Bytes(_) => false,
        }
    }
}

impl Display for Part<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Part::Text(text) => formatter.write_str(text),
            Part::Bytes(bytes) => Base64Display::new(bytes, &STANDARD).fmt(formatter),
        }
    }
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Part::Text(text) => serializer.serialize_str(text),
            Part::Bytes(_) => serializer.collect_str(self),
        }
    }
}

/// Pairs of a name and a value.
struct HeaderList<'a>(Headers<'a>);

impl Serialize for HeaderList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pairs = self.0.iter();
        let pairs =
            pairs.map(|(name, value)| (String::from_utf8_lossy(name), value.map(Part::new)));
        serializer.collect_seq(pairs)
    }
}

/// The names of the parts that are base64.
struct Encoded<'a> {
    key: Option<Part<'a>>,
    value: Option<Part<'a>>,
    headers: Headers<'a>,
}

impl Encoded<'_> {
    fn names(&self) -> impl Iterator<Item = String> {
        let parts = [("key", self.key), ("value", self.value)].into_iter();
        let parts = parts.filter(|(_, part)| is_base64(part));
        let headers = self.headers.iter();
        let headers = headers.filter(|(_, value)| is_base64(&value.map(Part::new)));
        let headers = headers.map(|(name, _)| format!("headers.{}", String::from_utf8_lossy(name)));
        parts.map(|(name, _)| name.to_owned()).chain(headers)
    }

    fn is_empty(&self) -> bool {
        self.names().next().is_none()
    }
}

impl Serialize for Encoded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.names())
    }
}

fn is_base64(part: &Option<Part<'_>>) -> bool {
    part.as_ref().is_some_and(Part::is_base64)
}

/// Writes a field in quotation marks. Writing to memory cannot fail.
fn quote(text: &mut Vec<u8>, write: impl FnOnce(&mut Quoted<'_>) -> io::Result<()>) {
    text.push(b'"');
    let _ = write(&mut Quoted(text));
    text.push(b'"');
}

/// Doubles quotation marks.
struct Quoted<'a>(&'a mut Vec<u8>);

impl Write for Quoted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let parts = bytes.split_inclusive(|it| *it == b'"');
        for part in parts {
            self.0.extend_from_slice(part);
            if part.ends_with(b"\"") {
                self.0.push(b'"');
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ottla_records::{Compression, RecordBatchBuilder, RecordHeader};
    use ottla_types::Timestamp;

    use super::*;
    use crate::registry::SchemaId;

    /// The line of a record as JSON, and as CSV.
    fn lines(
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader],
    ) -> (String, String) {
        lines_of(key, value, headers, &DecodedRecord::default())
    }

    fn lines_of(
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader],
        decoded: &DecodedRecord,
    ) -> (String, String) {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        builder.append(Timestamp(3), key, value, headers);
        let batch = builder.build();
        let records = batch.records(1 << 20).unwrap();
        let record = records.iter().next().unwrap().unwrap();
        let line = Line::new("t", 1, &record, decoded);
        let mut csv = Vec::new();
        line.write_csv(&mut csv, false);
        let json = serde_json::to_string(&line).unwrap();
        (json, String::from_utf8(csv).unwrap())
    }

    #[test]
    fn exported_lines_equal_the_records() {
        let header = RecordHeader::new(Bytes::from("h"), None);
        let (json, csv) = lines(None, Some(b"a \"b\",\nc"), &[header]);
        assert_eq!(
            csv,
            "1,0,3,,\"a \"\"b\"\",\nc\",\"[[\"\"h\"\",null]]\",\"\"\r\n"
        );
        assert_eq!(
            json,
            "{\"topic\":\"t\",\"partition\":1,\"offset\":0,\"timestamp\":3,\"key\":null,\
             \"value\":\"a \\\"b\\\",\\nc\",\"headers\":[[\"h\",null]]}"
        );
        let (_, csv) = lines(Some(b""), None, &[]);
        assert_eq!(csv, "1,0,3,\"\",,\"[]\",\"\"\r\n");
    }

    #[test]
    fn no_text_is_a_formula_in_a_spreadsheet() {
        for text in [
            "=HYPERLINK(\"http://evil.example\")",
            "+1+1",
            "-5+A1",
            "@SUM(1)",
            "\t=1",
            "\r\n=1",
            "\u{ff1d}1+1",
        ] {
            let quoted = text.replace('"', "\"\"");
            let (json, csv) = lines(Some(text.as_bytes()), None, &[]);
            assert_eq!(csv, format!("1,0,3,\"'{quoted}\",,\"[]\",\"\"\r\n"));
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(json["key"], text);
        }
        for text in ["-5", "+1.5e3", "a=1", "'=1", "{\"a\":\"=1\"}", "", " "] {
            let (_, csv) = lines(Some(text.as_bytes()), None, &[]);
            let quoted = text.replace('"', "\"\"");
            assert!(csv.starts_with(&format!("1,0,3,\"{quoted}\",")), "{csv}");
        }
        let mut builder = RecordBatchBuilder::new(Compression::None);
        builder.append(Timestamp(3), Some(b"=1"), None, &[]);
        let batch = builder.build();
        let records = batch.records(1 << 20).unwrap();
        let record = records.iter().next().unwrap().unwrap();
        let undecoded = DecodedRecord::default();
        let mut csv = Vec::new();
        Line::new("t", 1, &record, &undecoded).write_csv(&mut csv, true);
        assert!(csv.starts_with(b"1,0,3,\"=1\","));
    }

    #[test]
    fn bytes_that_are_not_text_are_base64_and_marked() {
        let header = RecordHeader::new(Bytes::from("h"), Some(Bytes::from_static(&[0xff])));
        let (json, csv) = lines(Some(&[0xfe, 0xff]), Some(b"v"), &[header]);
        assert_eq!(
            csv,
            "1,0,3,\"/v8=\",\"v\",\"[[\"\"h\"\",\"\"/w==\"\"]]\",\"key headers.h\"\r\n"
        );
        assert!(
            json.ends_with(
                "\"key\":\"/v8=\",\"value\":\"v\",\"headers\":[[\"h\",\"/w==\"]],\"base64\":[\"key\",\"headers.h\"]}"
            ),
            "{json}"
        );
    }

    #[test]
    fn a_decoded_value_is_json_in_a_file() {
        let mut decoded = DecodedRecord {
            key: None,
            value: Some(Decoded {
                schema: SchemaId::Number(7),
                kind: None,
                subject: None,
                is_unread: false,
                outcome: Ok("{\"a\":1}".into()),
            }),
        };
        let of = |decoded: &DecodedRecord| {
            let value = b"\0\0\0\0\x07\xff";
            lines_of(Some(b"\xff"), Some(value), &[], decoded)
        };
        let (json, csv) = of(&decoded);
        assert!(
            json.ends_with(r#""key":"/w==","value":"{\"a\":1}","headers":[],"base64":["key"]}"#),
            "{json}"
        );
        assert_eq!(csv, "1,0,3,\"/w==\",\"{\"\"a\"\":1}\",\"[]\",\"key\"\r\n");
        decoded.value.as_mut().unwrap().outcome = Err("no answer".into());
        let (json, csv) = of(&decoded);
        assert!(
            json.ends_with(
                r#""key":"/w==","value":"AAAAAAf/","headers":[],"base64":["key","value"]}"#
            ),
            "{json}"
        );
        assert_eq!(csv, "1,0,3,\"/w==\",\"AAAAAAf/\",\"[]\",\"key value\"\r\n");
    }
}
