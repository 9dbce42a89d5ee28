//! The types that the group coordinator exchanges with its shell: records, responses, timers and
//! commands.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::create_topics_request::CreatableTopic;
use ottla_protocol::messages::delete_groups_response::DeletableGroupResult;
use ottla_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use ottla_protocol::messages::{
    AlterShareGroupOffsetsResponse, ConsumerGroupHeartbeatResponse,
    DeleteShareGroupOffsetsResponse, HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse,
    OffsetCommitResponse, OffsetDeleteResponse, ShareGroupHeartbeatResponse,
    StreamsGroupHeartbeatResponse, SyncGroupResponse,
};
use ottla_types::ErrorCode;

use super::consumer::ComputeTarget;
use super::modern::GroupError;
use super::record::CoordinatorRecord;
use super::refused::Refused;
use super::share::PartitionsOfTopics;
use crate::persister::InitializeState;
use crate::runtime;
use crate::runtime::{error_after_append, responses};

#[cfg(test)]
pub use crate::runtime::ReplyId;
pub use crate::runtime::{ReplyTo, WriteId};

pub type Outcome = runtime::CoordinatorResult<CoordinatorRecord, Response, TimerKey, Command>;
pub type Write = runtime::Write<CoordinatorRecord>;
pub type Reply = runtime::Reply<Response>;
pub type TimerChange = runtime::TimerChange<TimerKey>;

responses! {
    /// A response without the fields that only the connection knows (throttle time, version).
    #[derive(Clone, PartialEq, Debug)]
    pub enum Response {
        JoinGroup(JoinGroupResponse),
        SyncGroup(SyncGroupResponse),
        Heartbeat(HeartbeatResponse),
        ConsumerGroupHeartbeat(ConsumerGroupHeartbeatResponse),
        ShareGroupHeartbeat(ShareGroupHeartbeatResponse),
        StreamsGroupHeartbeat(StreamsHeartbeat),
        LeaveGroup(LeaveGroupResponse),
        /// Of OffsetCommit and TxnOffsetCommit.
        OffsetCommit(OffsetCommitResponse),
        OffsetFetch(OffsetFetchResponseGroup),
        OffsetDelete(OffsetDeleteResponse),
        /// The end of a transaction, for which WriteTxnMarkers has an error code.
        TransactionEnd(ErrorCode),
        DeleteGroups(Vec<DeletableGroupResult>),
        AlterShareGroupOffsets(AlteredShareOffsets),
        DeleteShareGroupOffsets(DeletedShareOffsets),
        DeleteShareGroups(Result<DeletedShareGroups, ErrorCode>),
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct StreamsHeartbeat {
    pub response: Box<StreamsGroupHeartbeatResponse>,
    /// Missing internal topics of the member's topology, to be created on its behalf.
    pub topics_to_create: Vec<CreatableTopic>,
}

/// A response, and the work of the share coordinators before it is sent.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AlteredShareOffsets {
    pub response: AlterShareGroupOffsetsResponse,
    pub initialize: Vec<InitializeState>,
}

/// A response, and the state that the share coordinators must delete before it is sent.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeletedShareOffsets {
    pub response: DeleteShareGroupOffsetsResponse,
    pub delete: PartitionsOfTopics,
}

macro_rules! refused_by_response {
    ($($Answer:ty),+) => {$(
        impl Refused for $Answer {
            fn refused(error: impl Into<GroupError>) -> Self {
                Self {
                    response: Refused::refused(error),
                    ..Default::default()
                }
            }
        }
    )+};
}

refused_by_response!(AlteredShareOffsets, DeletedShareOffsets, StreamsHeartbeat);

/// By group: the partitions whose state the share coordinators must delete, or why the group cannot
/// be deleted.
pub type DeletedShareGroups = Vec<(ByteString, Result<PartitionsOfTopics, ErrorCode>)>;

