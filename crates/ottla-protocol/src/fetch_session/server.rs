//! A fetch session on the broker side.
//!
//! The cache of all sessions, its locks and its eviction policy are outside, so that requests of
//! different sessions do not wait for each other.

use std::collections::BTreeMap;
use std::hash::Hash;

use hashbrown::HashMap;
use ottla_types::ErrorCode;

use super::{FINAL_EPOCH, INITIAL_EPOCH, next_epoch};
use crate::messages::fetch_request::FetchPartition;
use crate::messages::fetch_response::PartitionData;

/// The session that a request uses, determined by its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestedSession {
    /// No session. If the request names one, it is closed.
    Sessionless,
    /// A new session. If the request names one, it is closed.
    New,
    /// The named session, which must have this epoch.
    Known { epoch: i32 },
}

impl RequestedSession {
    pub fn of(epoch: i32) -> RequestedSession {
        match epoch {
            FINAL_EPOCH => RequestedSession::Sessionless,
            INITIAL_EPOCH => RequestedSession::New,
            epoch => RequestedSession::Known { epoch },
        }
    }
}

/// The request parameters of a partition, and the values last sent to the client.
#[derive(Clone, PartialEq, Debug)]
struct CachedPartition {
    /// The position in the serving order.
    order: u64,
    requested: FetchPartition,
    high_watermark: i64,
    log_start_offset: i64,
}

/// `K` identifies a partition: by topic ID if the client uses IDs, otherwise by topic name.
#[derive(Debug)]
pub struct FetchSession<K> {
    uses_topic_ids: bool,
    /// The epoch that the next request must carry.
    epoch: i32,
    partitions: HashMap<K, CachedPartition>,
    /// The serving order. Partitions that returned records move to the end, so that none is
    /// starved.
    order: BTreeMap<u64, K>,
    next_order: u64,
}

/// The session state for one request.
#[derive(Clone, PartialEq, Debug)]
pub struct Continued<K> {
    /// The session's epoch must still be this when the response is finished, because another
    /// request may arrive in between.
    pub next_epoch: i32,
    /// All partitions of the session in serving order. Empty if the request removed the last one,
    /// which closes the session.
    pub partitions: Vec<(K, FetchPartition)>,
}

impl<K: Clone + Eq + Hash> FetchSession<K> {
    /// A session for a full request, with the values of its response.
    pub fn new(
        uses_topic_ids: bool,
        requested: Vec<(K, FetchPartition)>,
        answers: &[(K, PartitionData)],
    ) -> FetchSession<K> {
        let mut session = FetchSession {
            uses_topic_ids,
            epoch: next_epoch(INITIAL_EPOCH),
            partitions: HashMap::with_capacity(requested.len()),
            order: BTreeMap::new(),
            next_order: 0,
        };
        for (key, partition) in requested {
            session.insert(key, partition);
        }
        for (key, answer) in answers {
            if let Some(cached) = session.partitions.get_mut(key) {
                cached.high_watermark = answer.high_watermark;
                cached.log_start_offset = answer.log_start_offset;
            }
        }
        session
    }

    /// Applies an incremental request to this session.
    pub fn continue_with(
        &mut self,
        epoch: i32,
        uses_topic_ids: bool,
        requested: &[(K, FetchPartition)],
        forgotten: &[K],
    ) -> Result<Continued<K>, ErrorCode> {
        if self.epoch != epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if self.uses_topic_ids != uses_topic_ids {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        for (key, partition) in requested {
            self.insert(key.clone(), partition.clone());
        }
        for key in forgotten {
            if let Some(removed) = self.partitions.remove(key) {
                self.order.remove(&removed.order);
            }
        }
        self.epoch = next_epoch(epoch);
        let partitions = self.order.values().map(|key| {
            let cached = &self.partitions[key];
            (key.clone(), cached.requested.clone())
        });
        Ok(Continued {
            next_epoch: self.epoch,
            partitions: partitions.collect(),
        })
    }

    /// Reduces a response to the partitions that must be sent to the client.
    pub fn finish(
        &mut self,
        next_epoch: i32,
        answers: &mut Vec<(K, PartitionData)>,
    ) -> Result<(), ErrorCode> {
        if self.epoch != next_epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        answers.retain(|(key, answer)| self.update(key, answer));
        Ok(())
    }

    fn insert(&mut self, key: K, requested: FetchPartition) {
        if let Some(known) = self.partitions.get_mut(&key) {
            known.requested = requested;
            return;
        }
        self.order.insert(self.next_order, key.clone());
        let cached = CachedPartition {
            order: self.next_order,
            requested,
            high_watermark: -1,
            log_start_offset: -1,
        };
        self.partitions.insert(key, cached);
        self.next_order += 1;
    }

    /// Records the values sent for a partition; returns whether it must be part of the response.
    fn update(&mut self, key: &K, answer: &PartitionData) -> bool {
        let Some(cached) = self.partitions.get_mut(key) else {
            return false;
        };
        let has_records = answer
            .records
            .as_ref()
            .is_some_and(|records| !records.is_empty());
        let has_error = answer.error_code != ErrorCode::None.code();
        let must_respond = has_records
            || has_error
            || cached.high_watermark != answer.high_watermark
            || cached.log_start_offset != answer.log_start_offset
            || answer.preferred_read_replica >= 0
            || answer.diverging_epoch.end_offset >= 0;
        cached.log_start_offset = answer.log_start_offset;
        // -1 differs from every high watermark, so the partition is sent again when the error is
        // over.
        cached.high_watermark = if has_error { -1 } else { answer.high_watermark };
        if has_records {
            self.order.remove(&cached.order);
            cached.order = self.next_order;
            self.order.insert(cached.order, key.clone());
            self.next_order += 1;
        }
        must_respond
    }
}
