//! The interface that the network layer calls for each request: its only dependency on the meaning
//! of requests.
//!
//! The broker implements it (`dispatch`, `api`). A connection deals with frames, order and budgets,
//! and knows nothing of any API except which ones need special treatment.

use std::pin::Pin;
use std::sync::Arc;

use ottla_protocol::{ApiKey, DecodeError, Encoded, Reader};
use ottla_types::ErrorCode;

use crate::connections::Connection;
use crate::request_context::RequestContext;

/// Serves the requests that connections read.
pub trait Service: Send + Sync + 'static {
    /// Starts a Produce, the only request that may start before earlier requests of its kind are
    /// answered. Does not wait: before it returns, or before the room of the answer is there
    /// ([`PendingAnswer::room`]), it reserves slots in the inboxes of the partitions, in the order of
    /// the calls.
    fn start_produce(
        self: &Arc<Self>,
        context: &RequestContext,
        reader: Reader,
    ) -> Result<Answer, RequestError>;

    /// Serves a request, after all earlier requests of the connection have been answered.
    fn handle(
        self: &Arc<Self>,
        context: &RequestContext,
        reader: Reader,
    ) -> impl Future<Output = Result<Answer, RequestError>> + Send;

    /// The error response, with `ILLEGAL_SASL_STATE`, to a request in the middle of a login that is not part of it.
    /// `None` if it gets none. Nobody has authenticated the peer, so this must take little time and memory.
    fn refuse_during_login(&self, request: MisplacedRequest) -> Option<Encoded>;

    /// A connection has ended. `by_peer`: the peer closed it, or it broke.
    fn on_disconnected(self: &Arc<Self>, connection: &Connection, by_peer: bool);
}

/// A request in the middle of a login that is not part of it.
#[derive(Debug)]
pub struct MisplacedRequest {
    pub api_key: ApiKey,
    pub api_version: i16,
    pub correlation_id: i32,
    pub body: Reader,
    /// A sentence for the client.
    pub reason: String,
}

/// A response that is not ready yet.
pub trait PendingAnswer: Send + Sync {
    fn is_ready(&self) -> bool;

    /// Returns the response once it is ready.
    fn take(&self) -> Result<Answer, RequestError>;

    /// Returns a future that completes when what this request met is over: a partition whose inbox is
    /// full, or metadata that has to be applied first. `None` if there is nothing to wait for. Until
    /// then the connection is not read, so that its requests keep their order.
    fn room(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>>;
}

/// The result of a request.
pub enum Answer {
    Response {
        encoded: Encoded,
        /// The first error code in it other than `NONE`, or `NONE`.
        error: ErrorCode,
    },
    /// The client expects no response.
    Nothing,
    Pending(Arc<dyn PendingAnswer>),
    /// There is no response, and the connection must be closed so that the peer notices.
    Close,
}

/// Why a request has no response. The connection is closed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("{0}")]
    Malformed(DecodeError),
    #[error("{} is not served in version {version}", api_key.name())]
    NotServed { api_key: ApiKey, version: i16 },
    /// A defect of this broker: the response cannot be encoded.
    #[error("{0}")]
    Unanswerable(String),
}