impl Response {
    /// The response with `error` for the same request, when its records could not be written.
    /// `error` is that of the append; each API maps it to its own codes.
    pub fn failed(self, error: ErrorCode) -> Response {
        let returned = error_after_append(error);
        let code = returned.code();
        match self {
            Response::JoinGroup(response) => JoinGroupResponse {
                member_id: response.member_id,
                ..Refused::refused(returned)
            }
            .into(),
            Response::SyncGroup(_) => SyncGroupResponse::refused(returned).into(),
            Response::Heartbeat(_) => HeartbeatResponse::refused(returned).into(),
            Response::ConsumerGroupHeartbeat(_) => {
                ConsumerGroupHeartbeatResponse::refused(returned).into()
            }
            Response::ShareGroupHeartbeat(_) => {
                ShareGroupHeartbeatResponse::refused(returned).into()
            }
            Response::StreamsGroupHeartbeat(_) => StreamsHeartbeat::refused(returned).into(),
            Response::LeaveGroup(_) => LeaveGroupResponse::refused(returned).into(),
            Response::OffsetCommit(mut response) => {
                let topics = response.topics.iter_mut();
                topics
                    .flat_map(|topic| &mut topic.partitions)
                    .for_each(|partition| partition.error_code = code);
                response.into()
            }
            Response::OffsetFetch(response) => OffsetFetchResponseGroup {
                group_id: response.group_id,
                error_code: fetch_error_after_append(error).code(),
                ..Default::default()
            }
            .into(),
            Response::OffsetDelete(_) => OffsetDeleteResponse::refused(returned).into(),
            Response::TransactionEnd(_) => error.into(),
            Response::DeleteGroups(mut results) => {
                results
                    .iter_mut()
                    .for_each(|result| result.error_code = code);
                results.into()
            }
            Response::AlterShareGroupOffsets(_) => AlteredShareOffsets::refused(returned).into(),
            Response::DeleteShareGroupOffsets(_) => DeletedShareOffsets::refused(returned).into(),
            Response::DeleteShareGroups(_) => Err(returned).into(),
        }
    }
}

impl Reply {
    /// The reply after the write that it depends on was committed or failed.
    pub(super) fn settled(self, result: Result<(), ErrorCode>) -> Reply {
        match result {
            Ok(()) => self,
            Err(error) => self.failed(error),
        }
    }

    pub(super) fn failed(self, error: ErrorCode) -> Reply {
        Reply {
            response: self.response.failed(error),
            ..self
        }
    }
}

/// As [`error_after_append`], for OffsetFetch: consumers before 3.9 do not know the two errors that
/// mean "retry at this coordinator", so they receive an error that makes them look for the
/// coordinator. Source: `GroupCoordinatorService.handleOffsetFetchException`.
fn fetch_error_after_append(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::RequestTimedOut => ErrorCode::NotCoordinator,
        other => error_after_append(other),
    }
}

/// The client on whose behalf topics are looked up, with which the shell determines the visible
/// topics. Opaque to the coordinator.
#[derive(Clone)]
pub struct Requester(Option<Arc<dyn Any + Send + Sync>>);

impl Requester {
    pub fn new(requester: impl Any + Send + Sync) -> Self {
        Requester(Some(Arc::new(requester)))
    }

    /// No client: with authorization, no topic is visible.
    pub fn none() -> Self {
        Requester(None)
    }

    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_ref()?.downcast_ref()
    }
}

impl fmt::Debug for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Requester")
    }
}

/// Asks the shell to `resolve` these expressions and to return the result.
#[derive(Clone, Debug)]
pub struct ResolveRegexes {
    pub group_id: ByteString,
    pub regexes: BTreeSet<ByteString>,
    pub requester: Requester,
}

/// A request to the share coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitializeShareState {
    pub group_id: ByteString,
    /// The group epoch, which orders requests.
    pub state_epoch: i32,
    /// Partitions with unknown start offsets, which the partition leader determines.
    pub partitions: PartitionsOfTopics,
}

/// A request to the shell other than writes, replies and timers.
#[derive(Clone, Debug)]
pub enum Command {
    ResolveRegexes(ResolveRegexes),
    /// Compute it, and call `on_target_computed`, or `on_target_not_computed` if that fails.
    ComputeTarget(Box<ComputeTarget>),
    /// Ask the share coordinator, and call `on_share_state_initialized` or
    /// `on_share_state_not_initialized`.
    InitializeShareState(InitializeShareState),
}

