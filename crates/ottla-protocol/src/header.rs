//! The two messages that must be decoded before the peer's version is known.

use bytes::Bytes;

use crate::messages::{ApiVersionsResponse, RequestHeader};
use crate::{ApiKey, DecodeError, Message, Reader};

/// Decodes a request header, whose own version depends on the API and version that it names. The
/// API version is not checked, because ApiVersions requests of any version must be answered. An
/// unknown API is an error, upon which Kafka closes the connection (`RequestHeader.parse`).
pub fn decode_request_header(reader: &mut Reader) -> Result<(ApiKey, RequestHeader), DecodeError> {
    let mut ahead = reader.clone();
    let (code, version) = (ahead.i16()?, ahead.i16()?);
    let api_key = ApiKey::from_code(code).ok_or(DecodeError::UnknownApi {
        api_key: code,
        version,
    })?;
    let header = RequestHeader::decode(reader, api_key.request_header_version(version))?;
    Ok((api_key, header))
}

/// Decodes an ApiVersions response to a request of `version`. A broker that does not support the
/// version responds in version 0 (KIP-511), which is tried next.
pub fn decode_api_versions_response(
    body: &Bytes,
    version: i16,
) -> Result<ApiVersionsResponse, DecodeError> {
    match ApiVersionsResponse::decode_all(body, version) {
        Err(_) if version != 0 => ApiVersionsResponse::decode_all(body, 0),
        result => result,
    }
}
