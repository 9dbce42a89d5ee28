//! The topic `__remote_log_metadata`: its name and the partition for a user's partition.
//!
//! Kafka: `RemoteLogMetadataTopicPartitioner`, `TopicBasedRemoteLogMetadataManagerConfig`.

use ottla_types::TopicIdPartition;

pub const REMOTE_LOG_METADATA_TOPIC: &str = "__remote_log_metadata";

/// The partition of the topic that holds the records of `partition`. `num_partitions` must be
/// positive.
pub fn metadata_partition(partition: TopicIdPartition, num_partitions: i32) -> i32 {
    let id = u128::from_be_bytes(partition.topic_id.0);
    let hash = [
        long_hash_code(id as u64),
        long_hash_code((id >> 64) as u64),
        partition.partition.0,
    ]
    .into_iter()
    .fold(1i32, |hash, element| {
        hash.wrapping_mul(31).wrapping_add(element)
    });
    (murmur2(hash.to_be_bytes()) & 0x7fff_ffff) as i32 % num_partitions
}

/// `Long.hashCode`.
fn long_hash_code(value: u64) -> i32 {
    (value ^ (value >> 32)) as i32
}

/// `Utils.murmur2` of four bytes.
fn murmur2(data: [u8; 4]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mut k = u32::from_le_bytes(data).wrapping_mul(M);
    k ^= k >> 24;
    k = k.wrapping_mul(M);
    let mut hash = (SEED ^ data.len() as u32).wrapping_mul(M) ^ k;
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use ottla_types::{PartitionIndex, TopicIdPartition};

    use super::metadata_partition;

    /// The expected values were printed by Kafka's class.
    #[test]
    fn partitions_are_kafkas() {
        for (topic_id, partition, num_partitions, expected) in PRINTED {
            let partition = TopicIdPartition {
                topic_id: topic_id.parse().unwrap(),
                partition: PartitionIndex(partition),
            };
            assert_eq!(
                metadata_partition(partition, num_partitions),
                expected,
                "{partition:?}"
            );
        }
    }

    const PRINTED: [(&str, i32, i32, i32); 32] = [
        ("AAAAAAAAAAAAAAAAAAAAAQ", 0, 50, 35),
        ("AAAAAAAAAAAAAAAAAAAAAQ", 0, 7, 0),
        ("AAAAAAAAAAAAAAAAAAAAAQ", 1, 50, 6),
        ("AAAAAAAAAAAAAAAAAAAAAQ", 1, 7, 1),
        ("AAAAAAAAAAAAAAAAAAAAAQ", 7, 50, 46),
        ("AAAAAAAAAAAAAAAAAAAAAQ", 7, 7, 2),
        ("AAAAAAAAAAAAAAAAAAAAAQ", 12345, 50, 33),
        ("AAAAAAAAAAAAAAAAAAAAAQ", 12345, 7, 6),
        ("2DaZEbHwSUe6Xx0hRqvIAw", 0, 50, 24),
        ("2DaZEbHwSUe6Xx0hRqvIAw", 0, 7, 4),
        ("2DaZEbHwSUe6Xx0hRqvIAw", 1, 50, 0),
        ("2DaZEbHwSUe6Xx0hRqvIAw", 1, 7, 3),
        ("2DaZEbHwSUe6Xx0hRqvIAw", 7, 50, 2),
        ("2DaZEbHwSUe6Xx0hRqvIAw", 7, 7, 3),
        ("2DaZEbHwSUe6Xx0hRqvIAw", 12345, 50, 10),
        ("2DaZEbHwSUe6Xx0hRqvIAw", 12345, 7, 4),
        ("__________________-__w", 0, 50, 43),
        ("__________________-__w", 0, 7, 5),
        ("__________________-__w", 1, 50, 38),
        ("__________________-__w", 1, 7, 6),
        ("__________________-__w", 7, 50, 36),
        ("__________________-__w", 7, 7, 6),
        ("__________________-__w", 12345, 50, 6),
        ("__________________-__w", 12345, 7, 1),
        ("gAAAAAAAAACAAAAAAAAAAA", 0, 50, 6),
        ("gAAAAAAAAACAAAAAAAAAAA", 0, 7, 2),
        ("gAAAAAAAAACAAAAAAAAAAA", 1, 50, 30),
        ("gAAAAAAAAACAAAAAAAAAAA", 1, 7, 2),
        ("gAAAAAAAAACAAAAAAAAAAA", 7, 50, 31),
        ("gAAAAAAAAACAAAAAAAAAAA", 7, 7, 6),
        ("gAAAAAAAAACAAAAAAAAAAA", 12345, 50, 45),
        ("gAAAAAAAAACAAAAAAAAAAA", 12345, 7, 6),
    ];
}
