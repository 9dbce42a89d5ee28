//! A map with pairs of names as keys and small values, which touches little memory at a lookup.
//!
//! A decision of the authorizer looks up several pairs, and most of them are not in the map. The
//! slots are distributed over shards of about a thousand. What a shard looks at to find that it does
//! not have a pair is one byte per slot, so that those bytes of a hundred thousand slots fit into the
//! caches of a processor. A pair in the map costs its slot in addition, which is one line of the
//! caches and holds both names, unless they are long.
//!
//! A clone shares all shards. A change copies one shard and the list of shards.

use std::sync::Arc;

use hashbrown::HashTable;

use crate::name_map::{hash, mix};

/// The maximum average number of slots per shard.
const SLOTS_PER_SHARD: usize = 1_024;
/// The total length of the names that a slot holds itself. With a value of six bytes, a slot has 64.
const INLINE_BYTES: usize = 53;

#[derive(Clone, Debug, Default)]
pub(crate) struct PairMap<V> {
    /// Empty, or a power of two.
    shards: Vec<Arc<Shard<V>>>,
    len: usize,
}

#[derive(Clone, Debug, Default)]
struct Shard<V> {
    slots: HashTable<Slot<V>>,
    /// The pairs with long names, in the order in which they were added.
    text: Vec<u8>,
    /// How much of the text belongs to slots that were removed.
    unused: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Slot<V> {
    value: V,
    names: Names,
}

/// Both names of a pair, one after the other.
#[derive(Clone, Copy, Debug)]
enum Names {
    Inline {
        first_len: u8,
        second_len: u8,
        bytes: [u8; INLINE_BYTES],
    },
    InText {
        start: usize,
        first_len: u32,
        second_len: u32,
    },
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
            .find(hash, |slot| slot.names.are(&shard.text, first, second.name))?;
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
        let hash = pair_hash(first, second);
        let shard = self.shard_mut(hash);
        shard.insert(hash, first.as_bytes(), second.name.as_bytes(), value);
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
                let (first, second) = slot.names.get(&shard.text);
                let hash = slot.names.hash(&shard.text);
                self.shard_mut(hash).insert(hash, first, second, slot.value);
            }
        }
    }
}

impl<V: Copy> Shard<V> {
    fn insert(&mut self, hash: u64, first: &[u8], second: &[u8], value: V) {
        let names = Names::inline(first, second).unwrap_or_else(|| {
            let start = self.text.len();
            self.text.extend_from_slice(first);
            self.text.extend_from_slice(second);
            Names::InText {
                start,
                first_len: first.len() as u32,
                second_len: second.len() as u32,
            }
        });
        let text = &self.text;
        let slot = Slot { value, names };
        self.slots
            .insert_unique(hash, slot, |slot| slot.names.hash(text));
    }

    fn remove(&mut self, hash: u64, first: &str, second: &str) {
        let text = &self.text;
        let is_pair = |slot: &Slot<V>| slot.names.are(text, first, second);
        if let Ok(entry) = self.slots.find_entry(hash, is_pair) {
            let (Slot { names, .. }, _) = entry.remove();
            self.unused += names.bytes_in_text();
        }
        if self.unused > self.text.len() / 2 {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let mut text = Vec::with_capacity(self.text.len() - self.unused);
        for slot in &mut self.slots {
            let bytes = slot.names.bytes_in_text();
            if let Names::InText { start, .. } = &mut slot.names {
                let old = *start;
                *start = text.len();
                text.extend_from_slice(&self.text[old..old + bytes]);
            }
        }
        self.text = text;
        self.unused = 0;
    }
}

impl Names {
    /// `None` if the names are too long.
    fn inline(first: &[u8], second: &[u8]) -> Option<Names> {
        let mut bytes = [0_u8; INLINE_BYTES];
        let (own, rest) = bytes.split_at_mut_checked(first.len())?;
        own.copy_from_slice(first);
        rest.get_mut(..second.len())?.copy_from_slice(second);
        Some(Names::Inline {
            first_len: first.len() as u8,
            second_len: second.len() as u8,
            bytes,
        })
    }

