//! Output formats of records (`org.apache.kafka.tools.consumer.DefaultMessageFormatter` and its
//! siblings).

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::bail;
use bytes::Bytes;
use ottla_client::ConsumerRecord;
use ottla_config::nearest_name;

use super::coordinator_formatter::CoordinatorFormatter;
use crate::tools::java_text;

/// Prints records.
pub(in crate::tools) struct Formatter {
    kind: Kind,
    print_timestamp: bool,
    print_key: bool,
    print_offset: bool,
    print_delivery: bool,
    print_epoch: bool,
    print_partition: bool,
    print_headers: bool,
    print_value: bool,
    key_separator: Vec<u8>,
    line_separator: Vec<u8>,
    headers_separator: Vec<u8>,
    null_literal: Vec<u8>,
    key: Deserializer,
    value: Deserializer,
    headers: Deserializer,
}

enum Kind {
    Default,
    /// Like the default, preceded by topic and timestamp, written to the log.
    Logging,
    NoOp,
    /// Records of an internal topic.
    Coordinator(CoordinatorFormatter),
}

/// Kafka's deserializers, by their result.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deserializer {
    /// The raw bytes; a string is printed in the same way.
    Bytes,
    Boolean,
    Short,
    Integer,
    Long,
    Float,
    Double,
}

/// A record could not be formatted, or the output was closed.
#[derive(Debug)]
pub(in crate::tools) enum WriteError {
    Output(io::Error),
    Record(String),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        WriteError::Output(error)
    }
}

/// The properties of the formatters. Properties of a deserializer have its key as prefix.
const PROPERTIES: [&str; 15] = [
    "print.timestamp",
    "print.key",
    "print.offset",
    "print.delivery",
    "print.epoch",
    "print.partition",
    "print.headers",
    "print.value",
    "key.separator",
    "line.separator",
    "headers.separator",
    "null.literal",
    "key.deserializer",
    "value.deserializer",
    "headers.deserializer",
];

/// The warnings about properties that have no effect.
fn unknown(properties: &BTreeMap<String, String>) -> Vec<String> {
    let is_of_deserializer =
        |key: &str| key.contains(".deserializer.") || key.starts_with("schema.");
    let keys = properties.keys().map(String::as_str);
    let unknown = keys.filter(|key| !PROPERTIES.contains(key) && !is_of_deserializer(key));
    let said = unknown.map(|key| {
        let meant = nearest_name(key, PROPERTIES);
        let meant = meant.map_or(String::new(), |name| format!("; did you mean {name}?"));
        format!("{key} is not a property of this formatter and is ignored{meant}")
    });
    said.collect()
}

impl Formatter {
    pub(in crate::tools) fn new(
        class: Option<&str>,
        properties: &BTreeMap<String, String>,
    ) -> anyhow::Result<Formatter> {
        let name = class.map(|class| class.rsplit(['.', '$']).next().unwrap_or(class));
        let kind = match name {
            None | Some("DefaultMessageFormatter") => Kind::Default,
            Some("LoggingMessageFormatter") => Kind::Logging,
            Some("NoOpMessageFormatter") => Kind::NoOp,
            Some(name) => match CoordinatorFormatter::from_name(name) {
                Some(formatter) => Kind::Coordinator(formatter),
                None => bail!(
                    "--formatter {} is an unknown Java class; supported are those of Kafka: \
                     DefaultMessageFormatter, LoggingMessageFormatter, NoOpMessageFormatter, \
                     OffsetsMessageFormatter, GroupMetadataMessageFormatter, \
                     TransactionLogMessageFormatter and ShareGroupStateMessageFormatter",
                    class.unwrap_or_default()
                ),
            },
        };
        if matches!(kind, Kind::Default | Kind::Logging) {
            for key in unknown(properties) {
                eprintln!("WARN {key}");
            }
        }
        let flag = |key: &str, default: bool| {
            properties
                .get(key)
                .map_or(default, |value| value.trim().eq_ignore_ascii_case("true"))
        };
        let text = |key: &str, default: &str| {
            properties
                .get(key)
                .map_or(default, String::as_str)
                .as_bytes()
                .to_vec()
        };
        let deserializer = |key: &str| match properties.get(key) {
            Some(class) => Deserializer::from_class(class),
            None => Ok(Deserializer::Bytes),
        };
        Ok(Formatter {
            kind,
            print_timestamp: flag("print.timestamp", false),
            print_key: flag("print.key", false),
            print_offset: flag("print.offset", false),
            print_delivery: flag("print.delivery", false),
            print_epoch: flag("print.epoch", false),
            print_partition: flag("print.partition", false),
            print_headers: flag("print.headers", false),
            print_value: flag("print.value", true),
            key_separator: text("key.separator", "\t"),
            line_separator: text("line.separator", "\n"),
            headers_separator: text("headers.separator", ","),
            null_literal: text("null.literal", "null"),
            key: deserializer("key.deserializer")?,
            value: deserializer("value.deserializer")?,
            headers: deserializer("headers.deserializer")?,
        })
    }

