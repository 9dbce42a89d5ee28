use ottla_protocol::messages::RequestHeader;
use ottla_protocol::messages::api_versions_response::{ApiVersion, ApiVersionsResponse};
use ottla_protocol::{ApiKey, DecodeError, Encoder, Message, Reader};
use ottla_protocol::{decode_api_versions_response, decode_request_header};

fn header(api_key: i16, api_version: i16, header_version: i16) -> Reader {
    let header = RequestHeader {
        request_api_key: api_key,
        request_api_version: api_version,
        correlation_id: 7,
        client_id: Some("client".into()),
        ..Default::default()
    };
    let mut encoder = Encoder::new();
    header.encode(&mut encoder, header_version).unwrap();
    encoder.raw(b"body");
    Reader::new(encoder.finish().into_bytes())
}

#[test]
fn the_header_version_follows_the_api() {
    for (api_version, header_version) in [(0, 1), (2, 1), (3, 2), (99, 2)] {
        let mut reader = header(18, api_version, header_version);
        let (api_key, header) = decode_request_header(&mut reader).unwrap();
        assert_eq!(api_key, ApiKey::ApiVersions);
        assert_eq!(header.client_id.as_deref(), Some("client"));
        assert_eq!(&reader.rest()[..], b"body");
    }
}

#[test]
fn an_unknown_api_is_named() {
    let error = decode_request_header(&mut header(1234, 5, 1)).unwrap_err();
    assert_eq!(
        error,
        DecodeError::UnknownApi {
            api_key: 1234,
            version: 5
        }
    );
}

#[test]
fn a_version_0_answer_to_a_newer_request_is_understood() {
    let response = ApiVersionsResponse {
        error_code: 35,
        api_keys: vec![ApiVersion {
            api_key: 18,
            max_version: 2,
            ..Default::default()
        }],
        ..Default::default()
    };
    let body = response.encode_to_bytes(0).unwrap();
    assert_eq!(decode_api_versions_response(&body, 4).unwrap(), response);
}
