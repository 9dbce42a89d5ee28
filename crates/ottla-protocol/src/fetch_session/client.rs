//! A fetch session with one broker, on the client side.

use std::hash::Hash;

use hashbrown::HashMap;
use ottla_types::ErrorCode;

use super::{INITIAL_EPOCH, NO_SESSION, next_epoch};

/// The requested partitions by key, each with its request parameters.
#[derive(Debug)]
pub struct FetchSession<K, R> {
    /// The session ID of the next request. With the initial epoch it names the session to close.
    id: i32,
    /// The session epoch of the next request.
    epoch: i32,
    requested: HashMap<K, R>,
}

/// The partitions of the next request, in key order.
#[derive(Debug, PartialEq, Eq)]
pub struct Change<K, R> {
    pub requested: Vec<(K, R)>,
    pub forgotten: Vec<K>,
}

/// Why a response has no usable partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// The broker no longer has the session. A full request may follow at once.
    SessionLost,
    /// The response has a top-level error.
    Refused(ErrorCode),
    /// The response contains partitions that were not requested, or a full response lacks some that
    /// were.
    WrongPartitions,
}

impl<K, R> Default for FetchSession<K, R> {
    fn default() -> Self {
        FetchSession {
            id: NO_SESSION,
            epoch: INITIAL_EPOCH,
            requested: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord, R: Clone + PartialEq> FetchSession<K, R> {
    /// The session ID of the next request.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// The session epoch of the next request.
    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    /// Whether the next request must list all partitions.
    pub fn is_full(&self) -> bool {
        self.epoch == INITIAL_EPOCH
    }

    /// Whether the broker may still hold the session.
    pub fn is_open(&self) -> bool {
        self.id != NO_SESSION
    }

    /// Whether no partition is requested.
    pub fn is_empty(&self) -> bool {
        self.requested.is_empty()
    }

    /// The last request parameters of a partition.
    pub fn requested(&self, key: &K) -> Option<&R> {
        self.requested.get(key)
    }

    /// Sets the request parameters of partitions, or removes a partition with `None`, and returns
    /// the contents of the next request. For a full request all partitions must be given.
    pub fn change(&mut self, changes: impl IntoIterator<Item = (K, Option<R>)>) -> Change<K, R> {
        if self.is_full() {
            self.requested.clear();
        }
        let mut change = Change {
            requested: Vec::new(),
            forgotten: Vec::new(),
        };
        for (key, request) in changes {
            match request {
                Some(request) => {
                    if self.requested.get(&key) != Some(&request) {
                        change.requested.push((key.clone(), request.clone()));
                    }
                    self.requested.insert(key, request);
                }
                None => {
                    if self.requested.remove(&key).is_some() {
                        change.forgotten.push(key);
                    }
                }
            }
        }
        change.requested.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        change.forgotten.sort_unstable();
        change
    }

    /// Like [`change`](Self::change), with the complete set of partitions.
    pub fn change_to(&mut self, all: impl IntoIterator<Item = (K, R)>) -> Change<K, R> {
        let all: HashMap<K, R> = all.into_iter().collect();
        let known = self.requested.keys();
        let gone: Vec<K> = known
            .filter(|key| !all.contains_key(*key))
            .cloned()
            .collect();
        let gone = gone.into_iter().map(|key| (key, None));
        let all = all.into_iter().map(|(key, request)| (key, Some(request)));
        self.change(gone.chain(all))
    }

    /// Processes the response to the last request: its error, its session ID, and its partitions.
    /// The partitions may be used only if it returns success.
    pub fn on_answer(
        &mut self,
        error: ErrorCode,
        session_id: i32,
        answered: impl IntoIterator<Item = K>,
    ) -> Result<(), Unusable> {
        if error != ErrorCode::None {
            self.on_failure(Some(error));
            return Err(match error {
                ErrorCode::FetchSessionIdNotFound | ErrorCode::InvalidFetchSessionEpoch => {
                    Unusable::SessionLost
                }
                refused => Unusable::Refused(refused),
            });
        }
        let mut answered_count = 0;
        for key in answered {
            if !self.requested.contains_key(&key) {
                self.on_failure(None);
                return Err(Unusable::WrongPartitions);
            }
            answered_count += 1;
        }
        if self.is_full() && answered_count != self.requested.len() {
            self.begin_anew(NO_SESSION);
            return Err(Unusable::WrongPartitions);
        }
        self.on_session(session_id);
        Ok(())
    }

    /// The last request was answered, in the session that the response names, if it names one.
    pub fn on_session(&mut self, session_id: i32) {
        match session_id {
            NO_SESSION => self.begin_anew(NO_SESSION),
            id => {
                self.id = id;
                self.epoch = next_epoch(self.epoch);
            }
        }
    }

    /// The request failed or its response is an error. The broker may still hold the session: the
    /// next request closes it, unless the error says that it is gone.
    pub fn on_failure(&mut self, error: Option<ErrorCode>) {
        let closes = match error {
            Some(ErrorCode::FetchSessionIdNotFound) => NO_SESSION,
            _ => self.id,
        };
        self.begin_anew(closes);
    }

    fn begin_anew(&mut self, closes: i32) {
        self.id = closes;
        self.epoch = INITIAL_EPOCH;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Partitions by number, with the fetch offset.
    type Session = FetchSession<i32, i64>;

    fn wanted(partition: i32, offset: i64) -> (i32, Option<i64>) {
        (partition, Some(offset))
    }

    fn answer(session: &mut Session, id: i32, partitions: &[i32]) -> Result<(), Unusable> {
        session.on_answer(ErrorCode::None, id, partitions.iter().copied())
    }

    fn said(change: &Change<i32, i64>) -> (Vec<i32>, Vec<i32>) {
        let requested = change.requested.iter().map(|(key, _)| *key);
        (requested.collect(), change.forgotten.clone())
    }

    /// A session of partitions 1 and 2, both at offset 0.
    fn begun() -> Session {
        let mut session = Session::default();
        let change = session.change([wanted(2, 0), wanted(1, 0)]);
        assert_eq!(said(&change), (vec![1, 2], vec![]));
        assert_eq!(answer(&mut session, 77, &[1, 2]), Ok(()));
        assert_eq!((session.id(), session.epoch()), (77, 1));
        assert!(session.is_open());
        session
    }

    #[test]
    fn only_changed_partitions_are_sent_again() {
        let mut session = begun();
        let change = session.change([wanted(1, 0), wanted(2, 9), wanted(3, 0)]);
        assert_eq!(said(&change), (vec![2, 3], vec![]));
        assert_eq!(answer(&mut session, 77, &[3]), Ok(()));
        assert_eq!((session.id(), session.epoch()), (77, 2));
        let change = session.change([(2, None), (9, None)]);
        assert_eq!(said(&change), (vec![], vec![2]));
        assert_eq!(
            (session.requested(&2), session.requested(&3)),
            (None, Some(&0))
        );
    }

    #[test]
    fn partitions_missing_in_a_full_request_are_forgotten() {
        let mut session = begun();
        let change = session.change_to([(2, 9), (3, 0)]);
        assert_eq!(said(&change), (vec![2, 3], vec![1]));
        assert_eq!(answer(&mut session, 77, &[]), Ok(()));
        let change = session.change_to([]);
        assert_eq!(said(&change), (vec![], vec![2, 3]));
        assert!(session.is_empty());
    }

    #[test]
    fn without_a_session_everything_is_named_each_time() {
        let mut session = Session::default();
        session.change([wanted(1, 0)]);
        assert_eq!(answer(&mut session, 0, &[1]), Ok(()));
        assert!(session.is_full() && !session.is_open());
        let change = session.change([wanted(1, 0)]);
        assert_eq!(said(&change), (vec![1], vec![]));
    }

    #[test]
    fn a_session_that_ended_begins_anew() {
        let fail = |session: &mut Session, error| session.on_answer(error, 0, []);
        let mut session = begun();
        let gone = fail(&mut session, ErrorCode::FetchSessionIdNotFound);
        assert_eq!(gone, Err(Unusable::SessionLost));
        assert_eq!((session.id(), session.epoch()), (0, 0));

        let mut session = begun();
        let wrong = fail(&mut session, ErrorCode::InvalidFetchSessionEpoch);
        assert_eq!(wrong, Err(Unusable::SessionLost));
        assert_eq!((session.id(), session.epoch()), (77, 0), "it is closed");
        let change = session.change([wanted(1, 0)]);
        assert_eq!(said(&change), (vec![1], vec![]));

        let mut session = begun();
        let refused = fail(&mut session, ErrorCode::UnknownServerError);
        let expected = Unusable::Refused(ErrorCode::UnknownServerError);
        assert_eq!(refused, Err(expected));
        assert_eq!((session.id(), session.epoch()), (77, 0));

        let mut session = begun();
        session.on_failure(None);
        assert_eq!((session.id(), session.epoch()), (77, 0));
    }

    #[test]
    fn an_answer_about_other_partitions_is_not_taken() {
        let mut session = begun();
        let wrong = answer(&mut session, 77, &[5]);
        assert_eq!(wrong, Err(Unusable::WrongPartitions));
        assert!(session.is_full());
        session.change([wanted(1, 0), wanted(2, 0)]);
        let wrong = answer(&mut session, 78, &[1]);
        assert_eq!(wrong, Err(Unusable::WrongPartitions), "one is missing");
    }

    #[test]
    fn epochs_go_round_past_the_initial_one() {
        let mut session = begun();
        session.epoch = i32::MAX;
        assert_eq!(answer(&mut session, 77, &[]), Ok(()));
        assert_eq!(session.epoch(), 1);
    }
}
