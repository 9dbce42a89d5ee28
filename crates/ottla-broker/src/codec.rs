//! The bodies of requests and responses: bytes to messages and back.

use ottla_net::{RequestContext, RequestError};
use ottla_protocol::messages::ResponseHeader;
use ottla_protocol::{Chunk, EncodeError, Encoded, Encoder, Message, Reader};

use crate::Broker;

/// Reads the body of a request. Bytes that follow it are not looked at, as in Kafka: librdkafka sends some.
pub(crate) fn decode<M: Message>(
    context: &RequestContext,
    reader: &mut Reader,
) -> Result<M, RequestError> {
    M::decode(reader, context.api_version).map_err(RequestError::Malformed)
}

/// A response in the version of its request, with length and header in front. Its errors are counted.
pub(crate) fn encode<M: Message>(
    broker: &Broker,
    context: &RequestContext,
    response: &M,
) -> Result<Encoded, RequestError> {
    encode_in_version(broker, context, response, context.api_version)
}

/// The same in another version.
pub(crate) fn encode_in_version<M: Message>(
    broker: &Broker,
    context: &RequestContext,
    response: &M,
    version: i16,
) -> Result<Encoded, RequestError> {
    let unanswerable = |error: EncodeError| {
        let api = context.api_key.name();
        RequestError::Unanswerable(format!("{api} response in version {version}: {error}"))
    };
    let requests = broker.context.metrics.requests();
    requests.on_errors(context.api_key, response, version);
    let header = ResponseHeader {
        correlation_id: context.correlation_id,
        ..Default::default()
    };
    let mut encoder = Encoder::new();
    // The length is not known yet: its bytes are put in when everything stands.
    encoder.i32(0);
    let header_version = context.api_key.response_header_version(version);
    header
        .encode(&mut encoder, header_version)
        .map_err(unanswerable)?;
    response
        .encode(&mut encoder, version)
        .map_err(unanswerable)?;
    let mut encoded = encoder.finish();
    let length = i32::try_from(encoded.len() - 4).map_err(|_| {
        unanswerable(EncodeError::TooLong {
            length: encoded.len() as usize,
        })
    })?;
    set_length(&mut encoded, length);
    Ok(encoded)
}

/// Puts the length in front of a response, whose first buffer starts with room for it.
fn set_length(encoded: &mut Encoded, length: i32) {
    let Some(Chunk::Bytes(first)) = encoded.chunks.first_mut() else {
        unreachable!("a response starts with its header");
    };
    let mut bytes = match std::mem::take(first).try_into_mut() {
        Ok(own) => own,
        Err(shared) => bytes::BytesMut::from(shared),
    };
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    *first = bytes.freeze();
}
