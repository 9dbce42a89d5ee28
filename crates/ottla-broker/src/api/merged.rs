//! Merges results for the same key.

use std::hash::Hash;

use ottla_sync::collections::HashMap;

/// Adds `came` to `known`: merges into the element with the same key, or appends. Takes linear
/// time, because a client can name as many elements as fit into a request.
pub(crate) fn merge_by<T, K: Hash + Eq>(
    known: &mut Vec<T>,
    came: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
    merge: impl Fn(&mut T, T),
) {
    let mut index_of: HashMap<K, usize> = HashMap::default();
    for (index, it) in known.iter().enumerate() {
        index_of.entry(key(it)).or_insert(index);
    }
    for it in came {
        let next = known.len();
        match *index_of.entry(key(&it)).or_insert(next) {
            index if index == next => known.push(it),
            index => merge(&mut known[index], it),
        }
    }
}
