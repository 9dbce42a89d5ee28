//! A leader's response to a follower's fetch of one partition.

use ottla_records::legacy::AnyBatch;
use ottla_replica::{EpochEnd, FetchPosition};
use ottla_types::{ErrorCode, Offset};

/// A leader's response for one partition.
#[derive(Debug)]
pub struct LeaderAnswer {
    pub order: FetchPosition,
    pub result: Result<Answered, ErrorCode>,
}

#[derive(Debug)]
pub enum Answered {
    /// The batches' checksums are verified.
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
