//! Envelope (KIP-590): a broker hands on what a client asked of it, for the active controller to decide.
//!
//! The request inside is answered as if it had come to this listener itself, from the client whose principal and address
//! the envelope carries: with that client's rights, not with the broker's. Only what is meant for controllers may be in an
//! envelope, and no envelope.
//!
//! Kafka: `EnvelopeUtils.handleEnvelopeRequest`, `RequestChannel.Request.buildResponseSend`.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Buf;
use ottla_protocol::messages::{EnvelopeRequest, EnvelopeResponse, RequestHeader};
use ottla_protocol::{ApiKey, Message, Reader};
use ottla_types::ErrorCode;

use crate::dispatch::{self, is_forwardable};
use ottla_net::Answer;
use ottla_net::{ClientIdentity, RequestContext};
use ottla_security::Principal;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: EnvelopeRequest,
) -> EnvelopeResponse {
    if let Err(error) = broker.authorize(context) {
        return EnvelopeResponse {
            error_code: error.code(),
            ..Default::default()
        };
    }
    let refused = |error: ErrorCode| EnvelopeResponse {
        error_code: error.code(),
        ..Default::default()
    };
    // The sender looks for the active controller then.
    if !broker
        .node
        .quorum()
        .is_some_and(|quorum| quorum.status().is_active)
    {
        return refused(ErrorCode::NotController);
    }
    let Some(address) = address(&request.client_host_address) else {
        return refused(ErrorCode::InvalidRequest);
    };
    // Without a principal nobody would be asked.
    let principal = request.request_principal.clone();
    let Some(principal) = principal.and_then(Principal::from_bytes) else {
        return refused(ErrorCode::PrincipalDeserializationFailure);
    };
    let Some((header, reader)) = read_header(request) else {
        return refused(ErrorCode::UnsupportedVersion);
    };
    let Some(api_key) =
        ApiKey::from_code(header.request_api_key).filter(|key| is_forwardable(*key))
    else {
        return refused(ErrorCode::InvalidRequest);
    };
    let forwarded = RequestContext {
        api_key,
        api_version: header.request_api_version,
        correlation_id: header.correlation_id,
        client_id: header.client_id,
        connection: Arc::clone(&context.connection),
        identity: Arc::new(ClientIdentity::new(principal, address)),
        received_at_ms: context.received_at_ms,
        waited: Default::default(),
    };
    match dispatch::handle(broker, &forwarded, reader).await {
        Ok(Answer::Response(encoded)) => {
            let mut bytes = encoded.into_bytes();
            // The length in front is that of a frame of its own.
            bytes.advance(4);
            EnvelopeResponse {
                response_data: Some(bytes),
                ..Default::default()
            }
        }
        Ok(_) | Err(_) => refused(ErrorCode::UnsupportedVersion),
    }
}

/// Four bytes of IPv4, or sixteen of IPv6.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from);
    v4().or_else(v6)
}

/// The header of the request inside, and its body.
fn read_header(request: EnvelopeRequest) -> Option<(RequestHeader, Reader)> {
    let data = request.request_data;
    let (mut api_key, mut version) = (data.get(..2)?, data.get(2..4)?);
    let (api_key, version) = (api_key.get_i16(), version.get_i16());
    let header_version = ApiKey::from_code(api_key)?.request_header_version(version);
    let mut reader = Reader::new(data);
    let header = RequestHeader::decode(&mut reader, header_version).ok()?;
    Some((header, reader))
}
