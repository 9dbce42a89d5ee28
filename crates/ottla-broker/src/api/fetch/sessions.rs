//! Fetch sessions (KIP-227): a client names its partitions once, and from then on only what changes.
//!
//! The cache holds at most `max.incremental.fetch.session.cache.slots` sessions. A new one takes the
//! place of one that was idle for two minutes, or of one that is older than that and holds fewer
//! partitions; otherwise the client goes on without a session.
//!
//! Kafka does the same in `FetchSession`, `FetchSessionCacheShard`, `FetchManager` and `FetchContext`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use ottla_protocol::messages::fetch_request::FetchPartition;
use ottla_protocol::messages::fetch_response::PartitionData;
use ottla_types::{ErrorCode, TopicName, Uuid};
use parking_lot::Mutex;

/// The session id of clients without a session.
pub(crate) const INVALID_SESSION_ID: i32 = 0;
/// The epoch that asks for a new session.
const INITIAL_EPOCH: i32 = 0;
/// The epoch that closes a session and asks for none.
const FINAL_EPOCH: i32 = -1;
/// After so long without a fetch a session is stale, and from that age on it can be displaced.
const EVICTION_MS: u64 = 120_000;

/// A partition as sessions know it: by topic id where the client uses those, else by name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PartitionKey {
    /// Empty where the id is used.
    pub(crate) topic: TopicName,
    /// Zero where the name is used.
    pub(crate) topic_id: Uuid,
    pub(crate) partition: i32,
}

/// What a client asked of a partition, and what it was last told.
#[derive(Clone, PartialEq, Debug)]
struct CachedPartition {
    /// The place in the order in which partitions are served.
    order: u64,
    requested: FetchPartition,
    high_watermark: i64,
    log_start_offset: i64,
}

#[derive(Debug)]
struct Session {
    id: i32,
    uses_topic_ids: bool,
    /// What the next request has to carry.
    epoch: i32,
    partitions: HashMap<PartitionKey, CachedPartition>,
    /// Partitions that gave records move to the end, so that none is starved by those before it.
    order: BTreeMap<u64, PartitionKey>,
    next_order: u64,
    created_ms: u64,
    last_used_ms: u64,
}

/// All sessions of a broker.
#[derive(Debug)]
pub(crate) struct FetchSessions {
    max_sessions: usize,
    sessions: Mutex<HashMap<i32, Arc<Mutex<Session>>>>,
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
    Full { uses_topic_ids: bool },
    /// With what has changed.
    Incremental(IncrementalContext),
}

#[derive(Debug)]
pub(crate) struct IncrementalContext {
    session: Arc<Mutex<Session>>,
    /// What the session has to expect next for the answer still to be the right one.
    next_epoch: i32,
}

/// The partitions of a request, in the order in which they are served.
pub(crate) type FetchPartitions = Vec<(PartitionKey, FetchPartition)>;
/// The answers for partitions, in their order.
pub(crate) type FetchedPartitions = Vec<(PartitionKey, PartitionData)>;

fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        ..0 => FINAL_EPOCH,
        i32::MAX => 1,
        _ => epoch + 1,
    }
}

impl Session {
    fn insert(&mut self, key: PartitionKey, requested: FetchPartition) {
        if let Some(known) = self.partitions.get_mut(&key) {
            known.requested = requested;
            return;
        }
        self.order.insert(self.next_order, key.clone());
        let cached = CachedPartition {
            order: self.next_order,
            requested,
            high_watermark: -1,
            log_start_offset: -1,
        };
        self.partitions.insert(key, cached);
        self.next_order += 1;
    }

    fn remove(&mut self, key: &PartitionKey) {
        if let Some(removed) = self.partitions.remove(key) {
            self.order.remove(&removed.order);
        }
    }

    fn requested(&self) -> FetchPartitions {
        let keys = self.order.values();
        keys.filter_map(|key| {
            let cached = self.partitions.get(key)?;
            Some((key.clone(), cached.requested.clone()))
        })
        .collect()
    }

    /// Notes what the client is told of a partition; returns whether it has to be told at all.
    fn update(&mut self, key: &PartitionKey, answer: &PartitionData) -> bool {
        let Some(cached) = self.partitions.get_mut(key) else {
            return false;
        };
        let has_records = answer
            .records
            .as_ref()
            .is_some_and(|records| !records.is_empty());
        let has_error = answer.error_code != ErrorCode::None.code();
        let must_respond = has_records
            || has_error
            || cached.high_watermark != answer.high_watermark
            || cached.log_start_offset != answer.log_start_offset
            || answer.preferred_read_replica >= 0
            || answer.diverging_epoch.end_offset >= 0;
        cached.log_start_offset = answer.log_start_offset;
        // An impossible value makes sure that the partition is told of when the error is over.
        cached.high_watermark = match has_error {
            true => -1,
            false => answer.high_watermark,
        };
        if has_records {
            self.order.remove(&cached.order);
            cached.order = self.next_order;
            self.order.insert(cached.order, key.clone());
            self.next_order += 1;
        }
        must_respond
    }
}

impl FetchSessions {
    pub(crate) fn new(max_sessions: usize) -> Self {
        FetchSessions {
            max_sessions,
            sessions: Mutex::default(),
            evictions: AtomicU64::new(0),
        }
    }

