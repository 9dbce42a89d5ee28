//! A request between its processing and the last byte of its response.

use std::time::Instant;

use ottla_metrics::request_metrics::{RequestMetrics, RequestTimes};
use ottla_metrics::slow_requests::RequestOrigin;
use ottla_protocol::ApiKey;
use ottla_types::ErrorCode;

use super::last_client_id::LastClientId;
use crate::connections::Connection;
use crate::request_memory::Covered;
use crate::service::Answer;

/// An unanswered request.
pub(super) struct InFlight {
    pub(super) api_key: ApiKey,
    pub(super) api_version: i16,
    pub(super) received: Instant,
    pub(super) handled: Instant,
    pub(super) answer: Answer,
    pub(super) bytes: usize,
    pub(super) _memory: Option<Covered>,
}

/// An answered request, whose response may not be sent yet.
pub(super) struct AnsweredRequest {
    pub(super) api_key: ApiKey,
    pub(super) api_version: i16,
    pub(super) times: RequestTimes,
    /// The first error code of the response.
    pub(super) error: ErrorCode,
}

impl AnsweredRequest {
    /// The kernel accepted the last byte of the response, or there is none. The principal and the client
    /// ID are those of the connection now: a new login waits for all answers, and clients do not change
    /// their ID.
    pub(super) fn on_sent(
        &self,
        sent: Instant,
        connection: &Connection,
        client_id: &LastClientId,
        metrics: &RequestMetrics,
    ) {
        metrics.on_sent(self.api_key, self.times, sent, || RequestOrigin {
            api_version: self.api_version,
            client_id: client_id.text().to_owned(),
            principal: connection.identity().principal.to_string(),
            peer: connection.peer_addr,
            error: self.error,
        });
    }
}
