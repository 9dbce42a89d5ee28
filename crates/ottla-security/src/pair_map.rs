//! A map with pairs of names as keys and small values, which touches little memory at a lookup.
//!
//! A decision of the authorizer looks up several pairs, and most of them are not in the map. The
//! slots are distributed over shards of about a thousand. What a shard looks at to find that it does
//! not have a pair is one byte per slot, so that those bytes of a hundred thousand slots fit into the
//! caches of a processor. A pair in the map costs its slot and its text in addition.
//!
//! A clone shares all shards. A change copies one shard and the list of shards.

use std::sync::Arc;

use hashbrown::HashTable;

use crate::name_map::{hash, mix};

/// The maximum average number of slots per shard.
const SLOTS_PER_SHARD: usize = 1_024;

#[derive(Clone, Debug, Default)]
pub(crate) struct PairMap<V> {
    /// Empty, or a power of two.
    shards: Vec<Arc<Shard<V>>>,
    len: usize,
}

#[derive(Clone, Debug, Default)]
struct Shard<V> {
    slots: HashTable<Slot<V>>,
    /// The pairs of the slots, in the order in which they were added.
    text: String,
    /// How much of the text belongs to slots that were removed.
    unused: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot<V> {
    /// The place of the first name in the text. The second one follows.
    start: usize,
    first_len: u32,
    second_len: u32,
    value: V,
}

/// The second name of a pair, for lookups with several first names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashed<'a> {
    name: &'a str,
    hash: u64,
}

impl<'a> Hashed<'a> {
    pub fn new(name: &'a str) -> Hashed<'a> {
        Hashed {
            name,
            hash: hash(name),
        }
    }
}

impl<V: Copy + Default> PairMap<V> {
    pub fn get(&self, first: &str, second: Hashed<'_>) -> Option<V> {
        let hash = pair_hash(first, second);
        let shard = self.shards.get(self.shard(hash))?;
        let slot = shard
            .slots
            .find(hash, |slot| slot.is_pair(&shard.text, first, second.name))?;
        Some(slot.value)
    }

    /// Sets the value of a pair; `None` removes the pair.
    pub fn set(&mut self, first: &str, second: Hashed<'_>, value: Option<V>) {
        let is_known = self.get(first, second).is_some();
        if is_known {
            self.len -= 1;
            let hash = pair_hash(first, second);
            self.shard_mut(hash).remove(hash, first, second.name);
        }
        let Some(value) = value else {
            return;
        };
        if self.len >= self.shards.len() * SLOTS_PER_SHARD {
            self.grow();
        }
        self.len += 1;
        self.put(first, second, value);
    }

    fn put(&mut self, first: &str, second: Hashed<'_>, value: V) {
        let hash = pair_hash(first, second);
        let shard = self.shard_mut(hash);
        shard.insert(hash, first, second.name, value);
    }

    /// The shard for pairs with this hash. The shards themselves use the other bits.
    fn shard(&self, hash: u64) -> usize {
        (hash >> 24) as usize & self.shards.len().wrapping_sub(1)
    }

    fn shard_mut(&mut self, hash: u64) -> &mut Shard<V> {
        let shard = self.shard(hash);
        Arc::make_mut(&mut self.shards[shard])
    }

    fn grow(&mut self) {
        let shards = (self.shards.len() * 2).max(1);
        let old = std::mem::replace(&mut self.shards, vec![Arc::default(); shards]);
        for shard in old {
            for slot in &shard.slots {
                let (first, second) = slot.pair(&shard.text);
                self.put(first, Hashed::new(second), slot.value);
            }
        }
    }
}

impl<V: Copy> Shard<V> {
    fn insert(&mut self, hash: u64, first: &str, second: &str, value: V) {
        let slot = Slot {
            start: self.text.len(),
            first_len: first.len() as u32,
            second_len: second.len() as u32,
            value,
        };
        self.text.push_str(first);
        self.text.push_str(second);
        let text = &self.text;
        self.slots.insert_unique(hash, slot, |slot| {
            let (first, second) = slot.pair(text);
            pair_hash(first, Hashed::new(second))
        });
    }

