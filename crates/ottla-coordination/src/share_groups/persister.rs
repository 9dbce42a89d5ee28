//! Client of the share coordinators, on any broker; used by partition leaders and group
//! coordinators.
//!
//! If a coordinator is unavailable or not ready, the request is retried a few times with growing
//! pauses, and then fails. Errors of the coordinator itself are not retried.
//!
//! Kafka: `DefaultStatePersister`, `PersisterStateManager`.

use std::sync::Arc;
use std::time::Duration;

use ottla_coordinator::persister::{SharePartitionKey, StateFailure};
use ottla_protocol::ApiRequest;
use ottla_types::{BrokerId, ErrorCode};

use super::coordinators::{SHARE_STATE_TOPIC, ShareCoordinators};
use super::failure::panicked;
use super::questions::StateQuestion;
use crate::at_once::each_at_once;
use ottla_net::PeerError;

/// Maximum number of concurrent calls for the share partitions of one request.
pub const AT_ONCE: usize = 64;
/// Maximum number of attempts.
const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

enum CoordinatorLocation {
    Local,
    Remote(BrokerId),
}

/// Asks about several share partitions, up to [`AT_ONCE`] concurrently, because a client chooses
/// their number. The answers are in the order of the questions.
pub async fn each<Q: StateQuestion>(
    coordinators: &Arc<ShareCoordinators>,
    questions: Vec<Q>,
) -> Vec<Result<Q::Answer, StateFailure>> {
    let asked = each_with(
        coordinators,
        questions,
        |coordinators, question| async move { ask(&coordinators, question).await },
    );
    asked.await
}

/// The same for anything that is asked about a share partition.
pub(super) async fn each_with<Q, T, F>(
    coordinators: &Arc<ShareCoordinators>,
    questions: Vec<Q>,
    ask: impl Fn(Arc<ShareCoordinators>, Q) -> F,
) -> Vec<Result<T, StateFailure>>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StateFailure>> + Send + 'static,
{
    let questions = questions
        .into_iter()
        .map(|question| (Arc::clone(coordinators), question));
    let answers = each_at_once(AT_ONCE, questions, |(coordinators, question)| {
        ask(coordinators, question)
    });
    let answers = answers.await.into_iter();
    answers
        .map(|answer| answer.unwrap_or_else(|| Err(panicked())))
        .collect()
}

/// Retries until the coordinator of the share partition answers.
pub(super) async fn ask<Q: StateQuestion>(
    coordinators: &Arc<ShareCoordinators>,
    question: Q,
) -> Result<Q::Answer, StateFailure> {
    let mut pause = FIRST_PAUSE;
    let mut attempts = 1;
    loop {
        match ask_once(coordinators, &question).await {
            Err(failure)
                if attempts < ATTEMPTS
                    && may_ask_again(failure.code)
                    && !coordinators.surroundings.context.is_stopping() => {}
            asked => return asked,
        }
        ottla_sync::time::sleep(pause).await;
        pause *= 2;
        attempts += 1;
    }
}

async fn ask_once<Q: StateQuestion>(
    coordinators: &Arc<ShareCoordinators>,
    question: &Q,
) -> Result<Q::Answer, StateFailure> {
    match place_of(coordinators, question.key())? {
        CoordinatorLocation::Local => question.clone().ask_here(coordinators).await,
        CoordinatorLocation::Remote(id) => {
            let request = question.to_request();
            Q::answer_in(ask_peer(coordinators, id, &request).await?)
        }
    }
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

/// The leader of the partition of `__share_group_state`; the topic is created if it does not exist.
fn place_of(
    coordinators: &Arc<ShareCoordinators>,
    key: &SharePartitionKey,
) -> Result<CoordinatorLocation, StateFailure> {
    let unavailable = || StateFailure::from(ErrorCode::CoordinatorNotAvailable);
    let index = coordinators.partition_of(&key.coordinator_key());
    let image = coordinators.surroundings.context.metadata();
    let Some(topic) = image.topics.by_name(SHARE_STATE_TOPIC) else {
        coordinators
            .surroundings
            .auto_topic_creation
            .create_topics_in_background(None, vec![SHARE_STATE_TOPIC.into()]);
        return Err(unavailable());
    };
    let registration = topic.partition(index.into()).ok_or_else(unavailable)?;
    if registration.leader == coordinators.surroundings.context.broker_id() {
        return Ok(CoordinatorLocation::Local);
    }
    match image.cluster.broker(registration.leader) {
        Some(registered) if !registered.fenced => {
            Ok(CoordinatorLocation::Remote(registration.leader))
        }
        _ => Err(unavailable()),
    }
}

pub(super) async fn ask_peer<R: ApiRequest>(
    coordinators: &Arc<ShareCoordinators>,
    id: BrokerId,
    request: &R,
) -> Result<R::Response, StateFailure> {
    let timeout_ms = coordinators
        .surroundings
        .context
        .config()
        .request_timeout_ms
        .max(1) as u64;
    let timeout = Duration::from_millis(timeout_ms);
    let connection = coordinators
        .surroundings
        .peers
        .connection(&coordinators.surroundings.context, id, timeout)
        .await;
    let answered = connection.map_err(unreachable)?.send(request).await;
    answered.map_err(unreachable)
}

fn unreachable(error: PeerError) -> StateFailure {
    tracing::debug!("cannot reach a share coordinator: {error}");
    StateFailure::from(ErrorCode::NetworkException)
}
