//! The cache of fetch sessions (KIP-227), each of which `ottla_protocol::fetch_session` keeps.
//!
//! The cache holds at most `max.incremental.fetch.session.cache.slots` sessions. A new one takes the place of one that is
//! worth less ([`shard`]); otherwise the client goes on without a session. So it does where the partitions of all sessions
//! come to the bound that follows from the memory that there is.
//!
//! Kafka does the same in `FetchSessionCacheShard`, `FetchManager` and `FetchContext`, without a bound of partitions.

mod shard;

use ottla_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use ottla_protocol::fetch_session::NO_SESSION;
use ottla_protocol::fetch_session::server::{FetchSession, RequestedSession};
use ottla_protocol::messages::fetch_request::FetchPartition;
use ottla_protocol::messages::fetch_response::PartitionData;
use ottla_sync::Mutex;
use ottla_types::{ErrorCode, TopicName, Uuid};

use self::shard::{Shard, Worth};

/// As many as Kafka has, where each gets a fair number of slots.
const SHARDS: usize = 8;
const LEAST_SLOTS_OF_SHARD: usize = 8;

/// A partition as sessions know it: by topic id where the client uses those, else by name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PartitionKey {
    /// Empty where the id is used.
    pub(crate) topic: TopicName,
    /// Zero where the name is used.
    pub(crate) topic_id: Uuid,
    pub(crate) partition: i32,
}

type Session = Arc<Mutex<FetchSession<PartitionKey>>>;

/// All sessions of a broker.
#[derive(Debug)]
pub(crate) struct FetchSessions {
    /// A session is in the one that its id says.
    shards: Vec<Mutex<Shard<Session>>>,
    max_partitions: usize,
    /// Of all sessions, as of their last use.
    partitions: AtomicUsize,
    /// Sessions that had to make room for others.
    evictions: AtomicU64,
}

/// What the cache holds, for the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CachedSessions {
    pub(crate) sessions: usize,
    pub(crate) partitions: usize,
    pub(crate) evictions: u64,
}

/// How a request is to be answered.
#[derive(Debug)]
pub(crate) enum FetchContext {
    /// With everything, and no session.
    Sessionless,
    /// With everything, and a session if there is room.
    Full {
        uses_topic_ids: bool,
        is_follower: bool,
    },
    /// With what has changed.
    Incremental(IncrementalContext),
}

#[derive(Debug)]
pub(crate) struct IncrementalContext {
    id: i32,
    session: Session,
    /// What the session has to expect next for the answer still to be the right one.
    next_epoch: i32,
}

/// The partitions of a request, in the order in which they are served.
pub(crate) type FetchPartitions = Vec<(PartitionKey, FetchPartition)>;
/// The answers for partitions, in their order.
pub(crate) type FetchedPartitions = Vec<(PartitionKey, PartitionData)>;