    /// `delivery_count` is set for records of a share group.
    pub(in crate::tools) fn write(
        &mut self,
        record: &ConsumerRecord,
        delivery_count: Option<i16>,
        output: &mut impl Write,
    ) -> Result<(), WriteError> {
        match &self.kind {
            Kind::NoOp => return Ok(()),
            Kind::Coordinator(formatter) => {
                if let Some(text) = formatter.text(record).map_err(WriteError::Record)? {
                    output.write_all(text.as_bytes())?;
                }
                return Ok(());
            }
            Kind::Logging => {
                let shown = |bytes: &Option<Bytes>| match bytes {
                    Some(bytes) => java_text::decoded(bytes),
                    None => "null".into(),
                };
                eprintln!(
                    "{}:{}, key:{}, value:{}",
                    record.timestamp_type.name(),
                    record.timestamp,
                    shown(&record.key),
                    shown(&record.value)
                );
            }
            Kind::Default => {}
        }
        // Buffered, so that nothing is written if a part cannot be formatted.
        let mut line = Vec::new();
        let mut columns: Vec<Vec<u8>> = Vec::new();
        if self.print_timestamp {
            let text = match record.timestamp {
                ..0 => "NO_TIMESTAMP".to_owned(),
                timestamp => format!("{}:{timestamp}", record.timestamp_type.name()),
            };
            columns.push(text.into_bytes());
        }
        if self.print_partition {
            columns.push(format!("Partition:{}", record.partition).into_bytes());
        }
        if self.print_offset {
            columns.push(format!("Offset:{}", record.offset).into_bytes());
        }
        if self.print_delivery {
            let count = delivery_count.map(|count| count.to_string());
            let count = count.as_deref().unwrap_or("NOT_PRESENT");
            columns.push(format!("Delivery:{count}").into_bytes());
        }
        if self.print_epoch {
            // Kafka's tool drops the leader epoch before it calls the formatter.
            columns.push(b"Epoch:NOT_PRESENT".to_vec());
        }
        if self.print_headers {
            columns.push(self.headers_column(record)?);
        }
        if self.print_key {
            columns.push(self.field(&record.key, self.key)?);
        }
        let ends_with_value = self.print_value;
        if ends_with_value {
            columns.push(self.field(&record.value, self.value)?);
        }
        for (index, column) in columns.iter().enumerate() {
            line.extend_from_slice(column);
            let is_last = index + 1 == columns.len();
            line.extend_from_slice(if is_last {
                &self.line_separator
            } else {
                &self.key_separator
            });
        }
        output.write_all(&line)?;
        Ok(())
    }

    fn headers_column(&self, record: &ConsumerRecord) -> Result<Vec<u8>, WriteError> {
        if record.headers.is_empty() {
            return Ok(b"NO_HEADERS".to_vec());
        }
        let mut column = Vec::new();
        for (index, header) in record.headers.iter().enumerate() {
            if index > 0 {
                column.extend_from_slice(&self.headers_separator);
            }
            column.extend_from_slice(header.key_str().as_bytes());
            column.push(b':');
            column.extend_from_slice(&self.field(&header.value, self.headers)?);
        }
        Ok(column)
    }

    fn field(
        &self,
        bytes: &Option<Bytes>,
        deserializer: Deserializer,
    ) -> Result<Vec<u8>, WriteError> {
        match bytes {
            Some(bytes) => deserializer.text(bytes).map_err(WriteError::Record),
            None => Ok(self.null_literal.clone()),
        }
    }
}

