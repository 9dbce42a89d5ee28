//! What a coordinator asks of its shell: records to append, replies to send, timers to change, and
//! whatever else only its own shell can do.
//!
//! Invariants: each [`ReplyTo`] that is handed in is answered by exactly one [`Reply`], at once or in
//! the outcome of a later event. Write ids grow by one in the order in which the writes must be
//! appended. The shell reports each write once: committed, failed, or first timed out and then one of
//! the two.
//! Source: `CoordinatorResult`, `CoordinatorShard`.

use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;

use bytes::Bytes;
use ottla_protocol::EncodeError;
use ottla_types::{ErrorCode, Offset, ProducerEpoch, ProducerId, Timestamp};

/// The state machine of one partition of an internal topic, as far as its shell has to know it. Its
/// requests are its own.
pub trait Coordinator: Sized {
    type Record: EncodeRecord + Debug;
    type Response: Debug;
    type TimerKey: Clone + Eq + Hash + Ord + Debug;
    /// What is asked of the shell besides writes, replies and timers.
    type Command: Debug;

    /// Whether nobody is answered before all that is in the log at the election is committed.
    const AWAITS_COMMITTED_LOG: bool;

    /// Whether the log refuses records while fewer replicas are in sync than `min.insync.replicas`. Where it does not, they
    /// are appended and count when enough replicas have them.
    const REQUIRES_MIN_ISR: bool;

    /// Takes in what stands in the log; the error is for people.
    fn replay(&mut self, entry: LogEntry<'_>, now: Timestamp) -> Result<(), String>;

    /// What is replayed from here on is in the log and not committed: it counts to the write that is returned. There is none
    /// where the committed log is awaited.
    fn begin_uncommitted(&mut self) -> Option<WriteId> {
        None
    }

    /// The log has been replayed up to its end.
    fn on_loaded(&mut self, now: Timestamp) -> Outcome<Self>;

    /// The partition is led elsewhere now, or the broker stops. Answers everything that is parked.
    fn on_unloaded(&mut self) -> Outcome<Self>;

    /// The records of the writes from `first` to `last` stand in the log from `base_offset` on, one after the other, and may be
    /// committed or not: for a coordinator that has to know. Comes before they are reported as committed.
    fn on_appended(&mut self, _first: WriteId, _last: WriteId, _base_offset: Offset) {}

    /// The records of `write` and of all writes before it are committed.
    fn on_records_committed(&mut self, write: WriteId, now: Timestamp) -> Outcome<Self>;

    /// The records of `write` are not in the log, and those of later writes are not or will be
    /// ignored: the shell must not go on with them.
    fn on_write_failed(
        &mut self,
        write: WriteId,
        error: ErrorCode,
        now: Timestamp,
    ) -> Outcome<Self>;

    /// `write` has taken longer than a client should wait. Those who wait are told; whether it is
    /// committed remains open.
    fn on_write_timed_out(&mut self, write: WriteId, now: Timestamp) -> Outcome<Self>;

    /// A timer that this coordinator set is due.
    fn on_timer(&mut self, key: Self::TimerKey, now: Timestamp) -> Outcome<Self>;
}

/// What a coordinator reads of its log.
pub enum LogEntry<'a> {
    /// `producer_id` is that of a transactional batch, and `ProducerId::NONE` otherwise.
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

/// A record as it stands in the log.
pub trait EncodeRecord {
    /// Key and value, each behind its two-byte type or version.
    fn encode(&self) -> Result<(Bytes, Option<Bytes>), EncodeError>;
}

/// Names the place where a reply is awaited.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ReplyId(pub u64);

/// The place where a `T` is awaited: no other response can be sent there. Given by the shell; the coordinator only hands it
/// back.
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

    /// The reply, as one of the coordinator's.
    pub(crate) fn with<S: From<T>>(self, response: T) -> Reply<S> {
        Reply {
            to: self.id,
            response: response.into(),
        }
    }
}

/// The enum of a coordinator's responses. Each goes in by `From`, and comes out as what it was by `TryFrom`.
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

/// Names one append of one coordinator, in the order of the appends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct WriteId(pub u64);

/// What goes to the log as one batch.
#[derive(Clone, PartialEq, Debug)]
pub struct Write<R> {
    pub id: WriteId,
    pub kind: WriteKind,
    pub records: Vec<R>,
}

/// What kind of batch a write is. Only plain ones may share a batch with their neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteKind {
    Plain,
    /// Records that count when the producer's transaction is committed.
    Transactional {
        producer: TransactionalProducer,
        /// What the log gave when the transaction was verified; `None` where it had begun already.
        guard: Option<u64>,
    },
    /// The marker that ends the producer's transaction; it has no records of the coordinator.
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

/// How a transaction ends, as its coordinator says it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TransactionEnd {
    pub is_commit: bool,
    /// The leader epoch of the transaction coordinator that decided it.
    pub coordinator_epoch: i32,
    /// The `transaction.version` that the transaction's client worked by: from 2 on the marker carries
    /// the next producer epoch (KIP-890).
    pub transaction_version: i16,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Reply<S> {
    pub to: ReplyId,
    pub response: S,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TimerChange<K> {
    /// Replaces a timer of the same key.
    Set {
        key: K,
        after_ms: u64,
    },
    /// Leaves a timer of the same key as it is.
    SetIfAbsent {
        key: K,
        after_ms: u64,
    },
    Cancel {
        key: K,
    },
}

/// What comes of one event. [`Outcome`] is that of a coordinator.
#[derive(Debug)]
pub struct CoordinatorResult<Record, Response, TimerKey, Command> {
    /// To be appended in this order, after all earlier ones.
    pub writes: Vec<Write<Record>>,
    /// To be sent at once, whatever becomes of `writes`.
    pub replies: Vec<Reply<Response>>,
    /// To be applied in this order.
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