impl FetchSessions {
    pub(crate) fn new(max_sessions: usize, max_partitions: usize) -> Self {
        let shards = match max_sessions >= SHARDS * LEAST_SLOTS_OF_SHARD {
            true => SHARDS,
            false => 1,
        };
        let slots = |shard| max_sessions / shards + usize::from(shard < max_sessions % shards);
        FetchSessions {
            shards: (0..shards)
                .map(|shard| Mutex::new(Shard::new(slots(shard))))
                .collect(),
            max_partitions,
            partitions: AtomicUsize::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// How much is cached.
    pub(crate) fn cached(&self) -> CachedSessions {
        CachedSessions {
            partitions: self.partitions.load(Ordering::Relaxed),
            sessions: self.shards.iter().map(|shard| shard.lock().len()).sum(),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    fn shard(&self, id: i32) -> &Mutex<Shard<Session>> {
        &self.shards[id.unsigned_abs() as usize % self.shards.len()]
    }

    /// Has a shard changed, and counts what it has then.
    fn change<T>(
        &self,
        shard: &Mutex<Shard<Session>>,
        change: impl FnOnce(&mut Shard<Session>) -> T,
    ) -> T {
        let mut shard = shard.lock();
        let before = shard.partitions();
        let changed = change(&mut shard);
        let after = shard.partitions();
        self.partitions
            .fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        changed
    }

    fn remove(&self, id: i32) {
        self.change(self.shard(id), |shard| shard.remove(id));
    }

    /// Finds out how a request is to be answered, and which partitions it is about.
    pub(crate) fn begin(
        &self,
        session_id: i32,
        epoch: i32,
        uses_topic_ids: bool,
        is_follower: bool,
        requested: FetchPartitions,
        forgotten: &[PartitionKey],
        now_ms: u64,
    ) -> Result<(FetchContext, FetchPartitions), ErrorCode> {
        let epoch = match RequestedSession::of(epoch) {
            RequestedSession::Known { epoch } => epoch,
            asked => {
                if session_id != NO_SESSION {
                    self.remove(session_id);
                }
                let context = match asked {
                    RequestedSession::New => FetchContext::Full {
                        uses_topic_ids,
                        is_follower,
                    },
                    _ => FetchContext::Sessionless,
                };
                return Ok((context, requested));
            }
        };
        let found = self.shard(session_id).lock().find(session_id);
        let session = found.ok_or(ErrorCode::FetchSessionIdNotFound)?;
        let continued =
            session
                .lock()
                .continue_with(epoch, uses_topic_ids, &requested, forgotten)?;
        let size = continued.partitions.len();
        if size == 0 {
            self.remove(session_id);
            return Ok((FetchContext::Sessionless, requested));
        }
        let shard = self.shard(session_id);
        self.change(shard, |shard| shard.on_used(session_id, size, now_ms));
        if !requested.is_empty() && self.partitions.load(Ordering::Relaxed) > self.max_partitions {
            // The client asks for everything then, and gets no session.
            self.remove(session_id);
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        let context = IncrementalContext {
            id: session_id,
            session,
            next_epoch: continued.next_epoch,
        };
        Ok((FetchContext::Incremental(context), continued.partitions))
    }

    /// Creates a session for what a full fetch asked for, if there is room. Returns its id.
    fn create(
        &self,
        uses_topic_ids: bool,
        is_follower: bool,
        requested: FetchPartitions,
        answers: &FetchedPartitions,
        now_ms: u64,
        mut random: impl FnMut() -> i32,
    ) -> i32 {
        let worth = Worth {
            is_follower,
            partitions: requested.len(),
        };
        let shards = self.shards.len();
        let first = random().unsigned_abs() as usize % shards;
        let in_turn = (first..shards).chain(0..first);
        // Where one shard has no room another may have some.
        let with_room = in_turn
            .into_iter()
            .find(|&it| !self.shards[it].lock().is_full());
        let number = with_room.unwrap_or(first);
        self.change(&self.shards[number], |shard| {
            let of_all = self.partitions.load(Ordering::Relaxed);
            let of_others = of_all.saturating_sub(shard.partitions());
            let fits = |shard: &Shard<Session>| {
                of_others + shard.partitions() + worth.partitions <= self.max_partitions
            };
            if shard.is_full() || !fits(shard) {
                if !shard.evict_for(worth, now_ms) {
                    return NO_SESSION;
                }
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
            if shard.is_full() || !fits(shard) {
                return NO_SESSION;
            }
            let id = loop {
                let id = random() & i32::MAX;
                let id = id - id % shards as i32 + number as i32;
                if id > NO_SESSION && !shard.has(id) {
                    break id;
                }
            };
            let session = FetchSession::new(uses_topic_ids, requested, answers);
            shard.insert(id, Arc::new(Mutex::new(session)), worth, now_ms);
            id
        })
    }
}

impl FetchContext {
    /// The session id of an answer that says nothing of any partition: no session begins, and one that is under way does
    /// not get on.
    pub(crate) fn throttled(self) -> Result<i32, (ErrorCode, i32)> {
        match self {
            FetchContext::Sessionless | FetchContext::Full { .. } => Ok(NO_SESSION),
            FetchContext::Incremental(context) => {
                let mut session = context.session.lock();
                match session.finish(context.next_epoch, &mut Vec::new()) {
                    Ok(()) => Ok(context.id),
                    Err(code) => Err((code, context.id)),
                }
            }
        }
    }

    /// The session id to answer with, and what of the answers has to be said.
    pub(crate) fn finish(
        self,
        sessions: &FetchSessions,
        requested: FetchPartitions,
        mut answers: FetchedPartitions,
        now_ms: u64,
    ) -> Result<(i32, FetchedPartitions), (ErrorCode, i32)> {
        match self {
            FetchContext::Sessionless => Ok((NO_SESSION, answers)),
            FetchContext::Full {
                uses_topic_ids,
                is_follower,
            } => {
                let random = || ottla_sync::random::random("fetch session ids");
                let id = sessions.create(
                    uses_topic_ids,
                    is_follower,
                    requested,
                    &answers,
                    now_ms,
                    random,
                );
                Ok((id, answers))
            }
            FetchContext::Incremental(context) => {
                let mut session = context.session.lock();
                session
                    .finish(context.next_epoch, &mut answers)
                    .map_err(|code| (code, context.id))?;
                Ok((context.id, answers))
            }
        }
    }
}

#[cfg(test)]
mod tests;
