//! The iteration order of Java's `HashMap`, in which some of Kafka's tools print: by bucket, then
//! by insertion order. Scripts that compare whole lines then see no difference.

/// Sorts keys, given in insertion order, into the iteration order of a map.
pub(super) fn sort_by_hash<T>(entries: &mut [T], key: impl Fn(&T) -> &str) {
    let buckets = buckets(entries.len());
    entries.sort_by_key(|entry| spread(hash_code(key(entry))) & (buckets - 1));
}

/// The number of buckets for this many entries: `HashMap` starts with 16 and doubles above a load
/// of three quarters.
fn buckets(entries: usize) -> u32 {
    let mut buckets: u32 = 16;
    while buckets < 1 << 30 && entries > buckets as usize / 4 * 3 {
        buckets *= 2;
    }
    buckets
}

/// `String.hashCode`
fn hash_code(text: &str) -> u32 {
    text.encode_utf16().fold(0, |hash: u32, unit| {
        hash.wrapping_mul(31).wrapping_add(u32::from(unit))
    })
}

/// `HashMap.hash`
fn spread(hash: u32) -> u32 {
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_in_the_order_of_java() {
        assert_eq!(hash_code("min.insync.replicas"), 268_940_301);
        assert_eq!(
            [12, 13, 24, 25, 48, 49].map(buckets),
            [16, 32, 32, 64, 64, 128]
        );
        // The order of `new HashMap<>()` for these names in a map of this size.
        let mut names = vec!["b", "a", "p", "q"];
        sort_by_hash(&mut names, |name| name);
        assert_eq!(names, ["p", "a", "q", "b"]);
    }
}
