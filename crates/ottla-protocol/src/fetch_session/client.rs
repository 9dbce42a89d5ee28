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

    /// Sets the session epoch of the next request, for tests, which do not send that many.
    #[cfg(feature = "samples")]
    pub fn skip_to(&mut self, epoch: i32) {
        self.epoch = epoch;
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