impl Deserializer {
    fn from_class(class: &str) -> anyhow::Result<Deserializer> {
        Ok(match class.rsplit('.').next().unwrap_or(class) {
            "StringDeserializer"
            | "BytesDeserializer"
            | "ByteArrayDeserializer"
            | "ByteBufferDeserializer" => Deserializer::Bytes,
            "BooleanDeserializer" => Deserializer::Boolean,
            "ShortDeserializer" => Deserializer::Short,
            "IntegerDeserializer" => Deserializer::Integer,
            "LongDeserializer" => Deserializer::Long,
            "FloatDeserializer" => Deserializer::Float,
            "DoubleDeserializer" => Deserializer::Double,
            _ => bail!(
                "{class} is an unknown Java class; supported are Kafka's String, ByteArray, \
                 Bytes, Boolean, Short, Integer, Long, Float and DoubleDeserializer"
            ),
        })
    }

    fn text(self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let text = match self {
            Deserializer::Bytes => return Ok(bytes.to_vec()),
            Deserializer::Boolean => match bytes {
                [0] => "false".to_owned(),
                [1] => "true".to_owned(),
                _ => return Err(self.wrong_size(1, bytes)),
            },
            Deserializer::Short => i16::from_be_bytes(self.sized(bytes)?).to_string(),
            Deserializer::Integer => i32::from_be_bytes(self.sized(bytes)?).to_string(),
            Deserializer::Long => i64::from_be_bytes(self.sized(bytes)?).to_string(),
            Deserializer::Float => format!("{:?}", f32::from_be_bytes(self.sized(bytes)?)),
            Deserializer::Double => format!("{:?}", f64::from_be_bytes(self.sized(bytes)?)),
        };
        Ok(text.into_bytes())
    }

    fn sized<const SIZE: usize>(self, bytes: &[u8]) -> Result<[u8; SIZE], String> {
        bytes.try_into().map_err(|_| self.wrong_size(SIZE, bytes))
    }

    fn wrong_size(self, size: usize, bytes: &[u8]) -> String {
        let length = bytes.len();
        format!("Size of data received by {self:?}Deserializer is not {size}: {length}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_records::{RecordHeader, TimestampType};

    fn print(properties: &[(&str, &str)]) -> String {
        let properties = properties
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect();
        let record = ConsumerRecord {
            topic: "t".into(),
            partition: 1,
            offset: 7,
            leader_epoch: 0,
            timestamp: 123,
            timestamp_type: TimestampType::CreateTime,
            key: None,
            value: Some(Bytes::from_static(b"value")),
            headers: vec![RecordHeader::new("h", Some(Bytes::from_static(b"x")))],
        };
        let mut output = Vec::new();
        let mut formatter = Formatter::new(None, &properties).unwrap();
        formatter.write(&record, None, &mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn columns_are_in_the_order_of_kafka() {
        assert_eq!(print(&[]), "value\n");
        let all = [
            ("print.timestamp", "true"),
            ("print.partition", "true"),
            ("print.offset", "true"),
            ("print.headers", "true"),
            ("print.key", "true"),
        ];
        assert_eq!(
            print(&all),
            "CreateTime:123\tPartition:1\tOffset:7\th:x\tnull\tvalue\n"
        );
        assert_eq!(
            print(&[("print.value", "false"), ("print.offset", "true")]),
            "Offset:7\n"
        );
    }

    #[test]
    fn the_name_of_a_mistyped_property_is_suggested() {
        let given = ["print.ky", "print.key", "key.deserializer.x"];
        let given = given.map(|key| (key.to_owned(), "true".to_owned()));
        assert_eq!(
            unknown(&BTreeMap::from(given)),
            [
                "print.ky is not a property of this formatter and is ignored; did you mean print.key?"
            ]
        );
    }

    #[test]
    fn numbers_are_deserialized() {
        assert_eq!(
            Deserializer::Long.text(&42i64.to_be_bytes()).unwrap(),
            b"42"
        );
        assert!(Deserializer::Integer.text(b"abc").is_err());
        assert!(Deserializer::from_class("com.example.Mine").is_err());
    }
}
