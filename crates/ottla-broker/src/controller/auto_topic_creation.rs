//! Topics that come into being because a client uses them, and the broker's own topics.
//!
//! Kafka: `DefaultAutoTopicCreationManager`.

use std::collections::HashSet;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_controller::creatable_topic;
use ottla_protocol::messages::CreateTopicsRequest;
use ottla_types::ErrorCode;
use parking_lot::Mutex;

use crate::Broker;

/// Topics whose creation is under way, so that clients that ask again do not start it again.
#[derive(Debug, Default)]
pub(crate) struct AutoTopicCreation {
    in_flight: Mutex<HashSet<ByteString>>,
}

impl Broker {
    /// Has the controller create topics, each as `creatable_topic` says. Returns at once.
    pub(crate) fn create_topics_in_background(self: &Arc<Self>, names: Vec<ByteString>) {
        let names: Vec<ByteString> = {
            let mut in_flight = self.auto_topic_creation.in_flight.lock();
            names
                .into_iter()
                .filter(|name| in_flight.insert(name.clone()))
                .collect()
        };
        if names.is_empty() {
            return;
        }
        let broker = Arc::clone(self);
        tokio::spawn(async move {
            let config = broker.config().clone();
            let request = CreateTopicsRequest {
                topics: names
                    .iter()
                    .map(|name| creatable_topic(&config, name))
                    .collect(),
                timeout_ms: config.request_timeout_ms,
                ..Default::default()
            };
            match broker.ask_controller(request).await {
                Ok(response) => {
                    for topic in response.topics {
                        let error = ErrorCode::from_code(topic.error_code);
                        if !matches!(error, ErrorCode::None | ErrorCode::TopicAlreadyExists) {
                            let reason = topic.error_message.unwrap_or_default();
                            tracing::warn!(
                                "topic {} cannot be created: {error}: {reason}",
                                topic.name
                            );
                        }
                    }
                }
                Err(error) => tracing::warn!("no topic can be created: {error}"),
            }
            let mut in_flight = broker.auto_topic_creation.in_flight.lock();
            for name in &names {
                in_flight.remove(name);
            }
        });
    }
}
