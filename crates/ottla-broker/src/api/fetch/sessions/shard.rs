//! A shard of the cache of fetch sessions, and its eviction policy.
//!
//! Sessions are ordered by last use and by eviction priority, so that neither a lookup nor an
//! eviction depends on their number, and no session is locked for it. A session that was idle for
//! two minutes can be evicted for any other. Otherwise, a session that is older than that can be
//! evicted for one with more partitions or for a follower's, and a consumer's session of any age
//! can be evicted for a follower's.
//!
//! Kafka: `FetchSessionCacheShard`, which locks sessions.

use std::collections::BTreeSet;

use ottla_sync::collections::HashMap;

/// A session is stale if it was idle for this long, and can be evicted by a more valuable one from
/// this age on.
const EVICTION_MS: u64 = 120_000;
/// A use is recorded at most this often.
const USE_GRANULARITY_MS: u64 = 1_000;

/// The value of a session: followers before consumers, then by number of partitions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Worth {
    pub(super) is_follower: bool,
    pub(super) partitions: usize,
}

#[derive(Debug)]
pub(super) struct Shard<S> {
    max_sessions: usize,
    sessions: HashMap<i32, Entry<S>>,
    by_last_use: BTreeSet<(u64, i32)>,
    /// Sessions that can be evicted for a consumer's, the least valuable first.
    evictable_by_all: BTreeSet<(Worth, i32)>,
    /// Sessions that can be evicted for a follower's.
    evictable_by_followers: BTreeSet<(Worth, i32)>,
    partitions: usize,
}

#[derive(Debug)]
struct Entry<S> {
    session: S,
    worth: Worth,
    created_ms: u64,
    last_used_ms: u64,
}

