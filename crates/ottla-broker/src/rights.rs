//! The table of authorisation: the operation and resource that each API requires, and the effect of
//! a missing right.
//!
//! `Broker::authorize` checks rows for the whole request; the functions that call the controller
//! and the quorum call it themselves. Handlers check rows for resources, as they encounter them; in
//! builds with debug assertions, the authorizer panics on a check that has no row. Requests of this
//! node to itself are not client requests and are not authorised.
//!
//! Forwarded requests are authorised here and again by the controller, with the principal in the
//! envelope, because this node may become the active controller between two checks.
//!
//! Kafka: `KafkaApis`, `ControllerApis`, `AclApis`, `ConfigHelper`.

use ottla_net::{Operation, RequestContext, ResourceType};
use ottla_protocol::ApiKey;

use crate::endpoint::Endpoint;

/// The effect of a missing right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Denied {
    /// The error of the resource type for the whole request. Checked before anything else.
    Request,
    /// The error of the resource type for this resource.
    Resource,
    /// The resource is omitted from the response.
    LeftOut,
    /// A field of the response stays empty.
    FieldEmpty,
    /// None: another right of the row is sufficient.
    NextRight,
}

/// A right that a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Right {
    pub(crate) operation: Operation,
    resource_type: ResourceType,
    pub(crate) denied: Denied,
}

type Row = (ApiKey, &'static [Endpoint], &'static [Right]);

macro_rules! table {
    ($( $api:ident $($endpoint:ident)+: $( $operation:ident $resource:ident $denied:ident ),* ; )*) => {
        &[$( (ApiKey::$api, &[$(Endpoint::$endpoint),+], &[$( Right {
            operation: Operation::$operation,
            resource_type: ResourceType::$resource,
            denied: Denied::$denied,
        }, )*]), )*]
    };
}

