//! The requests to a share coordinator about one share partition, and their encoding, for both the
//! client and the server side.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::persister::{
    InitializeState, ReadState, SharePartitionKey, StateFailure, StateRead, StateSummary,
    WriteState,
};
use ottla_protocol::ApiRequest;
use ottla_protocol::messages::*;
use ottla_types::{ErrorCode, LeaderEpoch, Offset, Uuid};

use super::coordinators::ShareCoordinators;

pub trait StateQuestion: Clone + Send + Sync + 'static {
    type Request: ApiRequest<Response: Send> + Send + Sync;
    /// The fields of one partition in the request, and its result in the response.
    type Partition: Send;
    type Result;
    type Answer: Send + 'static;

    fn key(&self) -> &SharePartitionKey;

    /// Sends the request to the coordinator on this broker.
    fn ask_here(
        self,
        coordinators: &Arc<ShareCoordinators>,
    ) -> impl Future<Output = Result<Self::Answer, StateFailure>> + Send;

    fn to_partition(&self) -> Self::Partition;

    fn of_partition(key: SharePartitionKey, partition: Self::Partition) -> Self;

    /// Converts a result without an error.
    fn answer_of(result: Self::Result) -> Self::Answer;

    fn result_of(answer: Self::Answer) -> Self::Result;

    // How partitions are nested in topics (`nested_by_topic`)

    fn index_of(partition: &Self::Partition) -> i32;

    /// The request for this share partition only.
    fn to_request(&self) -> Self::Request;

    /// The answer in the response to [`Self::to_request`].
    fn answer_in(response: ResponseOf<Self>) -> Result<Self::Answer, StateFailure>;

    /// The group and the topics of a request.
    fn topics_of(request: Self::Request) -> (ByteString, Vec<(Uuid, Vec<Self::Partition>)>);

    fn to_response(answers: Vec<TopicAnswers<Self::Answer>>) -> ResponseOf<Self>;
}

pub type ResponseOf<Q> = <<Q as StateQuestion>::Request as ApiRequest>::Response;

/// The results of a topic's partitions, by partition index.
pub type TopicAnswers<T> = (Uuid, Vec<(i32, Result<T, StateFailure>)>);

/// The five APIs nest partitions in the same way, each with its own types. The last two arguments are
/// the words for an error, and the call of the coordinator.
macro_rules! nested_by_topic {
    (
        $request:ident::$Data:ident in $Request:ident,
        $response:ident::$Topic:ident in $Response:ident,
        $what:literal,
        |$coordinator:ident, $to:ident, $question:ident, $count:ident, $now:ident| $outcome:expr
    ) => {
        type Request = $Request;
        type Partition = $request::PartitionData;
        type Result = $response::PartitionResult;

        fn key(&self) -> &SharePartitionKey {
            &self.key
        }

        async fn ask_here(
            self,
            coordinators: &Arc<ShareCoordinators>,
        ) -> Result<Self::Answer, StateFailure> {
            let key = self.key.clone();
            let asked = coordinators.ask(&key, $what, |$coordinator, $to, $count, $now| {
                let $question = self;
                $outcome
            });
            asked.await
        }

        fn index_of(partition: &Self::Partition) -> i32 {
            partition.partition
        }

        fn to_request(&self) -> $Request {
            let topic = $request::$Data {
                topic_id: self.key().topic_id,
                partitions: vec![self.to_partition()],
                ..Default::default()
            };
            $Request {
                group_id: self.key().group_id.clone(),
                topics: vec![topic],
                ..Default::default()
            }
        }

        fn answer_in(response: $Response) -> Result<Self::Answer, StateFailure> {
            let results = response.results.into_iter();
            let mut results = results.flat_map(|topic| topic.partitions);
            let mut result = results.next().ok_or(ErrorCode::UnknownServerError)?;
            let message = result.error_message.take();
            match ErrorCode::from_code(result.error_code) {
                ErrorCode::None => Ok(Self::answer_of(result)),
                code => Err(StateFailure {
                    code,
                    message: message.unwrap_or_else(|| ByteString::from_static(code.message())),
                }),
            }
        }

        fn topics_of(request: $Request) -> (ByteString, Vec<(Uuid, Vec<Self::Partition>)>) {
            let topics = request.topics.into_iter();
            let topics = topics.map(|topic| (topic.topic_id, topic.partitions));
            (request.group_id, topics.collect())
        }

        fn to_response(answers: Vec<TopicAnswers<Self::Answer>>) -> $Response {
            let result = |(partition, answered): (i32, Result<Self::Answer, StateFailure>)| {
                let result = match answered {
                    Ok(answer) => Self::result_of(answer),
                    Err(failure) => Self::Result {
                        error_code: failure.code.code(),
                        error_message: Some(failure.message),
                        ..Default::default()
                    },
                };
                Self::Result {
                    partition,
                    ..result
                }
            };
            let results = answers
                .into_iter()
                .map(|(topic_id, partitions)| $response::$Topic {
                    topic_id,
                    partitions: partitions.into_iter().map(result).collect(),
                    ..Default::default()
                });
            $Response {
                results: results.collect(),
                ..Default::default()
            }
        }
    };
}

impl StateQuestion for InitializeState {
    nested_by_topic!(
        initialize_share_group_state_request::InitializeStateData in InitializeShareGroupStateRequest,
        initialize_share_group_state_response::InitializeStateResult in InitializeShareGroupStateResponse,
        "initialize share group state",
        |coordinator, to, it, count, now| coordinator.initialize_state(to, it, count, now)
    );
    type Answer = ();

