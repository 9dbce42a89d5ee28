//! A schema registry: decodes keys and values that name a schema of it.
//!
//! Owns the schemas that were read. A record whose schema cannot be read, or whose bytes do not fit
//! it, is decoded to the reason; nothing here fails a request. Schemas are read when the first
//! record with them is, on threads that may block, a few at a time.

mod avro;
mod cache;
mod fetch;
mod json;
mod protobuf;
mod schema;
mod wire;

use std::sync::Arc;
use std::time::Instant;

use ottla_records::RecordView;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use crate::budget::Budget;
use cache::{Cache, Outcome};
use fetch::Failure;
pub use fetch::RegistryConfig;
pub(crate) use schema::Kind;
use wire::Framed;
pub(crate) use wire::SchemaId;

/// Schemas that are read at a time.
const READING: usize = 4;
/// Headers of a record among which the ID of a schema is looked for.
const MOST_HEADERS: usize = 1000;
/// The memory that decoding the key and the value of a record takes, besides their own.
pub(crate) const DECODING_BYTES: usize = 16 << 20;
/// A message takes up to 50 times its size while it is decoded. Messages longer than this, for
/// which [`DECODING_BYTES`] would be too little, are decoded one at a time in the whole console.
const LARGE: usize = 128 << 10;
/// The memory for reading a schema: its texts, the responses, and the parsed schema.
const READING_BYTES: usize = 44 << 20;

pub(crate) struct Registry {
    config: Arc<RegistryConfig>,
    cache: Mutex<Cache>,
    reading: Arc<Semaphore>,
    large: Semaphore,
    /// The console's.
    budget: Budget,
}

/// A key or a value that names a schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Decoded {
    pub(crate) schema: SchemaId,
    /// `None` if the schema cannot be read.
    pub(crate) kind: Option<Kind>,
    pub(crate) subject: Option<String>,
    /// Whether the registry did not answer, so that the schema is still unknown.
    pub(crate) is_unread: bool,
    /// JSON, or why there is none.
    pub(crate) outcome: Result<String, String>,
}

/// The key and the value of a record; `None` for one that names no schema.
#[derive(Default, Debug)]
pub(crate) struct DecodedRecord {
    pub(crate) key: Option<Decoded>,
    pub(crate) value: Option<Decoded>,
}

impl Decoded {
    pub(crate) fn json(&self) -> Option<&str> {
        self.outcome.as_deref().ok()
    }
}

impl DecodedRecord {
    /// The record with its decoded key and value.
    pub(crate) fn view<'a>(&'a self, record: &RecordView<'a>) -> RecordView<'a> {
        let json = |decoded: &'a Option<Decoded>| Some(decoded.as_ref()?.json()?.as_bytes());
        RecordView {
            key: json(&self.key).or(record.key),
            value: json(&self.value).or(record.value),
            ..*record
        }
    }
}

impl Registry {
    pub(crate) fn new(config: RegistryConfig, budget: Budget) -> Registry {
        Registry {
            config: Arc::new(config),
            cache: Mutex::new(Cache::new()),
            reading: Arc::new(Semaphore::new(READING)),
            large: Semaphore::new(1),
            budget,
        }
    }

    pub(crate) async fn decode(&self, topic: &str, record: &RecordView<'_>) -> DecodedRecord {
        let key = record
            .key
            .map(|it| (it, header(record, b"__key_schema_id")));
        let value = record
            .value
            .map(|it| (it, header(record, b"__value_schema_id")));
        let mut decoded = DecodedRecord::default();
        if let Some((bytes, header)) = key {
            decoded.key = self.decode_part(topic, "-key", bytes, header).await;
        }
        if let Some((bytes, header)) = value {
            decoded.value = self.decode_part(topic, "-value", bytes, header).await;
        }
        decoded
    }

    async fn decode_part(
        &self,
        topic: &str,
        part: &str,
        bytes: &[u8],
        header: Option<&[u8]>,
    ) -> Option<Decoded> {
        let framed = Framed::read(bytes, header)?;
        let mut decoded = Decoded {
            schema: framed.id,
            kind: None,
            subject: None,
            is_unread: false,
            outcome: Err(String::new()),
        };
        match self.schema(framed.id).await {
            Ok(schema) => {
                let kind = schema.kind();
                decoded.kind = Some(kind);
                decoded.subject = schema.subject(topic, part).map(str::to_owned);
                let _alone = match framed.data().len() > LARGE {
                    true => self.large.acquire().await.ok(),
                    false => None,
                };
                decoded.outcome = schema.decode(&framed).map_err(|error| {
                    let (kind, id) = (kind.title(), framed.id);
                    format!("it does not fit the {kind} schema {id}: {error}")
                });
            }
            Err(failure) => {
                decoded.is_unread = matches!(failure, Failure::Registry(_));
                decoded.outcome = Err(failure.reason().to_owned());
            }
        }
        Some(decoded)
    }

    async fn schema(&self, id: SchemaId) -> Outcome {
        let known = self.cache.lock().find(&id, Instant::now());
        if let Some(known) = known {
            return known;
        }
        let closed = |_| Failure::Registry("the console stops".to_owned());
        let permit = self.reading.clone().acquire_owned().await.map_err(closed)?;
        // Another request has read it in between, or has found that the registry does not answer.
        let known = self.cache.lock().find(&id, Instant::now());
        if let Some(known) = known {
            return known;
        }
        let reservation = self.budget.reserve(READING_BYTES).map_err(|problem| {
            Failure::Registry(format!("schema {id} is not read: {}", problem.detail()))
        })?;
        let config = self.config.clone();
        let loading = tokio::task::spawn_blocking(move || {
            // Held until the schema is read, even if the caller is gone.
            let _kept = (permit, reservation);
            config.load(&id)
        });
        let loaded = loading
            .await
            .unwrap_or_else(|error| Err(broken(id, &error)));
        self.cache.lock().keep(id, loaded, Instant::now())
    }
}

/// Why a schema was not read to its end. One that makes its parser panic would do so for each record.
fn broken(id: SchemaId, error: &JoinError) -> Failure {
    let reason = format!("reading schema {id} failed: {error}");
    match error.is_panic() {
        true => Failure::Schema(reason),
        false => Failure::Registry(reason),
    }
}

/// The last header with this name, as Kafka's clients take it.
fn header<'a>(record: &RecordView<'a>, name: &[u8]) -> Option<&'a [u8]> {
    let headers = record.headers.iter().take(MOST_HEADERS);
    headers.filter(|(it, _)| *it == name).last()?.1
}

#[cfg(test)]
mod tests;
