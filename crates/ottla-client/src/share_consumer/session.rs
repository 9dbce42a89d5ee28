//! The share session with one broker, so that requests contain only changes (KIP-932). Pure.
//!
//! A session starts with epoch 0, which is raised by one with each request on the same connection;
//! -1 closes it. After any failure a new session is started, and the locks of the old one are lost:
//! the broker delivers these records to other members. In Kafka:
//! `org.apache.kafka.clients.consumer.internals.ShareSessionHandler`.

use std::collections::BTreeSet;

use ottla_types::Uuid;

/// A partition by topic id.
pub(super) type TopicIdAndPartition = (Uuid, i32);

/// The session fields of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SessionChange {
    pub(super) epoch: i32,
    pub(super) added: Vec<TopicIdAndPartition>,
    pub(super) forgotten: Vec<TopicIdAndPartition>,
}

pub(super) const FINAL_EPOCH: i32 = -1;

#[derive(Default, Debug)]
pub(super) struct ShareSession {
    /// The epoch of the next request.
    epoch: i32,
    partitions: BTreeSet<TopicIdAndPartition>,
}

impl ShareSession {
    /// Whether the session is open. Nothing can be acknowledged before that.
    pub(super) fn is_open(&self) -> bool {
        self.epoch > 0
    }

    pub(super) fn partitions(&self) -> &BTreeSet<TopicIdAndPartition> {
        &self.partitions
    }

    /// The next fetch, after which the session contains these partitions.
    pub(super) fn next_fetch(&mut self, wanted: &BTreeSet<TopicIdAndPartition>) -> SessionChange {
        let added = wanted.difference(&self.partitions).copied().collect();
        let forgotten = self.partitions.difference(wanted).copied().collect();
        self.partitions.clone_from(wanted);
        SessionChange {
            epoch: self.epoch,
            added,
            forgotten,
        }
    }

    /// The epoch of a request with acknowledgements only.
    pub(super) fn epoch(&self) -> i32 {
        self.epoch
    }

    pub(super) fn on_answered(&mut self) {
        // The highest epoch is followed by 1, because 0 would start a new session.
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
    }

    pub(super) fn on_failed(&mut self) {
        *self = ShareSession::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partitions(numbers: &[i32]) -> BTreeSet<TopicIdAndPartition> {
        let topic = Uuid::from_u128(7);
        numbers.iter().map(|number| (topic, *number)).collect()
    }

    fn numbers(partitions: &[TopicIdAndPartition]) -> Vec<i32> {
        partitions.iter().map(|(_, number)| *number).collect()
    }

    #[test]
    fn requests_contain_only_changes() {
        let mut session = ShareSession::default();
        assert!(!session.is_open());
        let first = session.next_fetch(&partitions(&[0, 1]));
        assert_eq!((first.epoch, numbers(&first.added)), (0, vec![0, 1]));
        session.on_answered();
        assert!(session.is_open());
        let second = session.next_fetch(&partitions(&[1, 2]));
        assert_eq!(second.epoch, 1);
        assert_eq!(numbers(&second.added), [2]);
        assert_eq!(numbers(&second.forgotten), [0]);
        session.on_answered();
        let third = session.next_fetch(&partitions(&[1, 2]));
        assert_eq!(
            (third.epoch, third.added, third.forgotten),
            (2, vec![], vec![])
        );
    }

    #[test]
    fn a_failed_session_starts_again() {
        let mut session = ShareSession::default();
        session.next_fetch(&partitions(&[0]));
        session.on_answered();
        session.on_failed();
        let again = session.next_fetch(&partitions(&[0]));
        assert_eq!((again.epoch, numbers(&again.added)), (0, vec![0]));
    }

    #[test]
    fn epochs_wrap_to_one() {
        let mut session = ShareSession {
            epoch: i32::MAX,
            ..ShareSession::default()
        };
        session.on_answered();
        assert_eq!(session.epoch(), 1);
    }
}
