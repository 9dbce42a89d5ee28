//! Share sessions: the partitions that each member of a share group reads from this broker.
//!
//! A member that fetches from a broker has a session there, which ends with its connection, so that
//! the records of a member that is gone are released. Requests of a session are ordered by its
//! epoch. A partition that a request does not contain stays in the session. There can be as many
//! sessions as the groups can have members, and none is evicted. Several members can share a
//! connection; Kafka ends only the session that was started on it last, and the others count
//! towards the limit until the broker stops. Invariants: every session belongs to the connection on
//! which it was started, and ends with it; a group is known while it has a session, a release in
//! progress, or was left without closing its share partitions. Source: `ShareSessionCache`,
//! `ShareSession`, `ShareSessionContext`, `SharePartitionManager.newContext`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytestring::ByteString;
use indexmap::IndexMap;
use ottla_types::{ErrorCode, TopicIdPartition};

/// Starts a session, and replaces an existing one.
pub const INITIAL_EPOCH: i32 = 0;
/// Closes the session.
pub const FINAL_EPOCH: i32 = -1;

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ShareSessionKey {
    pub group_id: ByteString,
    pub member_id: ByteString,
}

/// Identifies a connection while the broker runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConnectionId(pub u64);

#[derive(Debug)]
struct ShareSession {
    connection: ConnectionId,
    /// The epoch of the next request.
    epoch: i32,
    /// In the order in which they are read. Partitions that returned records move to the end.
    partitions: IndexMap<TopicIdPartition, CachedPartition>,
}

#[derive(Debug)]
struct CachedPartition {
    /// Whether the next response must contain this partition, because it is new or its error is
    /// over.
    must_be_sent: bool,
}

/// The sessions of a connection.
#[derive(Debug, Default)]
struct ConnectionSessions {
    /// The sessions that were started on it and have not ended.
    sessions: BTreeSet<ShareSessionKey>,
    /// The group of the first session that ended before the connection did. Its members may come
    /// back, so its share partitions stay open as long as the connection.
    left_group: Option<ByteString>,
}

impl ConnectionSessions {
    /// A session has ended before the connection. Returns whether the share partitions of its group
    /// stay open. That is so for one group only: a client can start and end sessions of any number
    /// of groups.
    fn leave(&mut self, key: &ShareSessionKey) -> bool {
        self.sessions.remove(key);
        let left_group = self.left_group.get_or_insert_with(|| key.group_id.clone());
        *left_group == key.group_id
    }
}

#[derive(Debug)]
pub struct ShareSessions {
    max_sessions: usize,
    sessions: BTreeMap<ShareSessionKey, ShareSession>,
    by_connection: HashMap<ConnectionId, ConnectionSessions>,
    groups: HashMap<ByteString, GroupSessions>,
}

/// What decides when the share partitions of a group can be closed on this broker.
#[derive(Debug, Default)]
struct GroupSessions {
    members: usize,
    /// Sessions that have ended, and whose records are being released.
    releasing: usize,
    /// The last session has ended, its connection does not keep the share partitions open, and no
    /// session was started since.
    is_abandoned: bool,
}

/// The fields of a ShareFetch that concern the session.
#[derive(Clone, Copy, Debug)]
pub struct FetchRequest<'a> {
    pub epoch: i32,
    pub added: &'a [TopicIdPartition],
    pub forgotten: &'a [TopicIdPartition],
    pub has_acknowledgements: bool,
    pub connection: ConnectionId,
}

/// The kind of fetch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionFetch {
    /// All partitions in the request are read, and all are in the response.
    Initial,
    /// These partitions are read, and those without news are omitted from the response.
    Subsequent(Vec<TopicIdPartition>),
    /// Nothing is read.
    Final,
}

/// What ended with a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Disconnected {
    /// The sessions, and the partitions whose records must be released.
    pub sessions: Vec<(ShareSessionKey, Vec<TopicIdPartition>)>,
    /// A group whose session had ended before.
    pub left_group: Option<ByteString>,
}

