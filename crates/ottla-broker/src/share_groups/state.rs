//! Requests to the share coordinators of this broker: one share partition each, however many a client asks for at once.
//! Source: `ShareCoordinatorService`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::ReplyTo;
use ottla_coordinator::share_state::{
    InitializeState, Outcome, ReadState, Response, ShareCoordinator, SharePartitionKey, StateError,
    StateRead, StateSummary, WriteState,
};
use ottla_types::{ErrorCode, Timestamp, Uuid};

use super::ShareGroups;
use crate::{Broker, Operation, RequestContext, ResourceType};

/// Why a request is refused: by the coordinator, or because it is not here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StateFailure {
    pub(crate) code: ErrorCode,
    pub(crate) message: ByteString,
}

/// Why a partition of a member's request has failed. What its share partition has to say is told with a message, and what is
/// refused before one is asked only with its code (`KafkaApis.handleShareFetchRequest`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PartitionFailure {
    pub(crate) code: ErrorCode,
    pub(crate) message: Option<ByteString>,
}

impl PartitionFailure {
    pub(crate) fn refused(code: ErrorCode) -> Self {
        PartitionFailure {
            code,
            message: None,
        }
    }
}

impl From<StateFailure> for PartitionFailure {
    fn from(failure: StateFailure) -> Self {
        PartitionFailure {
            code: failure.code,
            message: Some(failure.message),
        }
    }
}

impl From<StateError> for StateFailure {
    fn from(error: StateError) -> Self {
        StateFailure {
            code: error.code,
            message: ByteString::from_static(error.message),
        }
    }
}

impl From<ErrorCode> for StateFailure {
    fn from(code: ErrorCode) -> Self {
        StateFailure {
            code,
            message: ByteString::from_static(code.message()),
        }
    }
}

/// Whether the client is one of the cluster's brokers, or as good as one.
fn may_ask_coordinators(broker: &Broker, context: &RequestContext) -> Result<(), StateFailure> {
    let (act, of_cluster) = (Operation::ClusterAction, ResourceType::Cluster);
    match broker
        .authorizer
        .is_allowed(context, act, of_cluster, "kafka-cluster")
    {
        true => Ok(()),
        false => Err(ErrorCode::ClusterAuthorizationFailed.into()),
    }
}

impl StateFailure {
    /// Of a task that panicked, which has been reported where it happened.
    pub(crate) fn panicked() -> Self {
        ErrorCode::UnknownServerError.into()
    }

    fn not_here(code: ErrorCode, what: &str) -> Self {
        StateFailure {
            code,
            message: coordinator_message(what, code.message()).into(),
        }
    }
}

/// What a client of share coordinators was answered of the partitions of a topic, by their numbers.
pub(crate) type TopicAnswers<T> = (Uuid, Vec<(i32, Result<T, StateFailure>)>);

/// Asks for every share partition of a request at once, since each has a coordinator of its own. The answers come in the order of
/// the request; they are failures where the client is none of the cluster's brokers.
pub(crate) async fn ask_for_each<P, T, F>(
    broker: &Arc<Broker>,
    context: &RequestContext,
    group_id: &ByteString,
    topics: impl IntoIterator<Item = (Uuid, Vec<P>)>,
    number_of: impl Fn(&P) -> i32,
    ask: impl Fn(Arc<Broker>, SharePartitionKey, P) -> F,
) -> Vec<TopicAnswers<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StateFailure>> + Send + 'static,
{
    let is_allowed = may_ask_coordinators(broker, context);
    // Kafka has no answer for any partition then.
    if group_id.is_empty() && is_allowed.is_ok() {
        return Vec::new();
    }
    let mut asked = Vec::new();
    for (topic_id, partitions) in topics {
        let mut asked_of_topic = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let number = number_of(&partition);
            let key = SharePartitionKey {
                group_id: group_id.clone(),
                topic_id,
                partition: number,
            };
            let is_allowed = is_allowed.clone();
            let answer = ask(Arc::clone(broker), key, partition);
            let answered = tokio::spawn(async move {
                is_allowed?;
                answer.await
            });
            asked_of_topic.push((number, answered));
        }
        asked.push((topic_id, asked_of_topic));
    }
    let mut answers = Vec::with_capacity(asked.len());
    for (topic_id, asked) in asked {
        let mut answered = Vec::with_capacity(asked.len());
        for (number, answer) in asked {
            let answer = answer.await;
            let answer = answer.unwrap_or_else(|_| Err(StateFailure::panicked()));
            answered.push((number, answer));
        }
        answers.push((topic_id, answered));
    }
    answers
}

