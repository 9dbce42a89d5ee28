//! What a share consumer has to do with one broker, and what comes of a request to it.

use std::time::Instant;

use ottla_protocol::messages::{ShareAcknowledgeResponse, ShareFetchResponse};

use super::acknowledgements::Batch;
use super::record::ShareRecord;
use super::session::{ShareSession, TopicIdAndPartition};
use crate::error::ClientError;

/// What a share consumer has to do with one broker.
#[derive(Default)]
pub(super) struct Node {
    pub(super) session: ShareSession,
    pub(super) request: Option<Request>,
    /// After a failure it is not asked before.
    pub(super) asked_from: Option<Instant>,
}

/// One that is on its way.
#[derive(Clone, Copy)]
pub(super) enum Request {
    Fetch,
    Acknowledge { purpose: Purpose, renews: bool },
}

/// What something is said for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Poll,
    /// What fails is said again until then, if that may help.
    Commit {
        until: Instant,
    },
    /// It is the last that is said.
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

/// What a request said of a partition, and what is renewed by it.
pub(super) struct Said {
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
    pub(super) said: Vec<Said>,
    pub(super) result: Result<Answer, ClientError>,
}

pub(super) enum Answer {
    Fetch(ShareFetchResponse),
    Acknowledge(ShareAcknowledgeResponse),
}
