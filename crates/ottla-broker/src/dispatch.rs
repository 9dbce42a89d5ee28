//! The table of served APIs: their versions, listeners and handlers. ApiVersions advertises exactly
//! these.

use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;

use ottla_coordination::share_groups::{DeleteState, ReadSummary};
use ottla_coordinator::persister::{InitializeState, ReadState, WriteState};
use ottla_net::{Answer, RequestContext, RequestError};
use ottla_protocol::messages::{self, EnvelopeRequest, EnvelopeResponse};
use ottla_protocol::{ApiKey, ApiMessage, Reader};

use crate::codec::{decode, encode, encode_in_version};
use crate::endpoint::Endpoint;
use crate::throttling::throttled;
use crate::{Broker, api};

type Handled<'a> = Pin<Box<dyn Future<Output = Result<Answer, RequestError>> + Send + 'a>>;
type Handler = for<'a> fn(&'a Arc<Broker>, &'a RequestContext, Reader) -> Handled<'a>;

/// One row of the table: an API on broker listeners, controller listeners, or both.
struct Api {
    key: ApiKey,
    on: Endpoints,
    /// `None` for Produce: connections call [`start_produce`], because a Produce may start before
    /// earlier ones are answered.
    handler: Option<Handler>,
}

type Endpoints = &'static [Endpoint];
const BROKER: Endpoints = &[Endpoint::Broker];
const CONTROLLER: Endpoints = &[Endpoint::Controller];
const BOTH: Endpoints = &[Endpoint::Broker, Endpoint::Controller];

/// Takes the request type, and the module with the function `handle`, another function of a module,
/// or a closure.
macro_rules! api {
    ($on:ident, $request:ident, $module:ident) => {
        api!($on, $request, $module::handle)
    };
    ($on:ident, $request:ident, $module:ident::$function:ident) => {
        api!($on, $request, |broker, context, request| {
            api::$module::$function(broker, context, request).await
        })
    };
    ($on:ident, $request:ident, |$broker:ident, $context:ident, $decoded:ident| $response:expr) => {
        Api {
            key: <messages::$request as ApiMessage>::API_KEY,
            on: $on,
            handler: Some(|$broker, $context, mut reader| {
                Box::pin(async move {
                    let $decoded = decode::<messages::$request>($context, &mut reader)?;
                    let response = throttled($broker, $context, async { $response }).await;
                    encode($broker, $context, &response)
                })
            }),
        }
    };
}

/// Every served API, in all stable versions of Kafka 4.4.0.
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
    api!(BOTH, ApiVersionsRequest, |broker, context, request| api::api_versions::handle(broker, context, request, served_at(context))),
    api!(BOTH, CreateTopicsRequest, create_topics),
    api!(BOTH, DeleteTopicsRequest, delete_topics),
    api!(BROKER, InitProducerIdRequest, init_producer_id),
    api!(BOTH, DescribeConfigsRequest, describe_configs),
    api!(BOTH, AlterConfigsRequest, alter_configs),
    api!(BROKER, AlterReplicaLogDirsRequest, alter_replica_log_dirs),
    api!(BROKER, DescribeLogDirsRequest, describe_log_dirs),
    api!(BOTH, CreatePartitionsRequest, create_partitions),
    api!(BOTH, ElectLeadersRequest, controller_requests::elect_leaders),
    api!(BOTH, IncrementalAlterConfigsRequest, incremental_alter_configs),
    api!(BOTH, DescribeQuorumRequest, describe_quorum),
    api!(BOTH, UpdateFeaturesRequest, controller_requests::forward),
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
    api!(BOTH, RenewDelegationTokenRequest, controller_requests::change_token),
    api!(BOTH, ExpireDelegationTokenRequest, controller_requests::change_token),
    api!(BROKER, DescribeDelegationTokenRequest, describe_delegation_token),
    api!(BOTH, AlterPartitionReassignmentsRequest, alter_partition_reassignments),
    api!(BOTH, ListPartitionReassignmentsRequest, list_partition_reassignments),
    api!(BROKER, DescribeClientQuotasRequest, describe_client_quotas),
    api!(BOTH, AlterClientQuotasRequest, alter_client_quotas),
    api!(BROKER, DescribeUserScramCredentialsRequest, describe_user_scram_credentials),
    api!(BOTH, AlterUserScramCredentialsRequest, alter_user_scram_credentials),
    api!(BOTH, UnregisterBrokerRequest, controller_requests::forward),
    api!(BOTH, UnregisterControllerRequest, controller_requests::forward),
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
    api!(BROKER, StreamsGroupTopologyDescriptionUpdateRequest, streams_group_topology_description_update),
    api!(BROKER, ShareGroupHeartbeatRequest, share_group_heartbeat),
    api!(BROKER, ShareGroupDescribeRequest, share_group_describe),
    api!(BROKER, ShareFetchRequest, share_fetch),
    api!(BROKER, ShareAcknowledgeRequest, share_acknowledge),
    api!(BROKER, InitializeShareGroupStateRequest, |broker, context, request| api::share_group_state::handle::<InitializeState>(broker, context, request).await),
    api!(BROKER, ReadShareGroupStateRequest, |broker, context, request| api::share_group_state::handle::<ReadState>(broker, context, request).await),
    api!(BROKER, WriteShareGroupStateRequest, |broker, context, request| api::share_group_state::handle::<WriteState>(broker, context, request).await),
    api!(BROKER, DeleteShareGroupStateRequest, |broker, context, request| api::share_group_state::handle::<DeleteState>(broker, context, request).await),
    api!(BROKER, ReadShareGroupStateSummaryRequest, |broker, context, request| api::share_group_state::handle::<ReadSummary>(broker, context, request).await),
    api!(BROKER, DescribeShareGroupOffsetsRequest, describe_share_group_offsets),
    api!(BROKER, AlterShareGroupOffsetsRequest, alter_share_group_offsets),
    api!(BROKER, DeleteShareGroupOffsetsRequest, delete_share_group_offsets),
    api!(CONTROLLER, FetchRequest, fetch_metadata_log),
    api!(CONTROLLER, FetchSnapshotRequest, quorum_requests::answer),
    api!(CONTROLLER, VoteRequest, quorum_requests::answer),
    api!(CONTROLLER, BeginQuorumEpochRequest, quorum_requests::answer),
    api!(CONTROLLER, EndQuorumEpochRequest, quorum_requests::answer),
    api!(BOTH, AddRaftVoterRequest, quorum_requests::change_voters),
    api!(BOTH, RemoveRaftVoterRequest, quorum_requests::change_voters),
    api!(CONTROLLER, UpdateRaftVoterRequest, quorum_requests::update_voter),
    api!(CONTROLLER, BrokerRegistrationRequest, controller_requests::decide_here),
    api!(CONTROLLER, BrokerHeartbeatRequest, broker_heartbeat),
    api!(CONTROLLER, AlterPartitionRequest, controller_requests::decide_here),
    api!(CONTROLLER, AllocateProducerIdsRequest, controller_requests::decide_here),
    api!(CONTROLLER, AssignReplicasToDirsRequest, controller_requests::decide_here),
    api!(CONTROLLER, ControllerRegistrationRequest, controller_requests::decide_here),
    api!(CONTROLLER, EnvelopeRequest, |broker, context, request| answer_envelope(broker, context, request).await),
];