/// The purpose of a timer. A coordinator has at most one timer for each key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TimerKey {
    /// The member must send a heartbeat or rejoin before this.
    Session {
        group_id: ByteString,
        member_id: ByteString,
    },
    /// The member must have revoked its partitions and left `member_epoch` before this.
    Revocation {
        group_id: ByteString,
        member_id: ByteString,
        member_epoch: i32,
    },
    /// A member of the classic protocol in a consumer group must have rejoined before this.
    Rejoin {
        group_id: ByteString,
        member_id: ByteString,
    },
    /// A member of the classic protocol in a consumer group must have sent SyncGroup before this.
    MemberSync {
        group_id: ByteString,
        member_id: ByteString,
    },
    /// The first target assignment of a streams group is computed.
    InitialRebalance { group_id: ByteString },
    /// The group stops waiting for members to join.
    Join { group_id: ByteString },
    /// The group stops waiting for members to send SyncGroup.
    Sync { group_id: ByteString },
    /// Expired offsets and groups are removed.
    Expiration,
}

impl TimerKey {
    /// The member of the timer, and the epoch that it must have left, if it must.
    pub(super) fn member(&self) -> Option<(&ByteString, &ByteString, Option<i32>)> {
        match self {
            TimerKey::Session {
                group_id,
                member_id,
            }
            | TimerKey::Rejoin {
                group_id,
                member_id,
            }
            | TimerKey::MemberSync {
                group_id,
                member_id,
            } => Some((group_id, member_id, None)),
            TimerKey::Revocation {
                group_id,
                member_id,
                member_epoch,
            } => Some((group_id, member_id, Some(*member_epoch))),
            TimerKey::InitialRebalance { .. }
            | TimerKey::Join { .. }
            | TimerKey::Sync { .. }
            | TimerKey::Expiration => None,
        }
    }

    pub(super) fn session(group_id: &ByteString, member_id: &ByteString) -> Self {
        TimerKey::Session {
            group_id: group_id.clone(),
            member_id: member_id.clone(),
        }
    }

    pub(super) fn revocation(
        group_id: &ByteString,
        member_id: &ByteString,
        member_epoch: i32,
    ) -> Self {
        TimerKey::Revocation {
            group_id: group_id.clone(),
            member_id: member_id.clone(),
            member_epoch,
        }
    }

    pub(super) fn rejoin(group_id: &ByteString, member_id: &ByteString) -> Self {
        TimerKey::Rejoin {
            group_id: group_id.clone(),
            member_id: member_id.clone(),
        }
    }

    pub(super) fn member_sync(group_id: &ByteString, member_id: &ByteString) -> Self {
        TimerKey::MemberSync {
            group_id: group_id.clone(),
            member_id: member_id.clone(),
        }
    }

    pub(super) fn initial_rebalance(group_id: &ByteString) -> Self {
        TimerKey::InitialRebalance {
            group_id: group_id.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorCode, error_after_append, fetch_error_after_append};

    #[test]
    fn errors_of_the_log_become_errors_of_a_coordinator() {
        use ErrorCode as E;
        for (append, reply, fetch_reply) in [
            (
                E::NetworkException,
                E::CoordinatorLoadInProgress,
                E::CoordinatorLoadInProgress,
            ),
            (
                E::UnknownTopicOrPartition,
                E::CoordinatorNotAvailable,
                E::NotCoordinator,
            ),
            (
                E::NotEnoughReplicas,
                E::CoordinatorNotAvailable,
                E::NotCoordinator,
            ),
            (
                E::RequestTimedOut,
                E::CoordinatorNotAvailable,
                E::NotCoordinator,
            ),
            (E::NotLeaderOrFollower, E::NotCoordinator, E::NotCoordinator),
            (E::KafkaStorageError, E::NotCoordinator, E::NotCoordinator),
            (
                E::MessageTooLarge,
                E::UnknownServerError,
                E::UnknownServerError,
            ),
            (
                E::RecordListTooLarge,
                E::UnknownServerError,
                E::UnknownServerError,
            ),
            (
                E::InvalidFetchSize,
                E::UnknownServerError,
                E::UnknownServerError,
            ),
            (E::NotCoordinator, E::NotCoordinator, E::NotCoordinator),
        ] {
            assert_eq!(error_after_append(append), reply, "{append}");
            assert_eq!(fetch_error_after_append(append), fetch_reply, "{append}");
        }
    }
}
