//! What the network layer calls when a request has arrived: the only arrow from connections to what requests mean.
//!
//! The broker implements it (`dispatch`, `api`); a connection knows frames, order and budgets, and nothing of any API.

use std::pin::Pin;
use std::sync::Arc;

use ottla_protocol::{ApiKey, DecodeError, Encoded, Reader};

use crate::connections::Connection;
use crate::request_context::RequestContext;

/// Serves the requests that connections read.
pub trait Service: Send + Sync + 'static {
    /// Begins a Produce, the one request that may overtake an unanswered one of its kind. Does not wait: places in the
    /// partitions' inboxes are reserved before it returns, in the order of the calls.
    fn start_produce(
        self: &Arc<Self>,
        context: &RequestContext,
        reader: Reader,
    ) -> Result<Answer, RequestError>;

    /// Serves a request before which all others of the connection have been answered.
    fn handle(
        self: &Arc<Self>,
        context: &RequestContext,
        reader: Reader,
    ) -> impl Future<Output = Result<Answer, RequestError>> + Send;

    /// A connection has ended; `by_peer` where the peer closed it or it broke.
    fn on_disconnected(self: &Arc<Self>, connection: &Connection, by_peer: bool);
}

/// A response that may take a while.
pub trait PendingAnswer: Send + Sync {
    fn is_ready(&self) -> bool;

    /// The answer, once it is ready.
    fn take(&self) -> Result<Answer, RequestError>;

    /// Returns when the partition that this request found full has room again; `None` where it found none. Until then the
    /// connection is not read.
    fn room(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>>;
}

/// What a request leads to.
pub enum Answer {
    Response(Encoded),
    /// The client expects none.
    Nothing,
    Pending(Arc<dyn PendingAnswer>),
    /// Nothing can be answered, and the peer has to notice.
    Close,
}

/// Why a request has no answer; the connection is closed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("{0}")]
    Malformed(DecodeError),
    #[error("{} is not served in version {version}", api_key.name())]
    NotServed { api_key: ApiKey, version: i16 },
    /// Ours: the response cannot be encoded.
    #[error("{0}")]
    Unanswerable(String),
}
