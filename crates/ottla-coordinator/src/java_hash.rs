//! The partition of an internal topic for a key.
//!
//! Kafka uses the hash of a Java string, so the result must be exactly Java's: a directory taken
//! over from Kafka has each group in the partition that Kafka computed. Source:
//! `GroupCoordinatorService.partitionFor`, `String.hashCode`, `Utils.abs`.

/// The partition of `__consumer_offsets` (or another internal topic) that holds `key`.
/// `num_partitions` must be positive.
pub fn partition_for(key: &str, num_partitions: i32) -> i32 {
    absolute(string_hash_code(key)) % num_partitions
}

/// `String.hashCode`, which is computed over UTF-16 code units, not bytes.
pub(crate) fn string_hash_code(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

/// `Utils.abs`: `i32::MIN`, which has no positive counterpart, becomes 0.
fn absolute(value: i32) -> i32 {
    value.checked_abs().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{absolute, partition_for, string_hash_code};

    #[test]
    fn hash_codes_are_javas() {
        // The expected values were printed by a JVM.
        assert_eq!(string_hash_code(""), 0);
        assert_eq!(string_hash_code("group"), 98629247);
        assert_eq!(string_hash_code("polygenelubricants"), i32::MIN);
        // U+1F600 is two code units in Java.
        assert_eq!(string_hash_code("\u{1F600}"), 0xD83D * 31 + 0xDE00);
    }

    #[test]
    fn the_partition_is_never_negative() {
        assert_eq!(absolute(i32::MIN), 0);
        assert_eq!(partition_for("polygenelubricants", 50), 0);
        assert_eq!(partition_for("group", 50), 47);
        for key in [
            "a",
            "console-consumer-12345",
            "\u{e4}\u{f6}\u{fc}",
            "zzzzzzzzzzzzzzzz",
        ] {
            assert!((0..50).contains(&partition_for(key, 50)), "{key}");
        }
    }
}
