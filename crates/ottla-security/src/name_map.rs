//! A map with names as keys, whose clones share unchanged parts.
//!
//! The entries are distributed over tables of a few dozen. A change copies one table and the list
//! of tables, not the whole map, so that ACLs can be added one by one. A lookup touches less memory
//! than in a tree.

use std::sync::Arc;

use bytestring::ByteString;
use hashbrown::HashTable;

/// The maximum average number of entries per table.
const ENTRIES_PER_TABLE: usize = 32;

/// Cheap to clone, up to many thousands of entries.
#[derive(Clone, Debug)]
pub(crate) struct NameMap<V> {
    /// Empty, or a power of two.
    tables: Vec<Arc<HashTable<(ByteString, V)>>>,
    len: usize,
}

impl<V> Default for NameMap<V> {
    fn default() -> Self {
        NameMap {
            tables: Vec::new(),
            len: 0,
        }
    }
}

impl<V: Clone> NameMap<V> {
    pub fn get(&self, name: &str) -> Option<&V> {
        let hash = hash(name);
        let table = self.tables.get(self.table(hash))?;
        let (_, value) = table.find(hash, |(key, _)| key == name)?;
        Some(value)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut V> {
        // Avoids copying the table if the name is absent.
        self.get(name)?;
        let hash = hash(name);
        let table = self.table(hash);
        let table = Arc::make_mut(&mut self.tables[table]);
        let (_, value) = table.find_mut(hash, |(key, _)| key == name)?;
        Some(value)
    }

    /// Inserts a name that is not in the map.
    pub fn insert_new(&mut self, name: ByteString, value: V) {
        if self.len >= self.tables.len() * ENTRIES_PER_TABLE {
            self.grow();
        }
        self.put(name, value);
        self.len += 1;
    }

    pub fn remove(&mut self, name: &str) {
        if self.get(name).is_none() {
            return;
        }
        let hash = hash(name);
        let table = self.table(hash);
        let table = Arc::make_mut(&mut self.tables[table]);
        if let Ok(entry) = table.find_entry(hash, |(key, _)| key == name) {
            entry.remove();
            self.len -= 1;
        }
    }

    /// In no particular order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        let tables = self.tables.iter();
        tables.flat_map(|table| table.iter().map(|(_, value)| value))
    }

    /// The table for names with this hash. The tables themselves use the other bits.
    fn table(&self, hash: u64) -> usize {
        (hash >> 24) as usize & self.tables.len().wrapping_sub(1)
    }

    fn put(&mut self, name: ByteString, value: V) {
        let hash = hash(&name);
        let table = self.table(hash);
        let table = Arc::make_mut(&mut self.tables[table]);
        table.insert_unique(hash, (name, value), |(key, _)| self::hash(key));
    }

    fn grow(&mut self) {
        let tables = (self.tables.len() * 2).max(1);
        let old = std::mem::replace(&mut self.tables, vec![Arc::default(); tables]);
        for table in old {
            for (name, value) in Arc::unwrap_or_clone(table) {
                self.put(name, value);
            }
        }
    }
}

/// Not resistant to chosen collisions. The names in a map come from an administrator; names that a
/// client chooses are only looked up.
pub(crate) fn hash(name: impl AsRef<[u8]>) -> u64 {
    let bytes = name.as_ref();
    let mut state = FACTOR ^ bytes.len() as u64;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        state = mix(
            state,
            u64::from_le_bytes(word.try_into().expect("eight bytes")),
        );
    }
    let rest = words.remainder();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(state, u64::from_le_bytes(last)), FACTOR)
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash of a hash and another one.
pub(crate) fn mix(state: u64, word: u64) -> u64 {
    let product = u128::from(state ^ word) * u128::from(FACTOR);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A map behaves like a `BTreeMap`, and a clone is not affected by changes to its original.
        #[test]
        fn a_map_does_as_a_sorted_one(
            changes in prop::collection::vec((0..400_u32, any::<bool>()), 0..600),
            copied_at in 0..600_usize,
        ) {
            let mut map = NameMap::default();
            let mut model = BTreeMap::new();
            let mut copy = (map.clone(), model.clone());
            for (i, (key, is_added)) in changes.into_iter().enumerate() {
                if i == copied_at {
                    copy = (map.clone(), model.clone());
                }
                let name = format!("name-{key}");
                match (is_added, map.get_mut(&name)) {
                    (false, _) => map.remove(&name),
                    (true, Some(value)) => *value = i,
                    (true, None) => map.insert_new(name.clone().into(), i),
                }
                match is_added {
                    true => drop(model.insert(name, i)),
                    false => drop(model.remove(&name)),
                }
            }
            for (map, model) in [(map, model), copy] {
                prop_assert_eq!(map.values().count(), model.len());
                for key in 0..400 {
                    let name = format!("name-{key}");
                    prop_assert_eq!(map.get(&name), model.get(&name));
                }
            }
        }
    }
}
