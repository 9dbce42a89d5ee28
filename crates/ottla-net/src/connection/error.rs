//! Why a connection ends.

use std::io;

use ottla_protocol::DecodeError;

use super::scarce_memory::STALLED_AFTER;
use crate::frame::FrameError;
use crate::service::RequestError;

/// Why this node ends a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("closed by the broker")]
    Closed,
    /// Logged where it happened.
    #[error("the peer could not log in")]
    Unauthenticated,
    #[error("{0}")]
    Login(String),
    #[error(
        "its request has been incomplete for {STALLED_AFTER:?}, and other connections wait for memory"
    )]
    Stalled,
    #[error(
        "its request has waited for {STALLED_AFTER:?}, and other connections wait for its memory"
    )]
    Holding,
    #[error("it reads almost nothing of its responses, and other connections wait for memory")]
    SlowReader,
}

impl From<DecodeError> for ConnectionError {
    fn from(error: DecodeError) -> Self {
        ConnectionError::Request(RequestError::Malformed(error))
    }
}