impl<S: Clone> Shard<S> {
    pub(super) fn new(max_sessions: usize) -> Self {
        Shard {
            max_sessions,
            sessions: HashMap::default(),
            by_last_use: BTreeSet::new(),
            evictable_by_all: BTreeSet::new(),
            evictable_by_followers: BTreeSet::new(),
            partitions: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Of all sessions in the shard.
    pub(super) fn partitions(&self) -> usize {
        self.partitions
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.max_sessions
    }

    pub(super) fn has(&self, id: i32) -> bool {
        self.sessions.contains_key(&id)
    }

    pub(super) fn find(&self, id: i32) -> Option<S> {
        Some(self.sessions.get(&id)?.session.clone())
    }

    /// Records a use of a session and its current number of partitions.
    pub(super) fn on_used(&mut self, id: i32, partitions: usize, now_ms: u64) {
        let Some(entry) = self.sessions.get(&id) else {
            return;
        };
        let is_noted = now_ms.saturating_sub(entry.last_used_ms) < USE_GRANULARITY_MS;
        if is_noted && entry.worth.partitions == partitions {
            return;
        }
        if let Some(mut entry) = self.remove_entry(id) {
            entry.worth.partitions = partitions;
            entry.last_used_ms = now_ms;
            self.insert_entry(id, entry);
        }
    }

    pub(super) fn insert(&mut self, id: i32, session: S, worth: Worth, now_ms: u64) {
        let entry = Entry {
            session,
            worth,
            created_ms: now_ms,
            last_used_ms: now_ms,
        };
        self.insert_entry(id, entry);
    }

    pub(super) fn remove(&mut self, id: i32) -> bool {
        self.remove_entry(id).is_some()
    }

    /// Evicts a session for one of this value. Returns false if none may be evicted.
    pub(super) fn evict_for(&mut self, worth: Worth, now_ms: u64) -> bool {
        let Some(&(last_used_ms, longest_idle)) = self.by_last_use.first() else {
            return false;
        };
        if now_ms.saturating_sub(last_used_ms) > EVICTION_MS {
            return self.remove(longest_idle);
        }
        let evictable = match worth.is_follower {
            true => &self.evictable_by_followers,
            false => &self.evictable_by_all,
        };
        match evictable.first() {
            Some(&(least, id)) if least < worth => self.remove(id),
            _ => false,
        }
    }

    fn insert_entry(&mut self, id: i32, entry: Entry<S>) {
        self.by_last_use.insert((entry.last_used_ms, id));
        let is_old = entry.last_used_ms - entry.created_ms > EVICTION_MS;
        if is_old {
            self.evictable_by_all.insert((entry.worth, id));
        }
        if is_old || !entry.worth.is_follower {
            self.evictable_by_followers.insert((entry.worth, id));
        }
        self.partitions += entry.worth.partitions;
        self.sessions.insert(id, entry);
    }

    fn remove_entry(&mut self, id: i32) -> Option<Entry<S>> {
        let entry = self.sessions.remove(&id)?;
        self.by_last_use.remove(&(entry.last_used_ms, id));
        self.evictable_by_all.remove(&(entry.worth, id));
        self.evictable_by_followers.remove(&(entry.worth, id));
        self.partitions -= entry.worth.partitions;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumer(partitions: usize) -> Worth {
        Worth {
            is_follower: false,
            partitions,
        }
    }

    fn follower(partitions: usize) -> Worth {
        Worth {
            is_follower: true,
            partitions,
        }
    }

    /// A full shard of sessions 0, 1, … that were created at 0 and last used at `used_ms`.
    fn full(of: &[Worth], used_ms: u64) -> Shard<()> {
        let mut shard = Shard::new(of.len());
        for (id, worth) in (0..).zip(of) {
            shard.insert(id, (), *worth, 0);
            shard.on_used(id, worth.partitions, used_ms);
        }
        assert!(shard.is_full());
        shard
    }

    fn evicted(mut shard: Shard<()>, worth: Worth, now_ms: u64) -> Option<i32> {
        let ids = (0..).take(shard.len());
        let did = shard.evict_for(worth, now_ms);
        let gone: Vec<i32> = ids.filter(|&id| !shard.has(id)).collect();
        assert_eq!(gone.len(), usize::from(did));
        gone.first().copied()
    }

    #[test]
    fn stale_sessions_are_evicted_first_then_smaller_old_ones() {
        let young = || full(&[consumer(5), consumer(1)], 1_000);
        assert_eq!(evicted(young(), consumer(9), 2_000), None);
        assert_eq!(evicted(young(), consumer(1), 121_001), Some(0));
        let old = || full(&[consumer(5), consumer(1)], EVICTION_MS + 1);
        assert_eq!(evicted(old(), consumer(1), EVICTION_MS + 2), None);
        assert_eq!(evicted(old(), consumer(2), EVICTION_MS + 2), Some(1));
    }

    #[test]
    fn sessions_of_followers_are_preferred() {
        let young = || full(&[consumer(5), follower(1)], 1_000);
        assert_eq!(evicted(young(), follower(1), 2_000), Some(0));
        let only_followers = || full(&[follower(5), follower(1)], 1_000);
        assert_eq!(evicted(only_followers(), follower(9), 2_000), None);
        let old = || full(&[follower(5), follower(1)], EVICTION_MS + 1);
        assert_eq!(evicted(old(), consumer(9), EVICTION_MS + 2), None);
        assert_eq!(evicted(old(), follower(2), EVICTION_MS + 2), Some(1));
    }

    #[test]
    fn sessions_and_partitions_are_counted() {
        let mut shard = full(&[consumer(5), consumer(1)], 0);
        assert_eq!(shard.partitions(), 6);
        shard.on_used(1, 7, 1);
        assert_eq!(shard.partitions(), 12);
        assert!(shard.remove(0) && !shard.remove(0));
        assert_eq!((shard.len(), shard.partitions()), (1, 7));
        shard.on_used(0, 3, 2);
        assert_eq!(shard.partitions(), 7);
    }
}
