//! The response to a request in the middle of a login that is not part of the login: the error response of its own API,
//! with `ILLEGAL_SASL_STATE`.
//!
//! Nobody has authenticated the peer. The body of its request is therefore not decoded, except for the two requests that
//! clients begin with, Metadata and FindCoordinator, and only if it is short. Kafka decodes every request, and repeats the
//! topics, groups and resources in it. A request for which Kafka's response has no other place for the error gets no
//! response here.
//!
//! Kafka: `SaslServerAuthenticator.handleSaslToken`, and `getErrorResponse` of each request.

use bytestring::ByteString;
use ottla_protocol::messages::find_coordinator_response::Coordinator;
use ottla_protocol::messages::*;
use ottla_protocol::{ApiKey, Encoded, ErrorResponse, Message, Reader};
use ottla_types::ErrorCode;

use ottla_net::{MisplacedRequest, encode_response};

use super::controller_requests::Refused;
use super::{create_delegation_token, describe_acls, describe_cluster, init_producer_id, metadata};

const ERROR: ErrorCode = ErrorCode::IllegalSaslState;
/// A longer body is not decoded. The response is at most 64 times as long, with a coordinator for each empty key, and is
/// kept until the delay of a failed login is over.
const MOST_BODY_BYTES: usize = 256;

/// A response of which Kafka sets the error code and the message.
macro_rules! with_message {
    ($response:ident, $message:expr) => {
        $response {
            error_message: $message,
            ..$response::of_error(ERROR)
        }
    };
}