/// Each served API on each kind of listener. A row without rights permits every connected client.
#[rustfmt::skip]
const TABLE: &[Row] = table! {
    Produce Broker: Write TransactionalId Resource, Write Topic Resource;
    Fetch Broker: ClusterAction Cluster Resource, Read Topic Resource;
    ListOffsets Broker: Describe Topic Resource;
    Metadata Broker: Describe Topic Resource, Describe Topic LeftOut, Create Cluster NextRight, Create Topic Resource, Describe Cluster FieldEmpty;
    DeleteRecords Broker: Delete Topic Resource;
    DescribeProducers Broker: Read Topic Resource;
    OffsetForLeaderEpoch Broker: ClusterAction Cluster NextRight, Describe Topic Resource;
    OffsetCommit Broker: Read Group Resource, Read Topic Resource;
    OffsetFetch Broker: Describe Group Resource, Describe Topic Resource, Describe Topic LeftOut;
    FindCoordinator Broker: Describe Group Resource, Describe TransactionalId Resource, ClusterAction Cluster Resource;
    JoinGroup Broker: Read Group Resource, Describe Topic LeftOut;
    Heartbeat Broker: Read Group Resource;
    LeaveGroup Broker: Read Group Resource;
    SyncGroup Broker: Read Group Resource;
    DescribeGroups Broker: Describe Group Resource;
    ListGroups Broker: Describe Cluster NextRight, Describe Group LeftOut;
    ApiVersions Broker Controller: ;
    CreateTopics Broker Controller: Create Cluster NextRight, Create Topic Resource, DescribeConfigs Topic FieldEmpty;
    DeleteTopics Broker Controller: Delete Cluster NextRight, Describe Topic Resource, Delete Topic Resource;
    InitProducerId Broker: Write TransactionalId Resource, TwoPhaseCommit TransactionalId Resource, IdempotentWrite Cluster NextRight, Write Topic Resource;
    DescribeConfigs Broker Controller: DescribeConfigs Cluster Resource, DescribeConfigs Topic Resource, DescribeConfigs Group Resource;
    AlterConfigs Broker Controller: AlterConfigs Cluster Resource, AlterConfigs Topic Resource, AlterConfigs Group Resource;
    IncrementalAlterConfigs Broker: AlterConfigs Cluster Resource, AlterConfigs Topic Resource, AlterConfigs Group Resource;
    IncrementalAlterConfigs Controller: AlterConfigs Cluster Resource, ClusterAction Cluster Resource, AlterConfigs Topic Resource, AlterConfigs Group Resource;
    AlterReplicaLogDirs Broker: Alter Cluster Resource;
    DescribeLogDirs Broker: Describe Cluster Resource;
    CreatePartitions Broker Controller: Alter Topic Resource;
    ElectLeaders Broker Controller: Alter Cluster Request;
    DescribeQuorum Broker Controller: Describe Cluster Request;
    UpdateFeatures Broker Controller: Alter Cluster Request;
    DescribeCluster Broker: Describe Cluster FieldEmpty;
    DescribeCluster Controller: Alter Cluster Request, Describe Cluster FieldEmpty;
    ListConfigResources Broker: DescribeConfigs Cluster Resource;
    DescribeTopicPartitions Broker: Describe Topic Resource, Describe Topic LeftOut;
    DeleteGroups Broker: Delete Group Resource;
    ConsumerGroupHeartbeat Broker: Read Group Resource, Describe Topic Resource, Describe Topic LeftOut;
    ConsumerGroupDescribe Broker: Describe Group Resource, Describe Topic Resource;
    OffsetDelete Broker: Delete Group Resource, Read Topic Resource;
    SaslHandshake Broker Controller: ;
    SaslAuthenticate Broker Controller: ;
    DescribeAcls Broker Controller: Describe Cluster Request;
    CreateAcls Broker Controller: Alter Cluster Request;
    DeleteAcls Broker Controller: Alter Cluster Request;
    CreateDelegationToken Broker Controller: CreateTokens User Resource;
    RenewDelegationToken Broker Controller: ;
    ExpireDelegationToken Broker Controller: ;
    DescribeDelegationToken Broker: Describe DelegationToken NextRight, DescribeTokens User LeftOut;
    AlterPartitionReassignments Broker Controller: Alter Cluster Request;
    ListPartitionReassignments Broker Controller: Describe Cluster Request;
    DescribeClientQuotas Broker: DescribeConfigs Cluster Request;
    AlterClientQuotas Broker Controller: AlterConfigs Cluster Request;
    DescribeUserScramCredentials Broker: Describe Cluster Request;
    AlterUserScramCredentials Broker Controller: Alter Cluster Request;
    UnregisterBroker Broker Controller: Alter Cluster Request;
    UnregisterController Broker Controller: Alter Cluster Request;
    AddPartitionsToTxn Broker: ClusterAction Cluster Resource, Write TransactionalId Resource, Write Topic Resource;
    AddOffsetsToTxn Broker: Write TransactionalId Resource, Read Group Resource;
    EndTxn Broker: Write TransactionalId Resource;
    WriteTxnMarkers Broker: Alter Cluster NextRight, ClusterAction Cluster Resource;
    TxnOffsetCommit Broker: Write TransactionalId Resource, Read Group Resource, Read Topic Resource;
    DescribeTransactions Broker: Describe TransactionalId Resource, Describe Topic LeftOut;
    ListTransactions Broker: Describe TransactionalId LeftOut;
    GetTelemetrySubscriptions Broker: ;
    PushTelemetry Broker: ;
    StreamsGroupHeartbeat Broker: Read Group Resource, Describe Topic Resource, Create Cluster NextRight, Create Topic FieldEmpty;
    StreamsGroupDescribe Broker: Describe Group Resource, Describe Topic Resource;
    StreamsGroupTopologyDescriptionUpdate Broker: Read Group Resource;
    ShareGroupHeartbeat Broker: Read Group Resource, Describe Topic Resource;
    ShareGroupDescribe Broker: Describe Group Resource, Describe Topic Resource;
    ShareFetch Broker: Read Group Resource, Read Topic Resource;
    ShareAcknowledge Broker: Read Group Resource, Read Topic Resource;
    InitializeShareGroupState Broker: ClusterAction Cluster Resource;
    ReadShareGroupState Broker: ClusterAction Cluster Resource;
    WriteShareGroupState Broker: ClusterAction Cluster Resource;
    DeleteShareGroupState Broker: ClusterAction Cluster Resource;
    ReadShareGroupStateSummary Broker: ClusterAction Cluster Resource;
    DescribeShareGroupOffsets Broker: Describe Group Resource, Describe Topic Resource, Describe Topic LeftOut;
    AlterShareGroupOffsets Broker: Read Group Resource, Read Topic Resource;
    DeleteShareGroupOffsets Broker: Delete Group Resource, Read Topic Resource;
    Fetch Controller: ClusterAction Cluster Request;
    FetchSnapshot Controller: ClusterAction Cluster Request;
    Vote Controller: ClusterAction Cluster Request;
    BeginQuorumEpoch Controller: ClusterAction Cluster Request;
    EndQuorumEpoch Controller: ClusterAction Cluster Request;
    AddRaftVoter Broker Controller: Alter Cluster Request;
    RemoveRaftVoter Broker Controller: Alter Cluster Request;
    UpdateRaftVoter Controller: ClusterAction Cluster Request;
    BrokerRegistration Controller: ClusterAction Cluster Request;
    BrokerHeartbeat Controller: ClusterAction Cluster Request;
    AlterPartition Controller: ClusterAction Cluster Request;
    AllocateProducerIds Controller: ClusterAction Cluster Request;
    AssignReplicasToDirs Controller: ClusterAction Cluster Request;
    ControllerRegistration Controller: ClusterAction Cluster Request;
    Envelope Controller: ClusterAction Cluster Request;
};

