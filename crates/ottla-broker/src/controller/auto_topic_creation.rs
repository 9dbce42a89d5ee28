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
use crate::complaints::Complaints;

/// Topics whose creation is under way, so that clients that ask again do not start it again.
#[derive(Debug, Default)]
pub(crate) struct AutoTopicCreation {
    in_flight: Mutex<HashSet<ByteString>>,
    /// A client asks for its coordinator ten times a second.
    complaints: Complaints,
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
                ..Default::default()
            };
            match broker.ask_controller(request).await {
                Ok(response) => {
                    for topic in response.topics {
                        let error = ErrorCode::from_code(topic.error_code);
                        if !matches!(error, ErrorCode::None | ErrorCode::TopicAlreadyExists) {
                            let reason = topic.error_message.unwrap_or_default();
                            let way_out = way_out(&topic.name, error);
                            broker.auto_topic_creation.complaints.say(|| {
                                tracing::warn!(
                                    "topic {} cannot be created: {error}: {reason}{way_out}",
                                    topic.name
                                );
                            });
                        }
                    }
                }
                Err(error) => {
                    let complaints = &broker.auto_topic_creation.complaints;
                    complaints.say(|| tracing::warn!("no topic can be created: {error}"));
                }
            }
            let mut in_flight = broker.auto_topic_creation.in_flight.lock();
            for name in &names {
                in_flight.remove(name);
            }
        });
    }
}

/// What an operator does about a topic of the broker's own that cannot be made.
fn way_out(topic: &str, error: ErrorCode) -> String {
    let setting = match topic {
        "__consumer_offsets" => "offsets.topic.replication.factor",
        "__transaction_state" => "transaction.state.log.replication.factor",
        "__share_group_state" => "share.coordinator.state.topic.replication.factor",
        _ => return String::new(),
    };
    match error {
        ErrorCode::InvalidReplicationFactor => {
            format!(" Set {setting} to at most the number of brokers, and start again.")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_named_that_asks_for_too_many_replicas() {
        let of = |topic| way_out(topic, ErrorCode::InvalidReplicationFactor);
        assert!(of("__consumer_offsets").contains("offsets.topic.replication.factor"));
        assert_eq!(of("orders"), "");
        assert_eq!(
            way_out("__consumer_offsets", ErrorCode::PolicyViolation),
            ""
        );
    }
}
