//! The slowest requests of the last minutes, one by one.
//!
//! A request is kept if it took longer than the shortest of those that are kept, once there are
//! [`KEPT`]. So most requests cost one comparison. Each window keeps its own, and the
//! windows of the last [`WINDOWS`] are kept, so that the slow requests of a bad minute do not hide
//! those that follow it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use ottla_protocol::ApiKey;
use ottla_sync::Mutex;
use ottla_types::ErrorCode;

/// Requests of a window that are kept, and of all windows that are returned.
const KEPT: usize = 32;
/// Windows that are kept, with the current one. Each is as long as a window of the histograms.
const WINDOWS: usize = 4;
/// Below this time, a request is never slow.
const SLOW: Duration = Duration::from_millis(10);
/// Characters of a client ID or a principal that are kept.
const NAME_CHARS: usize = 200;

/// Who sent a request, and the error of its response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestOrigin {
    pub api_version: i16,
    /// Without one, it is empty.
    pub client_id: String,
    pub principal: String,
    pub peer: SocketAddr,
    /// The first error code of the response.
    pub error: ErrorCode,
}

/// One slow request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlowRequest {
    pub api_key: ApiKey,
    pub origin: RequestOrigin,
    /// When the last byte of the response was sent.
    pub sent: SystemTime,
    /// From the complete request to the last byte of the response.
    pub total: Duration,
    /// The broker processed the request.
    pub local: Duration,
    /// It waited for other brokers, for data, or for other members.
    pub remote: Duration,
    /// The response was complete, but not sent.
    pub response_send: Duration,
}

impl SlowRequest {
    /// The time by which requests are compared.
    fn counted(&self) -> Duration {
        counted(self.api_key, self.total, self.remote)
    }
}

