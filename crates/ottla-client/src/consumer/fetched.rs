//! The results of fetches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::messages::fetch_response::PartitionData;

use super::Partition;
use super::metrics::RequestTally;
use super::records::CompletedFetch;
use super::session::Wanted;
use crate::error::ClientError;

/// The result of one request.
pub(super) struct Fetched {
    pub(super) leader: i32,
    /// The requested partitions, with the generations of their positions.
    pub(super) asked: BTreeMap<Partition, (Wanted, u64)>,
    pub(super) result: Result<Answer, ClientError>,
}

pub(super) struct Answer {
    pub(super) session_id: i32,
    pub(super) throttle_time_ms: i32,
    pub(super) latency: Duration,
    pub(super) partitions: Vec<(Partition, PartitionData)>,
}

/// The fetched data of one partition, partly returned. Counted in the metrics when all of it is.
pub(super) struct HeldFetch {
    pub(super) fetch: CompletedFetch,
    pub(super) topic: Arc<str>,
    pub(super) tally: Arc<RequestTally>,
}

impl Drop for HeldFetch {
    fn drop(&mut self) {
        self.tally.on_drained(&self.topic, self.fetch.handed_out());
    }
}
