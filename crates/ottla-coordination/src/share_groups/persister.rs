//! The way to the share coordinator, wherever it is: for the leaders of partitions, and for the coordinators of groups.
//!
//! A coordinator that is not there, or not ready, is looked for again a few times, with pauses that grow; whoever asks
//! is told when that leads nowhere. What the coordinator itself refuses is not asked again.
//! Source: `DefaultStatePersister`, `PersisterStateManager`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use ottla_coordinator::persister::{
    InitializeState, ReadState, SharePartitionKey, StateBatch, StateFailure, StateRead,
    StateSummary, WriteState,
};
use ottla_protocol::ApiRequest;
use ottla_protocol::messages::{
    DeleteShareGroupStateRequest, InitializeShareGroupStateRequest, ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest, WriteShareGroupStateRequest,
};
use ottla_protocol::messages::{
    delete_share_group_state_request, initialize_share_group_state_request,
    read_share_group_state_request, read_share_group_state_summary_request,
    write_share_group_state_request,
};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use super::{SHARE_STATE_TOPIC, ShareGroups, panicked};
use crate::at_once::each_at_once;
use ottla_net::PeerError;

/// Share partitions that are asked about at one time, by one request.
pub const AT_ONCE: usize = 64;
/// How often a coordinator is looked for.
const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Stateless: what waits is held by whoever asks.
pub struct Persister;

enum Place {
    Here,
    Broker(BrokerId),
}

impl Persister {
    pub async fn initialize_state(
        share_groups: &Arc<ShareGroups>,
        request: InitializeState,
    ) -> Result<(), StateFailure> {
        use initialize_share_group_state_request::{InitializeStateData, PartitionData};
        let key = request.key.clone();
        persevere(share_groups, &key, |place| {
            let (share_groups, key, request) =
                (Arc::clone(share_groups), key.clone(), request.clone());
            Box::pin(async move {
                let share_groups = &share_groups;
                match place {
                    Place::Here => share_groups.initialize_state(request.clone()).await,
                    Place::Broker(id) => {
                        let partition = PartitionData {
                            partition: key.partition,
                            state_epoch: request.state_epoch,
                            start_offset: request.start_offset.0,
                            ..Default::default()
                        };
                        let wire = InitializeShareGroupStateRequest {
                            group_id: key.group_id.clone(),
                            topics: vec![InitializeStateData {
                                topic_id: key.topic_id,
                                partitions: vec![partition],
                                ..Default::default()
                            }],
                            ..Default::default()
                        };
                        let response = ask_peer(share_groups, id, &wire).await?;
                        let mut results = response
                            .results
                            .into_iter()
                            .flat_map(|topic| topic.partitions);
                        let result = results.next().ok_or_else(no_answer)?;
                        check(result.error_code, result.error_message)
                    }
                }
            })
        })
        .await
    }

    pub async fn read_state(
        share_groups: &Arc<ShareGroups>,
        request: ReadState,
    ) -> Result<StateRead, StateFailure> {
        use read_share_group_state_request::{PartitionData, ReadStateData};
        let key = request.key.clone();
        persevere(share_groups, &key, |place| {
            let (share_groups, key, request) =
                (Arc::clone(share_groups), key.clone(), request.clone());
            Box::pin(async move {
                let share_groups = &share_groups;
                match place {
                    Place::Here => share_groups.read_state(request.clone()).await,
                    Place::Broker(id) => {
                        let partition = PartitionData {
                            partition: key.partition,
                            leader_epoch: request.leader_epoch.0,
                            ..Default::default()
                        };
                        let wire = ReadShareGroupStateRequest {
                            group_id: key.group_id.clone(),
                            topics: vec![ReadStateData {
                                topic_id: key.topic_id,
                                partitions: vec![partition],
                                ..Default::default()
                            }],
                            ..Default::default()
                        };
                        let response = ask_peer(share_groups, id, &wire).await?;
                        let mut results = response
                            .results
                            .into_iter()
                            .flat_map(|topic| topic.partitions);
                        let result = results.next().ok_or_else(no_answer)?;
                        check(result.error_code, result.error_message)?;
                        let batches = result.state_batches.iter().map(|batch| StateBatch {
                            first_offset: Offset(batch.first_offset),
                            last_offset: Offset(batch.last_offset),
                            delivery_state: batch.delivery_state,
                            delivery_count: batch.delivery_count,
                        });
                        Ok(StateRead {
                            state_epoch: result.state_epoch,
                            start_offset: Offset(result.start_offset),
                            batches: batches.collect(),
                        })
                    }
                }
            })
        })
        .await
    }

