//! The partition of a record.
//!
//! Records with a key go to the partition that Kafka's clients choose, so that producers in all
//! languages agree. Records without a key stay with one partition for a batch and then switch.

/// Murmur2 as in Kafka's Java client (`Utils.murmur2`).
///
/// ```
/// assert_eq!(ottla_client::murmur2(b"abc"), 479_470_107);
/// ```
pub fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mut hash = SEED ^ data.len() as u32;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        k = k.wrapping_mul(M);
        k ^= k >> 24;
        k = k.wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (index, &byte) in rest.iter().enumerate() {
            hash ^= u32::from(byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// The partition of a record with this key, out of `partitions`, which must not be 0.
///
/// ```
/// assert_eq!(ottla_client::partition_for_key(b"foobar", 10), 6);
/// ```
pub fn partition_for_key(key: &[u8], partitions: usize) -> usize {
    (murmur2(key) & 0x7fff_ffff) as usize % partitions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values come from Kafka's own test.
    #[test]
    fn hashes_are_those_of_the_java_client() {
        for (text, hash) in [
            ("21", -973932308),
            ("foobar", -790332482),
            ("a-little-bit-long-string", -985981536),
            ("a-little-bit-longer-string", -1486304829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58897971,
            ),
            ("abc", 479470107),
        ] {
            assert_eq!(murmur2(text.as_bytes()) as i32, hash, "{text}");
        }
    }

    #[test]
    fn partitions_are_in_range() {
        for key in 0..1000u32 {
            assert!(partition_for_key(&key.to_be_bytes(), 7) < 7);
        }
    }
}
