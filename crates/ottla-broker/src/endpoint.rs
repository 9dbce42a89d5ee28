//! The two kinds of listeners, and the APIs that brokers forward to controllers.

use ottla_net::ListenerInfo;
use ottla_protocol::ApiKey;

/// The kind of a listener. An API can be served on one kind, or differently on both.
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

/// Whether brokers forward an API to the active controller. Kafka: `ApiKeys.forwardable`.
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
            | ApiKey::UnregisterController
            | ApiKey::AddRaftVoter
            | ApiKey::RemoveRaftVoter
    )
}
