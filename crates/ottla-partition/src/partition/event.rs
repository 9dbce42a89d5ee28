//! The events of a partition: every change goes through its inbox as one of these.

use ottla_coordinator::TransactionalProducer;
use ottla_log::{JobOutcome, Log, LogReader, RemoteState, StorageError};
use ottla_replica::{Event, FollowerFetch, Replica};
use ottla_sync::oneshot;
use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use super::append::{Ack, EVENT_BYTES, PendingAppend};
use super::follower_turns::Turn;
use super::leader_answer::LeaderAnswer;
use super::log_location::LogLocation;

/// An event in the inbox.
pub(super) enum PartitionEvent {
    Append(PendingAppend),
    /// Holds appends from here on; the sender is notified.
    HoldAppends(oneshot::Sender<()>),
    LetAppendsGo,
    TopicId(TopicIdEvent),
    Replica(Event<Ack>),
    /// A follower's fetch.
    FollowerFetch(FollowerFetch, Turn),
    /// The leader's response to this replica's fetch.
    LeaderAnswered(LeaderAnswer),
    /// The state before the leader's local records was fetched from remote storage, or was not.
    RemoteStateFetched(LeaderEpoch, Result<Box<RemoteState>, ErrorCode>),
    /// Truncates the log. Runs directly after the step that required it.
    Truncate(Truncation),
    /// A coordinator is about to append to a transaction and asks whether it has begun here.
    BeginVerification(BeginVerification),
    /// The transaction coordinator's response to a verification.
    TransactionVerified(Verified),
    /// Reads the state between two steps.
    Look(Box<dyn FnOnce(&Replica<Ack>, &Log) + Send>),
    /// Maintenance of the log between two steps.
    Work(Box<dyn FnOnce(&mut Log) + Send>),
    /// Replaces the log between two steps; may wait for the disk. If it fails, the log is
    /// unchanged.
    Replace(Box<dyn FnOnce(&mut Log) -> Option<LogLocation> + Send>),
    /// The result of a job, for the log it came from.
    JobDone(LogReader, JobOutcome),
    /// A flush up to `up_to` on a maintenance thread has ended. The log's recovery point says how
    /// far the log is on disk: a flush that a truncation overtook says nothing about later records.
    FlushEnded {
        log: LogReader,
        up_to: Offset,
        result: Result<(), StorageError>,
    },
    /// The log was flushed by maintenance.
    Flushed,
    /// Retries the flush that a full disk refused.
    FlushDue,
    /// Background maintenance failed: a spare file, a deletion, writeback.
    JobFailed(LogReader, StorageError),
}

impl PartitionEvent {
    pub(super) fn bytes(&self) -> usize {
        match self {
            PartitionEvent::Append(append) => append.bytes(),
            PartitionEvent::LeaderAnswered(answer) => EVENT_BYTES + answer.size_in_bytes(),
            PartitionEvent::HoldAppends(_)
            | PartitionEvent::LetAppendsGo
            | PartitionEvent::TopicId(_)
            | PartitionEvent::Replica(_)
            | PartitionEvent::FollowerFetch(..)
            | PartitionEvent::RemoteStateFetched(..)
            | PartitionEvent::Truncate(_)
            | PartitionEvent::BeginVerification(_)
            | PartitionEvent::TransactionVerified(_)
            | PartitionEvent::Look(_)
            | PartitionEvent::Work(_)
            | PartitionEvent::Replace(_)
            | PartitionEvent::JobDone(..)
            | PartitionEvent::FlushEnded { .. }
            | PartitionEvent::Flushed
            | PartitionEvent::FlushDue
            | PartitionEvent::JobFailed(..) => EVENT_BYTES,
        }
    }

    /// Whether the event may make the log grow.
    pub(super) fn brings_records(&self) -> bool {
        match self {
            PartitionEvent::Append(_) => true,
            PartitionEvent::LeaderAnswered(answer) => answer.size_in_bytes() > 0,
            _ => false,
        }
    }

    /// Whether the event comes with a change of the metadata or the maintenance of the log, also if
    /// the partition is idle.
    pub(super) fn is_rare(&self) -> bool {
        match self {
            PartitionEvent::TopicId(_) | PartitionEvent::Work(_) | PartitionEvent::Flushed => true,
            PartitionEvent::Replica(event) => matches!(
                event,
                Event::LeaderElected { .. }
                    | Event::FollowerOf { .. }
                    | Event::SettingsChanged(_)
                    | Event::BrokersChanged(_)
            ),
            _ => false,
        }
    }

    /// Whether the event must run on a thread that serves no connections.
    pub(super) fn may_wait(&self) -> bool {
        matches!(
            self,
            PartitionEvent::Replace(_) | PartitionEvent::Truncate(_)
        )
    }
}

/// Changes of `partition.metadata`.
pub(super) enum TopicIdEvent {
    /// A new log does not have the file.
    Missing,
    /// Requests the file; the sender is dropped after the attempt.
    Wanted(oneshot::Sender<()>),
    Tried {
        is_on_disk: bool,
    },
}

/// The records that a truncation removes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Truncation {
    /// All records from this offset on.
    To(Offset),
    /// All records; the log continues at this offset.
    FullyAndStartAt(Offset),
    /// All records; the log continues with the state that was fetched from remote storage.
    StartAfterRemoteLog,
}

/// A coordinator of this broker is about to append to a transaction.
pub(super) struct BeginVerification {
    pub(super) producer: TransactionalProducer,
    pub(super) raises_epoch: bool,
    pub(super) done: oneshot::Sender<Result<Option<u64>, ErrorCode>>,
}

/// The result of a verification.
pub(super) struct Verified {
    pub(super) producer: TransactionalProducer,
    pub(super) guard: u64,
    pub(super) result: Result<(), ErrorCode>,
}
