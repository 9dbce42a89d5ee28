//! The memory of decoded requests.
//!
//! A frame of 100 MB can be an array of empty elements, whose structs take thirty times as much.
//! Therefore the memory of a decoded request is limited by its size
//! (`ottla_protocol::fair_allowance`) and by a budget that all requests share. Bytes that would
//! need more are rejected as malformed. A request of more than `BUDGETED_BYTES` reserves the
//! maximum that it may use, and returns the surplus once it is decoded.
//!
//! A Produce consists almost entirely of records, which stay slices of its frame. It reserves
//! nothing from the budget, unless it names unusually many partitions for its size. Requests of
//! other nodes on a controller listener never wait.

use std::sync::Arc;

use ottla_protocol::{ApiKey, fair_allowance};
use ottla_sync::{Mutex, OwnedSemaphorePermit};

use crate::request_memory::RequestMemory;

/// Smaller requests reserve nothing here, as they reserve nothing from the budget for frames.
const BUDGETED_BYTES: usize = 16 * 1024;
/// The memory that a Produce may use in addition to a share of its bytes: enough for some hundred
/// partitions.
const LEAST_OF_PRODUCE: usize = 64 * 1024;

/// The budget, in two halves, so that a small request never waits for a large one. Otherwise there
/// could be a cycle: an acknowledgement waits for a follower's Fetch, the Fetch waits for a request
/// that needs the whole budget, and that request waits for the memory of the unacknowledged
/// Produce.
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

    /// The maximum for a single request.
    pub(crate) fn most_bytes(&self) -> usize {
        self.large.total_bytes()
    }

    /// The part of the budget that is not reserved.
    pub fn available_bytes(&self) -> usize {
        self.small.available_bytes() + self.large.available_bytes()
    }

    /// The half that a request with this allowance reserves from.
    pub(crate) fn half_for(&self, allowance: Allowance) -> &RequestMemory {
        match allowance.bytes <= self.small.total_bytes() / 4 {
            true => &self.small,
            false => &self.large,
        }
    }
}

/// The reservation of one request. Returned when dropped.
#[derive(Debug)]
pub struct DecodedPart(Mutex<OwnedSemaphorePermit>);

impl DecodedPart {
    pub(crate) async fn take(memory: &RequestMemory, bytes: usize) -> Arc<DecodedPart> {
        Arc::new(DecodedPart(Mutex::new(memory.take(bytes).await)))
    }

    /// Reduces the reservation to the bytes that the decoded request uses.
    pub fn keep(&self, bytes: usize) {
        RequestMemory::keep(&mut self.0.lock(), bytes);
    }

    /// Returns the reservation: nothing is left of the decoded request, and its answer may take long.
    pub fn release(&self) {
        self.keep(0);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.0.lock().num_permits() > 0
    }
}

/// The memory that a decoded request may use, and whether it must be reserved first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allowance {
    pub bytes: usize,
    pub is_budgeted: bool,
}

impl Allowance {
    /// The allowance of a request of `request_bytes`.
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
            // Its strings and bytes are copied, which takes at most its own size.
            _ => Allowance {
                bytes: at_most(request_bytes, all_bytes) + request_bytes,
                is_budgeted: request_bytes >= BUDGETED_BYTES && !is_controller,
            },
        }
    }

    /// The allowance of a Produce that exceeded the regular one.
    pub fn of_many_partitions(request_bytes: usize, all_bytes: usize) -> Self {
        Allowance {
            bytes: at_most(request_bytes, all_bytes),
            is_budgeted: true,
        }
    }
}

/// At most the whole budget, but never less than small requests may use without a reservation.
fn at_most(request_bytes: usize, all_bytes: usize) -> usize {
    fair_allowance(request_bytes).min(all_bytes.max(fair_allowance(BUDGETED_BYTES)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_small_request_does_not_wait_for_a_large_one() {
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
        let of_the_follower = tokio::time::timeout(soon, part(7 * KIB)).await;
        assert!(of_the_follower.is_ok());
        drop(waiting_for_a_follower);
        all.await;
    }

    #[tokio::test]
    async fn released_memory_is_available_before_the_response() {
        let memory = DecodedMemory::new(1 << 20);
        let all = memory.available_bytes();
        let part = DecodedPart::take(&memory.small, 64 * 1024).await;
        part.keep(20_000);
        assert!(part.is_held() && memory.available_bytes() < all);
        part.release();
        assert!(!part.is_held());
        assert_eq!(memory.available_bytes(), all);
    }

    #[test]
    fn an_allowance_is_a_multiple_of_the_size_and_at_most_the_budget() {
        const MIB: usize = 1 << 20;
        let of = |bytes| Allowance::of(ApiKey::Metadata, bytes, false, 8 * MIB);
        let allowance = |bytes, is_budgeted| Allowance { bytes, is_budgeted };
        assert_eq!(of(100), allowance(64 * 1024 + 100, false));
        assert_eq!(of(100 * 1024), allowance(1_700 * 1024, true));
        assert_eq!(of(100 * MIB), allowance(108 * MIB, true));
        let of_peer = Allowance::of(ApiKey::Fetch, MIB, true, 8 * MIB);
        assert_eq!(of_peer, allowance(9 * MIB, false));
        let produce = Allowance::of(ApiKey::Produce, 4 * MIB, false, 8 * MIB);
        assert_eq!(produce, allowance(MIB + 64 * 1024, false));
        let of_many = Allowance::of_many_partitions(MIB / 4, 8 * MIB);
        assert_eq!(of_many, allowance(4 * MIB, true));
    }
}