/// Encodes the response. `None` if there is none, or if the request cannot be decoded.
pub(crate) fn refuse(to: &MisplacedRequest) -> Option<Encoded> {
    let (api_key, version, body) = (to.api_key, to.api_version, &to.body);
    let to = Asked {
        api_key,
        version: match api_key {
            // A client with an unknown version can read version 0 (KIP-511).
            ApiKey::ApiVersions if !api_key.valid_versions().contains(&version) => 0,
            _ => version,
        },
        correlation_id: to.correlation_id,
        reason: &to.reason,
    };
    let generic = || Some(ByteString::from_static(ERROR.message()));
    let reason = || Some(ByteString::from(to.reason));
    match api_key {
        ApiKey::Metadata => {
            let request: MetadataRequest = to.decode(body)?;
            let topics = request.topics.unwrap_or_default();
            to.encode(&metadata::refused_as_a_whole(&topics, ERROR))
        }
        ApiKey::FindCoordinator if version >= 4 => to.encode(&coordinators(to.decode(body)?)),
        ApiKey::FindCoordinator => to.encode(&FindCoordinatorResponse {
            error_message: generic(),
            node_id: -1,
            port: -1,
            ..FindCoordinatorResponse::of_error(ERROR)
        }),
        ApiKey::JoinGroup => to.encode(&JoinGroupResponse {
            protocol_name: (version < 7).then(ByteString::new),
            ..JoinGroupResponse::of_error(ERROR)
        }),
        ApiKey::InitProducerId => to.encode(&init_producer_id::refused(ERROR)),
        ApiKey::CreateDelegationToken => to.encode(&no_token(version)),
        ApiKey::DescribeAcls => to.encode(&describe_acls::refused(ERROR, reason())),
        ApiKey::DescribeClientQuotas => to.encode(&DescribeClientQuotasResponse {
            error_message: reason(),
            entries: None,
            ..DescribeClientQuotasResponse::of_error(ERROR)
        }),
        ApiKey::DescribeCluster => {
            to.encode(&describe_cluster::refused(ERROR, to.reason.to_owned()))
        }
        ApiKey::UpdateFeatures => to.encode(&UpdateFeaturesResponse::refused(ERROR, reason())),
        ApiKey::UnregisterBroker => to.encode(&UnregisterBrokerResponse::refused(ERROR, reason())),
        ApiKey::UnregisterController => {
            to.encode(&UnregisterControllerResponse::refused(ERROR, reason()))
        }
        ApiKey::StreamsGroupTopologyDescriptionUpdate => to.encode(&with_message!(
            StreamsGroupTopologyDescriptionUpdateResponse,
            reason()
        )),
        ApiKey::DescribeQuorum => to.encode(&with_message!(DescribeQuorumResponse, generic())),
        ApiKey::ControllerRegistration => {
            to.encode(&with_message!(ControllerRegistrationResponse, generic()))
        }
        ApiKey::AddRaftVoter => to.encode(&with_message!(AddRaftVoterResponse, generic())),
        ApiKey::RemoveRaftVoter => to.encode(&with_message!(RemoveRaftVoterResponse, generic())),
        ApiKey::DeleteShareGroupOffsets => {
            to.encode(&with_message!(DeleteShareGroupOffsetsResponse, generic()))
        }
        ApiKey::AlterShareGroupOffsets => {
            to.encode(&with_message!(AlterShareGroupOffsetsResponse, generic()))
        }
        // In earlier versions, Kafka repeats the topics.
        ApiKey::AddPartitionsToTxn if version >= 4 => to.code::<AddPartitionsToTxnResponse>(),
        ApiKey::OffsetFetch if (2..=7).contains(&version) => to.code::<OffsetFetchResponse>(),
        ApiKey::Heartbeat => to.code::<HeartbeatResponse>(),
        ApiKey::LeaveGroup => to.code::<LeaveGroupResponse>(),
        ApiKey::SyncGroup => to.code::<SyncGroupResponse>(),
        ApiKey::ListGroups => to.code::<ListGroupsResponse>(),
        ApiKey::SaslHandshake => to.code::<SaslHandshakeResponse>(),
        ApiKey::ApiVersions => to.code::<ApiVersionsResponse>(),
        ApiKey::AddOffsetsToTxn => to.code::<AddOffsetsToTxnResponse>(),
        ApiKey::EndTxn => to.code::<EndTxnResponse>(),
        // Before version 3 there is no place for the error, and the response is empty.
        ApiKey::DescribeLogDirs => to.code::<DescribeLogDirsResponse>(),
        ApiKey::RenewDelegationToken => to.code::<RenewDelegationTokenResponse>(),
        ApiKey::ExpireDelegationToken => to.code::<ExpireDelegationTokenResponse>(),
        ApiKey::DescribeDelegationToken => to.code::<DescribeDelegationTokenResponse>(),
        ApiKey::OffsetDelete => to.code::<OffsetDeleteResponse>(),
        ApiKey::Vote => to.code::<VoteResponse>(),
        ApiKey::BeginQuorumEpoch => to.code::<BeginQuorumEpochResponse>(),
        ApiKey::EndQuorumEpoch => to.code::<EndQuorumEpochResponse>(),
        ApiKey::AlterPartition => to.code::<AlterPartitionResponse>(),
        ApiKey::Envelope => to.code::<EnvelopeResponse>(),
        ApiKey::FetchSnapshot => to.code::<FetchSnapshotResponse>(),
        ApiKey::BrokerRegistration => to.code::<BrokerRegistrationResponse>(),
        ApiKey::BrokerHeartbeat => to.code::<BrokerHeartbeatResponse>(),
        ApiKey::ListTransactions => to.code::<ListTransactionsResponse>(),
        ApiKey::AllocateProducerIds => to.code::<AllocateProducerIdsResponse>(),
        ApiKey::ConsumerGroupHeartbeat => to.code::<ConsumerGroupHeartbeatResponse>(),
        ApiKey::ShareGroupHeartbeat => to.code::<ShareGroupHeartbeatResponse>(),
        ApiKey::StreamsGroupHeartbeat => to.code::<StreamsGroupHeartbeatResponse>(),
        ApiKey::GetTelemetrySubscriptions => to.code::<GetTelemetrySubscriptionsResponse>(),
        ApiKey::PushTelemetry => to.code::<PushTelemetryResponse>(),
        ApiKey::AssignReplicasToDirs => to.code::<AssignReplicasToDirsResponse>(),
        ApiKey::ListConfigResources => to.code::<ListConfigResourcesResponse>(),
        ApiKey::ShareFetch => to.code::<ShareFetchResponse>(),
        ApiKey::ShareAcknowledge => to.code::<ShareAcknowledgeResponse>(),
        ApiKey::UpdateRaftVoter => to.code::<UpdateRaftVoterResponse>(),
        // Fetch repeats its session; the others have the error of each topic, group or resource.
        ApiKey::Produce
        | ApiKey::Fetch
        | ApiKey::ListOffsets
        | ApiKey::OffsetCommit
        | ApiKey::OffsetFetch
        | ApiKey::DescribeGroups
        | ApiKey::CreateTopics
        | ApiKey::DeleteTopics
        | ApiKey::DeleteRecords
        | ApiKey::OffsetForLeaderEpoch
        | ApiKey::AddPartitionsToTxn
        | ApiKey::WriteTxnMarkers
        | ApiKey::TxnOffsetCommit
        | ApiKey::CreateAcls
        | ApiKey::DeleteAcls
        | ApiKey::DescribeConfigs
        | ApiKey::AlterConfigs
        | ApiKey::AlterReplicaLogDirs
        | ApiKey::CreatePartitions
        | ApiKey::DeleteGroups
        | ApiKey::ElectLeaders
        | ApiKey::IncrementalAlterConfigs
        | ApiKey::AlterPartitionReassignments
        | ApiKey::ListPartitionReassignments
        | ApiKey::AlterClientQuotas
        | ApiKey::DescribeUserScramCredentials
        | ApiKey::AlterUserScramCredentials
        | ApiKey::DescribeProducers
        | ApiKey::DescribeTransactions
        | ApiKey::ConsumerGroupDescribe
        | ApiKey::ShareGroupDescribe
        | ApiKey::StreamsGroupDescribe
        | ApiKey::DescribeTopicPartitions
        | ApiKey::InitializeShareGroupState
        | ApiKey::ReadShareGroupState
        | ApiKey::WriteShareGroupState
        | ApiKey::DeleteShareGroupState
        | ApiKey::ReadShareGroupStateSummary
        | ApiKey::DescribeShareGroupOffsets => None,
        // SaslAuthenticate is part of the login, and the others were removed.
        ApiKey::SaslAuthenticate
        | ApiKey::LeaderAndIsr
        | ApiKey::StopReplica
        | ApiKey::UpdateMetadata
        | ApiKey::ControlledShutdown => None,
    }
}

