//! Decodes request bodies and encodes responses.

use ottla_net::{Answer, RequestContext, RequestError, encode_response};
use ottla_protocol::{EncodeError, Encoded, Message, Reader};
use ottla_types::ErrorCode;

use crate::Broker;

/// Decodes the body of a request. Ignores trailing bytes, as Kafka does, because librdkafka sends
/// some.
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

/// Encodes a response in the version of its request, with length and header. Counts its error
/// codes.
pub(crate) fn encode<M: Message>(
    broker: &Broker,
    context: &RequestContext,
    response: &M,
) -> Result<Answer, RequestError> {
    encode_in_version(broker, context, response, context.api_version)
}

/// Like [`encode`], in another version.
pub(crate) fn encode_in_version<M: Message>(
    broker: &Broker,
    context: &RequestContext,
    response: &M,
    version: i16,
) -> Result<Answer, RequestError> {
    let requests = broker.context.metrics.requests();
    let error = requests.on_errors(context.api_key, response, version);
    let encoded = encode_response(context.api_key, version, context.correlation_id, response);
    answer(context, version, encoded, error)
}

/// Not generic, because each handler has a copy of [`encode`].
fn answer(
    context: &RequestContext,
    version: i16,
    encoded: Result<Encoded, EncodeError>,
    error: ErrorCode,
) -> Result<Answer, RequestError> {
    match encoded {
        Ok(encoded) => Ok(Answer::Response { encoded, error }),
        Err(reason) => {
            let api = context.api_key.name();
            let reason = format!("{api} response in version {version}: {reason}");
            Err(RequestError::Unanswerable(reason))
        }
    }
}
