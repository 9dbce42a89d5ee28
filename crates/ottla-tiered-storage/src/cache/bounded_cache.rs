//! A cache in memory that never weighs more than its limit, and drops entries that were not used
//! recently.

use std::hash::Hash;
use std::time::{Duration, Instant};

use lru::LruCache;
use ottla_sync::time;

/// What an entry takes in memory besides its value and what its key refers to: the node with the key, its
/// place in the table, the handle of the value, and what the allocator rounds up. A cache of small values
/// whose weight is in bytes counts it too; otherwise it would take several times its limit.
pub const ENTRY_BYTES: u64 = 192;

/// Values by their keys. The least recently used value is evicted first.
pub struct BoundedCache<K: Hash + Eq, V> {
    entries: LruCache<K, Entry<V>>,
    /// Of all entries.
    weight: u64,
    /// Of values that are not there yet.
    reserved: u64,
    /// None: no limit.
    limit: Option<u64>,
    /// Of entries. None: no limit.
    most: Option<usize>,
    /// After the last use. None: no limit.
    retention: Option<Duration>,
}

struct Entry<V> {
    value: V,
    weight: u64,
    used: Instant,
}

impl<K: Hash + Eq, V: Clone> BoundedCache<K, V> {
    pub fn new(limit: Option<u64>, retention: Option<Duration>) -> BoundedCache<K, V> {
        BoundedCache {
            entries: LruCache::unbounded(),
            weight: 0,
            reserved: 0,
            limit,
            most: None,
            retention,
        }
    }

    /// Limits the number of entries too.
    pub fn with_at_most(self, most: Option<usize>) -> BoundedCache<K, V> {
        BoundedCache { most, ..self }
    }

    pub fn get(&mut self, key: &K) -> Option<V> {
        let now = time::now();
        let entry = self.entries.get_mut(key)?;
        if let Some(retention) = self.retention
            && now.saturating_duration_since(entry.used) > retention
        {
            return None;
        }
        entry.used = now;
        Some(entry.value.clone())
    }

    pub fn contains(&self, key: &K) -> bool {
        self.entries.contains(key)
    }

    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The limit of the number of entries.
    pub fn most(&self) -> Option<usize> {
        self.most
    }

    /// Puts a value in and returns what is displaced by it: older values, or the value itself if it
    /// is heavier than the limit.
    pub fn insert(&mut self, key: K, value: V, weight: u64) -> Vec<(K, V)> {
        if self.limit.is_some_and(|limit| weight > limit) || self.most == Some(0) {
            return vec![(key, value)];
        }
        let mut gone = self.evict_for(weight, 1);
        self.weight += weight;
        let entry = Entry {
            value,
            weight,
            used: time::now(),
        };
        if let Some((key, replaced)) = self.entries.push(key, entry) {
            self.weight -= replaced.weight;
            gone.push((key, replaced.value));
        }
        gone
    }

    /// Counts the weight of a value that is on its way, until [`BoundedCache::release`], and returns
    /// what is displaced by it.
    pub fn reserve(&mut self, weight: u64) -> Vec<(K, V)> {
        let gone = self.evict_for(weight, 0);
        self.reserved += weight;
        gone
    }

    pub fn release(&mut self, weight: u64) {
        self.reserved -= weight;
    }

    /// Evicts what is too old, and as much as necessary to let this weight and this many entries fit.
    fn evict_for(&mut self, weight: u64, entries: usize) -> Vec<(K, V)> {
        let mut gone = Vec::new();
        let now = time::now();
        while let Some((_, oldest)) = self.entries.peek_lru() {
            let total = self.weight + self.reserved + weight;
            let count = self.entries.len() + entries;
            let is_full = self.limit.is_some_and(|limit| total > limit)
                || self.most.is_some_and(|most| count > most);
            let is_old = self
                .retention
                .is_some_and(|it| now.saturating_duration_since(oldest.used) > it);
            if !is_full && !is_old {
                break;
            }
            if let Some((key, entry)) = self.entries.pop_lru() {
                self.weight -= entry.weight;
                gone.push((key, entry.value));
            }
        }
        gone
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.pop(key)?;
        self.weight -= entry.weight;
        Some(entry.value)
    }

    /// What all values weigh together.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// What is reserved for values that are not there yet.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_stays_below_the_limit() {
        let mut cache = BoundedCache::new(Some(10), None);
        assert!(cache.insert("a", 1, 4).is_empty());
        assert!(cache.insert("b", 2, 4).is_empty());
        assert_eq!(cache.get(&"a"), Some(1));
        // b is the least recently used.
        assert_eq!(cache.insert("c", 3, 5), [("b", 2)]);
        assert_eq!((cache.weight(), cache.get(&"b")), (9, None));
        assert_eq!(cache.insert("c", 4, 6), [("a", 1), ("c", 3)]);
        assert_eq!(cache.weight(), 6);
        assert_eq!(cache.insert("d", 5, 11), [("d", 5)]);
        assert_eq!(cache.remove(&"c"), Some(4));
        assert_eq!(cache.weight(), 0);
    }

    #[test]
    fn the_number_of_entries_is_limited_too() {
        let mut cache = BoundedCache::new(Some(10), None).with_at_most(Some(2));
        assert!(cache.insert("a", 1, 1).is_empty() && cache.insert("b", 2, 1).is_empty());
        assert!(cache.reserve(8).is_empty());
        cache.release(8);
        assert_eq!(cache.insert("c", 3, 1), [("a", 1)]);
        assert_eq!(cache.insert("d", 4, 9), [("b", 2)]);
        assert_eq!(cache.insert("e", 5, 9), [("c", 3), ("d", 4)]);
        let mut none = BoundedCache::new(None, None).with_at_most(Some(0));
        assert_eq!(none.insert("a", 1, 0), [("a", 1)]);
        assert_eq!(none.get(&"a"), None);
    }

    #[test]
    fn a_reservation_takes_room() {
        let mut cache = BoundedCache::new(Some(10), None);
        cache.insert("a", 1, 4);
        cache.insert("b", 2, 4);
        assert_eq!(cache.reserve(5), [("a", 1)]);
        assert_eq!((cache.weight(), cache.reserved()), (4, 5));
        assert_eq!(cache.insert("c", 3, 4), [("b", 2)]);
        // More than fits is on its way: nothing else stays.
        assert_eq!(cache.reserve(6), [("c", 3)]);
        cache.release(6);
        cache.release(5);
        assert_eq!((cache.weight(), cache.reserved()), (0, 0));
        assert!(cache.insert("d", 4, 10).is_empty());
    }

    #[test]
    fn the_least_recently_used_entries_are_evicted() {
        let mut cache = BoundedCache::new(None, Some(Duration::ZERO));
        cache.insert("a", 1, 1);
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(cache.get(&"a"), None);
        assert_eq!(cache.insert("b", 2, 1), [("a", 1)]);
        assert_eq!(cache.weight(), 1);
    }
}
