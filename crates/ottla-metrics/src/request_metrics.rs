//! Requests by API and version, error codes, the time of each stage of a request, and the slowest
//! requests. Kafka: `RequestMetrics`, `RequestChannel.Request.updateRequestMetrics`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ottla_protocol::{ApiKey, Message};
use ottla_types::{ErrorCode, named_enum};

use crate::histogram::{Histogram, Summary};
use crate::sharded::Sharded;
use crate::slow_requests::{RequestOrigin, SlowRequest, SlowRequests, counted};

/// Exclusive upper bound of API keys.
const APIS: usize = 128;
/// Versions from this one on share one counter.
const VERSIONS: usize = 32;

/// Number of error codes, counted from -1.
const ERRORS: usize = 160;

/// When each stage of a request ended.
#[derive(Clone, Copy, Debug)]
pub struct RequestTimes {
    /// The request was fully read.
    pub received: Instant,
    /// The broker finished its local processing; the rest is waiting for other brokers or for data.
    pub handled: Instant,
    /// The response was complete.
    pub answered: Instant,
}

named_enum! {
    /// A stage of request processing, or the total, with the names of Kafka's metrics.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum RequestTime {
        Total => "TotalTimeMs",
        Local => "LocalTimeMs",
        Remote => "RemoteTimeMs",
        ResponseSend => "ResponseSendTimeMs",
    }
}

#[derive(Debug)]
struct VersionCounts([AtomicU64; VERSIONS]);

impl Default for VersionCounts {
    fn default() -> Self {
        VersionCounts([const { AtomicU64::new(0) }; VERSIONS])
    }
}

/// Counts by error code, starting at -1.
#[derive(Debug)]
struct ErrorCounts([AtomicU64; ERRORS]);

impl Default for ErrorCounts {
    fn default() -> Self {
        ErrorCounts([const { AtomicU64::new(0) }; ERRORS])
    }
}

impl ErrorCounts {
    fn of(&self, error: ErrorCode) -> &AtomicU64 {
        &self.0[(error.code() + 1) as usize]
    }
}

/// Counts the error codes of a response. Partitions usually share one error code, so a run of equal neighbours is one
/// addition.
struct ErrorCounter<'a> {
    counts: &'a ErrorCounts,
    code: i16,
    /// How often `code` was the last code.
    times: u64,
    /// The first code other than `NONE`, or `NONE`.
    first: i16,
}

impl ErrorCounter<'_> {
    fn count(&mut self, code: i16) {
        if code != self.code {
            self.end_run();
            (self.code, self.times) = (code, 0);
            if self.first == ErrorCode::None.code() {
                self.first = code;
            }
        }
        self.times += 1;
    }

    fn end_run(&self) {
        if self.times > 0 {
            let error = ErrorCode::from_code(self.code);
            self.counts
                .of(error)
                .fetch_add(self.times, Ordering::Relaxed);
        }
    }
}

/// The request metrics of one API.
#[derive(Debug, Default)]
pub struct ApiMetrics {
    versions: Sharded<VersionCounts>,
    errors: Sharded<ErrorCounts>,
    times: [Histogram; RequestTime::ALL.len()],
}