pub(crate) fn rights(api_key: ApiKey, endpoint: Endpoint) -> Option<&'static [Right]> {
    let mut rows = TABLE.iter();
    let row = rows.find(|(api, on, _)| *api == api_key && on.contains(&endpoint))?;
    Some(row.2)
}

/// Whether the table contains this right for the request.
pub(crate) fn is_in_table(
    context: &RequestContext,
    operation: Operation,
    resource_type: ResourceType,
) -> bool {
    let rights = rights(context.api_key, Endpoint::of(context.listener()));
    rights.is_some_and(|rights| {
        rights
            .iter()
            .any(|right| right.operation == operation && right.resource_type == resource_type)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::served_apis;

    #[test]
    fn every_api_has_a_row_for_each_listener_type() {
        for endpoint in [Endpoint::Broker, Endpoint::Controller] {
            let served: BTreeSet<ApiKey> = served_apis(endpoint)
                .into_iter()
                .map(|(key, _)| key)
                .collect();
            let rows = TABLE.iter().filter(|(_, on, _)| on.contains(&endpoint));
            let listed: Vec<ApiKey> = rows.map(|(key, _, _)| *key).collect();
            let names: BTreeSet<ApiKey> = listed.iter().copied().collect();
            assert_eq!(names.len(), listed.len(), "an API is listed twice");
            assert_eq!(names, served, "{endpoint:?}");
        }
    }

    #[test]
    fn each_right_is_an_operation_of_its_resource() {
        for (api, _, rights) in TABLE {
            for right in *rights {
                let operations = right.resource_type.operations();
                // Only DeleteTopics checks DELETE on the cluster, and only ALL grants it.
                let is_known = operations.contains(&right.operation)
                    || (*api == ApiKey::DeleteTopics
                        && right.resource_type == ResourceType::Cluster);
                assert!(is_known, "{api}: {right:?}");
                if right.denied == Denied::Request {
                    assert_eq!(right.resource_type, ResourceType::Cluster, "{api}");
                }
            }
        }
    }
}
