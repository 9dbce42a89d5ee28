//! Formats records of internal topics as JSON: `OffsetsMessageFormatter` and its siblings
//! (`org.apache.kafka.tools.consumer.CoordinatorRecordMessageFormatter`).
//!
//! As in Kafka, there is no separator between records, and records of other or unknown types are
//! skipped.

use ottla_client::ConsumerRecord;
use ottla_protocol::Reader;
use serde_json::{Value, json};

use crate::tools::dump_log::schema_json::{Schemas, decode, decode_versioned, schema};

/// Formats the records of one coordinator.
pub(super) struct CoordinatorFormatter {
    schemas: Schemas,
    /// The record types that are printed; all if empty.
    types: &'static [i16],
}

impl CoordinatorFormatter {
    /// The formatter of this name, if it is one of these.
    pub(super) fn from_name(name: &str) -> Option<CoordinatorFormatter> {
        let (schema, types): (&str, &'static [i16]) = match name {
            "OffsetsMessageFormatter" => (schema!("group_records"), &[0, 1]),
            "GroupMetadataMessageFormatter" => (schema!("group_records"), &[2]),
            "TransactionLogMessageFormatter" => (schema!("transaction_records"), &[]),
            "ShareGroupStateMessageFormatter" => (schema!("share_records"), &[]),
            _ => return None,
        };
        Some(CoordinatorFormatter {
            schemas: Schemas::parse(schema),
            types,
        })
    }

    /// The text of a record; `None` if it is skipped.
    pub(super) fn text(&self, record: &ConsumerRecord) -> Result<Option<String>, String> {
        let failed = |problem: String| {
            format!(
                "Could not read record at offset {} due to: {problem}",
                record.offset
            )
        };
        let Some(key) = &record.key else {
            return Ok(None);
        };
        let mut key = Reader::new(key.clone());
        let record_type = key.i16().map_err(|error| failed(error.to_string()))?;
        let Some((key_schema, value_schema)) = self.schemas.of_coordinator(record_type) else {
            return Ok(None);
        };
        if !self.types.is_empty() && !self.types.contains(&record_type) {
            return Ok(None);
        }
        let data = decode(key_schema, &mut key, 0).map_err(failed)?;
        let value = match &record.value {
            Some(value) => {
                let (version, data) = decode_versioned(value_schema, value).map_err(failed)?;
                json!({ "version": version, "data": data })
            }
            None => Value::Null,
        };
        let key = json!({ "type": record_type, "data": data });
        Ok(Some(json!({ "key": key, "value": value }).to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use ottla_protocol::Message;
    use ottla_protocol::coordinator_records::{OffsetCommitKey, OffsetCommitValue};
    use ottla_records::TimestampType;

    fn record(key: Option<Bytes>, value: Option<Bytes>) -> ConsumerRecord {
        ConsumerRecord {
            topic: "__consumer_offsets".into(),
            partition: 0,
            offset: 3,
            leader_epoch: 0,
            timestamp: 0,
            timestamp_type: TimestampType::CreateTime,
            key,
            value,
            headers: Vec::new(),
        }
    }

    fn prefixed(version: i16, body: Bytes) -> Bytes {
        Bytes::from([&version.to_be_bytes()[..], &body[..]].concat())
    }

    #[test]
    fn each_formatter_shows_its_types() {
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
        let offsets = CoordinatorFormatter::from_name("OffsetsMessageFormatter").unwrap();
        let show = |formatter: &CoordinatorFormatter, key: &Bytes, value: Option<Bytes>| {
            formatter.text(&record(Some(key.clone()), value))
        };
        assert_eq!(
            show(&offsets, &key, Some(value.clone())).unwrap().unwrap(),
            r#"{"key":{"type":1,"data":{"group":"g","topic":"t","partition":2}},"value":{"version":3,"data":{"offset":7,"leaderEpoch":-1,"metadata":"","commitTimestamp":9}}}"#
        );
        assert!(
            show(&offsets, &key, None)
                .unwrap()
                .unwrap()
                .ends_with(r#","value":null}"#)
        );
        let groups = CoordinatorFormatter::from_name("GroupMetadataMessageFormatter").unwrap();
        assert_eq!(show(&groups, &key, Some(value)).unwrap(), None);
        let unknown = prefixed(99, Bytes::new());
        assert_eq!(show(&offsets, &unknown, None).unwrap(), None);
        assert_eq!(offsets.text(&record(None, None)).unwrap(), None);
        let broken = show(&offsets, &key.slice(..3), None).unwrap_err();
        assert!(broken.starts_with("Could not read record at offset 3 due to: "));
        assert!(CoordinatorFormatter::from_name("DefaultMessageFormatter").is_none());
    }
}
