//! Encodes a response: length, header, body.

use ottla_protocol::messages::ResponseHeader;
use ottla_protocol::{ApiKey, EncodeError, Encoded, Encoder, Message};

/// Encodes the response to a request of this API, version and correlation ID.
pub fn encode_response<M: Message>(
    api_key: ApiKey,
    version: i16,
    correlation_id: i32,
    response: &M,
) -> Result<Encoded, EncodeError> {
    let mut encoder = start(api_key, version, correlation_id)?;
    response.encode(&mut encoder, version)?;
    with_length(encoder)
}

/// Encodes what precedes the body. Not generic, because each handler has a copy of [`encode_response`].
fn start(api_key: ApiKey, version: i16, correlation_id: i32) -> Result<Encoder, EncodeError> {
    let header = ResponseHeader {
        correlation_id,
        ..Default::default()
    };
    let mut encoder = Encoder::new();
    // A placeholder: the length is known only after the body is encoded.
    encoder.i32(0);
    header.encode(&mut encoder, api_key.response_header_version(version))?;
    Ok(encoder)
}

/// Encodes bytes without a header, preceded by their length.
pub(crate) fn encode_token(token: &[u8]) -> Result<Encoded, EncodeError> {
    let mut encoder = Encoder::new();
    encoder.i32(0);
    encoder.raw(token);
    with_length(encoder)
}

/// Writes the length into the four bytes at the start.
fn with_length(mut encoder: Encoder) -> Result<Encoded, EncodeError> {
    let length = i32::try_from(encoder.len() - 4).map_err(|_| EncodeError::TooLong {
        length: encoder.len() as usize,
    })?;
    encoder.overwrite_start(length);
    Ok(encoder.finish())
}
