//! Requests to the share coordinators of this broker, each about one share partition.
//!
//! Kafka: `ShareCoordinatorService`.

use std::sync::Arc;

use ottla_coordinator::ReplyTo;
use ottla_coordinator::persister::{SharePartitionKey, StateFailure};
use ottla_coordinator::share_state::{Outcome, Response, ShareCoordinator, StateError};
use ottla_types::{ErrorCode, Timestamp};

use super::coordinators::ShareCoordinators;

impl ShareCoordinators {
    /// Processes a request at the coordinator of a share partition; `decide` receives the topic's
    /// partition count.
    pub(super) async fn ask<T>(
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

/// The failure with Kafka's message.
fn not_here(code: ErrorCode, what: &str) -> StateFailure {
    StateFailure {
        code,
        message: format!("Unable to {what}: {}", code.message()).into(),
    }
}
