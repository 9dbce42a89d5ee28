//! A part of the cache of fetch sessions: which sessions it has, and which of them makes room for another.
//!
//! The sessions stand in the order in which they were used and in that in which they give way, so that neither finding a
//! session nor making room depends on how many there are, and no session is locked for it. A session that was idle for two
//! minutes gives way to any. Otherwise one that is older than that gives way to one with more partitions, and to a
//! follower's; a consumer's gives way to a follower's however young it is.
//!
//! Kafka: `FetchSessionCacheShard`, without its locks on sessions.

use std::collections::BTreeSet;

use ottla_sync::collections::HashMap;

/// After so long without a fetch a session is stale, and from that age on it can be displaced.
const EVICTION_MS: u64 = 120_000;
/// A use is noted no more often than this.
const USE_GRANULARITY_MS: u64 = 1_000;

/// What a session is worth: followers before consumers, then by how many partitions it has.
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
    /// Those that may give way to a consumer's, the one that is worth least first.
    evictable_by_all: BTreeSet<(Worth, i32)>,
    /// Those that may give way to a follower's.
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

    /// Of all its sessions.
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

    /// A session was used, and has so many partitions now.
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

    /// Gives up a session for one that is worth this; false where there is none that has to give way.
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

    /// A full shard of sessions 0, 1, … that were created at 0 and used at that time.
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
    fn the_stale_give_way_to_any_and_the_old_to_what_is_worth_more() {
        let young = || full(&[consumer(5), consumer(1)], 1_000);
        assert_eq!(evicted(young(), consumer(9), 2_000), None);
        assert_eq!(evicted(young(), consumer(1), 121_001), Some(0));
        let old = || full(&[consumer(5), consumer(1)], EVICTION_MS + 1);
        assert_eq!(evicted(old(), consumer(1), EVICTION_MS + 2), None);
        assert_eq!(evicted(old(), consumer(2), EVICTION_MS + 2), Some(1));
    }

    #[test]
    fn followers_are_privileged() {
        let young = || full(&[consumer(5), follower(1)], 1_000);
        assert_eq!(evicted(young(), follower(1), 2_000), Some(0));
        let only_followers = || full(&[follower(5), follower(1)], 1_000);
        assert_eq!(evicted(only_followers(), follower(9), 2_000), None);
        let old = || full(&[follower(5), follower(1)], EVICTION_MS + 1);
        assert_eq!(evicted(old(), consumer(9), EVICTION_MS + 2), None);
        assert_eq!(evicted(old(), follower(2), EVICTION_MS + 2), Some(1));
    }

    #[test]
    fn what_it_has_is_counted() {
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
