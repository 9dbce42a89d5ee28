//! The interface between a coordinator and its shell: records to append, replies to send, timers to
//! change, and commands that only this kind of shell can execute.
//!
//! Invariants: each [`ReplyTo`] is answered by exactly one [`Reply`], at once or in the outcome of
//! a later event. Write ids grow by one in the order in which the writes must be appended. The
//! shell reports each write once: committed, failed, or timed out and later one of these two.
//! Source: `CoordinatorResult`, `CoordinatorShard`.

use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;

use bytes::Bytes;
use ottla_protocol::EncodeError;
use ottla_types::{ErrorCode, Offset, ProducerEpoch, ProducerId, Timestamp};

use super::replay_error::ReplayError;

/// The interface of a coordinator for its shell. Requests are specific to each kind of coordinator.
pub trait Coordinator: Sized {
    type Record: EncodeRecord + Debug;
    type Response: Debug;
    type TimerKey: Clone + Eq + Hash + Ord + Debug;
    /// A request to the shell other than writes, replies and timers.
    type Command: Debug;

    /// Whether requests are answered only after everything that was in the log at the election is
    /// committed.
    const AWAITS_COMMITTED_LOG: bool;

    /// Whether the log refuses records while there are fewer in-sync replicas than
    /// `min.insync.replicas`. Otherwise they are appended, and count when enough replicas have
    /// them.
    const REQUIRES_MIN_ISR: bool;

    /// Applies an entry of the log. The error is a message for the log file.
    fn replay(&mut self, entry: LogEntry<'_>, now: Timestamp) -> Result<(), String>;

    /// Entries that are replayed from here on are not committed, and belong to the returned write.
    /// `None` for a coordinator that waits for the committed log.
    fn begin_uncommitted(&mut self) -> Option<WriteId> {
        None
    }

    /// The log has been replayed up to its end.
    fn on_loaded(&mut self, now: Timestamp) -> Outcome<Self>;

    /// The partition has moved to another leader, or the broker is stopping. Answers all parked
    /// requests.
    fn on_unloaded(&mut self) -> Outcome<Self>;

    /// The records of the writes from `first` to `last` were appended at consecutive offsets from
    /// `base_offset`. They may or may not be committed; the call precedes the one that reports
    /// their commit. For coordinators that need the offsets.
    fn on_appended(&mut self, _first: WriteId, _last: WriteId, _base_offset: Offset) {}

    /// The records of `write` and of all earlier writes are committed.
    fn on_records_committed(&mut self, write: WriteId, now: Timestamp) -> Outcome<Self>;

    /// The records of `write` are not in the log. Later writes fail as well: the shell must drop
    /// them.
    fn on_write_failed(
        &mut self,
        write: WriteId,
        error: ErrorCode,
        now: Timestamp,
    ) -> Outcome<Self>;

    /// The commit of `write` takes longer than a client should wait. Answers the waiting requests;
    /// whether the write will be committed is still open.
    fn on_write_timed_out(&mut self, write: WriteId, now: Timestamp) -> Outcome<Self>;

    /// A timer of this coordinator is due.
    fn on_timer(&mut self, key: Self::TimerKey, now: Timestamp) -> Outcome<Self>;
}

/// An entry that a coordinator reads from its log.
pub enum LogEntry<'a> {
    /// `producer_id` is that of a transactional batch, otherwise `ProducerId::NONE`.
    Record {
        offset: Offset,
        producer_id: ProducerId,
        key: &'a Bytes,
        value: Option<&'a Bytes>,
    },
    EndTransaction {
        producer_id: ProducerId,
        is_commit: bool,
    },
}

impl LogEntry<'_> {
    /// Passes a record to `replay`. For a coordinator whose own records are never transactional.
    pub(crate) fn replay_with(
        self,
        replay: impl FnOnce(Offset, &Bytes, Option<&Bytes>) -> Result<(), ReplayError>,
    ) -> Result<(), String> {
        match self {
            LogEntry::Record {
                offset, key, value, ..
            } => replay(offset, key, value).map_err(|error| error.to_string()),
            LogEntry::EndTransaction { .. } => Ok(()),
        }
    }
}

/// Encodes a record for the log.
pub trait EncodeRecord {
    /// Key and value, each with its two-byte type or version as prefix.
    fn encode(&self) -> Result<(Bytes, Option<Bytes>), EncodeError>;
}

