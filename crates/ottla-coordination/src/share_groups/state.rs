//! Requests to the share coordinators of this broker, each about one share partition.
//!
//! Kafka: `ShareCoordinatorService`.

use std::sync::Arc;

use ottla_coordinator::ReplyTo;
use ottla_coordinator::persister::{
    InitializeState, ReadState, SharePartitionKey, StateFailure, StateRead, StateSummary,
    WriteState,
};
use ottla_coordinator::share_state::{Outcome, Response, ShareCoordinator, StateError};
use ottla_types::{ErrorCode, Timestamp};

use super::coordinators::ShareCoordinators;

impl ShareCoordinators {
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

    /// Processes a request at the coordinator of a share partition; `decide` receives the topic's
    /// partition count.
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

/// The failure with Kafka's message.
fn not_here(code: ErrorCode, what: &str) -> StateFailure {
    StateFailure {
        code,
        message: format!("Unable to {what}: {}", code.message()).into(),
    }
}
