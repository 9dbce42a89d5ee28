//! Automatic creation of topics that clients use, and of the internal topics.
//!
//! Kafka: `DefaultAutoTopicCreationManager`.

mod failures;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use ottla_controller::creatable_topic;
use ottla_protocol::ApiKey;
use ottla_protocol::messages::create_topics_request::CreatableTopic;
use ottla_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use ottla_sync::Mutex;
use ottla_types::ErrorCode;

use ottla_context::HEAP_FULL;
use ottla_metrics::complaints::Complaints;
use ottla_net::RequestContext;

use crate::node::Node;
use failures::Failures;

#[derive(Debug)]
pub struct AutoTopicCreation {
    node: Arc<Node>,
    /// Topics whose creation is under way. A request for one of them does not start a second
    /// creation.
    in_flight: Arc<Mutex<HashSet<ByteString>>>,
    /// Failed creations of internal topics of streams groups.
    failures: Mutex<Failures>,
    /// Limits the warnings: a client retries FindCoordinator ten times a second.
    complaints: Complaints,
}

/// Why a topic was not created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreationError {
    pub code: ErrorCode,
    pub message: ByteString,
}

impl From<ErrorCode> for CreationError {
    fn from(code: ErrorCode) -> Self {
        CreationError {
            code,
            message: code.message().into(),
        }
    }
}

/// Marks topics as being created. Dropping it removes the mark, also when the task panics or is
/// aborted.
#[derive(Debug)]
struct UnderWay {
    names: Vec<ByteString>,
    in_flight: Arc<Mutex<HashSet<ByteString>>>,
}

impl AutoTopicCreation {
    pub fn new(node: Arc<Node>) -> AutoTopicCreation {
        AutoTopicCreation {
            node,
            in_flight: Arc::default(),
            failures: Mutex::default(),
            complaints: Complaints::default(),
        }
    }

    /// Marks the topics that are not being created yet.
    fn begin(&self, mut names: Vec<ByteString>) -> UnderWay {
        let mut in_flight = self.in_flight.lock();
        names.retain(|name| in_flight.insert(name.clone()));
        UnderWay {
            names,
            in_flight: Arc::clone(&self.in_flight),
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut in_flight = self.in_flight.lock();
        for name in &self.names {
            in_flight.remove(name);
        }
    }
}

impl AutoTopicCreation {
    /// Asks the controller to create topics, each as `creatable_topic` says: on behalf of the
    /// client in the context if there is one, otherwise on behalf of the broker. Returns at once.
    pub fn create_topics_in_background(
        self: &Arc<Self>,
        client: Option<&RequestContext>,
        names: Vec<ByteString>,
    ) {
        if client.is_some() && self.node.context.check_heap().is_err() {
            self.complaints
                .say(|| tracing::warn!("no topic is created for a client: {HEAP_FULL}"));
            return;
        }
        let under_way = self.begin(names);
        if under_way.names.is_empty() {
            return;
        }
        let creation = Arc::clone(self);
        let client = client.map(creating);
        ottla_sync::task::spawn(async move {
            let config = creation.node.context.config().clone();
            let request = CreateTopicsRequest {
                topics: under_way
                    .names
                    .iter()
                    .map(|name| creatable_topic(&config, name))
                    .collect(),
                ..Default::default()
            };
            let node = &creation.node;
            let answer = match &client {
                Some(client) => node.forward(client, request).await,
                None => node.ask_controller(request).await,
            };
            match answer {
                Ok(response) => {
                    for topic in response.topics {
                        let error = ErrorCode::from_code(topic.error_code);
                        if !matches!(error, ErrorCode::None | ErrorCode::TopicAlreadyExists) {
                            let reason = topic.error_message.unwrap_or_default();
                            let way_out = way_out(&topic.name, error);
                            creation.complaints.say(|| {
                                tracing::warn!(
                                    "topic {} cannot be created: {error}: {reason}{way_out}",
                                    topic.name
                                );
                            });
                        }
                    }
                }
                Err(error) => {
                    let complaints = &creation.complaints;
                    complaints.say(|| tracing::warn!("no topic can be created: {error}"));
                }
            }
        });
    }

    /// Asks the controller to create a topic on behalf of the broker, and returns when it is created.
    ///
    /// # Errors
    /// Also if the topic exists.
    pub async fn create_topic(&self, topic: CreatableTopic) -> Result<(), CreationError> {
        let request = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: self.node.context.config().request_timeout_ms,
            ..Default::default()
        };
        let response = self.node.ask_controller(request).await?;
        let Some(created) = response.topics.into_iter().next() else {
            return Err(ErrorCode::UnknownTopicOrPartition.into());
        };
        match ErrorCode::from_code(created.error_code) {
            ErrorCode::None => Ok(()),
            code => Err(CreationError {
                code,
                message: created
                    .error_message
                    .unwrap_or_else(|| code.message().into()),
            }),
        }
    }

