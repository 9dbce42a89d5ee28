//! The preferred read replica of a consumer (KIP-392).
//!
//! Kafka: `ReplicaManager.findPreferredReadReplica`, `RackAwareReplicaSelector`, `ReplicaView.comparator`.

use std::cmp::Reverse;

use ottla_types::{BrokerId, Offset};

/// A follower that has the requested offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadCandidate {
    pub broker_id: BrokerId,
    pub log_end_offset: Offset,
    pub ms_since_caught_up: u64,
}

/// `replica.selector.class`; these are Kafka's implementations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaSelector {
    /// Consumers read from the leader: nothing is configured, or `LeaderSelector`.
    Leader,
    /// `org.apache.kafka.common.replica.RackAwareReplicaSelector`.
    RackAware,
}

/// The follower that a consumer should read from; `None` for the leader. A leader in the consumer's
/// rack is preferred, then the follower in the rack with the highest log end offset.
///
/// `rack_of` returns the rack of a broker that is reachable over the consumer's listener, and
/// `None` for one that is not or has no rack.
pub fn select_read_replica<'a>(
    selector: ReplicaSelector,
    client_rack: &str,
    leader: BrokerId,
    followers: impl Iterator<Item = ReadCandidate>,
    rack_of: impl Fn(BrokerId) -> Option<&'a str>,
) -> Option<BrokerId> {
    if selector == ReplicaSelector::Leader || client_rack.is_empty() {
        return None;
    }
    if rack_of(leader) == Some(client_rack) {
        return None;
    }
    let mut most: Option<ReadCandidate> = None;
    for follower in followers.filter(|follower| rack_of(follower.broker_id) == Some(client_rack)) {
        if most.is_none_or(|most| rank(&follower) > rank(&most)) {
            most = Some(follower);
        }
    }
    most.map(|most| most.broker_id)
}

fn rank(candidate: &ReadCandidate) -> (Offset, Reverse<u64>, BrokerId) {
    (
        candidate.log_end_offset,
        Reverse(candidate.ms_since_caught_up),
        candidate.broker_id,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_reads_in_its_rack() {
        let candidate = |broker_id, log_end_offset, ms_since_caught_up| ReadCandidate {
            broker_id: BrokerId(broker_id),
            log_end_offset: Offset(log_end_offset),
            ms_since_caught_up,
        };
        let rack_of = |broker: BrokerId| match broker.0 {
            1 => Some("a"),
            2..=5 => Some("b"),
            _ => None,
        };
        let select = |selector, rack, followers: &[ReadCandidate]| {
            let followers = followers.iter().copied();
            select_read_replica(selector, rack, BrokerId(1), followers, rack_of).map(|id| id.0)
        };
        use ReplicaSelector::{Leader, RackAware};
        let followers = [
            candidate(2, 10, 5),
            candidate(3, 12, 9),
            candidate(6, 99, 0),
        ];
        assert_eq!(select(RackAware, "b", &followers), Some(3));
        assert_eq!(select(RackAware, "a", &followers), None, "the leader's");
        assert_eq!(select(RackAware, "c", &followers), None, "no rack matches");
        assert_eq!(select(RackAware, "", &followers), None, "a client without");
        assert_eq!(select(Leader, "b", &followers), None);
        assert_eq!(select(RackAware, "b", &[]), None);
        // Among equals, the replica that has caught up later comes first, and then the one with the
        // larger ID.
        let followers = [candidate(4, 12, 3), candidate(3, 12, 9)];
        assert_eq!(select(RackAware, "b", &followers), Some(4));
        let followers = [candidate(4, 12, 3), candidate(5, 12, 3)];
        assert_eq!(select(RackAware, "b", &followers), Some(5));
    }
}
