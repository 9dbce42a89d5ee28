//! The one table of served APIs: which versions are served, and by which handler. What it lists is what
//! ApiVersions advertises.

use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;

use ottla_protocol::messages::ResponseHeader;
use ottla_protocol::{
    ApiKey, ApiMessage, DecodeError, EncodeError, Encoded, Encoder, Message, Reader,
};

use crate::net::Answer;
use crate::{Broker, RequestContext, api};

/// Why a request gets no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("{0}")]
    Malformed(DecodeError),
    #[error("{} is not served in version {version}", api_key.name())]
    NotServed { api_key: ApiKey, version: i16 },
    /// A defect of the broker.
    #[error("{0}")]
    Unanswerable(String),
}

type Handled<'a> = Pin<Box<dyn Future<Output = Result<Answer, RequestError>> + Send + 'a>>;
type Handler = for<'a> fn(&'a Arc<Broker>, &'a RequestContext, Reader) -> Handled<'a>;

struct Api {
    key: ApiKey,
    /// `None`: all stable versions of Kafka 4.3.1.
    versions: Option<RangeInclusive<i16>>,
    /// `None` for Produce, which connections start themselves because it may overtake.
    handler: Option<Handler>,
}

/// One row of the table: the request type, and the module whose `handle` answers it.
macro_rules! api {
    ($request:ident, $module:ident) => {
        Api {
            key: <ottla_protocol::messages::$request as ApiMessage>::API_KEY,
            versions: None,
            handler: Some(|broker, context, mut reader| {
                Box::pin(async move {
                    let request =
                        decode::<ottla_protocol::messages::$request>(context, &mut reader)?;
                    let response = api::$module::handle(broker, context, request).await;
                    encode(context, &response).map(Answer::Response)
                })
            }),
        }
    };
}

/// Every API that is served.
#[rustfmt::skip]
const APIS: &[Api] = &[
    Api { key: ApiKey::Produce, versions: None, handler: None },
    api!(FetchRequest, fetch),
    api!(ListOffsetsRequest, list_offsets),
    api!(MetadataRequest, metadata),
    api!(DeleteRecordsRequest, delete_records),
    api!(DescribeProducersRequest, describe_producers),
    api!(OffsetForLeaderEpochRequest, offset_for_leader_epoch),
    api!(OffsetCommitRequest, offset_commit),
    api!(OffsetFetchRequest, offset_fetch),
    api!(FindCoordinatorRequest, find_coordinator),
    api!(JoinGroupRequest, join_group),
    api!(HeartbeatRequest, heartbeat),
    api!(LeaveGroupRequest, leave_group),
    api!(SyncGroupRequest, sync_group),
    api!(DescribeGroupsRequest, describe_groups),
    api!(ListGroupsRequest, list_groups),
    api!(ApiVersionsRequest, api_versions),
    api!(CreateTopicsRequest, create_topics),
    api!(DeleteTopicsRequest, delete_topics),
    api!(InitProducerIdRequest, init_producer_id),
    api!(DescribeConfigsRequest, describe_configs),
    api!(AlterConfigsRequest, alter_configs),
    api!(DescribeLogDirsRequest, describe_log_dirs),
    api!(CreatePartitionsRequest, create_partitions),
    api!(ElectLeadersRequest, elect_leaders),
    api!(IncrementalAlterConfigsRequest, incremental_alter_configs),
    api!(DescribeQuorumRequest, describe_quorum),
    api!(UpdateFeaturesRequest, update_features),
    api!(DescribeClusterRequest, describe_cluster),
    api!(ListConfigResourcesRequest, list_config_resources),
    api!(DescribeTopicPartitionsRequest, describe_topic_partitions),
    api!(DeleteGroupsRequest, delete_groups),
    api!(OffsetDeleteRequest, offset_delete),
];

/// The versions of an API that are served; empty for one that is not.
pub(crate) fn served_versions(api_key: ApiKey) -> RangeInclusive<i16> {
    match APIS.iter().find(|api| api.key == api_key) {
        Some(api) => api.versions.clone().unwrap_or(api_key.stable_versions()),
        None => RangeInclusive::new(0, -1),
    }
}

/// Every served API with its versions, in the order of their numbers.
pub fn served_apis() -> Vec<(ApiKey, RangeInclusive<i16>)> {
    let keys = ApiKey::ALL.iter();
    keys.map(|&key| (key, served_versions(key)))
        .filter(|(_, versions)| !versions.is_empty())
        .collect()
}

/// Has a request answered by its handler.
pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    reader: Reader,
) -> Result<Answer, RequestError> {
    let (api_key, version) = (context.api_key, context.api_version);
    let api = APIS.iter().find(|api| api.key == api_key);
    match api {
        Some(Api {
            handler: Some(handler),
            ..
        }) if served_versions(api_key).contains(&version) => handler(broker, context, reader).await,
        // A client that is newer than this broker is told which versions there are (KIP-511).
        Some(_) if api_key == ApiKey::ApiVersions => {
            let response = api::api_versions::unsupported_version();
            encode_in_version(context, &response, 0).map(Answer::Response)
        }
        Some(_) | None => Err(RequestError::NotServed { api_key, version }),
    }
}

/// Reads the body of a request. Bytes that follow it are not looked at, as in Kafka: librdkafka sends some.
pub(crate) fn decode<M: Message>(
    context: &RequestContext,
    reader: &mut Reader,
) -> Result<M, RequestError> {
    M::decode(reader, context.api_version).map_err(RequestError::Malformed)
}

/// A response in the version of its request, with length and header in front.
pub(crate) fn encode<M: Message>(
    context: &RequestContext,
    response: &M,
) -> Result<Encoded, RequestError> {
    encode_in_version(context, response, context.api_version)
}

fn encode_in_version<M: Message>(
    context: &RequestContext,
    response: &M,
    version: i16,
) -> Result<Encoded, RequestError> {
    let unanswerable = |error: EncodeError| {
        let api = context.api_key.name();
        RequestError::Unanswerable(format!("{api} response in version {version}: {error}"))
    };
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
    use ottla_protocol::Chunk;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_is_listed_once_and_in_versions_that_exist() {
        let mut keys: Vec<ApiKey> = APIS.iter().map(|api| api.key).collect();
        let listed = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), listed);
        for (key, versions) in served_apis() {
            let valid = key.valid_versions();
            assert!(
                valid.contains(versions.start()) && valid.contains(versions.end()),
                "{key}"
            );
        }
    }
}