    pub async fn write_state(
        share_groups: &Arc<ShareGroups>,
        request: WriteState,
    ) -> Result<(), StateFailure> {
        use write_share_group_state_request as wire;
        let key = request.key.clone();
        persevere(share_groups, &key, |place| {
            let (share_groups, key, request) =
                (Arc::clone(share_groups), key.clone(), request.clone());
            Box::pin(async move {
                let share_groups = &share_groups;
                match place {
                    Place::Here => share_groups.write_state(request.clone()).await,
                    Place::Broker(id) => {
                        let batches = request.batches.iter().map(|batch| wire::StateBatch {
                            first_offset: batch.first_offset.0,
                            last_offset: batch.last_offset.0,
                            delivery_state: batch.delivery_state,
                            delivery_count: batch.delivery_count,
                            ..Default::default()
                        });
                        let partition = wire::PartitionData {
                            partition: key.partition,
                            state_epoch: request.state_epoch,
                            leader_epoch: request.leader_epoch.0,
                            start_offset: request.start_offset.0,
                            delivery_complete_count: request.delivery_complete_count,
                            state_batches: batches.collect(),
                            ..Default::default()
                        };
                        let wire = WriteShareGroupStateRequest {
                            group_id: key.group_id.clone(),
                            topics: vec![wire::WriteStateData {
                                topic_id: key.topic_id,
                                partitions: vec![partition],
                                ..Default::default()
                            }],
                            ..Default::default()
                        };
                        let response = ask_peer(share_groups, id, &wire).await?;
                        let mut results = response
                            .results
                            .into_iter()
                            .flat_map(|topic| topic.partitions);
                        let result = results.next().ok_or_else(no_answer)?;
                        check(result.error_code, result.error_message)
                    }
                }
            })
        })
        .await
    }

    pub async fn read_state_summary(
        share_groups: &Arc<ShareGroups>,
        key: SharePartitionKey,
    ) -> Result<StateSummary, StateFailure> {
        use read_share_group_state_summary_request::{PartitionData, ReadStateSummaryData};
        persevere(share_groups, &key, |place| {
            let (share_groups, key) = (Arc::clone(share_groups), key.clone());
            Box::pin(async move {
                let share_groups = &share_groups;
                let id = match place {
                    Place::Here => {
                        return share_groups.read_state_summary(key).await;
                    }
                    Place::Broker(id) => id,
                };
                let wire = ReadShareGroupStateSummaryRequest {
                    group_id: key.group_id.clone(),
                    topics: vec![ReadStateSummaryData {
                        topic_id: key.topic_id,
                        partitions: vec![PartitionData {
                            partition: key.partition,
                            ..Default::default()
                        }],
                        ..Default::default()
                    }],
                    ..Default::default()
                };
                let response = ask_peer(share_groups, id, &wire).await?;
                let results = response.results.into_iter();
                let mut results = results.flat_map(|topic| topic.partitions);
                let result = results.next().ok_or_else(no_answer)?;
                check(result.error_code, result.error_message)?;
                Ok(StateSummary {
                    state_epoch: result.state_epoch,
                    leader_epoch: LeaderEpoch(result.leader_epoch),
                    start_offset: Offset(result.start_offset),
                    delivery_complete_count: result.delivery_complete_count,
                })
            })
        })
        .await
    }

    pub async fn delete_state(
        share_groups: &Arc<ShareGroups>,
        key: SharePartitionKey,
    ) -> Result<(), StateFailure> {
        use delete_share_group_state_request::{DeleteStateData, PartitionData};
        persevere(share_groups, &key, |place| {
            let (share_groups, key) = (Arc::clone(share_groups), key.clone());
            Box::pin(async move {
                let share_groups = &share_groups;
                let id = match place {
                    Place::Here => return share_groups.delete_state(key).await,
                    Place::Broker(id) => id,
                };
                let wire = DeleteShareGroupStateRequest {
                    group_id: key.group_id.clone(),
                    topics: vec![DeleteStateData {
                        topic_id: key.topic_id,
                        partitions: vec![PartitionData {
                            partition: key.partition,
                            ..Default::default()
                        }],
                        ..Default::default()
                    }],
                    ..Default::default()
                };
                let response = ask_peer(share_groups, id, &wire).await?;
                let results = response.results.into_iter();
                let mut results = results.flat_map(|topic| topic.partitions);
                let result = results.next().ok_or_else(no_answer)?;
                check(result.error_code, result.error_message)
            })
        })
        .await
    }