    /// Asks the controller to create the internal topics of a streams group on behalf of the client
    /// in `context`. Returns at once. A creation that failed is not retried for `pause`; until then
    /// [`failed_creations`](Self::failed_creations) returns its error.
    pub fn create_topics_for(
        self: &Arc<Self>,
        context: &RequestContext,
        mut topics: Vec<CreatableTopic>,
        pause: Duration,
    ) {
        let (creation, now_ms) = (self, self.node.context.now_ms());
        topics.retain(|topic| creation.failures.lock().of(&topic.name, now_ms).is_none());
        let until_ms = now_ms.saturating_add(pause.as_millis() as u64);
        let names = topics.iter().map(|topic| topic.name.clone());
        if !topics.is_empty() && creation.node.context.check_heap().is_err() {
            let failed = names.map(|name| (name, HEAP_FULL.into()));
            creation.failures.lock().put(failed, now_ms, until_ms);
            return;
        }
        let under_way = creation.begin(names.collect());
        topics.retain(|topic| under_way.names.contains(&topic.name));
        if topics.is_empty() {
            return;
        }
        let request = CreateTopicsRequest {
            topics,
            timeout_ms: self.node.context.config().request_timeout_ms,
            ..Default::default()
        };
        let context = creating(context);
        let creation = Arc::clone(self);
        ottla_sync::task::spawn(async move {
            let failed = match creation.node.forward(&context, request).await {
                Ok(response) => failures_of(response),
                Err(error) => {
                    let names = under_way.names.iter().cloned();
                    names.map(|name| (name, error.message().into())).collect()
                }
            };
            let now_ms = creation.node.context.now_ms();
            let until_ms = now_ms.saturating_add(pause.as_millis() as u64);
            let mut failures = creation.failures.lock();
            failures.put(failed, now_ms, until_ms);
        });
    }

    /// The topics whose creation has failed recently, each with the error message.
    pub fn failed_creations(&self, names: &[ByteString]) -> Vec<(ByteString, ByteString)> {
        let now_ms = self.node.context.now_ms();
        let failures = self.failures.lock();
        let reason = |name: &ByteString| failures.of(name, now_ms).cloned();
        let names = names.iter();
        names
            .filter_map(|name| Some((name.clone(), reason(name)?)))
            .collect()
    }
}

/// The context for CreateTopics. A remote controller is sent the request in the version that the
/// context names, which was that of another API.
fn creating(context: &RequestContext) -> RequestContext {
    RequestContext {
        api_key: ApiKey::CreateTopics,
        api_version: *ApiKey::CreateTopics.stable_versions().end(),
        ..context.clone()
    }
}

fn failures_of(response: CreateTopicsResponse) -> Vec<(ByteString, ByteString)> {
    let topics = response.topics.into_iter();
    topics
        .filter(|topic| topic.error_code != ErrorCode::None.code())
        .map(|topic| {
            let said = topic.error_message.filter(|message| !message.is_empty());
            let error = ErrorCode::from_code(topic.error_code);
            (topic.name, said.unwrap_or_else(|| error.message().into()))
        })
        .collect()
}

/// Advice for the operator when an internal topic cannot be created.
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
    use ottla_config::{BrokerConfig, single_node_properties};
    use ottla_context::NodeContext;

    use super::*;

    fn without_controller() -> AutoTopicCreation {
        let properties = single_node_properties("data", "127.0.0.1:0", "127.0.0.1:0");
        let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
        AutoTopicCreation::new(Arc::new(Node::new(Arc::new(NodeContext::new(config)))))
    }

    #[tokio::test]
    async fn a_creation_that_panics_is_not_left_under_way() {
        let creation = without_controller();
        let both = || vec!["t".into(), "u".into()];
        let under_way = creation.begin(vec!["t".into()]);
        assert_eq!(creation.begin(both()).names, ["u"]);
        let task = ottla_sync::task::spawn(async move {
            let _under_way = under_way;
            panic!("as it may");
        });
        assert!(task.await.is_err_and(|error| error.is_panic()));
        assert_eq!(creation.begin(both()).names, ["t", "u"]);
    }

    #[test]
    fn the_error_names_the_setting_with_too_many_replicas() {
        let of = |topic| way_out(topic, ErrorCode::InvalidReplicationFactor);
        assert!(of("__consumer_offsets").contains("offsets.topic.replication.factor"));
        assert_eq!(of("orders"), "");
        assert_eq!(
            way_out("__consumer_offsets", ErrorCode::PolicyViolation),
            ""
        );
    }
}
