//! Fetch sessions: a broker remembers which partitions a consumer asks for, so that a request says only
//! what has changed (KIP-227; `org.apache.kafka.clients.FetchSessionHandler`). Pure; one a broker.

use std::collections::BTreeMap;

use ottla_types::ErrorCode;

use super::Partition;

/// What is asked for of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
}

/// What a request has to say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SessionRequest {
    pub(super) session_id: i32,
    pub(super) session_epoch: i32,
    pub(super) partitions: BTreeMap<Partition, Wanted>,
    pub(super) forgotten: Vec<Partition>,
}

const INITIAL_EPOCH: i32 = 0;

#[derive(Debug, Default)]
pub(super) struct FetchSession {
    /// 0 without a session.
    id: i32,
    epoch: i32,
    known: BTreeMap<Partition, Wanted>,
}

impl FetchSession {
    /// Whether the broker remembers what it is asked for, and has the partitions take turns.
    pub(super) fn is_open(&self) -> bool {
        self.id != 0
    }

    /// The request for these partitions; an answer or a failure has to be told before the next one.
    pub(super) fn next_request(&mut self, wanted: BTreeMap<Partition, Wanted>) -> SessionRequest {
        if self.epoch == INITIAL_EPOCH {
            self.known = wanted.clone();
            return SessionRequest {
                session_id: self.id,
                session_epoch: INITIAL_EPOCH,
                partitions: wanted,
                forgotten: Vec::new(),
            };
        }
        let forgotten = self
            .known
            .keys()
            .filter(|partition| !wanted.contains_key(*partition))
            .cloned()
            .collect();
        let changed = wanted
            .iter()
            .filter(|(partition, wanted)| self.known.get(*partition) != Some(*wanted))
            .map(|(partition, wanted)| (partition.clone(), *wanted))
            .collect();
        self.known = wanted;
        SessionRequest {
            session_id: self.id,
            session_epoch: self.epoch,
            partitions: changed,
            forgotten,
        }
    }

    /// The broker has answered, with a session or 0 for none.
    pub(super) fn on_answered(&mut self, session_id: i32) {
        if session_id == 0 {
            *self = FetchSession::default();
            return;
        }
        self.id = session_id;
        // Goes round, past the number that means a new session.
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
    }

    /// The broker has refused the session, or nothing came back: the next request begins a new one. A
    /// session that the broker may still have is named, so that it closes it.
    pub(super) fn on_failed(&mut self, code: Option<ErrorCode>) {
        self.epoch = INITIAL_EPOCH;
        if code == Some(ErrorCode::FetchSessionIdNotFound) {
            self.id = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(offsets: &[(i32, i64)]) -> BTreeMap<Partition, Wanted> {
        offsets
            .iter()
            .map(|&(partition, offset)| {
                let wanted = Wanted {
                    offset,
                    leader_epoch: 0,
                };
                (("t".to_owned(), partition), wanted)
            })
            .collect()
    }

    #[test]
    fn only_changes_are_said() {
        let mut session = FetchSession::default();
        let first = session.next_request(wanted(&[(0, 5), (1, 7)]));
        assert_eq!((first.session_id, first.session_epoch), (0, 0));
        assert_eq!(first.partitions.len(), 2);
        session.on_answered(42);
        let second = session.next_request(wanted(&[(0, 5), (1, 9), (2, 0)]));
        assert_eq!((second.session_id, second.session_epoch), (42, 1));
        assert_eq!(second.partitions, wanted(&[(1, 9), (2, 0)]));
        session.on_answered(42);
        let third = session.next_request(wanted(&[(2, 0)]));
        assert_eq!(third.session_epoch, 2);
        assert!(third.partitions.is_empty());
        assert_eq!(third.forgotten, [("t".to_owned(), 0), ("t".to_owned(), 1)]);
    }

    #[test]
    fn a_lost_session_begins_anew() {
        let mut session = FetchSession::default();
        session.next_request(wanted(&[(0, 5)]));
        session.on_answered(42);
        session.next_request(wanted(&[(0, 6)]));
        session.on_failed(None);
        let again = session.next_request(wanted(&[(0, 6)]));
        assert_eq!((again.session_id, again.session_epoch), (42, 0));
        assert_eq!(again.partitions.len(), 1);
        session.on_failed(Some(ErrorCode::FetchSessionIdNotFound));
        assert_eq!(session.next_request(wanted(&[(0, 6)])).session_id, 0);
        // A broker without room for sessions.
        session.on_answered(0);
        assert_eq!(session.next_request(wanted(&[(0, 6)])).session_epoch, 0);
    }
}