impl ShareSessions {
    pub fn new(max_sessions: usize) -> Self {
        ShareSessions {
            max_sessions,
            sessions: BTreeMap::new(),
            by_connection: HashMap::new(),
            groups: HashMap::new(),
        }
    }

    /// Starts, continues or closes a session. After a request with the final epoch,
    /// [`ShareSessions::end`] must be called when it has been handled.
    pub fn begin_fetch(
        &mut self,
        key: &ShareSessionKey,
        request: FetchRequest<'_>,
    ) -> Result<SessionFetch, ErrorCode> {
        let epoch = request.epoch;
        if epoch == FINAL_EPOCH {
            self.session(key)?;
            return Ok(SessionFetch::Final);
        }
        if epoch == INITIAL_EPOCH {
            if request.has_acknowledgements {
                return Err(ErrorCode::InvalidRequest);
            }
            self.remove(key);
            return self.begin(key, request.added, request.connection);
        }
        let session = self.session(key)?;
        session.advance(epoch)?;
        for partition in request.added {
            let added = CachedPartition { must_be_sent: true };
            session.partitions.entry(*partition).or_insert(added);
        }
        for partition in request.forgotten {
            session.partitions.shift_remove(partition);
        }
        let partitions = session.partitions.keys().copied().collect();
        Ok(SessionFetch::Subsequent(partitions))
    }

    /// The same for a ShareAcknowledge, which cannot start a session.
    pub fn begin_acknowledge(
        &mut self,
        key: &ShareSessionKey,
        epoch: i32,
    ) -> Result<(), ErrorCode> {
        if epoch == INITIAL_EPOCH {
            return Err(ErrorCode::InvalidShareSessionEpoch);
        }
        let session = self.session(key)?;
        if epoch == FINAL_EPOCH {
            return Ok(());
        }
        session.advance(epoch)
    }

    /// Whether a response in a continued session must contain the partition.
    pub fn must_tell(
        &mut self,
        key: &ShareSessionKey,
        partition: &TopicIdPartition,
        has_records: bool,
        has_error: bool,
    ) -> bool {
        let session = self.sessions.get_mut(key);
        let Some(cached) = session.and_then(|session| session.partitions.get_mut(partition)) else {
            // It has been removed.
            return true;
        };
        let must_tell = has_records || has_error || cached.must_be_sent;
        // The end of an error must be reported to the member.
        cached.must_be_sent = has_error;
        if has_records
            && let Some(session) = self.sessions.get_mut(key)
            && let Some(cached) = session.partitions.shift_remove(partition)
        {
            session.partitions.insert(*partition, cached);
        }
        must_tell
    }

    /// Closes the session. Returns its partitions, whose records must be released, which
    /// [`ShareSessions::on_released`] reports; `None` if there is no session.
    pub fn end(&mut self, key: &ShareSessionKey) -> Option<Vec<TopicIdPartition>> {
        let partitions = self.remove(key)?;
        self.group(&key.group_id).releasing += 1;
        Some(partitions)
    }

    fn remove(&mut self, key: &ShareSessionKey) -> Option<Vec<TopicIdPartition>> {
        let session = self.sessions.remove(key)?;
        let connection = self.by_connection.get_mut(&session.connection);
        // Without the connection, the session ends with it.
        let stays_open = connection.is_some_and(|connection| connection.leave(key));
        let group = self.group(&key.group_id);
        group.members = group.members.saturating_sub(1);
        if !stays_open {
            group.is_abandoned = group.members == 0;
        }
        Some(session.partitions.into_keys().collect())
    }

    /// The connection was closed, and with it the sessions that were started on it. Once the
    /// records of a session are released, and at once for the group that was left before,
    /// [`ShareSessions::take_abandoned`] must be called.
    pub fn on_disconnected(&mut self, connection: ConnectionId) -> Disconnected {
        let Some(closed) = self.by_connection.remove(&connection) else {
            return Disconnected::default();
        };
        let sessions = closed.sessions.into_iter();
        let ended = sessions.filter_map(|key| {
            let partitions = self.end(&key)?;
            Some((key, partitions))
        });
        let ended = ended.collect();
        if let Some(group_id) = &closed.left_group {
            let group = self.group(group_id);
            group.is_abandoned = group.members == 0;
        }
        Disconnected {
            sessions: ended,
            left_group: closed.left_group,
        }
    }

