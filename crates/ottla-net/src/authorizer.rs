//! The one place that decides whether a request may do what it asks for.
//!
//! Every handler asks here before it touches a resource, so that ACLs can be served without touching the
//! handlers again. Without `authorizer.class.name` Kafka allows everything, and so does this.

use crate::request_context::RequestContext;

/// What may be done to a resource: `org.apache.kafka.common.acl.AclOperation`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(i8)]
pub enum Operation {
    Read = 3,
    Write = 4,
    Create = 5,
    Delete = 6,
    Alter = 7,
    Describe = 8,
    ClusterAction = 9,
    DescribeConfigs = 10,
    AlterConfigs = 11,
    IdempotentWrite = 12,
    CreateTokens = 13,
    DescribeTokens = 14,
    TwoPhaseCommit = 15,
}

/// What a right is about: `org.apache.kafka.common.resource.ResourceType`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(i8)]
pub enum ResourceType {
    Topic = 2,
    Group = 3,
    Cluster = 4,
    TransactionalId = 5,
    DelegationToken = 6,
    User = 7,
}

impl ResourceType {
    /// What can be done to such a resource: `AclEntry.supportedOperations`.
    pub fn operations(self) -> &'static [Operation] {
        use Operation::*;
        match self {
            ResourceType::Topic => &[
                Read,
                Write,
                Create,
                Describe,
                Delete,
                Alter,
                DescribeConfigs,
                AlterConfigs,
            ],
            ResourceType::Group => &[Read, Describe, Delete, DescribeConfigs, AlterConfigs],
            ResourceType::Cluster => &[
                Create,
                ClusterAction,
                DescribeConfigs,
                AlterConfigs,
                IdempotentWrite,
                Alter,
                Describe,
            ],
            ResourceType::TransactionalId => &[Describe, Write, TwoPhaseCommit],
            ResourceType::DelegationToken => &[Describe],
            ResourceType::User => &[CreateTokens, DescribeTokens],
        }
    }
}

/// Decides on requests. Allows all.
#[derive(Debug, Default)]
pub struct Authorizer;

impl Authorizer {
    /// Whether the client may do this to that resource. `Cluster` has the name `kafka-cluster`.
    pub fn is_allowed(
        &self,
        _context: &RequestContext,
        _operation: Operation,
        _resource_type: ResourceType,
        _name: &str,
    ) -> bool {
        true
    }

    /// The operations that the client may do to a resource, as the bit field that DescribeGroups,
    /// Metadata and DescribeCluster answer with.
    pub fn authorized_operations(
        &self,
        context: &RequestContext,
        resource_type: ResourceType,
        name: &str,
    ) -> i32 {
        let operations = resource_type.operations().iter();
        let allowed = operations
            .filter(|&&operation| self.is_allowed(context, operation, resource_type, name));
        allowed.fold(0, |field, &operation| field | 1 << operation as i8)
    }
}
