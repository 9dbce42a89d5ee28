//! The two kinds of listeners, and what brokers hand on from one to the other.

use ottla_net::ListenerInfo;
use ottla_protocol::ApiKey;

/// Who talks at a listener: an API can be served differently, or not at all, to controllers' clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    Broker,
    Controller,
}

impl Endpoint {
    pub(crate) fn of(listener: &ListenerInfo) -> Endpoint {
        match listener.is_controller {
            true => Endpoint::Controller,
            false => Endpoint::Broker,
        }
    }
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
