//! What can happen to a partition: every change of it goes through its inbox as one of these.

use ottla_coordinator::TransactionalProducer;
use ottla_log::{JobOutcome, Log, LogReader, StorageError};
use ottla_replica::{Event, FollowerFetch, Replica};
use ottla_sync::oneshot;
use ottla_types::{ErrorCode, Offset};

use super::append::{Ack, EVENT_BYTES, PendingAppend};
use super::follower_turns::Turn;
use super::home::Home;
use super::leader_answer::LeaderAnswer;

/// What can be put into the inbox.
pub(super) enum PartitionEvent {
    Append(PendingAppend),
    /// From here on appends are set aside, and whoever asked for it is told.
    HoldAppends(oneshot::Sender<()>),
    LetAppendsGo,
    TopicId(TopicIdEvent),
    Replica(Event<Ack>),
    /// Another replica fetches from this one.
    FollowerFetch(FollowerFetch, Turn),
    /// The leader has answered this replica's fetch.
    LeaderAnswered(LeaderAnswer),
    /// The log is to be cut: runs next after the step that asked for it.
    Truncate(Truncation),
    /// A coordinator wants to append to a transaction, and asks whether it has begun here.
    BeginVerification(BeginVerification),
    /// The coordinator of a transaction has said whether this partition is part of it.
    TransactionVerified(Verified),
    /// Looks at how things stand between two steps.
    Look(Box<dyn FnOnce(&Replica<Ack>, &Log) + Send>),
    /// Maintenance of the log: runs between two steps.
    Work(Box<dyn FnOnce(&mut Log) + Send>),
    /// Another log takes the place of this one: runs between two steps, and may wait for the disk. Where it
    /// comes to nothing, the log is as it was.
    Replace(Box<dyn FnOnce(&mut Log) -> Option<Home> + Send>),
    /// What a job left that the log is to be told, if it is still the log of this partition.
    JobDone(LogReader, JobOutcome),
    /// The flush of everything before `up_to`, which ran on a maintenance thread, has ended. What is on the disk by it, the
    /// recovery point of the log says: one that a truncation has overtaken says nothing of what was written since.
    FlushEnded {
        log: LogReader,
        up_to: Offset,
        result: Result<(), StorageError>,
    },
    /// Somebody else has flushed the log.
    Flushed,
    /// It is time for the flush that a full disk refused.
    FlushDue,
    /// Maintenance that nobody waits for has failed: a spare file, a deletion, writeback.
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

    /// Whether the log may grow by it.
    pub(super) fn brings_records(&self) -> bool {
        match self {
            PartitionEvent::Append(_) => true,
            PartitionEvent::LeaderAnswered(answer) => answer.size_in_bytes() > 0,
            _ => false,
        }
    }

    /// Only for a thread that serves no connections.
    pub(super) fn may_wait(&self) -> bool {
        matches!(
            self,
            PartitionEvent::Replace(_) | PartitionEvent::Truncate(_)
        )
    }
}

/// How it stands with the file that says of which topic a log is.
pub(super) enum TopicIdEvent {
    /// A new log has none.
    Missing,
    /// It is to be there; whoever asks is told when that has been tried.
    Wanted(oneshot::Sender<()>),
    Tried {
        is_on_disk: bool,
    },
}

/// What of a log has to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Truncation {
    /// All records from here on.
    To(Offset),
    /// All records; the log goes on here.
    FullyAndStartAt(Offset),
}

/// A coordinator of this broker is about to append to a transaction.
pub(super) struct BeginVerification {
    pub(super) producer: TransactionalProducer,
    pub(super) raises_epoch: bool,
    pub(super) done: oneshot::Sender<Result<Option<u64>, ErrorCode>>,
}

/// What came of asking the coordinator.
pub(super) struct Verified {
    pub(super) producer: TransactionalProducer,
    pub(super) guard: u64,
    pub(super) result: Result<(), ErrorCode>,
}