    /// Asks about several share partitions, up to [`AT_ONCE`] at one time: how many there are a client may say. The
    /// answers come in the order of the questions.
    pub async fn each<Q, T, F>(
        share_groups: &Arc<ShareGroups>,
        questions: Vec<Q>,
        ask: impl Fn(Arc<ShareGroups>, Q) -> F,
    ) -> Vec<Result<T, StateFailure>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StateFailure>> + Send + 'static,
    {
        let questions = questions
            .into_iter()
            .map(|question| (Arc::clone(share_groups), question));
        let answers = each_at_once(AT_ONCE, questions, |(share_groups, question)| {
            ask(share_groups, question)
        });
        let answers = answers.await.into_iter();
        answers
            .map(|answer| answer.unwrap_or_else(|| Err(panicked())))
            .collect()
    }
}

/// One attempt. Boxed, since it is spawned by some who ask.
type Asking<T> = Pin<Box<dyn Future<Output = Result<T, StateFailure>> + Send>>;

/// Asks until somebody answers who coordinates the share partition.
async fn persevere<T>(
    share_groups: &Arc<ShareGroups>,
    key: &SharePartitionKey,
    ask: impl Fn(Place) -> Asking<T>,
) -> Result<T, StateFailure> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..ATTEMPTS {
        let asked = match place_of(share_groups, key) {
            Ok(place) => ask(place).await,
            Err(failure) => Err(failure),
        };
        match asked {
            Err(failure)
                if may_ask_again(failure.code)
                    && !share_groups.surroundings.context.is_stopping() => {}
            asked => return asked,
        }
        ottla_sync::time::sleep(pause).await;
        pause *= 2;
    }
    ask(place_of(share_groups, key)?).await
}

fn may_ask_again(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotCoordinator
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::NetworkException
    )
}

/// Who leads the partition of `__share_group_state`, which is created where it is not there yet.
fn place_of(
    share_groups: &Arc<ShareGroups>,
    key: &SharePartitionKey,
) -> Result<Place, StateFailure> {
    let unavailable = || StateFailure::from(ErrorCode::CoordinatorNotAvailable);
    let index = share_groups.partition_of(&key.coordinator_key());
    let image = share_groups.surroundings.context.metadata();
    let Some(topic) = image.topics.by_name(SHARE_STATE_TOPIC) else {
        share_groups
            .surroundings
            .auto_topic_creation
            .create_topics_in_background(None, vec![SHARE_STATE_TOPIC.into()]);
        return Err(unavailable());
    };
    let registration = topic.partition(index.into()).ok_or_else(unavailable)?;
    if registration.leader == share_groups.surroundings.context.broker_id() {
        return Ok(Place::Here);
    }
    match image.cluster.broker(registration.leader) {
        Some(registered) if !registered.fenced => Ok(Place::Broker(registration.leader)),
        _ => Err(unavailable()),
    }
}

pub(super) async fn ask_peer<R: ApiRequest>(
    share_groups: &Arc<ShareGroups>,
    id: BrokerId,
    request: &R,
) -> Result<R::Response, StateFailure> {
    let timeout_ms = share_groups
        .surroundings
        .context
        .config()
        .request_timeout_ms
        .max(1) as u64;
    let timeout = Duration::from_millis(timeout_ms);
    let connection = share_groups
        .surroundings
        .peers
        .connection(&share_groups.surroundings.context, id, timeout)
        .await;
    let answered = connection.map_err(unreachable)?.send(request).await;
    answered.map_err(unreachable)
}

fn unreachable(error: PeerError) -> StateFailure {
    tracing::debug!("cannot reach a share coordinator: {error}");
    StateFailure::from(ErrorCode::NetworkException)
}

fn no_answer() -> StateFailure {
    StateFailure::from(ErrorCode::UnknownServerError)
}

fn check(code: i16, message: Option<ByteString>) -> Result<(), StateFailure> {
    let error = ErrorCode::from_code(code).into_result();
    error.map_err(|code| StateFailure {
        message: message.unwrap_or_else(|| ByteString::from_static(code.message())),
        code,
    })
}
