//! Which replicas are throttled, and when (KIP-73).
//!
//! The topic settings `leader.replication.throttled.replicas` and
//! `follower.replication.throttled.replicas` name replicas; two broker settings limit the rate. The
//! caller measures the rate.
//!
//! Kafka: `ThrottledReplicaListValidator`, `TopicConfigHandler.parseThrottledPartitions`,
//! `ReplicationQuotaManager`, `ReplicaManager.shouldLeaderThrottle`, `RemoteLeaderEndPoint.shouldFollowerThrottle`.

use ottla_types::{BrokerId, PartitionIndex};

/// The partitions of a topic whose replica on a broker is throttled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ThrottledReplicas {
    /// `*`
    All,
    Partitions(Vec<PartitionIndex>),
}

impl ThrottledReplicas {
    /// Parses `*` or `partition:broker,partition:broker,…` and keeps the entries of this broker.
    /// `None` if the text is invalid.
    pub fn parse(text: &str, broker_id: BrokerId) -> Option<ThrottledReplicas> {
        let text = text.trim();
        if text == "*" {
            return Some(ThrottledReplicas::All);
        }
        let mut partitions = Vec::new();
        for entry in text.split(',').map(str::trim) {
            if entry.is_empty() {
                continue;
            }
            let (partition, broker) = entry.split_once(':')?;
            let (partition, broker) = (number(partition)?, number(broker)?);
            if BrokerId(broker) == broker_id {
                partitions.push(PartitionIndex(partition));
            }
        }
        Some(ThrottledReplicas::Partitions(partitions))
    }

    pub fn contains(&self, partition: PartitionIndex) -> bool {
        match self {
            ThrottledReplicas::All => true,
            ThrottledReplicas::Partitions(partitions) => partitions.contains(&partition),
        }
    }
}

/// Digits only; a sign is invalid here.
fn number(text: &str) -> Option<i32> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_digits)
}

/// Whether a replica must not get, or fetch, records now. An in-sync replica is never throttled,
/// because the throttle would remove it from the ISR.
///
/// `byte_rate` is the rate of all throttled replicas of the broker together, in bytes per second,
/// over the window of `replication.quota.window.num` samples; `quota_byte_rate` is the broker's
/// `leader.replication.throttled.rate` or `follower.replication.throttled.rate`.
pub fn is_replication_throttled(
    is_in_sync: bool,
    is_named: bool,
    byte_rate: f64,
    quota_byte_rate: f64,
) -> bool {
    !is_in_sync && is_named && byte_rate > quota_byte_rate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_named_by_partition_and_broker() {
        let parse = |text| ThrottledReplicas::parse(text, BrokerId(101));
        let partitions = |partitions: &[i32]| {
            let partitions = partitions.iter().copied().map(PartitionIndex);
            Some(ThrottledReplicas::Partitions(partitions.collect()))
        };
        assert_eq!(parse("*"), Some(ThrottledReplicas::All));
        assert_eq!(parse(" * "), Some(ThrottledReplicas::All));
        assert_eq!(parse(""), partitions(&[]));
        assert_eq!(parse("0:101,0:102,1:102, 2:101"), partitions(&[0, 2]));
        for wrong in [
            "none",
            "1",
            "1:",
            ":1",
            "1:2:3",
            "-1:2",
            "+1:2",
            "1:x",
            "*,1:2",
            "99999999999:1",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert!(parse("*").unwrap().contains(PartitionIndex(7)));
        assert!(parse("7:101").unwrap().contains(PartitionIndex(7)));
        assert!(!parse("7:102").unwrap().contains(PartitionIndex(7)));
    }

    #[test]
    fn only_the_named_and_lagging_wait_and_only_above_the_rate() {
        assert!(is_replication_throttled(false, true, 11.0, 10.0));
        assert!(!is_replication_throttled(true, true, 11.0, 10.0));
        assert!(!is_replication_throttled(false, false, 11.0, 10.0));
        assert!(!is_replication_throttled(false, true, 10.0, 10.0));
    }
}