    fn to_partition(&self) -> Self::Partition {
        Self::Partition {
            partition: self.key().partition,
            state_epoch: self.state_epoch,
            start_offset: self.start_offset.0,
            ..Default::default()
        }
    }

    fn of_partition(key: SharePartitionKey, partition: Self::Partition) -> Self {
        InitializeState {
            key,
            state_epoch: partition.state_epoch,
            start_offset: Offset(partition.start_offset),
        }
    }

    fn answer_of(_: Self::Result) {}

    fn result_of((): ()) -> Self::Result {
        Self::Result::default()
    }
}

impl StateQuestion for ReadState {
    nested_by_topic!(
        read_share_group_state_request::ReadStateData in ReadShareGroupStateRequest,
        read_share_group_state_response::ReadStateResult in ReadShareGroupStateResponse,
        "read share group state",
        |coordinator, to, it, count, now| coordinator.read_state(to, it, count, now)
    );
    type Answer = StateRead;

    fn to_partition(&self) -> Self::Partition {
        Self::Partition {
            partition: self.key().partition,
            leader_epoch: self.leader_epoch.0,
            ..Default::default()
        }
    }

    fn of_partition(key: SharePartitionKey, partition: Self::Partition) -> Self {
        ReadState {
            key,
            leader_epoch: LeaderEpoch(partition.leader_epoch),
        }
    }

    fn answer_of(result: Self::Result) -> StateRead {
        StateRead {
            state_epoch: result.state_epoch,
            start_offset: Offset(result.start_offset),
            batches: result.state_batches.iter().map(Into::into).collect(),
        }
    }

    fn result_of(read: StateRead) -> Self::Result {
        Self::Result {
            state_epoch: read.state_epoch,
            start_offset: read.start_offset.0,
            state_batches: read.batches.iter().map(Into::into).collect(),
            ..Default::default()
        }
    }
}

impl StateQuestion for WriteState {
    nested_by_topic!(
        write_share_group_state_request::WriteStateData in WriteShareGroupStateRequest,
        write_share_group_state_response::WriteStateResult in WriteShareGroupStateResponse,
        "write share group state",
        |coordinator, to, it, count, now| coordinator.write_state(to, it, count, now)
    );
    type Answer = ();

    fn to_partition(&self) -> Self::Partition {
        Self::Partition {
            partition: self.key().partition,
            state_epoch: self.state_epoch,
            leader_epoch: self.leader_epoch.0,
            start_offset: self.start_offset.0,
            delivery_complete_count: self.delivery_complete_count,
            state_batches: self.batches.iter().map(Into::into).collect(),
            ..Default::default()
        }
    }

    fn of_partition(key: SharePartitionKey, partition: Self::Partition) -> Self {
        WriteState {
            key,
            state_epoch: partition.state_epoch,
            leader_epoch: LeaderEpoch(partition.leader_epoch),
            start_offset: Offset(partition.start_offset),
            delivery_complete_count: partition.delivery_complete_count,
            batches: partition.state_batches.iter().map(Into::into).collect(),
        }
    }

    fn answer_of(_: Self::Result) {}

    fn result_of((): ()) -> Self::Result {
        Self::Result::default()
    }
}

/// The summary of a share partition's state.
#[derive(Clone)]
pub struct ReadSummary {
    pub key: SharePartitionKey,
}

impl StateQuestion for ReadSummary {
    nested_by_topic!(
        read_share_group_state_summary_request::ReadStateSummaryData in ReadShareGroupStateSummaryRequest,
        read_share_group_state_summary_response::ReadStateSummaryResult in ReadShareGroupStateSummaryResponse,
        "read share group state summary",
        |coordinator, to, it, count, _now| coordinator.read_state_summary(to, &it.key, count)
    );
    type Answer = StateSummary;

    fn to_partition(&self) -> Self::Partition {
        Self::Partition {
            partition: self.key().partition,
            ..Default::default()
        }
    }

    fn of_partition(key: SharePartitionKey, _: Self::Partition) -> Self {
        ReadSummary { key }
    }

    fn answer_of(result: Self::Result) -> StateSummary {
        StateSummary {
            state_epoch: result.state_epoch,
            leader_epoch: LeaderEpoch(result.leader_epoch),
            start_offset: Offset(result.start_offset),
            delivery_complete_count: result.delivery_complete_count,
        }
    }

    fn result_of(summary: StateSummary) -> Self::Result {
        Self::Result {
            state_epoch: summary.state_epoch,
            leader_epoch: summary.leader_epoch.0,
            start_offset: summary.start_offset.0,
            delivery_complete_count: summary.delivery_complete_count,
            ..Default::default()
        }
    }
}

#[derive(Clone)]
pub struct DeleteState {
    pub key: SharePartitionKey,
}

impl StateQuestion for DeleteState {
    nested_by_topic!(
        delete_share_group_state_request::DeleteStateData in DeleteShareGroupStateRequest,
        delete_share_group_state_response::DeleteStateResult in DeleteShareGroupStateResponse,
        "delete share group state",
        |coordinator, to, it, count, _now| coordinator.delete_state(to, it.key, count)
    );
    type Answer = ();

    fn to_partition(&self) -> Self::Partition {
        Self::Partition {
            partition: self.key().partition,
            ..Default::default()
        }
    }

    fn of_partition(key: SharePartitionKey, _: Self::Partition) -> Self {
        DeleteState { key }
    }

    fn answer_of(_: Self::Result) {}

    fn result_of((): ()) -> Self::Result {
        Self::Result::default()
    }
}
