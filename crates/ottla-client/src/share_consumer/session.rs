//! What one broker knows of what a share consumer reads there, so that only changes are said (KIP-932). Pure.
//!
//! A session begins with the epoch 0 and goes on with one more for each request, over one connection; it ends with -1.
//! After any failure it begins anew, and what was locked in the old one is lost: the broker gives it to others.
//! Kafka has this in `org.apache.kafka.clients.consumer.internals.ShareSessionHandler`.

use std::collections::BTreeSet;

use ottla_types::Uuid;

/// A partition by the id of its topic.
pub(super) type TopicIdAndPartition = (Uuid, i32);

/// What a request says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SessionChange {
    pub(super) epoch: i32,
    pub(super) added: Vec<TopicIdAndPartition>,
    pub(super) forgotten: Vec<TopicIdAndPartition>,
}

pub(super) const FINAL_EPOCH: i32 = -1;

#[derive(Default, Debug)]
pub(super) struct ShareSession {
    /// Of the next request.
    epoch: i32,
    partitions: BTreeSet<TopicIdAndPartition>,
}

impl ShareSession {
    /// Nothing can be acknowledged before a session is open.
    pub(super) fn is_open(&self) -> bool {
        self.epoch > 0
    }

    pub(super) fn partitions(&self) -> &BTreeSet<TopicIdAndPartition> {
        &self.partitions
    }

    /// The next fetch, after which the session has these partitions.
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

    /// The epoch of a request that only acknowledges.
    pub(super) fn epoch(&self) -> i32 {
        self.epoch
    }

    pub(super) fn on_answered(&mut self) {
        // After the highest comes 1, since 0 would begin anew.
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
    fn only_changes_are_said() {
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
    fn one_that_failed_begins_anew() {
        let mut session = ShareSession::default();
        session.next_fetch(&partitions(&[0]));
        session.on_answered();
        session.on_failed();
        let again = session.next_fetch(&partitions(&[0]));
        assert_eq!((again.epoch, numbers(&again.added)), (0, vec![0]));
    }

    #[test]
    fn epochs_never_come_back_to_the_beginning() {
        let mut session = ShareSession {
            epoch: i32::MAX,
            ..ShareSession::default()
        };
        session.on_answered();
        assert_eq!(session.epoch(), 1);
    }
}