fn find(api_key: ApiKey, endpoint: Endpoint) -> Option<&'static Api> {
    APIS.iter()
        .find(|api| api.key == api_key && api.on.contains(&endpoint))
}

/// The versions of an API that an endpoint advertises; empty if it does not serve the API.
pub(crate) fn served_versions(api_key: ApiKey, endpoint: Endpoint) -> RangeInclusive<i16> {
    match find(api_key, endpoint) {
        Some(_) => api_key.stable_versions(),
        None => RangeInclusive::new(0, -1),
    }
}

/// All advertised APIs with their versions, ordered by API key.
pub fn served_apis(endpoint: Endpoint) -> Vec<(ApiKey, RangeInclusive<i16>)> {
    let keys = ApiKey::ALL.iter();
    keys.map(|&key| (key, served_versions(key, endpoint)))
        .filter(|(_, versions)| !versions.is_empty())
        .collect()
}

/// The APIs of the listener that received the request, for ApiVersions.
fn served_at(context: &RequestContext) -> Vec<(ApiKey, RangeInclusive<i16>)> {
    served_apis(Endpoint::of(context.listener()))
}

/// Passes the request in an envelope to its own handler.
async fn answer_envelope(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: EnvelopeRequest,
) -> EnvelopeResponse {
    match api::envelope::open(broker, context, request) {
        Ok((inner, reader)) => api::envelope::seal(handle(broker, &inner, reader).await),
        Err(error) => api::envelope::refuse(error),
    }
}

/// Submits the batches of a Produce request to their partitions.
pub(crate) fn start_produce(
    broker: &Arc<Broker>,
    context: &RequestContext,
    reader: Reader,
) -> Result<Answer, RequestError> {
    let (api_key, version) = (context.api_key, context.api_version);
    let endpoint = Endpoint::of(context.listener());
    match served_versions(ApiKey::Produce, endpoint).contains(&version) {
        true => api::produce::start(broker, context, reader),
        false => Err(RequestError::NotServed { api_key, version }),
    }
}

/// Passes a request to its handler.
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
        }) if api_key.stable_versions().contains(&version) && broker.telemetry.offers(api_key) => {
            handler(broker, context, reader).await
        }
        // A client with an unknown version of ApiVersions receives the supported versions
        // (KIP-511).
        Some(_) if api_key == ApiKey::ApiVersions => {
            let response = api::api_versions::unsupported_version();
            encode_in_version(broker, context, &response, 0)
        }
        Some(_) | None => Err(RequestError::NotServed { api_key, version }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_is_listed_once_with_existing_versions() {
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
