//! What a share coordinator is asked about one share partition, and how that goes to another broker and comes back.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::persister::{
    InitializeState, ReadState, SharePartitionKey, StateBatch, StateFailure, StateRead,
    StateSummary, WriteState,
};
use ottla_protocol::ApiRequest;
use ottla_protocol::messages::{
    DeleteShareGroupStateRequest, DeleteShareGroupStateResponse, InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse, ReadShareGroupStateRequest, ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse,
    WriteShareGroupStateRequest, WriteShareGroupStateResponse,
};
use ottla_protocol::messages::{
    delete_share_group_state_request, initialize_share_group_state_request,
    read_share_group_state_request, read_share_group_state_summary_request,
    write_share_group_state_request,
};
use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use super::coordinators::ShareCoordinators;

/// What a share coordinator is asked about one share partition: by a call where it is here, by a request elsewhere.
pub(super) trait StateQuestion: Clone + Send + Sync {
    type Request: ApiRequest<Response: Send> + Send + Sync;
    type Answer: Send;

    fn key(&self) -> &SharePartitionKey;

    fn ask_here(
        self,
        coordinators: &Arc<ShareCoordinators>,
    ) -> impl Future<Output = Result<Self::Answer, StateFailure>> + Send;

    fn to_request(&self) -> Self::Request;

    fn read(
        response: <Self::Request as ApiRequest>::Response,
    ) -> Result<Self::Answer, StateFailure>;
}

impl StateQuestion for InitializeState {
    type Request = InitializeShareGroupStateRequest;
    type Answer = ();

    fn key(&self) -> &SharePartitionKey {
        &self.key
    }

    async fn ask_here(self, coordinators: &Arc<ShareCoordinators>) -> Result<(), StateFailure> {
        coordinators.initialize_state(self).await
    }

    fn to_request(&self) -> InitializeShareGroupStateRequest {
        use initialize_share_group_state_request::{InitializeStateData, PartitionData};
        let key = self.key();
        let partition = PartitionData {
            partition: key.partition,
            state_epoch: self.state_epoch,
            start_offset: self.start_offset.0,
            ..Default::default()
        };
        InitializeShareGroupStateRequest {
            group_id: key.group_id.clone(),
            topics: vec![InitializeStateData {
                topic_id: key.topic_id,
                partitions: vec![partition],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn read(response: InitializeShareGroupStateResponse) -> Result<(), StateFailure> {
        let results = response.results.into_iter();
        let mut results = results.flat_map(|topic| topic.partitions);
        let result = results.next().ok_or_else(no_answer)?;
        check(result.error_code, result.error_message)
    }
}

impl StateQuestion for ReadState {
    type Request = ReadShareGroupStateRequest;
    type Answer = StateRead;

    fn key(&self) -> &SharePartitionKey {
        &self.key
    }

    async fn ask_here(
        self,
        coordinators: &Arc<ShareCoordinators>,
    ) -> Result<StateRead, StateFailure> {
        coordinators.read_state(self).await
    }

    fn to_request(&self) -> ReadShareGroupStateRequest {
        use read_share_group_state_request::{PartitionData, ReadStateData};
        let key = self.key();
        let partition = PartitionData {
            partition: key.partition,
            leader_epoch: self.leader_epoch.0,
            ..Default::default()
        };
        ReadShareGroupStateRequest {
            group_id: key.group_id.clone(),
            topics: vec![ReadStateData {
                topic_id: key.topic_id,
                partitions: vec![partition],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn read(response: ReadShareGroupStateResponse) -> Result<StateRead, StateFailure> {
        let results = response.results.into_iter();
        let mut results = results.flat_map(|topic| topic.partitions);
        let result = results.next().ok_or_else(no_answer)?;
        check(result.error_code, result.error_message)?;
        Ok(StateRead {
            state_epoch: result.state_epoch,
            start_offset: Offset(result.start_offset),
            batches: result.state_batches.iter().map(StateBatch::from).collect(),
        })
    }
}

impl StateQuestion for WriteState {
    type Request = WriteShareGroupStateRequest;
    type Answer = ();

    fn key(&self) -> &SharePartitionKey {
        &self.key
    }

    async fn ask_here(self, coordinators: &Arc<ShareCoordinators>) -> Result<(), StateFailure> {
        coordinators.write_state(self).await
    }

    fn to_request(&self) -> WriteShareGroupStateRequest {
        use write_share_group_state_request::{PartitionData, WriteStateData};
        let key = self.key();
        let partition = PartitionData {
            partition: key.partition,
            state_epoch: self.state_epoch,
            leader_epoch: self.leader_epoch.0,
            start_offset: self.start_offset.0,
            delivery_complete_count: self.delivery_complete_count,
            state_batches: self.batches.iter().map(Into::into).collect(),
            ..Default::default()
        };
        WriteShareGroupStateRequest {
            group_id: key.group_id.clone(),
            topics: vec![WriteStateData {
                topic_id: key.topic_id,
                partitions: vec![partition],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn read(response: WriteShareGroupStateResponse) -> Result<(), StateFailure> {
        let results = response.results.into_iter();
        let mut results = results.flat_map(|topic| topic.partitions);
        let result = results.next().ok_or_else(no_answer)?;
        check(result.error_code, result.error_message)
    }
}

/// Of a share partition.
#[derive(Clone)]
pub(super) struct ReadSummary(pub(super) SharePartitionKey);

impl StateQuestion for ReadSummary {
    type Request = ReadShareGroupStateSummaryRequest;
    type Answer = StateSummary;

    fn key(&self) -> &SharePartitionKey {
        &self.0
    }

    async fn ask_here(
        self,
        coordinators: &Arc<ShareCoordinators>,
    ) -> Result<StateSummary, StateFailure> {
        coordinators.read_state_summary(self.0).await
    }

    fn to_request(&self) -> ReadShareGroupStateSummaryRequest {
        use read_share_group_state_summary_request::{PartitionData, ReadStateSummaryData};
        let key = self.key();
        let partition = PartitionData {
            partition: key.partition,
            ..Default::default()
        };
        ReadShareGroupStateSummaryRequest {
            group_id: key.group_id.clone(),
            topics: vec![ReadStateSummaryData {
                topic_id: key.topic_id,
                partitions: vec![partition],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn read(response: ReadShareGroupStateSummaryResponse) -> Result<StateSummary, StateFailure> {
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
    }
}

#[derive(Clone)]
pub(super) struct DeleteState(pub(super) SharePartitionKey);

impl StateQuestion for DeleteState {
    type Request = DeleteShareGroupStateRequest;
    type Answer = ();

    fn key(&self) -> &SharePartitionKey {
        &self.0
    }

    async fn ask_here(self, coordinators: &Arc<ShareCoordinators>) -> Result<(), StateFailure> {
        coordinators.delete_state(self.0).await
    }

    fn to_request(&self) -> DeleteShareGroupStateRequest {
        use delete_share_group_state_request::{DeleteStateData, PartitionData};
        let key = self.key();
        let partition = PartitionData {
            partition: key.partition,
            ..Default::default()
        };
        DeleteShareGroupStateRequest {
            group_id: key.group_id.clone(),
            topics: vec![DeleteStateData {
                topic_id: key.topic_id,
                partitions: vec![partition],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn read(response: DeleteShareGroupStateResponse) -> Result<(), StateFailure> {
        let results = response.results.into_iter();
        let mut results = results.flat_map(|topic| topic.partitions);
        let result = results.next().ok_or_else(no_answer)?;
        check(result.error_code, result.error_message)
    }
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