    /// How much is cached. Takes the lock of each session, as an eviction does.
    pub(crate) fn cached(&self) -> CachedSessions {
        let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        let partitions = sessions.iter().map(|it| it.lock().partitions.len());
        CachedSessions {
            partitions: partitions.sum(),
            sessions: sessions.len(),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    /// Finds out how a request is to be answered, and which partitions it is about.
    pub(crate) fn begin(
        &self,
        session_id: i32,
        epoch: i32,
        uses_topic_ids: bool,
        requested: FetchPartitions,
        forgotten: &[PartitionKey],
        now_ms: u64,
    ) -> Result<(FetchContext, FetchPartitions), ErrorCode> {
        if epoch == INITIAL_EPOCH || epoch == FINAL_EPOCH {
            if session_id != INVALID_SESSION_ID {
                self.sessions.lock().remove(&session_id);
            }
            let context = match epoch {
                FINAL_EPOCH => FetchContext::Sessionless,
                _ => FetchContext::Full { uses_topic_ids },
            };
            return Ok((context, requested));
        }
        let found = self.sessions.lock().get(&session_id).cloned();
        let session = found.ok_or(ErrorCode::FetchSessionIdNotFound)?;
        let mut locked = session.lock();
        if locked.epoch != epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if locked.uses_topic_ids != uses_topic_ids {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        for (key, partition) in &requested {
            locked.insert(key.clone(), partition.clone());
        }
        for key in forgotten {
            locked.remove(key);
        }
        if locked.partitions.is_empty() {
            drop(locked);
            self.sessions.lock().remove(&session_id);
            return Ok((FetchContext::Sessionless, requested));
        }
        locked.last_used_ms = now_ms;
        locked.epoch = next_epoch(epoch);
        let next_epoch = locked.epoch;
        let partitions = locked.requested();
        drop(locked);
        let context = IncrementalContext {
            session,
            next_epoch,
        };
        Ok((FetchContext::Incremental(context), partitions))
    }

    /// Creates a session for what a full fetch asked for, if there is room. Returns its id.
    fn create(
        &self,
        uses_topic_ids: bool,
        requested: FetchPartitions,
        answers: &FetchedPartitions,
        now_ms: u64,
        mut random: impl FnMut() -> i32,
    ) -> i32 {
        let mut sessions = self.sessions.lock();
        if sessions.len() >= self.max_sessions {
            if !evict(&mut sessions, requested.len(), now_ms) {
                return INVALID_SESSION_ID;
            }
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        let id = loop {
            let id = random();
            if id > INVALID_SESSION_ID && !sessions.contains_key(&id) {
                break id;
            }
        };
        let mut session = Session {
            id,
            uses_topic_ids,
            epoch: next_epoch(INITIAL_EPOCH),
            partitions: HashMap::with_capacity(requested.len()),
            order: BTreeMap::new(),
            next_order: 0,
            created_ms: now_ms,
            last_used_ms: now_ms,
        };
        for (key, partition) in requested {
            session.insert(key, partition);
        }
        for (key, answer) in answers {
            if let Some(cached) = session.partitions.get_mut(key) {
                cached.high_watermark = answer.high_watermark;
                cached.log_start_offset = answer.log_start_offset;
            }
        }
        sessions.insert(id, Arc::new(Mutex::new(session)));
        id
    }
}

/// Makes room for a session of `size` partitions; returns whether that was possible.
fn evict(sessions: &mut HashMap<i32, Arc<Mutex<Session>>>, size: usize, now_ms: u64) -> bool {
    let stale_before_ms = now_ms.saturating_sub(EVICTION_MS);
    let mut oldest: Option<(u64, i32)> = None;
    let mut smallest: Option<(usize, i32)> = None;
    for session in sessions.values() {
        let session = session.lock();
        let last_used = (session.last_used_ms, session.id);
        oldest = Some(oldest.map_or(last_used, |oldest| oldest.min(last_used)));
        if session.created_ms < stale_before_ms {
            let session_size = (session.partitions.len(), session.id);
            smallest = Some(smallest.map_or(session_size, |smallest| smallest.min(session_size)));
        }
    }
    let evicted = match (oldest, smallest) {
        (Some((last_used_ms, id)), _) if last_used_ms < stale_before_ms => Some(id),
        (_, Some((smallest, id))) if smallest < size => Some(id),
        _ => None,
    };
    evicted.is_some_and(|id| sessions.remove(&id).is_some())
}

impl FetchContext {
    /// The session id to answer with, and what of the answers has to be said.
    pub(crate) fn finish(
        self,
        sessions: &FetchSessions,
        requested: FetchPartitions,
        mut answers: FetchedPartitions,
        now_ms: u64,
    ) -> Result<(i32, FetchedPartitions), (ErrorCode, i32)> {
        match self {
            FetchContext::Sessionless => Ok((INVALID_SESSION_ID, answers)),
            FetchContext::Full { uses_topic_ids } => {
                let id = sessions.create(uses_topic_ids, requested, &answers, now_ms, rand::random);
                Ok((id, answers))
            }
            FetchContext::Incremental(context) => {
                let mut session = context.session.lock();
                if session.epoch != context.next_epoch {
                    return Err((ErrorCode::InvalidFetchSessionEpoch, session.id));
                }
                answers.retain(|(key, answer)| session.update(key, answer));
                Ok((session.id, answers))
            }
        }
    }
}

#[cfg(test)]
mod tests;
