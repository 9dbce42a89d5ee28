//! Decoders for the keys and values of records.

use anyhow::bail;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use ottla_protocol::Reader;
use ottla_protocol_codegen::schema::Kind;
use ottla_records::Record;
use ottla_records::control::ControlRecordType;
use serde_json::{Value, json};

use super::arguments::DumpLogArgs;
use super::java_json::to_json;
use super::schema_json::{Schemas, decode, decode_versioned, schema};
use crate::tools::java_text;

/// How a record's key and value are printed.
pub(super) enum Decoder {
    /// Each with its own decoder.
    Plain {
        key: PlainDecoder,
        value: PlainDecoder,
    },
    /// Coordinator records: a type and key, a version and value.
    Coordinator {
        schemas: Schemas,
        consumer_protocol: Option<Schemas>,
    },
    /// Records of the metadata log or of the remote log metadata topic.
    Metadata(Schemas),
}

/// Kafka's decoders.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum PlainDecoder {
    String,
    Integer,
    Long,
}

impl Decoder {
    pub(super) fn new(args: &DumpLogArgs) -> anyhow::Result<Decoder> {
        let coordinator = |schemas: &str, consumer_protocol| Decoder::Coordinator {
            schemas: Schemas::parse(schemas),
            consumer_protocol,
        };
        Ok(if args.offsets_decoder {
            let consumer_protocol = Some(Schemas::parse(schema!("messages")));
            coordinator(schema!("group_records"), consumer_protocol)
        } else if args.transaction_log_decoder {
            coordinator(schema!("transaction_records"), None)
        } else if args.share_group_state_decoder {
            coordinator(schema!("share_records"), None)
        } else if args.cluster_metadata_decoder {
            Decoder::Metadata(Schemas::parse(schema!("metadata_records")))
        } else if args.remote_log_metadata_decoder {
            Decoder::Metadata(Schemas::parse(schema!("storage_records")))
        } else {
            Decoder::Plain {
                key: PlainDecoder::from_class(args.key_decoder_class.as_deref())?,
                value: PlainDecoder::from_class(args.value_decoder_class.as_deref())?,
            }
        })
    }

    /// Whether the decoder is for records of Kafka's internal topics.
    pub(super) fn is_for_records(&self) -> bool {
        !matches!(self, Decoder::Plain { .. })
    }

    /// The texts of a record's key and value, where present.
    pub(super) fn decode(&self, record: &Record) -> (Option<String>, Option<String>) {
        match self {
            Decoder::Plain { key, value } => (
                record.key.as_ref().map(|bytes| key.text(bytes)),
                record.value.as_ref().map(|bytes| value.text(bytes)),
            ),
            Decoder::Coordinator {
                schemas,
                consumer_protocol,
            } => match coordinator_record(schemas, consumer_protocol.as_ref(), record) {
                Ok((key, value)) => (Some(key), Some(value)),
                Err(problem) => (Some(problem), None),
            },
            Decoder::Metadata(schemas) => {
                let value = record.value.clone().unwrap_or_default();
                let text = metadata_record(schemas, value).unwrap_or_else(|problem| {
                    format!("Error at {}, skipping. {problem}", record.offset)
                });
                (None, Some(text))
            }
        }
    }
}

/// Key and value as JSON; the error is a text to print instead.
fn coordinator_record(
    schemas: &Schemas,
    consumer_protocol: Option<&Schemas>,
    record: &Record,
) -> Result<(String, String), String> {
    let offset = record.offset;
    let failed = |problem: String| format!("Error at offset {offset}, skipping. {problem}");
    let Some(key_bytes) = &record.key else {
        return Err(failed("message had a missing key".into()));
    };
    let mut key = Reader::new(key_bytes.clone());
    let record_type = key.i16().map_err(|error| failed(error.to_string()))?;
    let Some((key_schema, value_schema)) = schemas.of_coordinator(record_type) else {
        return Err(format!(
            "Unknown record type {record_type} at offset {offset}, skipping."
        ));
    };
    let data = decode(key_schema, &mut key, 0).map_err(failed)?;
    let key = json!({ "type": record_type.to_string(), "data": data }).to_string();
    let Some(value) = &record.value else {
        return Ok((key, "<DELETE>".into()));
    };
    let (version, mut data) = decode_versioned(value_schema, value).map_err(failed)?;
    if let Some(schemas) = consumer_protocol
        && value_schema.name == "GroupMetadataValue"
        && data["protocolType"] == "consumer"
    {
        show_consumer_protocol(schemas, &mut data);
    }
    Ok((
        key,
        json!({ "version": version.to_string(), "data": data }).to_string(),
    ))
}