    /// The records of a session that has ended are released, or their locks will expire.
    pub fn on_released(&mut self, group_id: &str) {
        if let Some(group) = self.groups.get_mut(group_id) {
            group.releasing = group.releasing.saturating_sub(1);
        }
    }

    /// Whether the group has no member on this broker any more, so that its share partitions can be
    /// closed. While records are being released, closing would lose their delivery counts; the last
    /// release must ask again. True once.
    pub fn take_abandoned(&mut self, group_id: &str) -> bool {
        let Some(group) = self.groups.get(group_id) else {
            return false;
        };
        if group.members > 0 || group.releasing > 0 {
            return false;
        }
        let is_abandoned = group.is_abandoned;
        self.groups.remove(group_id);
        is_abandoned
    }

    /// Whether the group has only one session on this broker. A session that was just started is then
    /// the first after a time without members, or was started again.
    pub fn has_one_session(&self, group_id: &str) -> bool {
        let group = self.groups.get(group_id);
        group.is_some_and(|group| group.members == 1)
    }

    /// Removes all sessions, when share groups are no longer served.
    pub fn clear(&mut self) {
        self.sessions.clear();
        self.by_connection.clear();
        self.groups.clear();
    }

    fn group(&mut self, group_id: &ByteString) -> &mut GroupSessions {
        self.groups.entry(group_id.clone()).or_default()
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The number of partitions in all sessions.
    pub fn partitions(&self) -> usize {
        self.sessions
            .values()
            .map(|session| session.partitions.len())
            .sum()
    }

    fn session(&mut self, key: &ShareSessionKey) -> Result<&mut ShareSession, ErrorCode> {
        self.sessions
            .get_mut(key)
            .ok_or(ErrorCode::ShareSessionNotFound)
    }

    fn begin(
        &mut self,
        key: &ShareSessionKey,
        partitions: &[TopicIdPartition],
        connection: ConnectionId,
    ) -> Result<SessionFetch, ErrorCode> {
        if self.sessions.len() >= self.max_sessions {
            return Err(ErrorCode::ShareSessionLimitReached);
        }
        let cached = |partition: &TopicIdPartition| {
            (
                *partition,
                CachedPartition {
                    must_be_sent: false,
                },
            )
        };
        let session = ShareSession {
            connection,
            epoch: next_epoch(INITIAL_EPOCH),
            partitions: partitions.iter().map(cached).collect(),
        };
        self.sessions.insert(key.clone(), session);
        let group = self.group(&key.group_id);
        group.members += 1;
        group.is_abandoned = false;
        let connection = self.by_connection.entry(connection).or_default();
        connection.sessions.insert(key.clone());
        Ok(SessionFetch::Initial)
    }
}

impl ShareSession {
    fn advance(&mut self, epoch: i32) -> Result<(), ErrorCode> {
        if self.epoch != epoch {
            return Err(ErrorCode::InvalidShareSessionEpoch);
        }
        self.epoch = next_epoch(epoch);
        Ok(())
    }
}

/// The epoch after the last one is the first that does not start a session.
fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        FINAL_EPOCH => FINAL_EPOCH,
        i32::MAX => 1,
        _ => epoch + 1,
    }
}

/// Rotates the partitions for a request of this epoch, so that no partition is always the last.
/// Source: `PartitionRotateStrategy`.
pub fn rotate(partitions: &mut [TopicIdPartition], epoch: i32) {
    if let Ok(epoch @ 1..) = usize::try_from(epoch)
        && !partitions.is_empty()
    {
        partitions.rotate_left(epoch % partitions.len());
    }
}

#[cfg(test)]
mod tests;
