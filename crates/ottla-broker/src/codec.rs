//! The bodies of requests and responses: bytes to messages and back.

use ottla_net::{RequestContext, RequestError, encode_response};
use ottla_protocol::{EncodeError, Encoded, Message, Reader};

use crate::Broker;

/// Reads the body of a request. Bytes that follow it are not looked at, as in Kafka: librdkafka sends some.
pub(crate) fn decode<M: Message>(
    context: &RequestContext,
    reader: &mut Reader,
) -> Result<M, RequestError> {
    let message = M::decode(reader, context.api_version).map_err(RequestError::Malformed)?;
    if let Some(part) = &context.decoded {
        part.keep(reader.allowance_used());
    }
    Ok(message)
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
    encode_response(context.api_key, version, context.correlation_id, response)
        .map_err(unanswerable)
}
