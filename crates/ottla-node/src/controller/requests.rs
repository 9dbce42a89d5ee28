//! The requests that the controller serves, each with the pure function that decides it.
//!
//! A request contains everything that the decision needs besides the controller's state, so it can
//! be sent to a controller in another process unchanged.

use ottla_controller::{BrokerSessions, ControllerContext, Decision};
use ottla_protocol::ApiRequest;
use ottla_protocol::messages::{
    AllocateProducerIdsRequest, AlterClientQuotasRequest, AlterConfigsRequest,
    AlterPartitionReassignmentsRequest, AlterPartitionRequest, AlterUserScramCredentialsRequest,
    AssignReplicasToDirsRequest, BrokerHeartbeatRequest, BrokerRegistrationRequest,
    ControllerRegistrationRequest, CreateAclsRequest, CreateDelegationTokenRequest,
    CreatePartitionsRequest, CreateTopicsRequest, DeleteAclsRequest, DeleteTopicsRequest,
    ElectLeadersRequest, ExpireDelegationTokenRequest, IncrementalAlterConfigsRequest,
    RenewDelegationTokenRequest, UnregisterBrokerRequest, UnregisterControllerRequest,
    UpdateFeaturesRequest,
};
use ottla_types::{Offset, Timestamp};

/// The inputs of a decision besides the image and the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub cluster_id: &'a str,
    /// The offset of the next record.
    pub next_offset: Offset,
    /// When each broker sent its last heartbeat.
    pub sessions: &'a BrokerSessions,
    /// The time of the monotonic clock that the sessions use.
    pub now_ms: u64,
    /// The wall-clock time.
    pub timestamp: Timestamp,
}

/// A request to the controller.
pub trait ControllerRequest: ApiRequest<Response: Send + 'static> + Send + Sync + 'static {
    /// Whether the nodes of the cluster send this request to each other. They are answered when the
    /// decision is committed, and learn its effects from the metadata log. A client's request is
    /// answered when the decision is published, because the client's next request must see it.
    const IS_CLUSTER_ACTION: bool = false;

    fn decide(
        &self,
        context: &mut ControllerContext<'_>,
        facts: &Facts<'_>,
    ) -> Decision<Self::Response>;
}

/// Implements a request whose decision needs only the context.
macro_rules! decided_by {
    (IS_CLUSTER_ACTION = $is_cluster_action:literal: $($request:ty => $function:ident),* $(,)?) => {
        $(impl ControllerRequest for $request {
            const IS_CLUSTER_ACTION: bool = $is_cluster_action;

            fn decide(
                &self,
                context: &mut ControllerContext<'_>,
                _facts: &Facts<'_>,
            ) -> Decision<Self::Response> {
                ottla_controller::$function(context, self)
            }
        })*
    };
}

decided_by! { IS_CLUSTER_ACTION = false:
    CreateTopicsRequest => create_topics,
    DeleteTopicsRequest => delete_topics,
    CreatePartitionsRequest => create_partitions,
    AlterConfigsRequest => alter_configs,
    IncrementalAlterConfigsRequest => incremental_alter_configs,
    UpdateFeaturesRequest => update_features,
    ElectLeadersRequest => elect_leaders,
    AlterPartitionReassignmentsRequest => alter_partition_reassignments,
    AlterClientQuotasRequest => alter_client_quotas,
    AlterUserScramCredentialsRequest => alter_user_scram_credentials,
    UnregisterBrokerRequest => unregister_broker,
    UnregisterControllerRequest => unregister_controller,
    CreateAclsRequest => create_acls,
    DeleteAclsRequest => delete_acls,
}

decided_by! { IS_CLUSTER_ACTION = true:
    AllocateProducerIdsRequest => allocate_producer_ids,
    AlterPartitionRequest => alter_partition,
    AssignReplicasToDirsRequest => assign_replicas_to_dirs,
    ControllerRegistrationRequest => register_controller,
}

/// Implements a request for delegation tokens, whose decision needs the wall-clock time.
macro_rules! decided_at {
    ($($request:ty => $function:ident),* $(,)?) => {
        $(impl ControllerRequest for $request {
            fn decide(
                &self,
                context: &mut ControllerContext<'_>,
                facts: &Facts<'_>,
            ) -> Decision<Self::Response> {
                ottla_controller::$function(context, self, facts.timestamp)
            }
        })*
    };
}

decided_at! {
    CreateDelegationTokenRequest => create_delegation_token,
    RenewDelegationTokenRequest => renew_delegation_token,
    ExpireDelegationTokenRequest => expire_delegation_token,
}

impl ControllerRequest for BrokerRegistrationRequest {
    const IS_CLUSTER_ACTION: bool = true;

    fn decide(
        &self,
        context: &mut ControllerContext<'_>,
        facts: &Facts<'_>,
    ) -> Decision<Self::Response> {
        let (next_offset, now_ms) = (facts.next_offset, facts.now_ms);
        facts
            .sessions
            .register(context, self, facts.cluster_id, next_offset, now_ms)
    }
}

impl ControllerRequest for BrokerHeartbeatRequest {
    const IS_CLUSTER_ACTION: bool = true;

    fn decide(
        &self,
        context: &mut ControllerContext<'_>,
        facts: &Facts<'_>,
    ) -> Decision<Self::Response> {
        facts.sessions.heartbeat(context, self, facts.now_ms)
    }
}
