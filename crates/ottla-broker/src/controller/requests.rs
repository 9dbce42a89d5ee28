//! The requests that the controller answers, each with the pure function that decides it.
//!
//! A request is whole in itself: a broker whose controller is another process would send the same
//! message there.

use ottla_controller::{ControllerContext, Decision};
use ottla_protocol::ApiRequest;
use ottla_protocol::messages::{
    AllocateProducerIdsRequest, AlterClientQuotasRequest, AlterConfigsRequest,
    AlterPartitionReassignmentsRequest, AlterPartitionRequest, AlterUserScramCredentialsRequest,
    AssignReplicasToDirsRequest, BrokerHeartbeatRequest, BrokerRegistrationRequest,
    ControllerRegistrationRequest, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteTopicsRequest, ElectLeadersRequest, IncrementalAlterConfigsRequest,
    UnregisterBrokerRequest, UpdateFeaturesRequest,
};
use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, Offset};

use super::BrokerSessions;

/// What the controller knows besides image and configuration.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub cluster_id: &'a str,
    /// Where the next record will stand.
    pub next_offset: Offset,
    /// Which brokers were heard of lately.
    pub sessions: &'a BrokerSessions,
}

/// A request to the controller.
pub trait ControllerRequest: ApiRequest + Send + 'static {
    fn decide(
        &self,
        context: &mut ControllerContext<'_>,
        facts: &Facts<'_>,
    ) -> Decision<Self::Response>;
}

/// A request that needs nothing but the context.
macro_rules! decided_by {
    ($($request:ty => $function:ident),* $(,)?) => {
        $(impl ControllerRequest for $request {
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

decided_by! {
    CreateTopicsRequest => create_topics,
    DeleteTopicsRequest => delete_topics,
    CreatePartitionsRequest => create_partitions,
    AlterConfigsRequest => alter_configs,
    IncrementalAlterConfigsRequest => incremental_alter_configs,
    UpdateFeaturesRequest => update_features,
    AllocateProducerIdsRequest => allocate_producer_ids,
    AlterPartitionRequest => alter_partition,
    AssignReplicasToDirsRequest => assign_replicas_to_dirs,
    ElectLeadersRequest => elect_leaders,
    AlterPartitionReassignmentsRequest => alter_partition_reassignments,
    AlterClientQuotasRequest => alter_client_quotas,
    AlterUserScramCredentialsRequest => alter_user_scram_credentials,
    UnregisterBrokerRequest => unregister_broker,
    ControllerRegistrationRequest => register_controller,
}

impl ControllerRequest for BrokerRegistrationRequest {
    fn decide(
        &self,
        context: &mut ControllerContext<'_>,
        facts: &Facts<'_>,
    ) -> Decision<Self::Response> {
        let new_epoch = BrokerEpoch(facts.next_offset.value());
        let id = BrokerId(self.broker_id);
        let is_known = facts.sessions.is_valid(id);
        let decision =
            ottla_controller::register_broker(context, self, facts.cluster_id, new_epoch, is_known);
        if decision.response.error_code == ErrorCode::None.code() {
            facts.sessions.touch(id, Offset(-1));
        }
        decision
    }
}

impl ControllerRequest for BrokerHeartbeatRequest {
    fn decide(
        &self,
        context: &mut ControllerContext<'_>,
        facts: &Facts<'_>,
    ) -> Decision<Self::Response> {
        // A broker's epoch is the offset from which its registration was written, so that whoever has
        // seen the epoch's offset has seen the registration, as far as it matters: partition changes of
        // the same batch come with it.
        let register_offset = Offset(self.broker_epoch);
        let id = BrokerId(self.broker_id);
        let is_stopping = context
            .image
            .cluster
            .broker(id)
            .is_some_and(|broker| broker.in_controlled_shutdown);
        let may_finish_shutdown = match is_stopping {
            true => facts.sessions.may_finish_shutdown(id, context.image),
            false => {
                facts.sessions.end_shutdown(id);
                true
            }
        };
        let decision =
            ottla_controller::heartbeat(context, self, register_offset, may_finish_shutdown);
        if decision.response.error_code == ErrorCode::None.code() {
            let metadata_offset = Offset(self.current_metadata_offset);
            facts.sessions.touch(id, metadata_offset);
        }
        decision
    }
}