    fn remove(&mut self, hash: u64, first: &str, second: &str) {
        let text = &self.text;
        let is_pair = |slot: &Slot<V>| slot.is_pair(text, first, second);
        if let Ok(entry) = self.slots.find_entry(hash, is_pair) {
            entry.remove();
            self.unused += first.len() + second.len();
        }
        if self.unused > self.text.len() / 2 {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let mut text = String::with_capacity(self.text.len() - self.unused);
        for slot in &mut self.slots {
            let start = text.len();
            text.push_str(&self.text[slot.start..slot.end()]);
            slot.start = start;
        }
        self.text = text;
        self.unused = 0;
    }
}

impl<V> Slot<V> {
    fn middle(&self) -> usize {
        self.start + self.first_len as usize
    }

    fn end(&self) -> usize {
        self.middle() + self.second_len as usize
    }

    fn pair<'a>(&self, text: &'a str) -> (&'a str, &'a str) {
        let (middle, end) = (self.middle(), self.end());
        (&text[self.start..middle], &text[middle..end])
    }

    fn is_pair(&self, text: &str, first: &str, second: &str) -> bool {
        let text = text.as_bytes();
        let (middle, end) = (self.middle(), self.end());
        text[self.start..middle] == *first.as_bytes() && text[middle..end] == *second.as_bytes()
    }
}

fn pair_hash(first: &str, second: Hashed<'_>) -> u64 {
    mix(hash(first), second.hash.rotate_left(32))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A map behaves like a `BTreeMap`, also while it grows, and a clone is not affected by
        /// changes to its original.
        #[test]
        fn a_map_does_as_a_sorted_one(
            changes in prop::collection::vec((0..60_u32, 0..60_u32, any::<bool>()), 0..4_000),
            copied_at in 0..4_000_usize,
        ) {
            let mut map = PairMap::default();
            let mut model = BTreeMap::new();
            let mut copy = (map.clone(), model.clone());
            for (i, (first, second, is_added)) in changes.into_iter().enumerate() {
                if i == copied_at {
                    copy = (map.clone(), model.clone());
                }
                let (name, other) = (format!("n{first}"), format!("{second}"));
                map.set(&name, Hashed::new(&other), is_added.then_some(i));
                match is_added {
                    true => drop(model.insert((name, other), i)),
                    false => drop(model.remove(&(name, other))),
                }
            }
            for (map, model) in [(map, model), copy] {
                prop_assert_eq!(map.len, model.len());
                for first in 0..60 {
                    for second in 0..60 {
                        let pair = (format!("n{first}"), format!("{second}"));
                        let found = map.get(&pair.0, Hashed::new(&pair.1));
                        prop_assert_eq!(found.as_ref(), model.get(&pair));
                    }
                }
            }
        }
    }

    /// Where one name ends and the other one begins is part of the key.
    #[test]
    fn names_are_not_joined() {
        let mut map = PairMap::default();
        map.set("ab", Hashed::new("c"), Some(1));
        assert_eq!(map.get("a", Hashed::new("bc")), None);
        assert_eq!(map.get("ab", Hashed::new("c")), Some(1));
        let shard = &map.shards[0];
        let slot = shard.slots.iter().next().unwrap();
        assert!(!slot.is_pair(&shard.text, "a", "bc"));
    }

    #[test]
    fn the_text_of_removed_pairs_is_given_back() {
        let mut map = PairMap::default();
        for round in 0..100 {
            map.set("name", Hashed::new(&format!("{round:04}")), Some(round));
            if round > 0 {
                map.set("name", Hashed::new(&format!("{:04}", round - 1)), None);
            }
        }
        assert_eq!(map.get("name", Hashed::new("0099")), Some(99));
        assert_eq!(map.len, 1);
        assert!(map.shards[0].text.len() <= 24, "{:?}", map.shards[0]);
    }
}
