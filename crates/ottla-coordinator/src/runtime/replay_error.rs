//! Why a log cannot be loaded into a coordinator.

use ottla_protocol::DecodeError;
use ottla_types::Offset;
use thiserror::Error;

/// A record of the log cannot be decoded, so the partition cannot be served.
#[derive(Debug, Error)]
pub enum ReplayError {
    #[error("the key of the record at offset {offset} cannot be read: {error}")]
    Key { offset: Offset, error: DecodeError },
    #[error("the value of the record at offset {offset} cannot be read: {error}")]
    Value { offset: Offset, error: DecodeError },
    #[error("the record at offset {offset} {what}")]
    Invalid { offset: Offset, what: String },
}