/// Kafka's sentence for what could not be done.
fn coordinator_message(what: &str, reason: &str) -> String {
    format!("Unable to {what}: {reason}")
}

impl ShareGroups {
    pub(crate) async fn initialize_state(
        &self,
        broker: &Arc<Broker>,
        request: InitializeState,
    ) -> Result<(), StateFailure> {
        let (key, what) = (request.key.clone(), "initialize share group state");
        let initialize = |coordinator: &mut ShareCoordinator, to, count, now| {
            coordinator.initialize_state(to, request, count, now)
        };
        match self.ask(broker, &key, what, initialize).await? {
            Response::Initialized(initialized) => initialized.map_err(StateFailure::from),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) async fn write_state(
        &self,
        broker: &Arc<Broker>,
        request: WriteState,
    ) -> Result<(), StateFailure> {
        let (key, what) = (request.key.clone(), "write share group state");
        let write = |coordinator: &mut ShareCoordinator, to, count, now| {
            coordinator.write_state(to, request, count, now)
        };
        match self.ask(broker, &key, what, write).await? {
            Response::Written(written) => written.map_err(StateFailure::from),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) async fn read_state(
        &self,
        broker: &Arc<Broker>,
        request: ReadState,
    ) -> Result<StateRead, StateFailure> {
        let (key, what) = (request.key.clone(), "read share group state");
        let read = |coordinator: &mut ShareCoordinator, to, count, now| {
            coordinator.read_state(to, request, count, now)
        };
        match self.ask(broker, &key, what, read).await? {
            Response::Read(read) => read.map_err(StateFailure::from),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) async fn read_state_summary(
        &self,
        broker: &Arc<Broker>,
        key: SharePartitionKey,
    ) -> Result<StateSummary, StateFailure> {
        let what = "read share group state summary";
        let read = |coordinator: &mut ShareCoordinator, to, count, _| {
            coordinator.read_state_summary(to, &key, count)
        };
        match self.ask(broker, &key, what, read).await? {
            Response::Summary(summary) => summary.map_err(StateFailure::from),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) async fn delete_state(
        &self,
        broker: &Arc<Broker>,
        key: SharePartitionKey,
    ) -> Result<(), StateFailure> {
        let (deleted, what) = (key.clone(), "delete share group state");
        let delete = |coordinator: &mut ShareCoordinator, to, count, _| {
            coordinator.delete_state(to, deleted, count)
        };
        match self.ask(broker, &key, what, delete).await? {
            Response::Deleted(deleted) => deleted.map_err(StateFailure::from),
            other => Err(unexpected(&other)),
        }
    }

    /// Has the coordinator of a share partition decide, given how many partitions the topic has.
    async fn ask(
        &self,
        broker: &Arc<Broker>,
        key: &SharePartitionKey,
        what: &str,
        decide: impl FnOnce(&mut ShareCoordinator, ReplyTo, Option<i32>, Timestamp) -> Outcome,
    ) -> Result<Response, StateFailure> {
        let refused = |code| StateFailure::not_here(code, what);
        let shard = self
            .coordinator_of(broker, &key.coordinator_key())
            .map_err(refused)?;
        let image = broker.metadata().clone();
        let topic = image.topics.by_id(key.topic_id);
        let count = topic.map(|topic| topic.partition_count() as i32);
        let asked = shard.request(broker, |coordinator, to, now| {
            decide(coordinator, to, count, now)
        });
        asked.await.map_err(refused)
    }
}

/// A coordinator answers what it was asked.
fn unexpected(response: &Response) -> StateFailure {
    tracing::error!("the share coordinator has answered something else: {response:?}");
    ErrorCode::UnknownServerError.into()
}
