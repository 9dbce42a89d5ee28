//! What requests take once they are decoded.
//!
//! A frame of 100 MB can be an array of empty elements, and the structs of those thirty times as large. So what a request
//! may take is bounded by its size (`ottla_protocol::fair_allowance`) and by a budget that all share; bytes that
//! would take more are no request. A request of some size waits for as much of the budget as it may take at most, and
//! gives back what it does not need once it is decoded.
//!
//! A Produce is nearly all records, which stay slices of its frame. It takes nothing from the budget, unless it names
//! unusually many partitions for its size. Requests of other nodes on a controller's listener wait for nothing.

use std::sync::Arc;

use ottla_protocol::{ApiKey, fair_allowance};
use ottla_sync::{Mutex, OwnedSemaphorePermit};

use crate::request_memory::RequestMemory;

/// Smaller requests take nothing from the budget, as they take nothing from that of frames.
const BUDGETED_BYTES: usize = 16 * 1024;
/// What a Produce may take beside a share of its bytes: some hundred partitions.
const LEAST_OF_PRODUCE: usize = 64 * 1024;

/// The budget, in two halves: a request that may take little never waits for one that waits for much. Otherwise an
/// acknowledgement could wait for a follower's Fetch, the Fetch for a request that wants the whole budget, and that one
/// for the request that waits for the acknowledgement.
#[derive(Debug)]
pub struct DecodedMemory {
    small: RequestMemory,
    large: RequestMemory,
}

impl DecodedMemory {
    pub(crate) fn new(bytes: usize) -> Self {
        DecodedMemory {
            small: RequestMemory::new(bytes / 2),
            large: RequestMemory::new(bytes / 2),
        }
    }

    /// The most that one request may take.
    pub(crate) fn most_bytes(&self) -> usize {
        self.large.total_bytes()
    }

    /// What nobody has taken.
    pub fn available_bytes(&self) -> usize {
        self.small.available_bytes() + self.large.available_bytes()
    }

    /// The half that a request takes its part from.
    pub(crate) fn half_for(&self, allowance: Allowance) -> &RequestMemory {
        match allowance.bytes <= self.small.total_bytes() / 4 {
            true => &self.small,
            false => &self.large,
        }
    }
}

/// The part that one request has of the budget; given back when it is dropped.
#[derive(Debug)]
pub struct DecodedPart(Mutex<OwnedSemaphorePermit>);

impl DecodedPart {
    pub(crate) async fn take(memory: &RequestMemory, bytes: usize) -> Arc<DecodedPart> {
        Arc::new(DecodedPart(Mutex::new(memory.take(bytes).await)))
    }

    /// The request is decoded and has taken so much.
    pub fn keep(&self, bytes: usize) {
        RequestMemory::keep(&mut self.0.lock(), bytes);
    }
}

/// What a request may take, and whether it has to be taken from the budget first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allowance {
    pub bytes: usize,
    pub is_budgeted: bool,
}

impl Allowance {
    /// Of a request of so many bytes.
    pub fn of(
        api_key: ApiKey,
        request_bytes: usize,
        is_controller: bool,
        all_bytes: usize,
    ) -> Self {
        match api_key {
            ApiKey::Produce => Allowance {
                bytes: LEAST_OF_PRODUCE + request_bytes / 4,
                is_budgeted: false,
            },
            _ => Allowance {
                bytes: at_most(request_bytes, all_bytes),
                is_budgeted: request_bytes >= BUDGETED_BYTES && !is_controller,
            },
        }
    }

    /// Of a Produce for which the first was too little.
    pub fn of_many_partitions(request_bytes: usize, all_bytes: usize) -> Self {
        Allowance {
            bytes: at_most(request_bytes, all_bytes),
            is_budgeted: true,
        }
    }
}

/// The whole budget, unless that is less than what small requests may take anyway.
fn at_most(request_bytes: usize, all_bytes: usize) -> usize {
    fair_allowance(request_bytes).min(all_bytes.max(fair_allowance(BUDGETED_BYTES)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_small_request_does_not_wait_for_one_that_waits_for_the_whole_budget() {
        const KIB: usize = 1024;
        let memory = DecodedMemory::new(1024 * KIB);
        let allowance = |bytes| Allowance::of(ApiKey::Fetch, bytes, false, memory.most_bytes());
        let part = async |request_bytes: usize| {
            let allowance = allowance(request_bytes);
            DecodedPart::take(memory.half_for(allowance), allowance.bytes).await
        };
        let waiting_for_a_follower = part(100 * KIB).await;
        waiting_for_a_follower.keep(10 * KIB);
        let all = part(1024 * KIB);
        tokio::pin!(all);
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, &mut all).await.is_err());
        let of_the_follower = tokio::time::timeout(soon, part(8 * KIB)).await;
        assert!(of_the_follower.is_ok());
        drop(waiting_for_a_follower);
        all.await;
    }

    #[test]
    fn a_request_may_take_a_multiple_of_its_bytes_and_no_more_than_there_is() {
        const MIB: usize = 1 << 20;
        let of = |bytes| Allowance::of(ApiKey::Metadata, bytes, false, 8 * MIB);
        let allowance = |bytes, is_budgeted| Allowance { bytes, is_budgeted };
        assert_eq!(of(100), allowance(64 * 1024, false));
        assert_eq!(of(100 * 1024), allowance(1_600 * 1024, true));
        assert_eq!(of(100 * MIB), allowance(8 * MIB, true));
        let of_peer = Allowance::of(ApiKey::Fetch, MIB, true, 8 * MIB);
        assert_eq!(of_peer, allowance(8 * MIB, false));
        let produce = Allowance::of(ApiKey::Produce, 4 * MIB, false, 8 * MIB);
        assert_eq!(produce, allowance(MIB + 64 * 1024, false));
        let of_many = Allowance::of_many_partitions(MIB / 4, 8 * MIB);
        assert_eq!(of_many, allowance(4 * MIB, true));
    }
}
