//! The topic of the group coordinators, created when a group is first looked for.
//! Source: `AutoTopicCreationManager`, `GroupCoordinatorService.groupMetadataTopicConfigs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ottla_controller::creatable_topic;
use ottla_protocol::messages::CreateTopicsRequest;
use ottla_types::ErrorCode;

use crate::Broker;

/// The topic whose partitions hold the groups.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";
/// How long the controller may take; Kafka's `request.timeout.ms` between brokers.
const TIMEOUT_MS: i32 = 30_000;

/// Sees to it that the topic is asked for by one request at a time.
#[derive(Debug, Default)]
pub(crate) struct OffsetsTopicCreation {
    is_in_flight: AtomicBool,
}

impl OffsetsTopicCreation {
    /// Asks the controller for the topic, in a task of its own, unless that is under way.
    pub(crate) fn start(&self, broker: &Arc<Broker>) {
        if self.is_in_flight.swap(true, Ordering::AcqRel) {
            return;
        }
        let broker = Arc::clone(broker);
        tokio::spawn(async move {
            match create(&broker).await {
                Ok(()) | Err((ErrorCode::TopicAlreadyExists, _)) => {}
                Err((error, message)) => {
                    tracing::warn!("{OFFSETS_TOPIC} could not be created: {error}: {message}");
                }
            }
            let creation = &broker.groups.offsets_topic;
            creation.is_in_flight.store(false, Ordering::Release);
        });
    }
}

async fn create(broker: &Broker) -> Result<(), (ErrorCode, String)> {
    let topic = creatable_topic(&broker.config(), &OFFSETS_TOPIC.into());
    let request = CreateTopicsRequest {
        topics: vec![topic],
        timeout_ms: TIMEOUT_MS,
        ..Default::default()
    };
    let asked = broker.ask_controller(request).await;
    let response = asked.map_err(|error| (error, "the controller is not there".to_owned()))?;
    for topic in response.topics {
        let message = topic.error_message.unwrap_or_default();
        ErrorCode::from_code(topic.error_code)
            .into_result()
            .map_err(|error| (error, message.to_string()))?;
    }
    Ok(())
}
