//! What a leader answered to the fetch of a follower.

use ottla_records::legacy::AnyBatch;
use ottla_replica::{EpochEnd, FetchPosition};
use ottla_types::{ErrorCode, Offset};

/// What a leader answered to an order.
#[derive(Debug)]
pub struct LeaderAnswer {
    pub order: FetchPosition,
    pub result: Result<Answered, ErrorCode>,
}

#[derive(Debug)]
pub enum Answered {
    /// Checksums verified.
    Records {
        batches: Vec<AnyBatch>,
        high_watermark: Offset,
        log_start_offset: Offset,
    },
    Diverging(EpochEnd),
}

impl LeaderAnswer {
    pub fn size_in_bytes(&self) -> usize {
        match &self.result {
            Ok(Answered::Records { batches, .. }) => {
                batches.iter().map(AnyBatch::size_in_bytes).sum()
            }
            Ok(Answered::Diverging(_)) | Err(_) => 0,
        }
    }
}