/// Members of consumer groups contain consumer protocol messages, which are decoded.
fn show_consumer_protocol(schemas: &Schemas, group: &mut Value) {
    let members = group["members"].as_array_mut().into_iter().flatten();
    for member in members {
        for (field, name) in [
            ("subscription", "ConsumerProtocolSubscription"),
            ("assignment", "ConsumerProtocolAssignment"),
        ] {
            let bytes = member[field]
                .as_str()
                .and_then(|text| STANDARD.decode(text).ok());
            let (Some(bytes), Some(message)) = (bytes, schemas.by_name(name)) else {
                continue;
            };
            // Undecodable messages stay as they are.
            if let Ok((_, shown)) = decode_versioned(message, &Bytes::from(bytes)) {
                member[field] = shown;
            }
        }
    }
}

/// A record framed by frame version, type and version.
fn metadata_record(schemas: &Schemas, bytes: Bytes) -> Result<String, String> {
    let mut reader = Reader::new(bytes);
    let mut number = || reader.unsigned_varint().map_err(|error| error.to_string());
    let frame = number()?;
    if frame != 1 {
        return Err(format!(
            "Could not deserialize metadata record with frame version {frame}."
        ));
    }
    let (api_key, version) = (number()?, number()?);
    let message = i16::try_from(api_key)
        .ok()
        .and_then(|api_key| schemas.by_api_key(Kind::Metadata, api_key))
        .ok_or_else(|| format!("Unknown metadata id {api_key}"))?;
    let version = i16::try_from(version).map_err(|_| format!("Unknown version {version}"))?;
    let data = decode(message, &mut reader, version)?;
    let record = json!({ "type": constant_name(&message.name), "version": version, "data": data });
    Ok(to_json(&record))
}

/// `TopicRecord` -> `TOPIC_RECORD`
fn constant_name(name: &str) -> String {
    let mut constant = String::new();
    for character in name.chars() {
        if character.is_ascii_uppercase() && !constant.is_empty() {
            constant.push('_');
        }
        constant.push(character.to_ascii_uppercase());
    }
    constant
}

impl PlainDecoder {
    fn from_class(class: Option<&str>) -> anyhow::Result<PlainDecoder> {
        let Some(class) = class else {
            return Ok(PlainDecoder::String);
        };
        Ok(match class.rsplit('.').next().unwrap_or(class) {
            "StringDecoder" => PlainDecoder::String,
            "IntegerDecoder" => PlainDecoder::Integer,
            "LongDecoder" => PlainDecoder::Long,
            _ => bail!(
                "{class} is a Java class, which cannot be loaded here; known are Kafka's \
                 StringDecoder, IntegerDecoder and LongDecoder"
            ),
        })
    }

    fn text(self, bytes: &Bytes) -> String {
        let number = match self {
            PlainDecoder::String => None,
            PlainDecoder::Integer if bytes.len() == 4 => Some(i64::from(bytes.clone().get_i32())),
            PlainDecoder::Long if bytes.len() == 8 => Some(bytes.clone().get_i64()),
            PlainDecoder::Integer | PlainDecoder::Long => None,
        };
        match number {
            Some(number) => number.to_string(),
            None => java_text::decoded(bytes),
        }
    }
}