impl ApiMetrics {
    /// The versions that were requested, with their counts.
    pub fn requests_by_version(&self) -> Vec<(usize, u64)> {
        let count = |version: usize| -> u64 {
            let shards = self.versions.iter();
            shards
                .map(|counts| counts.0[version].load(Ordering::Relaxed))
                .sum()
        };
        (0..VERSIONS)
            .map(|version| (version, count(version)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// The error codes that were returned, `NONE` included, with their counts.
    pub fn errors(&self) -> Vec<(ErrorCode, u64)> {
        let count = |error: ErrorCode| -> u64 {
            let shards = self.errors.iter();
            shards
                .map(|counts| counts.of(error).load(Ordering::Relaxed))
                .sum()
        };
        let errors = ErrorCode::ALL.iter();
        errors
            .map(|&error| (error, count(error)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    pub fn time(&self, time: RequestTime) -> Summary {
        self.times[time as usize].summary()
    }
}

/// Request metrics of all APIs. An API's metrics are allocated at its first request.
#[derive(Debug)]
pub struct RequestMetrics {
    /// By API key.
    apis: [OnceLock<Box<ApiMetrics>>; APIS],
    slow: SlowRequests,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        RequestMetrics {
            apis: [const { OnceLock::new() }; APIS],
            slow: SlowRequests::default(),
        }
    }
}

impl RequestMetrics {
    pub fn on_received(&self, api_key: ApiKey, version: i16) {
        let version = usize::try_from(version).unwrap_or(0).min(VERSIONS - 1);
        let counts = self.api(api_key).versions.of_this_thread();
        counts.0[version].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the error codes of a response, and returns the first other than `NONE`, or `NONE`.
    /// Kafka: `RequestChannel.updateErrorMetrics`.
    pub fn on_errors(&self, api_key: ApiKey, response: &impl Message, version: i16) -> ErrorCode {
        let none = ErrorCode::None.code();
        let mut counter = ErrorCounter {
            counts: self.api(api_key).errors.of_this_thread(),
            code: none,
            times: 0,
            first: none,
        };
        response.for_each_error_code(version, &mut |code| counter.count(code));
        counter.end_run();
        ErrorCode::from_code(counter.first)
    }

    /// The kernel accepted the last byte of the response. `origin` is called if the request was slow.
    pub fn on_sent(
        &self,
        api_key: ApiKey,
        times: RequestTimes,
        sent: Instant,
        origin: impl FnOnce() -> RequestOrigin,
    ) {
        let RequestTimes {
            received,
            handled,
            answered,
        } = times;
        let between = |from: Instant, to: Instant| to.saturating_duration_since(from);
        let parts: [Duration; RequestTime::ALL.len()] = [
            between(received, sent),
            between(received, handled),
            between(handled, answered),
            between(answered, sent),
        ];
        for (histogram, part) in self.api(api_key).times.iter().zip(parts) {
            histogram.record(part);
        }
        let [total, local, remote, response_send] = parts;
        if self.slow.is_slow(counted(api_key, total, remote)) {
            self.slow.add(SlowRequest {
                api_key,
                origin: origin(),
                sent: ottla_sync::time::wall_clock(),
                total,
                local,
                remote,
                response_send,
            });
        }
    }

    /// The slowest requests of the last minutes, the slowest first.
    pub fn slowest(&self) -> Vec<SlowRequest> {
        self.slow.slowest()
    }

    pub fn on_window_ended(&self) {
        for (_, api) in self.apis() {
            for histogram in &api.times {
                histogram.on_window_ended();
            }
        }
        self.slow.on_window_ended();
    }

    /// The APIs that were requested at least once, with their metrics.
    pub fn apis(&self) -> impl Iterator<Item = (ApiKey, &ApiMetrics)> {
        let of_api =
            |&api_key: &ApiKey| Some((api_key, &**self.apis[api_key.code() as usize].get()?));
        ApiKey::ALL.iter().filter_map(of_api)
    }

    fn api(&self, api_key: ApiKey) -> &ApiMetrics {
        self.apis[api_key.code() as usize].get_or_init(Box::default)
    }
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
    use ottla_protocol::messages::{ApiVersionsResponse, FetchResponse};

    use super::*;

    #[test]
    fn every_api_has_a_place() {
        let metrics = RequestMetrics::default();
        for &api_key in ApiKey::ALL {
            metrics.on_received(api_key, 3);
            metrics.on_received(api_key, i16::MAX);
        }
        assert_eq!(metrics.apis().count(), ApiKey::ALL.len());
        for (_, api) in metrics.apis() {
            assert_eq!(api.requests_by_version(), [(3, 1), (VERSIONS - 1, 1)]);
        }
    }

    #[test]
    fn every_error_has_a_place() {
        let metrics = RequestMetrics::default();
        let mut expected = Vec::new();
        for &error in ErrorCode::ALL {
            let response = ApiVersionsResponse {
                error_code: error.code(),
                ..Default::default()
            };
            let first = metrics.on_errors(ApiKey::ApiVersions, &response, 3);
            assert_eq!(first, error);
            expected.push((error, 1));
        }
        let (_, api) = metrics.apis().next().expect("it was counted");
        assert_eq!(api.errors(), expected);
    }

    #[test]
    fn the_errors_of_all_partitions_are_counted() {
        let codes = [
            ErrorCode::None,
            ErrorCode::None,
            ErrorCode::NotLeaderOrFollower,
            ErrorCode::None,
            ErrorCode::UnknownTopicId,
        ];
        let response = FetchResponse {
            responses: vec![FetchableTopicResponse {
                partitions: codes
                    .map(|code| PartitionData {
                        error_code: code.code(),
                        ..Default::default()
                    })
                    .into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let metrics = RequestMetrics::default();
        let first = metrics.on_errors(ApiKey::Fetch, &response, 12);
        assert_eq!(first, ErrorCode::NotLeaderOrFollower);
        let (_, api) = metrics.apis().next().expect("it was counted");
        // From version 7 on, the top-level error code counts too.
        let expected = [
            (ErrorCode::None, 4),
            (ErrorCode::NotLeaderOrFollower, 1),
            (ErrorCode::UnknownTopicId, 1),
        ];
        assert_eq!(api.errors(), expected);
        metrics.on_errors(ApiKey::Fetch, &FetchResponse::default(), 6);
        let (_, api) = metrics.apis().next().expect("it was counted");
        assert_eq!(api.errors(), expected);
    }

    #[test]
    fn the_parts_of_a_request_add_up() {
        let metrics = RequestMetrics::default();
        let received = ottla_sync::time::now();
        let at = |ms| received + Duration::from_millis(ms);
        let times = RequestTimes {
            received,
            handled: at(1),
            answered: at(8),
        };
        let origin = || RequestOrigin {
            api_version: 9,
            client_id: "producer-1".to_owned(),
            principal: "User:alice".to_owned(),
            peer: ([127, 0, 0, 1], 9).into(),
            error: ErrorCode::None,
        };
        metrics.on_sent(ApiKey::Produce, times, at(12), origin);
        let (_, api) = metrics.apis().next().expect("Produce was counted");
        let sums = RequestTime::ALL.map(|time| api.time(time).sum_ms);
        assert_eq!(sums, [12.0, 1.0, 7.0, 4.0]);
        let slowest = metrics.slowest();
        let [slow] = slowest.as_slice() else {
            panic!("one slow request: {slowest:?}")
        };
        let parts = [slow.total, slow.local, slow.remote, slow.response_send];
        assert_eq!(parts.map(|part| part.as_millis()), [12, 1, 7, 4]);
        assert_eq!(slow.origin, origin());
    }
}
