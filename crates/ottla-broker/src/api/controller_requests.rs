//! Requests that this node only passes to the controller. Other nodes of the cluster send to the
//! active controller: AllocateProducerIds (KIP-730), AlterPartition (KIP-497), AssignReplicasToDirs
//! (KIP-858), BrokerRegistration (KIP-631) and ControllerRegistration (KIP-919). A broker forwards
//! these requests of clients: ElectLeaders (KIP-460), ExpireDelegationToken and
//! RenewDelegationToken (KIP-48), UnregisterBroker (KIP-631), UnregisterController and
//! UpdateFeatures (KIP-584).
//!
//! Kafka: `ControllerApis`.

use bytestring::ByteString;
use ottla_node::ControllerRequest;
use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use ottla_protocol::messages::{
    AllocateProducerIdsResponse, AlterPartitionResponse, AssignReplicasToDirsResponse,
    BrokerRegistrationResponse, ControllerRegistrationResponse, ElectLeadersRequest,
    ElectLeadersResponse, ExpireDelegationTokenResponse, RenewDelegationTokenResponse,
    UnregisterBrokerResponse, UnregisterControllerResponse, UpdateFeaturesResponse,
};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;
use crate::authorization::denial_message;
use crate::delegation_tokens::{NO_TIME, may_ask_about_tokens};

/// Decides a request of another node, if the active controller is here.
pub(crate) async fn decide_here<R: ControllerRequest<Response: Refused>>(
    broker: &Broker,
    context: &RequestContext,
    request: R,
) -> R::Response {
    let decided = broker.decide_here(context, request).await;
    decided.unwrap_or_else(|error| R::Response::refused(error, None))
}

/// Forwards a request of a client.
pub(crate) async fn forward<R: ControllerRequest<Response: Refused>>(
    broker: &Broker,
    context: &RequestContext,
    request: R,
) -> R::Response {
    let decided = broker.forward(context, request).await;
    decided.unwrap_or_else(|error| R::Response::refused(error, denial_message(context, error)))
}

/// Forwards a request to elect leaders. A refusal is repeated for each partition, because the first
/// version has no other place for it (`ElectLeadersRequest.getErrorResponse`).
pub(crate) async fn elect_leaders(
    broker: &Broker,
    context: &RequestContext,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    let requested = request.topic_partitions.clone().unwrap_or_default();
    let decided = broker.forward(context, request).await;
    decided.unwrap_or_else(|error| {
        let error_message = denial_message(context, error);
        let refused = |&partition_id: &i32| PartitionResult {
            partition_id,
            error_code: error.code(),
            error_message: error_message.clone(),
            ..Default::default()
        };
        let results = requested.iter().map(|requested| ReplicaElectionResult {
            topic: requested.topic.clone(),
            partition_result: requested.partitions.iter().map(refused).collect(),
            ..Default::default()
        });
        ElectLeadersResponse {
            error_code: if context.api_version == 0 {
                ErrorCode::None.code()
            } else {
                error.code()
            },
            replica_election_results: results.collect(),
            ..Default::default()
        }
    })
}

/// Forwards a request of a client about ACLs.
pub(crate) async fn forward_about_acls<R: ControllerRequest>(
    broker: &Broker,
    context: &RequestContext,
    request: R,
) -> Result<R::Response, (ErrorCode, Option<ByteString>)> {
    // A controller on another node may have an authorizer.
    let is_decided_here = broker.node.controller_elsewhere(context).is_none();
    if is_decided_here && !broker.authorizer.is_configured() {
        let message = ByteString::from_static("No Authorizer is configured.");
        return Err((ErrorCode::SecurityDisabled, Some(message)));
    }
    let decided = broker.forward(context, request).await;
    decided.map_err(|error| (error, denial_message(context, error)))
}

/// Forwards a request of a client about one delegation token.
pub(crate) async fn change_token<R: ControllerRequest<Response: Refused>>(
    broker: &Broker,
    context: &RequestContext,
    request: R,
) -> R::Response {
    let decided = match may_ask_about_tokens(context) {
        true => broker.forward(context, request).await,
        false => Err(ErrorCode::DelegationTokenRequestNotAllowed),
    };
    decided.unwrap_or_else(|error| R::Response::refused(error, None))
}

pub(crate) trait Refused {
    /// A response with nothing but an error, and with the message if it has a field for one.
    fn refused(error: ErrorCode, message: Option<ByteString>) -> Self;
}

macro_rules! refused_with_code {
    ($($Response:ty),+ $(,)?) => {$(
        impl Refused for $Response {
            fn refused(error: ErrorCode, _: Option<ByteString>) -> Self {
                Self::of_error(error)
            }
        }
    )+};
}

macro_rules! refused_with_message {
    ($($Response:ty),+ $(,)?) => {$(
        impl Refused for $Response {
            fn refused(error: ErrorCode, error_message: Option<ByteString>) -> Self {
                Self {
                    error_code: error.code(),
                    error_message,
                    ..Default::default()
                }
            }
        }
    )+};
}

macro_rules! refused_without_time {
    ($($Response:ty),+ $(,)?) => {$(
        impl Refused for $Response {
            fn refused(error: ErrorCode, _: Option<ByteString>) -> Self {
                Self {
                    error_code: error.code(),
                    expiry_timestamp_ms: NO_TIME,
                    ..Default::default()
                }
            }
        }
    )+};
}

refused_with_code!(
    AllocateProducerIdsResponse,
    AlterPartitionResponse,
    AssignReplicasToDirsResponse,
    BrokerRegistrationResponse,
    ControllerRegistrationResponse,
);
refused_with_message!(
    UnregisterBrokerResponse,
    UnregisterControllerResponse,
    UpdateFeaturesResponse,
);
refused_without_time!(ExpireDelegationTokenResponse, RenewDelegationTokenResponse);
