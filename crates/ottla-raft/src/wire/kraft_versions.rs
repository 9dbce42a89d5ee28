//! ApiVersions, as the leader asks a future voter for its supported levels of `kraft.version`. The
//! response is built outside the quorum.

use bytestring::ByteString;
use ottla_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use ottla_types::ErrorCode;

use crate::message;

const KRAFT_VERSION: &str = "kraft.version";

pub(super) fn request() -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: ByteString::from_static("ottla"),
        client_software_version: ByteString::from_static(env!("CARGO_PKG_VERSION")),
        ..Default::default()
    }
}

pub(super) fn read_response(versions: &ApiVersionsResponse) -> message::ApiVersionsResponse {
    let mut features = versions.supported_features.iter();
    message::ApiVersionsResponse {
        error: ErrorCode::from_code(versions.error_code),
        kraft_versions: features
            .find(|feature| &*feature.name == KRAFT_VERSION)
            .map(|feature| (feature.min_version, feature.max_version)),
    }
}
