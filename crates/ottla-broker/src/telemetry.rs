//! Client telemetry (KIP-714): the metrics that clients should push, and the metrics that they have
//! pushed.
//!
//! The subscriptions are the `client-metrics` resources of the cluster's configuration. [`clients`]
//! decides when a client may send requests; [`otlp`] decodes the pushed metrics. The values are
//! exported with the broker's own metrics until the client has been silent for three of its
//! intervals. As in Kafka, the two APIs are offered only if something consumes the metrics: here,
//! if the HTTP listener or the metrics reporter is configured.
//!
//! Kafka: `ClientMetricsManager`, where a plugin consumes the metrics.

mod client_facts;
mod clients;
mod otlp;
mod subscription;

use bytes::Bytes;
use ottla_config::BrokerConfig;
use ottla_metadata::{ConfigResourceType, MetadataImage};
use ottla_protocol::ApiKey;
use ottla_records::CompressionType;
use ottla_sync::Mutex;
use ottla_types::{ErrorCode, Uuid};

pub(crate) use client_facts::ClientFacts;
use clients::Clients;
pub(crate) use otlp::{ClientMetric, ClientMetricKind};
pub(crate) use subscription::Request;
use subscription::Subscription;

/// In order of preference: zstd, lz4, gzip, snappy.
pub(crate) const ACCEPTED_COMPRESSION_TYPES: [i8; 4] = [4, 3, 1, 2];

/// Whether the API belongs to client telemetry.
pub(crate) fn is_telemetry_api(api_key: ApiKey) -> bool {
    matches!(
        api_key,
        ApiKey::GetTelemetrySubscriptions | ApiKey::PushTelemetry
    )
}

#[derive(Debug)]
pub(crate) struct Telemetry {
    is_offered: bool,
    max_bytes: usize,
    clients: Mutex<Clients>,
}

/// The contents of a push.
#[derive(Debug)]
pub(crate) struct Push {
    pub(crate) subscription_id: i32,
    pub(crate) is_terminating: bool,
    pub(crate) compression_type: i8,
    pub(crate) metrics: Bytes,
}

impl Telemetry {
    /// `kept_bytes` bounds the metrics of all clients.
    pub(crate) fn new(config: &BrokerConfig, kept_bytes: usize) -> Telemetry {
        Telemetry {
            is_offered: config.ottla_http_listener.is_some()
                || config.ottla_metrics_reporter_dir.is_some(),
            max_bytes: usize::try_from(config.telemetry_max_bytes).unwrap_or(0),
            clients: Mutex::new(Clients::new(kept_bytes)),
        }
    }

    /// Whether an API is offered to clients. The telemetry APIs are offered only if something
    /// consumes the metrics.
    pub(crate) fn offers(&self, api_key: ApiKey) -> bool {
        self.is_offered || !is_telemetry_api(api_key)
    }

    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// The metrics that this client should push.
    pub(crate) fn on_get(
        &self,
        image: &MetadataImage,
        facts: &ClientFacts,
        now_ms: u64,
    ) -> Result<Request, ErrorCode> {
        let request = requested_of(image, facts);
        let mut clients = self.clients.lock();
        clients.on_get(facts.client_instance_id, &request, now_ms)?;
        Ok(request)
    }

    /// Processes a push.
    pub(crate) fn on_push(
        &self,
        image: &MetadataImage,
        facts: &ClientFacts,
        push: &Push,
        now_ms: u64,
    ) -> Result<(), ErrorCode> {
        let request = requested_of(image, facts);
        let id = facts.client_instance_id;
        let pushed = clients::Pushed {
            subscription_id: push.subscription_id,
            is_terminating: push.is_terminating,
            is_codec_known: codec(push).is_some(),
            is_too_large: push.metrics.len() > self.max_bytes,
        };
        self.clients.lock().on_push(id, &request, pushed, now_ms)?;
        if push.metrics.is_empty() {
            return Ok(());
        }
        // Without the lock, because this decompresses.
        let metrics = self.read(push);
        let mut clients = self.clients.lock();
        match metrics {
            Some(metrics) => {
                clients.on_metrics(id, &facts.client_id, metrics, now_ms);
                Ok(())
            }
            None => {
                clients.on_error(id, ErrorCode::InvalidRecord);
                Err(ErrorCode::InvalidRecord)
            }
        }
    }

    fn read(&self, push: &Push) -> Option<Vec<ClientMetric>> {
        let bytes = match codec(push)? {
            CompressionType::None => push.metrics.clone(),
            codec => ottla_records::decompress(codec, &push.metrics, self.max_bytes).ok()?,
        };
        otlp::read(bytes)
    }

    /// The last push of each client that is not silent: instance ID, client ID, metrics.
    pub(crate) fn for_each_client(
        &self,
        now_ms: u64,
        show: impl FnMut(Uuid, &str, &[ClientMetric]),
    ) {
        let mut clients = self.clients.lock();
        clients.forget_silent(now_ms);
        clients.for_each(show);
    }
}

fn codec(push: &Push) -> Option<CompressionType> {
    CompressionType::from_id(u8::try_from(push.compression_type).ok()?)
}

fn requested_of(image: &MetadataImage, facts: &ClientFacts) -> Request {
    let resources = image.configs.resources();
    let subscriptions: Vec<Subscription> = resources
        .filter(|(resource, _)| resource.kind == ConfigResourceType::ClientMetrics)
        .map(|(_, entries)| {
            Subscription::new(|key| entries.get(key).map(|value| value.to_string()))
        })
        .collect();
    Request::of(&subscriptions, facts)
}
