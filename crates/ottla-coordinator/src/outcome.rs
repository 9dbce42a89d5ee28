//! What a coordinator asks of its shell: records to append, replies to send, timers to change.
//!
//! Invariants: each [`ReplyTo`] that is handed in comes back in exactly one [`Reply`], at once or in
//! the outcome of a later event. Write ids grow by one in the order in which the writes must be
//! appended. The shell reports each write once: committed, failed, or first timed out and then one of
//! the two.

use bytestring::ByteString;
use ottla_protocol::messages::delete_groups_response::DeletableGroupResult;
use ottla_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use ottla_protocol::messages::{
    HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, OffsetCommitResponse,
    OffsetDeleteResponse, SyncGroupResponse,
};
use ottla_types::ErrorCode;

use crate::group::CoordinatorRecord;

/// The place where a reply is awaited. Given by the shell; the coordinator only hands it back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ReplyTo(pub u64);

/// Names one append of one coordinator, in the order of the appends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct WriteId(pub u64);

/// Records that go to the log as one batch.
#[derive(Clone, PartialEq, Debug)]
pub struct Write {
    pub id: WriteId,
    pub records: Vec<CoordinatorRecord>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    pub to: ReplyTo,
    pub response: Response,
}

/// A response, without what only the connection knows (throttling, wire version).
#[derive(Clone, PartialEq, Debug)]
pub enum Response {
    JoinGroup(JoinGroupResponse),
    SyncGroup(SyncGroupResponse),
    Heartbeat(HeartbeatResponse),
    LeaveGroup(LeaveGroupResponse),
    OffsetCommit(OffsetCommitResponse),
    OffsetFetch(OffsetFetchResponseGroup),
    OffsetDelete(OffsetDeleteResponse),
    DeleteGroups(Vec<DeletableGroupResult>),
}

impl Response {
    /// The response that says `error` to the same request, when what it was to report could not be
    /// made durable. `error` is that of the append; each API has its own words for it.
    pub fn failed(self, error: ErrorCode) -> Response {
        let code = error_after_append(error).code();
        match self {
            Response::JoinGroup(response) => Response::JoinGroup(JoinGroupResponse {
                error_code: code,
                member_id: response.member_id,
                ..Default::default()
            }),
            Response::SyncGroup(_) => Response::SyncGroup(SyncGroupResponse {
                error_code: code,
                ..Default::default()
            }),
            Response::Heartbeat(_) => Response::Heartbeat(HeartbeatResponse {
                error_code: code,
                ..Default::default()
            }),
            Response::LeaveGroup(_) => Response::LeaveGroup(LeaveGroupResponse {
                error_code: code,
                ..Default::default()
            }),
            Response::OffsetCommit(mut response) => {
                for topic in &mut response.topics {
                    for partition in &mut topic.partitions {
                        partition.error_code = code;
                    }
                }
                Response::OffsetCommit(response)
            }
            Response::OffsetFetch(response) => Response::OffsetFetch(OffsetFetchResponseGroup {
                group_id: response.group_id,
                error_code: fetch_error_after_append(error).code(),
                ..Default::default()
            }),
            Response::OffsetDelete(_) => Response::OffsetDelete(OffsetDeleteResponse {
                error_code: code,
                ..Default::default()
            }),
            Response::DeleteGroups(mut results) => {
                for result in &mut results {
                    result.error_code = code;
                }
                Response::DeleteGroups(results)
            }
        }
    }
}

/// What a client is told when the records of its request could not be appended with `error`: the
/// errors of a log mean something else to a client of a coordinator.
/// Source: `CoordinatorOperationExceptionHelper.handleOperationException`.
pub fn error_after_append(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::NetworkException => ErrorCode::CoordinatorLoadInProgress,
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::RequestTimedOut => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge
        | ErrorCode::RecordListTooLarge
        | ErrorCode::InvalidFetchSize => ErrorCode::UnknownServerError,
        other => other,
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

/// What a timer is for. A coordinator has at most one timer for each key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TimerKey {
    /// The member must send a heartbeat or rejoin before this.
    Session {
        group_id: ByteString,
        member_id: ByteString,
    },
    /// The group stops waiting for members to join.
    Join { group_id: ByteString },
    /// The group stops waiting for members to send SyncGroup.
    Sync { group_id: ByteString },
    /// Expired offsets and groups are looked for.
    Expiration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TimerChange {
    /// Replaces a timer of the same key.
    Set {
        key: TimerKey,
        after_ms: u64,
    },
    Cancel {
        key: TimerKey,
    },
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// To be appended in this order, after all earlier ones.
    pub writes: Vec<Write>,
    /// To be sent at once, whatever becomes of `writes`.
    pub replies: Vec<Reply>,
    /// To be applied in this order.
    pub timers: Vec<TimerChange>,
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