/// What a response needs of its request.
struct Asked<'a> {
    api_key: ApiKey,
    /// Of the response.
    version: i16,
    correlation_id: i32,
    reason: &'a str,
}

impl Asked<'_> {
    fn encode<M: Message>(&self, response: &M) -> Option<Encoded> {
        encode_response(self.api_key, self.version, self.correlation_id, response).ok()
    }

    /// Encodes a response of which Kafka sets only the error code.
    fn code<M: Message + ErrorResponse>(&self) -> Option<Encoded> {
        self.encode(&M::of_error(ERROR))
    }

    /// Decodes a short body.
    fn decode<M: Message>(&self, body: &Reader) -> Option<M> {
        if body.remaining() > MOST_BODY_BYTES {
            return None;
        }
        M::decode(&mut body.clone(), self.version).ok()
    }
}

fn coordinators(request: FindCoordinatorRequest) -> FindCoordinatorResponse {
    let coordinators = request.coordinator_keys.into_iter();
    let coordinators = coordinators.map(|key| Coordinator {
        key,
        node_id: -1,
        port: -1,
        error_code: ERROR.code(),
        error_message: Some(ByteString::from_static(ERROR.message())),
        ..Default::default()
    });
    FindCoordinatorResponse {
        coordinators: coordinators.collect(),
        ..Default::default()
    }
}

/// The requester is part of the response from version 3 on.
fn no_token(version: i16) -> CreateDelegationTokenResponse {
    let anonymous: create_delegation_token::Parts = ("User".into(), "ANONYMOUS".into());
    let requester = match version {
        ..3 => Default::default(),
        _ => anonymous.clone(),
    };
    create_delegation_token::refuse(ERROR, requester, anonymous)
}

#[cfg(test)]
mod tests;
