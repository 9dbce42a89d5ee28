//! Produces records that a user has typed, or that come from a file.

use axum::Json;
use bytes::Bytes;
use ottla_client::{Producer, ProducerConfig, ProducerRecord};
use ottla_records::RecordHeader;
use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::topics::current_partitions;
use crate::console::Visitor;
use crate::extract::{Body, Path, at_most};
use crate::list::Items;
use crate::problem::Problem;
use crate::records::decode::{Encoding, encoded};

const MOST_RECORDS: usize = 1000;
/// Of a record.
const MOST_HEADERS: usize = 200;
/// How long a request waits for its records.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of a record. The topic's `max.message.bytes` decides whether it is accepted.
const MAX_REQUEST: usize = 16 << 20;
/// The batches of a producer.
pub(super) const BUFFER_MEMORY: usize = 32 << 20;

#[derive(Deserialize)]
pub(super) struct NewRecords {
    #[serde(deserialize_with = "at_most::<MOST_RECORDS, _, _>")]
    records: Vec<NewRecord>,
}

#[derive(Deserialize)]
struct NewRecord {
    partition: Option<i32>,
    key: Option<String>,
    /// `None` is a tombstone.
    value: Option<String>,
    /// Of key and value.
    #[serde(default)]
    encoding: Encoding,
    #[serde(default, deserialize_with = "at_most::<MOST_HEADERS, _, _>")]
    headers: Vec<NewHeader>,
    timestamp: Option<i64>,
}

#[derive(Deserialize)]
struct NewHeader {
    key: String,
    value: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Produced {
    partition: Option<i32>,
    offset: Option<i64>,
    problem: Option<String>,
}

/// A producer for one request.
pub(super) fn producer(visitor: &Visitor) -> Result<Producer, Problem> {
    let config = ProducerConfig {
        linger: Duration::from_millis(5),
        batch_size: 256 << 10,
        buffer_memory: BUFFER_MEMORY,
        max_block: PATIENCE,
        max_request_size: MAX_REQUEST,
        delivery_timeout: PATIENCE,
        ..ProducerConfig::default()
    };
    Ok(Producer::new(visitor.client().clone(), config)?)
}

pub(super) async fn produce(
    visitor: Visitor,
    Path(topic): Path<String>,
    Body(new): Body<NewRecords>,
) -> Result<Json<Items<Produced>>, Problem> {
    let count = new.records.len();
    if count == 0 {
        return Err(Problem::invalid(
            "records",
            format!("there are no records; give 1 to {MOST_RECORDS}"),
        ));
    }
    visitor.note.names(format!("{count} records"));
    let partitions = current_partitions(&visitor, &topic).await?.len();
    let records: Result<Vec<ProducerRecord>, Problem> = new
        .records
        .into_iter()
        .enumerate()
        .map(|(index, record)| converted(&topic, partitions, index, record))
        .collect();
    let producer = producer(&visitor)?;
    let mut deliveries = Vec::with_capacity(count);
    for record in records? {
        deliveries.push(producer.send_ref(record.as_ref()).await);
    }
    producer.flush().await;
    let mut items = Vec::with_capacity(count);
    for delivery in deliveries {
        let result = match delivery {
            Ok(delivery) => delivery.wait().await,
            Err(error) => Err(error),
        };
        items.push(match result {
            Ok(written) => Produced {
                partition: Some(written.partition),
                offset: Some(written.offset).filter(|it| *it >= 0),
                problem: None,
            },
            // Alone, the whole request has failed.
            Err(error) if count == 1 => return Err(error.into()),
            Err(error) => Produced {
                partition: None,
                offset: None,
                problem: Some(error.to_string()),
            },
        });
    }
    producer.close_within(Duration::from_secs(1)).await;
    visitor.view.outdate();
    Ok(Json(Items { items }))
}

fn converted(
    topic: &str,
    partitions: usize,
    index: usize,
    new: NewRecord,
) -> Result<ProducerRecord, Problem> {
    let number = index + 1;
    if let Some(partition) = new.partition
        && usize::try_from(partition).map_or(true, |it| it >= partitions)
    {
        return Err(Problem::invalid(
            "partition",
            format!(
                "record {number}: topic {topic} has no partition {partition}; it has {partitions}"
            ),
        ));
    }
    let bytes = |field: &'static str, text: Option<String>| {
        let decoded = text.map(|text| encoded(&text, new.encoding)).transpose();
        decoded.map_err(|error| {
            Problem::invalid(field, format!("record {number}: the {field}: {error}"))
        })
    };
    let header = |header: NewHeader| RecordHeader::new(header.key, header.value.map(Bytes::from));
    Ok(ProducerRecord {
        topic: topic.to_owned(),
        partition: new.partition,
        key: bytes("key", new.key)?,
        value: bytes("value", new.value)?,
        headers: new.headers.into_iter().map(header).collect(),
        timestamp: new.timestamp,
    })
}