/// Identifies where a reply is awaited.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ReplyId(pub u64);

/// The address of a reply of type `T`; no other response can be sent to it. Created by the shell
/// and opaque to the coordinator.
#[derive(Debug)]
pub struct ReplyTo<T> {
    id: ReplyId,
    response: PhantomData<fn() -> T>,
}

impl<T> Clone for ReplyTo<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ReplyTo<T> {}

impl<T> ReplyTo<T> {
    pub fn new(id: ReplyId) -> Self {
        ReplyTo {
            id,
            response: PhantomData,
        }
    }

    /// The reply as one of the coordinator's enum.
    pub(crate) fn with<S: From<T>>(self, response: T) -> Reply<S> {
        Reply {
            to: self.id,
            response: response.into(),
        }
    }
}

/// Defines the enum of a coordinator's responses, with `From` for each response and `TryFrom` for
/// the way back.
macro_rules! responses {
    (
        $(#[$of_enum:meta])*
        pub enum $Responses:ident { $($(#[$of_variant:meta])* $Variant:ident($Response:ty),)+ }
    ) => {
        $(#[$of_enum])*
        pub enum $Responses { $($(#[$of_variant])* $Variant($Response),)+ }

        $(impl From<$Response> for $Responses {
            fn from(response: $Response) -> Self {
                $Responses::$Variant(response)
            }
        }

        impl TryFrom<$Responses> for $Response {
            type Error = $Responses;

            fn try_from(response: $Responses) -> Result<Self, $Responses> {
                match response {
                    $Responses::$Variant(response) => Ok(response),
                    other => Err(other),
                }
            }
        })+
    };
}
pub(crate) use responses;

/// Identifies one write of one coordinator, in the order of the appends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct WriteId(pub u64);

/// The records of one batch.
#[derive(Clone, PartialEq, Debug)]
pub struct Write<R> {
    pub id: WriteId,
    pub kind: WriteKind,
    pub records: Vec<R>,
}

/// The kind of batch that a write needs. Only plain writes can share a batch with their neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteKind {
    Plain,
    /// Records that count when the producer's transaction is committed.
    Transactional {
        producer: TransactionalProducer,
        /// The log's guard from the verification of the transaction; `None` if the transaction had
        /// already begun here.
        guard: Option<u64>,
    },
    /// The marker that ends the producer's transaction. There are no records of the coordinator.
    EndTransaction {
        producer: TransactionalProducer,
        marker: TransactionEnd,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TransactionalProducer {
    pub id: ProducerId,
    pub epoch: ProducerEpoch,
}

/// The end of a transaction, as decided by its coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TransactionEnd {
    pub is_commit: bool,
    /// The leader epoch of the transaction coordinator.
    pub coordinator_epoch: i32,
    /// The `transaction.version` of the transaction's client. From 2 on, the marker carries the
    /// next producer epoch (KIP-890).
    pub transaction_version: i16,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Reply<S> {
    pub to: ReplyId,
    pub response: S,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TimerChange<K> {
    /// Replaces a timer with the same key.
    Set {
        key: K,
        after_ms: u64,
    },
    /// Does not change an existing timer with the same key.
    SetIfAbsent {
        key: K,
        after_ms: u64,
    },
    Cancel {
        key: K,
    },
}

/// The result of one event. [`Outcome`] is that of a particular coordinator.
#[derive(Debug)]
pub struct CoordinatorResult<Record, Response, TimerKey, Command> {
    /// Must be appended in this order, after all earlier writes.
    pub writes: Vec<Write<Record>>,
    /// Must be sent at once, independently of `writes`.
    pub replies: Vec<Reply<Response>>,
    /// Must be applied in this order.
    pub timers: Vec<TimerChange<TimerKey>>,
    pub commands: Vec<Command>,
}

impl<R, S, K, C> Default for CoordinatorResult<R, S, K, C> {
    fn default() -> Self {
        CoordinatorResult {
            writes: Vec::new(),
            replies: Vec::new(),
            timers: Vec::new(),
            commands: Vec::new(),
        }
    }
}

pub type Outcome<C> = CoordinatorResult<
    <C as Coordinator>::Record,
    <C as Coordinator>::Response,
    <C as Coordinator>::TimerKey,
    <C as Coordinator>::Command,
>;
