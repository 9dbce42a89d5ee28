//! A map from key to the last offset of the key, in bounded memory.
//!
//! As in Kafka, an entry is 24 bytes: a 128-bit hash of the key and an offset. Kafka hashes with
//! MD5; here it is SipHash under a random key. Two keys with the same hash would cost the older one
//! its record, and MD5 collisions are easy to construct.
//!
//! The table grows in steps up to the configured memory, so that a small log costs little. While
//! entries move to the final size, it takes an eighth more.
//!
//! Kafka: `SkimpyOffsetMap`.

use std::hash::Hasher;

use ottla_types::Offset;
use siphasher::sip128::{Hasher128, SipHasher13};

use super::slot_table::{Slot, SlotTable};

/// The hash of a key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct KeyHash([u64; 2]);

/// Number of keys whose slots are prefetched together.
pub(super) const KEYS_AT_ONCE: usize = 32;

/// Growth factor of the table.
const GROWTH: usize = 8;
/// The first table has more slots than this, unless memory is smaller.
const FIRST_SLOTS: usize = 4096;

pub(crate) struct OffsetMap {
    slots: SlotTable,
    max_slots: usize,
    entries: usize,
    /// Less than the number of slots, so that probing ends.
    max_entries: usize,
    latest_offset: Option<Offset>,
    hash_key: [u64; 2],
}

impl OffsetMap {
    /// A map of at most `bytes`, of which the fraction `load_factor` is used.
    pub(crate) fn new(bytes: u64, load_factor: f64, hash_key: [u64; 2]) -> OffsetMap {
        let max_slots = usize::try_from(bytes / size_of::<Slot>() as u64).unwrap_or(usize::MAX);
        let max_entries = (max_slots as f64 * load_factor) as usize;
        OffsetMap {
            slots: SlotTable::default(),
            max_slots,
            entries: 0,
            max_entries: max_entries.min(max_slots.saturating_sub(1)),
            latest_offset: None,
            hash_key,
        }
    }

    /// Puts keys with their offsets, in ascending order. Returns whether there was room for all.
    #[must_use]
    pub(super) fn put_all(&mut self, keys: &[(KeyHash, Offset)]) -> bool {
        self.load(keys.iter().map(|(hash, _)| *hash));
        keys.iter().all(|(hash, offset)| self.put(*hash, *offset))
    }

    fn put(&mut self, KeyHash([low, high]): KeyHash, offset: Offset) -> bool {
        // Like Kafka, this refuses a full map even if the key is already present.
        if self.entries >= self.max_entries {
            return false;
        }
        if self.entries * 10 >= self.slots.len() * 7 && self.slots.len() < self.max_slots {
            self.grow();
        }
        let entry = [low, high, offset.0 as u64 + 1];
        let slot = find(&mut self.slots, low, high);
        self.entries += usize::from(slot[2] == 0);
        *slot = entry;
        self.latest_offset = Some(offset);
        true
    }

    pub(super) fn get(&self, KeyHash([low, high]): KeyHash) -> Option<Offset> {
        if self.entries == 0 {
            return None;
        }
        let slots: &[Slot] = &self.slots;
        let mut index = home(low, slots.len());
        loop {
            let [found_low, found_high, offset] = slots[index];
            if offset == 0 {
                return None;
            }
            if found_low == low && found_high == high {
                return Some(Offset(offset as i64 - 1));
            }
            index = next(index, slots.len());
        }
    }

    /// The last offset whose keys are all in the map; `None` before the first.
    pub(crate) fn latest_offset(&self) -> Option<Offset> {
        self.latest_offset
    }

    pub(crate) fn set_latest_offset(&mut self, offset: Offset) {
        self.latest_offset = Some(offset);
    }

    /// The used share of the maximum memory, between 0 and 1.
    pub(crate) fn utilization(&self) -> f64 {
        self.entries as f64 / self.max_slots.max(1) as f64
    }

    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        let mut hasher = SipHasher13::new_with_keys(self.hash_key[0], self.hash_key[1]);
        hasher.write(key);
        let hash = hasher.finish128();
        KeyHash([hash.h1, hash.h2])
    }

    /// Prefetches the slots of keys into the processor's cache: the table is larger than the cache,
    /// and independent loads overlap.
    pub(super) fn load(&self, keys: impl Iterator<Item = KeyHash>) {
        if !self.slots.is_empty() {
            let slots: &[Slot] = &self.slots;
            let loaded = keys.map(|KeyHash([low, _])| slots[home(low, slots.len())][2]);
            std::hint::black_box(loaded.fold(0, std::ops::BitXor::bitxor));
        }
    }

    fn grow(&mut self) {
        let mut size = self.max_slots;
        while size / GROWTH > self.slots.len().max(FIRST_SLOTS) {
            size /= GROWTH;
        }
        let old = std::mem::replace(&mut self.slots, SlotTable::zeroed(size));
        for entry in old.iter().filter(|entry| entry[2] != 0) {
            *find(&mut self.slots, entry[0], entry[1]) = *entry;
        }
    }
}

/// The slot that holds the hash, or the empty slot where it belongs. The table always has an empty
/// slot.
fn find(slots: &mut [Slot], low: u64, high: u64) -> &mut Slot {
    let count = slots.len();
    let mut index = home(low, count);
    while slots[index][2] != 0 && (slots[index][0] != low || slots[index][1] != high) {
        index = next(index, count);
    }
    &mut slots[index]
}

fn home(low: u64, slots: usize) -> usize {
    ((u128::from(low) * slots as u128) >> 64) as usize
}

fn next(index: usize, slots: usize) -> usize {
    match index + 1 == slots {
        true => 0,
        false => index + 1,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use ottla_types::Offset;

    use super::OffsetMap;

    fn put(map: &mut OffsetMap, key: &[u8], offset: i64) -> bool {
        map.put_all(&[(map.hash(key), Offset(offset))])
    }

    #[test]
    fn it_equals_a_map_through_every_growth() {
        let mut map = OffsetMap::new(24 * 100_000, 0.9, [1, 2]);
        let mut expected = HashMap::new();
        for n in 0..150_000i64 {
            let key = ((n * 7919) % 85_000).to_be_bytes();
            assert!(put(&mut map, &key, n));
            expected.insert(key, Offset(n));
            if n % 9_973 == 0 {
                for (key, offset) in &expected {
                    assert_eq!(map.get(map.hash(key)), Some(*offset));
                }
            }
        }
        assert_eq!(map.latest_offset(), Some(Offset(149_999)));
        assert_eq!(map.get(map.hash(&90_000i64.to_be_bytes())), None);
        for (key, offset) in &expected {
            assert_eq!(map.get(map.hash(key)), Some(*offset));
        }
        assert!((map.utilization() - 0.85).abs() < 1e-9);
    }

    #[test]
    fn it_is_full_at_the_load_factor_also_for_a_key_that_it_has() {
        let mut map = OffsetMap::new(24 * 10, 0.5, [1, 2]);
        for n in 0..5u8 {
            assert!(put(&mut map, &[n], n.into()));
        }
        assert!(!put(&mut map, &[0], 9));
        assert_eq!(map.get(map.hash(&[0])), Some(Offset(0)));
        assert_eq!(map.latest_offset(), Some(Offset(4)));
    }

    #[test]
    fn a_load_factor_of_one_leaves_a_slot_for_searches_to_end() {
        let mut map = OffsetMap::new(24 * 4, 1.0, [1, 2]);
        let put = (0..4u8).filter(|n| put(&mut map, &[*n], 0)).count();
        assert_eq!(put, 3);
        assert_eq!(map.get(map.hash(&[7])), None);
    }
}
