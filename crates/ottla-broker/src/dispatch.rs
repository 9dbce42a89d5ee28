//! The one table of served APIs: which versions are served, and by which handler. What it lists is what
//! ApiVersions advertises.

use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;

use ottla_protocol::messages::ResponseHeader;
use ottla_protocol::{ApiKey, ApiMessage, EncodeError, Encoded, Encoder, Message, Reader};

use ottla_net::{Answer, RequestContext, RequestError};

use crate::endpoint::Endpoint;
use crate::{Broker, api, telemetry};

type Handled<'a> = Pin<Box<dyn Future<Output = Result<Answer, RequestError>> + Send + 'a>>;
type Handler = for<'a> fn(&'a Arc<Broker>, &'a RequestContext, Reader) -> Handled<'a>;

/// One row of the table: an API on the listeners of brokers, of controllers, or both.
struct Api {
    key: ApiKey,
    on: Endpoints,
    /// `None` for Produce, which connections start themselves because it may overtake.
    handler: Option<Handler>,
}

type Endpoints = &'static [Endpoint];
const BROKER: Endpoints = &[Endpoint::Broker];
const CONTROLLER: Endpoints = &[Endpoint::Controller];
const BOTH: Endpoints = &[Endpoint::Broker, Endpoint::Controller];

/// The request type, and the module whose `handle` answers it.
macro_rules! api {
    ($on:ident, $request:ident, $module:ident) => {
        Api {
            key: <ottla_protocol::messages::$request as ApiMessage>::API_KEY,
            on: $on,
            handler: Some(|broker, context, mut reader| {
                Box::pin(async move {
                    let request =
                        decode::<ottla_protocol::messages::$request>(context, &mut reader)?;
                    let response = api::$module::handle(broker, context, request).await;
                    encode(broker, context, &response).map(Answer::Response)
                })
            }),
        }
    };
}

