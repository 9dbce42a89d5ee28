//! Encodes a response: length, header, body.

use bytes::BytesMut;
use ottla_protocol::messages::ResponseHeader;
use ottla_protocol::{ApiKey, Chunk, EncodeError, Encoded, Encoder, Message};

/// Encodes the response to a request of this API, version and correlation ID.
pub fn encode_response<M: Message>(
    api_key: ApiKey,
    version: i16,
    correlation_id: i32,
    response: &M,
) -> Result<Encoded, EncodeError> {
    let header = ResponseHeader {
        correlation_id,
        ..Default::default()
    };
    let mut encoder = Encoder::new();
    // A placeholder: the length is known only after the body is encoded.
    encoder.i32(0);
    header.encode(&mut encoder, api_key.response_header_version(version))?;
    response.encode(&mut encoder, version)?;
    with_length(encoder.finish())
}

/// Encodes bytes without a header, preceded by their length.
pub(crate) fn encode_token(token: &[u8]) -> Result<Encoded, EncodeError> {
    let mut encoder = Encoder::new();
    encoder.i32(0);
    encoder.raw(token);
    with_length(encoder.finish())
}

/// Writes the length into the four bytes at the start of the first buffer.
fn with_length(mut encoded: Encoded) -> Result<Encoded, EncodeError> {
    let length = i32::try_from(encoded.len() - 4).map_err(|_| EncodeError::TooLong {
        length: encoded.len() as usize,
    })?;
    let Some(Chunk::Bytes(first)) = encoded.chunks.first_mut() else {
        unreachable!("a response starts with its length");
    };
    let mut bytes = match std::mem::take(first).try_into_mut() {
        Ok(own) => own,
        Err(shared) => BytesMut::from(shared),
    };
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    *first = bytes.freeze();
    Ok(encoded)
}