/// How slow a request was: without the time in which it waited by design. A wait for other brokers
/// counts, as it tells that they are slow.
pub(crate) fn counted(api_key: ApiKey, total: Duration, remote: Duration) -> Duration {
    match api_key {
        ApiKey::Fetch | ApiKey::ShareFetch | ApiKey::JoinGroup | ApiKey::SyncGroup => {
            total.saturating_sub(remote)
        }
        _ => total,
    }
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

#[derive(Debug)]
pub(crate) struct SlowRequests {
    /// What a request must take to be kept, in microseconds.
    threshold_us: AtomicU64,
    /// The current window first.
    windows: Mutex<VecDeque<Vec<SlowRequest>>>,
}

impl Default for SlowRequests {
    fn default() -> Self {
        SlowRequests {
            threshold_us: AtomicU64::new(micros(SLOW)),
            windows: Mutex::new(VecDeque::new()),
        }
    }
}

impl SlowRequests {
    /// Whether a request that took this long is to be added.
    pub(crate) fn is_slow(&self, counted: Duration) -> bool {
        micros(counted) >= self.threshold_us.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, mut request: SlowRequest) {
        for name in [&mut request.origin.client_id, &mut request.origin.principal] {
            if let Some((end, _)) = name.char_indices().nth(NAME_CHARS) {
                name.truncate(end);
                name.shrink_to_fit();
            }
        }
        let mut windows = self.windows.lock();
        if windows.is_empty() {
            windows.push_front(Vec::new());
        }
        let current = &mut windows[0];
        current.push(request);
        if current.len() > KEPT {
            sort(current);
            current.truncate(KEPT);
        }
        if current.len() == KEPT {
            let shortest = current.iter().map(SlowRequest::counted).min();
            let threshold = shortest.map_or(0, micros) + 1;
            self.threshold_us.store(threshold, Ordering::Relaxed);
        }
    }

    /// The slowest first.
    pub(crate) fn slowest(&self) -> Vec<SlowRequest> {
        let mut all: Vec<SlowRequest> = self.windows.lock().iter().flatten().cloned().collect();
        sort(&mut all);
        all.truncate(KEPT);
        all
    }

    pub(crate) fn on_window_ended(&self) {
        let mut windows = self.windows.lock();
        windows.push_front(Vec::new());
        windows.truncate(WINDOWS);
        self.threshold_us.store(micros(SLOW), Ordering::Relaxed);
    }
}

fn sort(requests: &mut [SlowRequest]) {
    requests.sort_by_key(|it| std::cmp::Reverse(it.counted()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(api_key: ApiKey, total_ms: u64, remote_ms: u64) -> SlowRequest {
        SlowRequest {
            api_key,
            origin: RequestOrigin {
                api_version: 9,
                client_id: "é".repeat(NAME_CHARS + 1),
                principal: "User:alice".to_owned(),
                peer: SocketAddr::from(([127, 0, 0, 1], 9)),
                error: ErrorCode::None,
            },
            sent: SystemTime::UNIX_EPOCH,
            total: Duration::from_millis(total_ms),
            local: Duration::from_millis(total_ms - remote_ms),
            remote: Duration::from_millis(remote_ms),
            response_send: Duration::ZERO,
        }
    }

    /// As a connection does.
    fn offer(slow: &SlowRequests, request: SlowRequest) {
        if slow.is_slow(request.counted()) {
            slow.add(request);
        }
    }

    fn totals(slow: &SlowRequests) -> Vec<u128> {
        let slowest = slow.slowest();
        slowest.iter().map(|it| it.total.as_millis()).collect()
    }

    #[test]
    fn the_slowest_are_kept_in_their_order() {
        let slow = SlowRequests::default();
        for ms in 1..=100 {
            offer(&slow, request(ApiKey::Produce, ms, 0));
        }
        let expected: Vec<u128> = (69..=100).rev().collect();
        assert_eq!(totals(&slow), expected);
        assert!(!slow.is_slow(Duration::from_millis(68)));
        assert!(slow.is_slow(Duration::from_millis(70)));
    }

    #[test]
    fn a_fast_request_is_not_kept() {
        let slow = SlowRequests::default();
        offer(&slow, request(ApiKey::Produce, 9, 0));
        assert!(slow.slowest().is_empty());
    }

    #[test]
    fn a_wait_by_design_does_not_count() {
        let slow = SlowRequests::default();
        for api_key in [
            ApiKey::Fetch,
            ApiKey::ShareFetch,
            ApiKey::JoinGroup,
            ApiKey::SyncGroup,
        ] {
            offer(&slow, request(api_key, 30_000, 29_999));
        }
        assert!(slow.slowest().is_empty());
        // Its followers are slow.
        offer(&slow, request(ApiKey::Produce, 50, 49));
        offer(&slow, request(ApiKey::Fetch, 900, 880));
        assert_eq!(totals(&slow), [50, 900]);
    }

    #[test]
    fn slow_requests_do_not_hide_those_of_the_next_window_and_are_forgotten() {
        let slow = SlowRequests::default();
        for _ in 0..KEPT {
            offer(&slow, request(ApiKey::Produce, 5_000, 0));
        }
        slow.on_window_ended();
        offer(&slow, request(ApiKey::Produce, 20, 0));
        assert_eq!(totals(&slow), [5_000; KEPT]);
        for _ in 1..WINDOWS {
            slow.on_window_ended();
        }
        assert_eq!(totals(&slow), [20]);
        slow.on_window_ended();
        assert!(slow.slowest().is_empty());
    }

    #[test]
    fn long_names_are_cut() {
        let slow = SlowRequests::default();
        offer(&slow, request(ApiKey::Produce, 20, 0));
        let client_id = &slow.slowest()[0].origin.client_id;
        assert_eq!(client_id.chars().count(), NAME_CHARS);
        // With the memory of the rest.
        let kept = slow.windows.lock()[0][0].origin.client_id.capacity();
        assert!(kept <= 2 * NAME_CHARS, "{kept}");
    }
}
