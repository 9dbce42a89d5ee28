//! The state of a share consumer for one broker, and the results of requests.

use std::time::Instant;

use ottla_protocol::messages::{ShareAcknowledgeResponse, ShareFetchResponse};

use super::acknowledgements::Batch;
use super::record::ShareRecord;
use super::session::{ShareSession, TopicIdAndPartition};
use crate::error::ClientError;

/// The state of a share consumer for one broker.
#[derive(Default)]
pub(super) struct Node {
    pub(super) session: ShareSession,
    pub(super) request: Option<Request>,
    /// The earliest time of the next request after a failure.
    pub(super) asked_from: Option<Instant>,
}

/// A request in flight.
#[derive(Clone, Copy)]
pub(super) enum Request {
    Fetch,
    Acknowledge { purpose: Purpose, renews: bool },
}

/// Why acknowledgements are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Poll,
    /// Retriable errors are retried until this time.
    Commit {
        until: Instant,
    },
    /// The last request to the broker.
    Close,
}

impl Node {
    pub(super) fn is_busy(&self) -> bool {
        self.request.is_some()
    }

    pub(super) fn is_committing(&self) -> bool {
        let purpose = match self.request {
            Some(Request::Acknowledge { purpose, .. }) => Some(purpose),
            _ => None,
        };
        matches!(purpose, Some(Purpose::Commit { .. }))
    }

    pub(super) fn is_free(&self, now: Instant) -> bool {
        !self.is_busy() && self.asked_from.is_none_or(|from| from <= now)
    }
}

/// The acknowledgements of a partition in a request, and the records that they renew.
pub(super) struct SentAcknowledgements {
    pub(super) partition: TopicIdAndPartition,
    pub(super) batches: Vec<Batch>,
    pub(super) renewed: Vec<ShareRecord>,
}

pub(super) enum Finished {
    Answered(Answered),
    Refreshed(Result<(), ClientError>),
}

pub(super) struct Answered {
    pub(super) node: i32,
    pub(super) said: Vec<SentAcknowledgements>,
    pub(super) result: Result<Answer, ClientError>,
}

pub(super) enum Answer {
    Fetch(ShareFetchResponse),
    Acknowledge(ShareAcknowledgeResponse),
}
