//! Requests to the share coordinators of this broker: one share partition each, however many a client asks for at once.
//! Source: `ShareCoordinatorService`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::ReplyTo;
use ottla_coordinator::persister::{
    InitializeState, ReadState, SharePartitionKey, StateFailure, StateRead, StateSummary,
    WriteState,
};
use ottla_coordinator::share_state::{Outcome, Response, ShareCoordinator, StateError};
use ottla_types::{ErrorCode, Timestamp, Uuid};

use super::{Persister, ShareGroups};
use ottla_net::{Operation, RequestContext, ResourceType};

/// Why a partition of a member's request has failed. What its share partition has to say is told with a message, and what is
/// refused before one is asked only with its code (`KafkaApis.handleShareFetchRequest`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionFailure {
    pub code: ErrorCode,
    pub message: Option<ByteString>,
}

impl PartitionFailure {
    pub fn refused(code: ErrorCode) -> Self {
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

/// Whether the client is one of the cluster's brokers, or as good as one.
fn may_ask_coordinators(
    share_groups: &ShareGroups,
    context: &RequestContext,
) -> Result<(), StateFailure> {
    let (act, of_cluster) = (Operation::ClusterAction, ResourceType::Cluster);
    match share_groups
        .surroundings
        .authorizer
        .is_allowed(context, act, of_cluster, "kafka-cluster")
    {
        true => Ok(()),
        false => Err(ErrorCode::ClusterAuthorizationFailed.into()),
    }
}

/// Of a task that panicked, which has been reported where it happened.
pub fn panicked() -> StateFailure {
    ErrorCode::UnknownServerError.into()
}

fn not_here(code: ErrorCode, what: &str) -> StateFailure {
    StateFailure {
        code,
        message: coordinator_message(what, code.message()).into(),
    }
}

/// What a client of share coordinators was answered of the partitions of a topic, by their numbers.
pub type TopicAnswers<T> = (Uuid, Vec<(i32, Result<T, StateFailure>)>);

/// Asks for several share partitions of a request at one time, since each has a coordinator of its own. The answers come
/// in the order of the request; they are failures where the client is none of the cluster's brokers, and nothing is asked.
pub async fn ask_for_each<P, T, F>(
    share_groups: &Arc<ShareGroups>,
    context: &RequestContext,
    group_id: &ByteString,
    topics: impl IntoIterator<Item = (Uuid, Vec<P>)>,
    number_of: impl Fn(&P) -> i32,
    ask: impl Fn(Arc<ShareGroups>, SharePartitionKey, P) -> F,
) -> Vec<TopicAnswers<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StateFailure>> + Send + 'static,
{
    let refused = may_ask_coordinators(share_groups, context).err();
    // Kafka has no answer for any partition then.
    if group_id.is_empty() && refused.is_none() {
        return Vec::new();
    }
    let (mut numbers, mut questions) = (Vec::new(), Vec::new());
    for (topic_id, partitions) in topics {
        let of_topic: Vec<i32> = partitions.iter().map(&number_of).collect();
        if refused.is_none() {
            questions.extend(of_topic.iter().zip(partitions).map(|(number, partition)| {
                let key = SharePartitionKey {
                    group_id: group_id.clone(),
                    topic_id,
                    partition: *number,
                };
                (key, partition)
            }));
        }
        numbers.push((topic_id, of_topic));
    }
    let answers = Persister::each(share_groups, questions, |share_groups, (key, partition)| {
        ask(share_groups, key, partition)
    });
    let mut answers = answers.await.into_iter();
    let mut answer = || match &refused {
        Some(failure) => Err(failure.clone()),
        None => answers.next().expect("each question has an answer"),
    };
    let topics = numbers.into_iter().map(|(topic_id, numbers)| {
        let answered = numbers.into_iter().map(|number| (number, answer()));
        (topic_id, answered.collect())
    });
    topics.collect()
}

/// Kafka's sentence for what could not be done.
fn coordinator_message(what: &str, reason: &str) -> String {
    format!("Unable to {what}: {reason}")
}

impl ShareGroups {
    pub async fn initialize_state(
        self: &Arc<Self>,
        request: InitializeState,
    ) -> Result<(), StateFailure> {
        let (key, what) = (request.key.clone(), "initialize share group state");
        let asked = self.ask(&key, what, |coordinator, to, count, now| {
            coordinator.initialize_state(to, request, count, now)
        });
        asked.await
    }

    pub async fn write_state(self: &Arc<Self>, request: WriteState) -> Result<(), StateFailure> {
        let (key, what) = (request.key.clone(), "write share group state");
        let asked = self.ask(&key, what, |coordinator, to, count, now| {
            coordinator.write_state(to, request, count, now)
        });
        asked.await
    }

    pub async fn read_state(
        self: &Arc<Self>,
        request: ReadState,
    ) -> Result<StateRead, StateFailure> {
        let (key, what) = (request.key.clone(), "read share group state");
        let asked = self.ask(&key, what, |coordinator, to, count, now| {
            coordinator.read_state(to, request, count, now)
        });
        asked.await
    }

    pub async fn read_state_summary(
        self: &Arc<Self>,
        key: SharePartitionKey,
    ) -> Result<StateSummary, StateFailure> {
        let what = "read share group state summary";
        let asked = self.ask(&key, what, |coordinator, to, count, _| {
            coordinator.read_state_summary(to, &key, count)
        });
        asked.await
    }

    pub async fn delete_state(
        self: &Arc<Self>,
        key: SharePartitionKey,
    ) -> Result<(), StateFailure> {
        let asked = self.ask(
            &key,
            "delete share group state",
            |coordinator, to, count, _| coordinator.delete_state(to, key.clone(), count),
        );
        asked.await
    }

    /// Has the coordinator of a share partition decide, given how many partitions the topic has.
    async fn ask<T>(
        self: &Arc<Self>,
        key: &SharePartitionKey,
        what: &str,
        decide: impl FnOnce(
            &mut ShareCoordinator,
            ReplyTo<Result<T, StateError>>,
            Option<i32>,
            Timestamp,
        ) -> Outcome,
    ) -> Result<T, StateFailure>
    where
        Result<T, StateError>: TryFrom<Response>,
    {
        let image = self.surroundings.context.metadata().clone();
        let topic = image.topics.by_id(key.topic_id);
        let count = topic.map(|topic| topic.partition_count() as i32);
        let coordinator_key = key.coordinator_key();
        let asked = self.request(self, &coordinator_key, |coordinator, to, now| {
            decide(coordinator, to, count, now)
        });
        let answered = asked.await.map_err(|code| not_here(code, what))?;
        answered.map_err(StateFailure::from)
    }
}
