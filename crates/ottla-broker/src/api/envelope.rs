//! Envelope (KIP-590): a broker forwards a client's request to the active controller.
//!
//! The embedded request is answered as if the client had sent it to this listener: with the
//! principal and address in the envelope, and the client's permissions instead of the broker's. An
//! envelope may contain only forwardable requests, and no envelope.
//!
//! Kafka: `EnvelopeUtils.handleEnvelopeRequest`, `RequestChannel.Request.buildResponseSend`.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Buf;
use ottla_protocol::messages::{EnvelopeRequest, EnvelopeResponse, RequestHeader};
use ottla_protocol::{ApiKey, ErrorResponse, Message, Reader};
use ottla_types::ErrorCode;

use ottla_net::{Answer, ClientIdentity, RequestContext, RequestError};
use ottla_security::Principal;

use crate::Broker;

/// Returns the embedded request and the context of its client.
pub(crate) fn open(
    broker: &Broker,
    context: &RequestContext,
    request: EnvelopeRequest,
) -> Result<(RequestContext, Reader), ErrorCode> {
    broker.authorize(context)?;
    // The sender then looks for the active controller.
    if !broker
        .node
        .quorum()
        .is_some_and(|quorum| quorum.status().is_active)
    {
        return Err(ErrorCode::NotController);
    }
    let address = address(&request.client_host_address).ok_or(ErrorCode::InvalidRequest)?;
    // Without a principal, the request could not be authorised.
    let principal = request.request_principal.clone();
    let principal = principal
        .and_then(Principal::from_bytes)
        .ok_or(ErrorCode::PrincipalDeserializationFailure)?;
    let (header, reader) = read_header(request).ok_or(ErrorCode::UnsupportedVersion)?;
    let api_key = ApiKey::from_code(header.request_api_key)
        .filter(|key| key.is_forwardable())
        .ok_or(ErrorCode::InvalidRequest)?;
    let forwarded = RequestContext {
        api_key,
        api_version: header.request_api_version,
        correlation_id: header.correlation_id,
        client_id: header.client_id,
        connection: Arc::clone(&context.connection),
        identity: Arc::new(ClientIdentity::new(principal, address)),
        is_forwarded: true,
        request_bytes: context.request_bytes,
        mutation_quota: None,
        received_at_ms: context.received_at_ms,
        decoded: None,
        waited: Default::default(),
        remote_memory: Default::default(),
    };
    Ok((forwarded, reader))
}

/// The response to the embedded request, in an envelope.
pub(crate) fn seal(answered: Result<Answer, RequestError>) -> EnvelopeResponse {
    match answered {
        Ok(Answer::Response { encoded, .. }) => {
            let mut bytes = encoded.into_bytes();
            // Without the length, which belongs to a separate frame.
            bytes.advance(4);
            EnvelopeResponse {
                response_data: Some(bytes),
                ..Default::default()
            }
        }
        Ok(_) | Err(_) => refuse(ErrorCode::UnsupportedVersion),
    }
}

pub(crate) fn refuse(error: ErrorCode) -> EnvelopeResponse {
    EnvelopeResponse::of_error(error)
}

/// Four bytes for IPv4, or sixteen for IPv6.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from);
    v4().or_else(v6)
}

/// The header of the embedded request, and a reader for its body.
fn read_header(request: EnvelopeRequest) -> Option<(RequestHeader, Reader)> {
    let data = request.request_data;
    let (mut api_key, mut version) = (data.get(..2)?, data.get(2..4)?);
    let (api_key, version) = (api_key.get_i16(), version.get_i16());
    let header_version = ApiKey::from_code(api_key)?.request_header_version(version);
    let mut reader = Reader::untrusted(data).copying();
    let header = RequestHeader::decode(&mut reader, header_version).ok()?;
    Some((header, reader))
}