/// Every API that is served, in all stable versions of Kafka 4.3.1.
#[rustfmt::skip]
const APIS: &[Api] = &[
    Api { key: ApiKey::Produce, on: BROKER, handler: None },
    api!(BROKER, FetchRequest, fetch),
    api!(BROKER, ListOffsetsRequest, list_offsets),
    api!(BROKER, MetadataRequest, metadata),
    api!(BROKER, DeleteRecordsRequest, delete_records),
    api!(BROKER, DescribeProducersRequest, describe_producers),
    api!(BROKER, OffsetForLeaderEpochRequest, offset_for_leader_epoch),
    api!(BROKER, OffsetCommitRequest, offset_commit),
    api!(BROKER, OffsetFetchRequest, offset_fetch),
    api!(BROKER, FindCoordinatorRequest, find_coordinator),
    api!(BROKER, JoinGroupRequest, join_group),
    api!(BROKER, HeartbeatRequest, heartbeat),
    api!(BROKER, LeaveGroupRequest, leave_group),
    api!(BROKER, SyncGroupRequest, sync_group),
    api!(BROKER, DescribeGroupsRequest, describe_groups),
    api!(BROKER, ListGroupsRequest, list_groups),
    api!(BOTH, ApiVersionsRequest, api_versions),
    api!(BOTH, CreateTopicsRequest, create_topics),
    api!(BOTH, DeleteTopicsRequest, delete_topics),
    api!(BROKER, InitProducerIdRequest, init_producer_id),
    api!(BOTH, DescribeConfigsRequest, describe_configs),
    api!(BOTH, AlterConfigsRequest, alter_configs),
    api!(BROKER, AlterReplicaLogDirsRequest, alter_replica_log_dirs),
    api!(BROKER, DescribeLogDirsRequest, describe_log_dirs),
    api!(BOTH, CreatePartitionsRequest, create_partitions),
    api!(BOTH, ElectLeadersRequest, elect_leaders),
    api!(BOTH, IncrementalAlterConfigsRequest, incremental_alter_configs),
    api!(BOTH, DescribeQuorumRequest, describe_quorum),
    api!(BOTH, UpdateFeaturesRequest, update_features),
    api!(BOTH, DescribeClusterRequest, describe_cluster),
    api!(BROKER, ListConfigResourcesRequest, list_config_resources),
    api!(BROKER, DescribeTopicPartitionsRequest, describe_topic_partitions),
    api!(BROKER, DeleteGroupsRequest, delete_groups),
    api!(BROKER, ConsumerGroupHeartbeatRequest, consumer_group_heartbeat),
    api!(BROKER, ConsumerGroupDescribeRequest, consumer_group_describe),
    api!(BROKER, OffsetDeleteRequest, offset_delete),
    api!(BOTH, SaslHandshakeRequest, sasl_handshake),
    api!(BOTH, SaslAuthenticateRequest, sasl_authenticate),
    api!(BOTH, DescribeAclsRequest, describe_acls),
    api!(BOTH, CreateAclsRequest, create_acls),
    api!(BOTH, DeleteAclsRequest, delete_acls),
    api!(BOTH, CreateDelegationTokenRequest, create_delegation_token),
    api!(BOTH, RenewDelegationTokenRequest, renew_delegation_token),
    api!(BOTH, ExpireDelegationTokenRequest, expire_delegation_token),
    api!(BROKER, DescribeDelegationTokenRequest, describe_delegation_token),
    api!(BOTH, AlterPartitionReassignmentsRequest, alter_partition_reassignments),
    api!(BOTH, ListPartitionReassignmentsRequest, list_partition_reassignments),
    api!(BROKER, DescribeClientQuotasRequest, describe_client_quotas),
    api!(BOTH, AlterClientQuotasRequest, alter_client_quotas),
    api!(BROKER, DescribeUserScramCredentialsRequest, describe_user_scram_credentials),
    api!(BOTH, AlterUserScramCredentialsRequest, alter_user_scram_credentials),
    api!(BOTH, UnregisterBrokerRequest, unregister_broker),
    api!(BROKER, AddPartitionsToTxnRequest, add_partitions_to_txn),
    api!(BROKER, AddOffsetsToTxnRequest, add_offsets_to_txn),
    api!(BROKER, EndTxnRequest, end_txn),
    api!(BROKER, WriteTxnMarkersRequest, write_txn_markers),
    api!(BROKER, TxnOffsetCommitRequest, txn_offset_commit),
    api!(BROKER, DescribeTransactionsRequest, describe_transactions),
    api!(BROKER, ListTransactionsRequest, list_transactions),
    api!(BROKER, GetTelemetrySubscriptionsRequest, get_telemetry_subscriptions),
    api!(BROKER, PushTelemetryRequest, push_telemetry),
    api!(BROKER, StreamsGroupHeartbeatRequest, streams_group_heartbeat),
    api!(BROKER, StreamsGroupDescribeRequest, streams_group_describe),
    api!(BROKER, ShareGroupHeartbeatRequest, share_group_heartbeat),
    api!(BROKER, ShareGroupDescribeRequest, share_group_describe),
    api!(BROKER, ShareFetchRequest, share_fetch),
    api!(BROKER, ShareAcknowledgeRequest, share_acknowledge),
    api!(BROKER, InitializeShareGroupStateRequest, initialize_share_group_state),
    api!(BROKER, ReadShareGroupStateRequest, read_share_group_state),
    api!(BROKER, WriteShareGroupStateRequest, write_share_group_state),
    api!(BROKER, DeleteShareGroupStateRequest, delete_share_group_state),
    api!(BROKER, ReadShareGroupStateSummaryRequest, read_share_group_state_summary),
    api!(BROKER, DescribeShareGroupOffsetsRequest, describe_share_group_offsets),
    api!(BROKER, AlterShareGroupOffsetsRequest, alter_share_group_offsets),
    api!(BROKER, DeleteShareGroupOffsetsRequest, delete_share_group_offsets),
    api!(CONTROLLER, FetchRequest, fetch_metadata_log),
    api!(CONTROLLER, FetchSnapshotRequest, fetch_snapshot),
    api!(CONTROLLER, VoteRequest, vote),
    api!(CONTROLLER, BeginQuorumEpochRequest, begin_quorum_epoch),
    api!(CONTROLLER, EndQuorumEpochRequest, end_quorum_epoch),
    api!(BOTH, AddRaftVoterRequest, add_raft_voter),
    api!(BOTH, RemoveRaftVoterRequest, remove_raft_voter),
    api!(CONTROLLER, UpdateRaftVoterRequest, update_raft_voter),
    api!(CONTROLLER, BrokerRegistrationRequest, broker_registration),
    api!(CONTROLLER, BrokerHeartbeatRequest, broker_heartbeat),
    api!(CONTROLLER, AlterPartitionRequest, alter_partition),
    api!(CONTROLLER, AllocateProducerIdsRequest, allocate_producer_ids),
    api!(CONTROLLER, AssignReplicasToDirsRequest, assign_replicas_to_dirs),
    api!(CONTROLLER, ControllerRegistrationRequest, controller_registration),
    api!(CONTROLLER, EnvelopeRequest, envelope),
];