/// A control record of the metadata log; `None` for other records.
pub(super) fn kraft_control_record(kind: ControlRecordType, value: &Bytes) -> Option<String> {
    let (name, title) = match kind {
        ControlRecordType::LeaderChange => ("LeaderChangeMessage", " LeaderChange: "),
        ControlRecordType::SnapshotHeader => ("SnapshotHeaderRecord", " SnapshotHeader "),
        ControlRecordType::SnapshotFooter => ("SnapshotFooterRecord", " SnapshotFooter "),
        ControlRecordType::KRaftVersion => ("KRaftVersionRecord", " KRaftVersion "),
        ControlRecordType::KRaftVoters => ("VotersRecord", " KRaftVoters "),
        _ => return None,
    };
    let raft = Schemas::parse(schema!("raft_records"));
    let messages;
    let message = match raft.by_name(name) {
        Some(message) => message,
        None => {
            messages = Schemas::parse(schema!("messages"));
            messages.by_name(name)?
        }
    };
    // The version is the first field of the record itself.
    let version = value
        .get(..2)
        .map_or(0, |bytes| i16::from_be_bytes([bytes[0], bytes[1]]));
    let shown = decode(message, &mut Reader::new(value.clone()), version);
    Some(match shown {
        Ok(shown) => format!("{title}{shown}"),
        Err(problem) => format!("{title}unreadable: {problem}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_protocol::Message;
    use ottla_protocol::coordinator_records::{OffsetCommitKey, OffsetCommitValue};
    use ottla_protocol::metadata_records::{MetadataRecord, TopicRecord};
    use ottla_types::{Offset, Timestamp, Uuid};

    fn record(key: Option<Bytes>, value: Option<Bytes>) -> Record {
        Record {
            offset: Offset(3),
            timestamp: Timestamp(0),
            key,
            value,
            headers: Vec::new(),
        }
    }

    fn prefixed(version: i16, body: Bytes) -> Bytes {
        Bytes::from([&version.to_be_bytes()[..], &body[..]].concat())
    }

    #[test]
    fn committed_offsets_are_printed_as_in_kafka() {
        let decoder = Decoder::Coordinator {
            schemas: Schemas::parse(schema!("group_records")),
            consumer_protocol: None,
        };
        let key = OffsetCommitKey {
            group: "g".into(),
            topic: "t".into(),
            partition: 2,
        };
        let value = OffsetCommitValue {
            offset: 7,
            commit_timestamp: 9,
            ..Default::default()
        };
        let key = prefixed(1, key.encode_to_bytes(0).unwrap());
        let value = prefixed(3, value.encode_to_bytes(3).unwrap());
        let (key_text, value_text) = decoder.decode(&record(Some(key.clone()), Some(value)));
        assert_eq!(
            key_text.unwrap(),
            r#"{"type":"1","data":{"group":"g","topic":"t","partition":2}}"#
        );
        assert_eq!(
            value_text.unwrap(),
            r#"{"version":"3","data":{"offset":7,"leaderEpoch":-1,"metadata":"","commitTimestamp":9}}"#
        );
        assert_eq!(
            decoder.decode(&record(Some(key), None)).1.as_deref(),
            Some("<DELETE>")
        );
        let unknown = decoder.decode(&record(Some(prefixed(99, Bytes::new())), None));
        assert_eq!(
            unknown.0.unwrap(),
            "Unknown record type 99 at offset 3, skipping."
        );
    }

    #[test]
    fn metadata_records_are_printed_as_in_kafka() {
        let decoder = Decoder::Metadata(Schemas::parse(schema!("metadata_records")));
        let topic = TopicRecord {
            name: "t".into(),
            topic_id: Uuid::from_u128(1),
            ..Default::default()
        };
        let bytes = MetadataRecord::from(topic).encode().unwrap();
        assert_eq!(
            decoder.decode(&record(None, Some(bytes))).1.unwrap(),
            r#"{"type":"TOPIC_RECORD","version":0,"data":{"name":"t","topicId":"AAAAAAAAAAAAAAAAAAAAAQ"}}"#
        );
        let broken = decoder.decode(&record(None, Some(Bytes::from_static(&[1]))));
        assert!(broken.1.unwrap().starts_with("Error at 3, skipping. "));
    }
}
