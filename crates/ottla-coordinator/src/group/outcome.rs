//! What the coordinator of groups asks of its shell: its records, its responses, its timers.

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
    StreamsGroupHeartbeatResponse, SyncGroupResponse, TxnOffsetCommitResponse,
};
use ottla_types::ErrorCode;

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
    /// A response, without what only the connection knows (throttling, wire version).
    #[derive(Clone, PartialEq, Debug)]
    pub enum Response {
        JoinGroup(JoinGroupResponse),
        SyncGroup(SyncGroupResponse),
        Heartbeat(HeartbeatResponse),
        ConsumerGroupHeartbeat(ConsumerGroupHeartbeatResponse),
        ShareGroupHeartbeat(ShareGroupHeartbeatResponse),
        StreamsGroupHeartbeat(StreamsHeartbeat),
        LeaveGroup(LeaveGroupResponse),
        OffsetCommit(OffsetCommitResponse),
        OffsetFetch(OffsetFetchResponseGroup),
        OffsetDelete(OffsetDeleteResponse),
        TxnOffsetCommit(TxnOffsetCommitResponse),
        /// The end of a transaction, which WriteTxnMarkers reports by a code.
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
    /// Internal topics that the member's topology needs and that do not exist, to be created on its behalf.
    pub topics_to_create: Vec<CreatableTopic>,
}

/// What is to be answered, and what the share coordinators are asked before that.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AlteredShareOffsets {
    pub response: AlterShareGroupOffsetsResponse,
    pub initialize: Vec<InitializeState>,
}

/// What is to be answered, and what the share coordinators are to delete before that.
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

/// By group: the partitions whose state the share coordinators are to delete, or why the group cannot be deleted.
pub type DeletedShareGroups = Vec<(ByteString, Result<PartitionsOfTopics, ErrorCode>)>;

impl Response {
    /// The response that says `error` to the same request, when what it was to report could not be
    /// made durable. `error` is that of the append; each API has its own words for it.
    pub fn failed(self, error: ErrorCode) -> Response {
        let told = error_after_append(error);
        let code = told.code();
        match self {
            Response::JoinGroup(response) => JoinGroupResponse {
                member_id: response.member_id,
                ..Refused::refused(told)
            }
            .into(),
            Response::SyncGroup(_) => SyncGroupResponse::refused(told).into(),
            Response::Heartbeat(_) => HeartbeatResponse::refused(told).into(),
            Response::ConsumerGroupHeartbeat(_) => {
                ConsumerGroupHeartbeatResponse::refused(told).into()
            }
            Response::ShareGroupHeartbeat(_) => ShareGroupHeartbeatResponse::refused(told).into(),
            Response::StreamsGroupHeartbeat(_) => StreamsHeartbeat::refused(told).into(),
            Response::LeaveGroup(_) => LeaveGroupResponse::refused(told).into(),
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
            Response::OffsetDelete(_) => OffsetDeleteResponse::refused(told).into(),
            Response::TxnOffsetCommit(mut response) => {
                let topics = response.topics.iter_mut();
                topics
                    .flat_map(|topic| &mut topic.partitions)
                    .for_each(|partition| partition.error_code = code);
                response.into()
            }
            Response::TransactionEnd(_) => error.into(),
            Response::DeleteGroups(mut results) => {
                results
                    .iter_mut()
                    .for_each(|result| result.error_code = code);
                results.into()
            }
            Response::AlterShareGroupOffsets(_) => AlteredShareOffsets::refused(told).into(),
            Response::DeleteShareGroupOffsets(_) => DeletedShareOffsets::refused(told).into(),
            Response::DeleteShareGroups(_) => Err(told).into(),
        }
    }
}

impl Reply {
    /// The reply after what it rests on was committed, or could not be written.
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

/// As [`error_after_append`], for OffsetFetch: consumers before 3.9 know neither of the two errors
/// that say "try this coordinator again", so they are sent to look for the coordinator.
/// Source: `GroupCoordinatorService.handleOffsetFetchException`.
fn fetch_error_after_append(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::RequestTimedOut => ErrorCode::NotCoordinator,
        other => error_after_append(other),
    }
}

/// On whose behalf topics are looked up: what the shell has to know to say which topics it may see. The coordinator only
/// hands it back.
#[derive(Clone)]
pub struct Requester(Option<Arc<dyn Any + Send + Sync>>);

impl Requester {
    pub fn new(requester: impl Any + Send + Sync) -> Self {
        Requester(Some(Arc::new(requester)))
    }

    /// Nobody in particular: where rights are asked for, nobody may see a topic.
    pub fn nobody() -> Self {
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

/// Asked of the shell: `resolve` these, and hand in what came out.
#[derive(Clone, Debug)]
pub struct ResolveRegexes {
    pub group_id: ByteString,
    pub regexes: BTreeSet<ByteString>,
    pub requester: Requester,
}

/// What the share coordinator is to be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitializeShareState {
    pub group_id: ByteString,
    /// The group's epoch, which says which of two requests is the later one.
    pub state_epoch: i32,
    /// Whose start offsets are not known: the leader of the partition finds them.
    pub partitions: PartitionsOfTopics,
}

/// What is asked of the shell besides writes, replies and timers.
#[derive(Clone, Debug)]
pub enum Command {
    ResolveRegexes(ResolveRegexes),
    /// The share coordinator is to be asked, and `on_share_state_initialized` or `on_share_state_not_initialized` told.
    InitializeShareState(InitializeShareState),
}

/// What a timer is for. A coordinator has at most one timer for each key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TimerKey {
    /// The member must send a heartbeat or rejoin before this.
    Session {
        group_id: ByteString,
        member_id: ByteString,
    },
    /// The member must have given partitions up and left `member_epoch` before this.
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
    /// A member of the classic protocol in a consumer group must have asked for its assignment before this.
    MemberSync {
        group_id: ByteString,
        member_id: ByteString,
    },
    /// The first target assignment of a streams group is made.
    InitialRebalance { group_id: ByteString },
    /// The group stops waiting for members to join.
    Join { group_id: ByteString },
    /// The group stops waiting for members to send SyncGroup.
    Sync { group_id: ByteString },
    /// Expired offsets and groups are looked for.
    Expiration,
}

impl TimerKey {
    /// Whose timer it is, and the epoch that the member must have left, if it must.
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