fn find(api_key: ApiKey, endpoint: Endpoint) -> Option<&'static Api> {
    APIS.iter()
        .find(|api| api.key == api_key && api.on.contains(&endpoint))
}

/// The versions of an API that are advertised at an endpoint; empty for one that is not.
pub(crate) fn served_versions(api_key: ApiKey, endpoint: Endpoint) -> RangeInclusive<i16> {
    match find(api_key, endpoint) {
        Some(_) => api_key.stable_versions(),
        None => RangeInclusive::new(0, -1),
    }
}

/// Every advertised API with its versions, in the order of their numbers.
pub fn served_apis(endpoint: Endpoint) -> Vec<(ApiKey, RangeInclusive<i16>)> {
    let keys = ApiKey::ALL.iter();
    keys.map(|&key| (key, served_versions(key, endpoint)))
        .filter(|(_, versions)| !versions.is_empty())
        .collect()
}

/// Whether this broker offers an API of the table: client telemetry only where somebody takes it.
pub(crate) fn is_offered(broker: &Broker, api_key: ApiKey) -> bool {
    broker.telemetry.is_offered() || !telemetry::is_telemetry_api(api_key)
}

/// Whether brokers hand an API on to the active controller. In Kafka: `ApiKeys.forwardable`.
pub(crate) fn is_forwardable(api_key: ApiKey) -> bool {
    matches!(
        api_key,
        ApiKey::CreateTopics
            | ApiKey::DeleteTopics
            | ApiKey::CreateAcls
            | ApiKey::DeleteAcls
            | ApiKey::AlterConfigs
            | ApiKey::CreatePartitions
            | ApiKey::CreateDelegationToken
            | ApiKey::RenewDelegationToken
            | ApiKey::ExpireDelegationToken
            | ApiKey::ElectLeaders
            | ApiKey::IncrementalAlterConfigs
            | ApiKey::AlterPartitionReassignments
            | ApiKey::ListPartitionReassignments
            | ApiKey::AlterClientQuotas
            | ApiKey::AlterUserScramCredentials
            | ApiKey::DescribeQuorum
            | ApiKey::UpdateFeatures
            | ApiKey::UnregisterBroker
            | ApiKey::AddRaftVoter
            | ApiKey::RemoveRaftVoter
    )
}

/// Has a request answered by its handler.
pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    reader: Reader,
) -> Result<Answer, RequestError> {
    let (api_key, version) = (context.api_key, context.api_version);
    let endpoint = Endpoint::of(context.listener());
    match find(api_key, endpoint) {
        Some(Api {
            handler: Some(handler),
            ..
        }) if api_key.stable_versions().contains(&version) && is_offered(broker, api_key) => {
            handler(broker, context, reader).await
        }
        // A client that is newer than this broker is told which versions there are (KIP-511).
        Some(_) if api_key == ApiKey::ApiVersions => {
            let response = api::api_versions::unsupported_version();
            encode_in_version(broker, context, &response, 0).map(Answer::Response)
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

/// A response in the version of its request, with length and header in front. Its errors are counted.
pub(crate) fn encode<M: Message>(
    broker: &Broker,
    context: &RequestContext,
    response: &M,
) -> Result<Encoded, RequestError> {
    encode_in_version(broker, context, response, context.api_version)
}

fn encode_in_version<M: Message>(
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
        for endpoint in [Endpoint::Broker, Endpoint::Controller] {
            let here = APIS.iter().filter(|api| api.on.contains(&endpoint));
            let mut keys: Vec<ApiKey> = here.map(|api| api.key).collect();
            let listed = keys.len();
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), listed);
            for (key, versions) in served_apis(endpoint) {
                let valid = key.valid_versions();
                assert!(
                    valid.contains(versions.start()) && valid.contains(versions.end()),
                    "{key}"
                );
                let is_kafkas = match endpoint {
                    Endpoint::Broker => key.on_broker(),
                    Endpoint::Controller => key.on_controller(),
                };
                assert!(is_kafkas, "{key} on {endpoint:?}");
            }
        }
    }
}
