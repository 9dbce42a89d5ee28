//! The cache of fetch sessions (KIP-227), each of which `ottla_protocol::fetch_session` keeps.
//!
//! The cache holds at most `max.incremental.fetch.session.cache.slots` sessions. A new one takes the
//! place of one that was idle for two minutes, or of one that is older than that and holds fewer
//! partitions; otherwise the client goes on without a session.
//!
//! Kafka does the same in `FetchSessionCacheShard`, `FetchManager` and `FetchContext`.

use ottla_sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use ottla_protocol::fetch_session::NO_SESSION;
use ottla_protocol::fetch_session::server::{FetchSession, RequestedSession, find_evictable};
use ottla_protocol::messages::fetch_request::FetchPartition;
use ottla_protocol::messages::fetch_response::PartitionData;
use ottla_sync::Mutex;
use ottla_sync::collections::HashMap;
use ottla_types::{ErrorCode, TopicName, Uuid};

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
    max_sessions: usize,
    sessions: Mutex<HashMap<i32, Session>>,
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
        let partitions = sessions.iter().map(|it| it.lock().size());
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
        let epoch = match RequestedSession::of(epoch) {
            RequestedSession::Known { epoch } => epoch,
            asked => {
                if session_id != NO_SESSION {
                    self.sessions.lock().remove(&session_id);
                }
                let context = match asked {
                    RequestedSession::New => FetchContext::Full { uses_topic_ids },
                    _ => FetchContext::Sessionless,
                };
                return Ok((context, requested));
            }
        };
        let found = self.sessions.lock().get(&session_id).cloned();
        let session = found.ok_or(ErrorCode::FetchSessionIdNotFound)?;
        let continued =
            session
                .lock()
                .continue_with(epoch, uses_topic_ids, &requested, forgotten, now_ms)?;
        if continued.partitions.is_empty() {
            self.sessions.lock().remove(&session_id);
            return Ok((FetchContext::Sessionless, requested));
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
        requested: FetchPartitions,
        answers: &FetchedPartitions,
        now_ms: u64,
        mut random: impl FnMut() -> i32,
    ) -> i32 {
        let mut sessions = self.sessions.lock();
        if sessions.len() >= self.max_sessions {
            let cached = sessions.iter().map(|(id, session)| (*id, session.lock()));
            let Some(evicted) = find_evictable(cached, requested.len(), now_ms) else {
                return NO_SESSION;
            };
            sessions.remove(&evicted);
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        let id = loop {
            let id = random();
            if id > NO_SESSION && !sessions.contains_key(&id) {
                break id;
            }
        };
        let session = FetchSession::new(uses_topic_ids, requested, answers, now_ms);
        sessions.insert(id, Arc::new(Mutex::new(session)));
        id
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
            FetchContext::Full { uses_topic_ids } => {
                let id = sessions.create(uses_topic_ids, requested, &answers, now_ms, || {
                    ottla_sync::random::random("fetch session ids")
                });
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
