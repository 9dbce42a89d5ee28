//! ApiVersions (KIP-35, KIP-511, KIP-584): the supported API versions, and the features of the
//! cluster. A client that names the cluster and the node that it expects learns if it reached
//! another one (KIP-1242).

use std::ops::RangeInclusive;
use std::sync::Arc;

use ottla_protocol::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use ottla_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use ottla_protocol::{ApiKey, ErrorResponse};
use ottla_types::ErrorCode;

use crate::endpoint::Endpoint;
use ottla_net::RequestContext;

use crate::Broker;

/// The node ID of a client that does not say which node it expects.
const UNKNOWN_NODE: i32 = -1;

/// `served` are the APIs of the endpoint that received the request.
pub(crate) fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ApiVersionsRequest,
    served: Vec<(ApiKey, RangeInclusive<i16>)>,
) -> ApiVersionsResponse {
    if context.api_version >= 5 && request.cluster_id.is_some() != (request.node_id != UNKNOWN_NODE)
    {
        return failed(ErrorCode::InvalidRequest);
    }
    if context.api_version >= 3 {
        let (name, version) = (
            request.client_software_name,
            request.client_software_version,
        );
        if !is_software_name(&name) || !is_software_name(&version) {
            return failed(ErrorCode::InvalidRequest);
        }
        context.connection.set_client_software(name, version);
    }
    // Controllers do not compare: the clients of a controller listener are nodes of the cluster.
    if Endpoint::of(context.listener()) == Endpoint::Broker
        && let Some(cluster_id) = &request.cluster_id
        && (*cluster_id != broker.cluster_id() || request.node_id != broker.config().node_id)
    {
        return failed(ErrorCode::RebootstrapRequired);
    }
    let features = broker.features();
    // Clients with a version below 4 cannot decode a feature whose lowest level is 0 (KAFKA-17492).
    let may_be_zero = context.api_version >= 4;
    let supported = features.supported.iter();
    ApiVersionsResponse {
        error_code: ErrorCode::None.code(),
        api_keys: served
            .into_iter()
            .filter(|(key, _)| broker.telemetry.offers(*key))
            .filter_map(|(key, versions)| Some((key, at_leader(broker, context, key, versions)?)))
            .map(|(key, versions)| ApiVersion {
                api_key: key.code(),
                // Produce advertises 0 although versions start at 3: see
                // `lowest_advertised_version`.
                min_version: key.lowest_advertised_version().min(*versions.start()),
                max_version: *versions.end(),
                ..Default::default()
            })
            .collect(),
        supported_features: supported
            .filter(|feature| may_be_zero || feature.min_level > 0)
            .map(|feature| SupportedFeatureKey {
                name: feature.name.clone(),
                min_version: feature.min_level,
                max_version: feature.max_level,
                ..Default::default()
            })
            .collect(),
        finalized_features_epoch: features.finalized_epoch,
        finalized_features: features
            .finalized
            .iter()
            .map(|(name, level)| FinalizedFeatureKey {
                name: name.clone(),
                max_version_level: *level,
                min_version_level: *level,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

fn failed(error: ErrorCode) -> ApiVersionsResponse {
    ApiVersionsResponse::of_error(error)
}

/// The versions of an API that can be answered. For a forwarded API, the versions that the active
/// controller supports too. `None` if there are none. Kafka:
/// `ApiVersionsResponse.intersectForwardableApis`.
fn at_leader(
    broker: &Broker,
    context: &RequestContext,
    key: ApiKey,
    versions: RangeInclusive<i16>,
) -> Option<RangeInclusive<i16>> {
    if !key.is_forwardable() {
        return Some(versions);
    }
    let channel = broker.node.controller_elsewhere(context);
    match channel.and_then(|channel| channel.versions_at_leader(key)) {
        Some(served) => in_both(&versions, &served),
        None => Some(versions),
    }
}

fn in_both(here: &RangeInclusive<i16>, there: &RangeInclusive<i16>) -> Option<RangeInclusive<i16>> {
    let first = *here.start().max(there.start());
    let last = *here.end().min(there.end());
    (first <= last).then_some(first..=last)
}

/// The response, in version 0, to a client with an unknown version of ApiVersions: the supported
/// versions of ApiVersions itself.
pub(crate) fn unsupported_version() -> ApiVersionsResponse {
    let versions = ApiKey::ApiVersions.stable_versions();
    ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: vec![ApiVersion {
            api_key: ApiKey::ApiVersions.code(),
            min_version: *versions.start(),
            max_version: *versions.end(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Letters, digits, dots and dashes; starts and ends with a letter or digit:
/// `ApiVersionsRequest.isValid`.
fn is_software_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let ends = [name.bytes().next(), name.bytes().next_back()];
    name.bytes().all(is_inner)
        && ends
            .iter()
            .all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_apis_are_advertised_in_common_versions() {
        assert_eq!(in_both(&(2..=7), &(0..=5)), Some(2..=5));
        assert_eq!(in_both(&(2..=7), &(3..=9)), Some(3..=7));
        assert_eq!(in_both(&(2..=7), &(0..=1)), None);
        assert_eq!(in_both(&(2..=7), &(RangeInclusive::new(0, -1))), None);
    }

    #[test]
    fn software_names_are_validated_as_in_kafka() {
        for good in ["a", "apache-kafka-java", "4.3.1", "librdkafka", "x--y..z"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", ".1", "a b", "ä", "a_b"] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }
}