    fn get<'a>(&'a self, text: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let (both, first_len) = match self {
            Names::Inline {
                first_len,
                second_len,
                bytes,
            } => {
                let end = usize::from(*first_len) + usize::from(*second_len);
                (&bytes[..end], usize::from(*first_len))
            }
            Names::InText {
                start, first_len, ..
            } => {
                let end = start + self.bytes_in_text();
                (&text[*start..end], *first_len as usize)
            }
        };
        both.split_at(first_len)
    }

    fn are(&self, text: &[u8], first: &str, second: &str) -> bool {
        let (own_first, own_second) = self.get(text);
        own_first == first.as_bytes() && own_second == second.as_bytes()
    }

    fn hash(&self, text: &[u8]) -> u64 {
        let (first, second) = self.get(text);
        mix(hash(first), hash(second).rotate_left(32))
    }

    fn bytes_in_text(&self) -> usize {
        match self {
            Names::Inline { .. } => 0,
            Names::InText {
                first_len,
                second_len,
                ..
            } => *first_len as usize + *second_len as usize,
        }
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

    /// Some are too long for a slot.
    fn pair(first: usize, second: usize) -> (String, String) {
        (format!("n{first}"), format!("{second:0>first$}"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A map behaves like a `BTreeMap`, also while it grows, and a clone is not affected by
        /// changes to its original.
        #[test]
        fn a_map_does_as_a_sorted_one(
            changes in prop::collection::vec((0..60_usize, 0..60_usize, any::<bool>()), 0..4_000),
            copied_at in 0..4_000_usize,
        ) {
            let mut map = PairMap::default();
            let mut model = BTreeMap::new();
            let mut copy = (map.clone(), model.clone());
            for (i, (first, second, is_added)) in changes.into_iter().enumerate() {
                if i == copied_at {
                    copy = (map.clone(), model.clone());
                }
                let pair = pair(first, second);
                map.set(&pair.0, Hashed::new(&pair.1), is_added.then_some(i));
                match is_added {
                    true => drop(model.insert(pair, i)),
                    false => drop(model.remove(&pair)),
                }
            }
            for (map, model) in [(map, model), copy] {
                prop_assert_eq!(map.len, model.len());
                for first in 0..60 {
                    for second in 0..60 {
                        let pair = pair(first, second);
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
        assert!(!slot.names.are(&shard.text, "a", "bc"));
    }

    #[test]
    fn a_slot_holds_names_that_fit_into_it() {
        assert_eq!(size_of::<Slot<[u16; 3]>>(), 64);
        let long = "a".repeat(INLINE_BYTES);
        let long = long.as_str();
        for (first, second, bytes_in_text) in [
            ("", "", 0),
            (&long[1..], "b", 0),
            ("", long, 0),
            (long, "b", INLINE_BYTES + 1),
            ("b", long, INLINE_BYTES + 1),
        ] {
            let mut map = PairMap::default();
            map.set(first, Hashed::new(second), Some(1));
            assert_eq!(map.shards[0].text.len(), bytes_in_text, "{first} {second}");
            assert_eq!(map.get(first, Hashed::new(second)), Some(1));
        }
    }

    #[test]
    fn the_text_of_removed_pairs_is_given_back() {
        let mut map = PairMap::default();
        let name = "n".repeat(INLINE_BYTES);
        for round in 0..100 {
            map.set(&name, Hashed::new(&format!("{round:04}")), Some(round));
            if round > 0 {
                map.set(&name, Hashed::new(&format!("{:04}", round - 1)), None);
            }
        }
        assert_eq!(map.get(&name, Hashed::new("0099")), Some(99));
        assert_eq!(map.len, 1);
        let most = 3 * (INLINE_BYTES + 4);
        assert!(map.shards[0].text.len() <= most, "{:?}", map.shards[0]);
    }
}
