//! The cache of fetch sessions (KIP-227). `ottla_protocol::fetch_session` implements a single
//! session.
//!
//! The cache holds at most `max.incremental.fetch.session.cache.slots` sessions. A new session
//! replaces a session of lower priority ([`shard`]); without such a session, the client continues
//! without one. The same happens when the partitions of all sessions reach a bound that depends on
//! the available memory.
//!
//! Kafka: `FetchSessionCacheShard`, `FetchManager`, `FetchContext`, which have no bound on
//! partitions.

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

/// As in Kafka, if each shard gets enough slots.
const SHARDS: usize = 8;
const LEAST_SLOTS_OF_SHARD: usize = 8;

/// The key of a partition in a session: its topic ID if the client uses IDs, otherwise its topic
/// name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PartitionKey {
    /// Empty if the topic ID is used.
    pub topic: TopicName,
    /// Zero if the topic name is used.
    pub topic_id: Uuid,
    pub partition: i32,
}

type Session = Arc<Mutex<FetchSession<PartitionKey>>>;

/// All sessions of a broker.
#[derive(Debug)]
pub struct FetchSessions {
    /// The session ID determines the shard.
    shards: Vec<Mutex<Shard<Session>>>,
    max_partitions: usize,
    /// Of all sessions, as of their last use.
    partitions: AtomicUsize,
    /// The number of sessions that were evicted.
    evictions: AtomicU64,
}

/// The contents of the cache, for the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CachedSessions {
    pub sessions: usize,
    pub partitions: usize,
    pub evictions: u64,
}

/// How a request is answered.
#[derive(Debug)]
pub enum FetchContext {
    /// With all partitions, without a session.
    Sessionless,
    /// With all partitions, and a new session if there is room.
    Full {
        uses_topic_ids: bool,
        is_follower: bool,
    },
    /// With the partitions that have changed.
    Incremental(IncrementalContext),
}

#[derive(Debug)]
pub struct IncrementalContext {
    id: i32,
    session: Session,
    /// The session must still expect this epoch when the response is finished.
    next_epoch: i32,
}

/// The partitions of a request, in serving order.
pub type FetchPartitions = Vec<(PartitionKey, FetchPartition)>;
/// The answers for partitions, in order.
pub type FetchedPartitions = Vec<(PartitionKey, PartitionData)>;

impl FetchSessions {
    pub fn new(max_sessions: usize, max_partitions: usize) -> Self {
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

    /// The contents of the cache.
    pub fn cached(&self) -> CachedSessions {
        CachedSessions {
            partitions: self.partitions.load(Ordering::Relaxed),
            sessions: self.shards.iter().map(|shard| shard.lock().len()).sum(),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    fn shard(&self, id: i32) -> &Mutex<Shard<Session>> {
        &self.shards[id.unsigned_abs() as usize % self.shards.len()]
    }

    /// Changes a shard, and updates the number of partitions.
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

    /// Determines how a request is answered, and its partitions.
    pub fn begin(
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
            // The client then sends a full request, and gets no session.
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

    /// Creates a session for a full fetch if there is room. Returns its ID.
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
        // It would fit nowhere, and each fetch of its client would evict the session of another.
        if worth.partitions > self.max_partitions {
            return NO_SESSION;
        }
        let shards = self.shards.len();
        let first = random().unsigned_abs() as usize % shards;
        let in_turn = (first..shards).chain(0..first);
        // If one shard is full, another may have room.
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
    /// The session ID for a throttled response without partitions: no new session is created, and
    /// an existing one does not advance.
    pub fn throttled(self) -> Result<i32, (ErrorCode, i32)> {
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

    /// The session ID for the response, and the answers that it must contain.
    pub fn finish(
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
