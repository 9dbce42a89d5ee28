//! When a connection gives up the memory of a request, because other requests wait for it.

use std::future::pending;
use std::time::Duration;

use crate::decoded_memory::DecodedPart;
use crate::request_memory::RequestMemory;

/// If other requests wait for memory, a peer is disconnected when it has sent nothing for this time
/// in the middle of a request, or has read almost nothing of its responses.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(10);

/// Completes when a request should give up its memory: it has been processed for a while, and other
/// requests wait for memory. A client can make a request wait for days (a long poll), and may have
/// sent more than needed.
pub(super) async fn held_for_long(
    frame: Option<&RequestMemory>,
    decoded: Option<(&RequestMemory, &DecodedPart)>,
) {
    if frame.is_none() && decoded.is_none() {
        return pending().await;
    }
    loop {
        ottla_sync::time::sleep(STALLED_AFTER).await;
        let decoded = decoded.filter(|(_, part)| part.is_held());
        let mut held = frame.into_iter().chain(decoded.map(|(memory, _)| memory));
        if held.any(RequestMemory::is_scarce) {
            return;
        }
    }
}

/// Completes when a request should give up its memory: nothing of it has arrived for a while, and
/// more than `itself` requests wait for memory. `itself` is 1 if this request is itself waiting.
pub(super) async fn stalled(budget: &RequestMemory, has_memory: bool, itself: usize) {
    if !has_memory {
        return pending().await;
    }
    loop {
        ottla_sync::time::sleep(STALLED_AFTER).await;
        if budget.waiting() > itself {
            return;
        }
    }
}
