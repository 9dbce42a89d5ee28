//! DescribeAcls (KIP-140). Kafka: `AclApis.handleDescribeAcls`, `DescribeAclsResponse.aclsResources`.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use ottla_protocol::messages::{DescribeAclsRequest, DescribeAclsResponse};
use ottla_security::{Acl, AclFilter, Operation, PatternType, PermissionType, ResourceType};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;
use crate::authorization::denial_message;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeAclsRequest,
) -> DescribeAclsResponse {
    if let Err(error) = broker.authorize(context) {
        return refused(error, denial_message(context, error));
    }
    if !broker.authorizer.is_configured() {
        let message = "No Authorizer is configured on the broker".into();
        return refused(ErrorCode::SecurityDisabled, Some(message));
    }
    let filter = AclFilter {
        resource_type: ResourceType::from_code(request.resource_type_filter),
        name: request.resource_name_filter,
        pattern_type: PatternType::from_code(request.pattern_type_filter),
        principal: request.principal_filter,
        host: request.host_filter,
        operation: Operation::from_code(request.operation),
        permission_type: PermissionType::from_code(request.permission_type),
    };
    if filter.is_pattern_unknown() || filter.is_entry_unknown() {
        return refused(ErrorCode::InvalidRequest, None);
    }
    let image = broker.metadata().clone();
    let acls = image.kept.acls.acls().map(|(_, acl)| acl);
    // Sorted, so that the ACLs of a pattern are adjacent.
    let matching: BTreeSet<Acl> = acls.filter(|acl| filter.matches(acl)).collect();
    let mut resources: Vec<DescribeAclsResource> = Vec::new();
    for acl in matching {
        let pattern = acl.pattern;
        let (resource_type, pattern_type) =
            (pattern.resource_type.code(), pattern.pattern_type.code());
        let description = AclDescription {
            principal: acl.principal,
            host: acl.host,
            operation: acl.operation.code(),
            permission_type: acl.permission_type.code(),
            ..Default::default()
        };
        match resources.last_mut() {
            Some(last)
                if last.resource_type == resource_type
                    && last.pattern_type == pattern_type
                    && last.resource_name == pattern.name =>
            {
                last.acls.push(description);
            }
            _ => resources.push(DescribeAclsResource {
                resource_type,
                resource_name: pattern.name,
                pattern_type,
                acls: vec![description],
                ..Default::default()
            }),
        }
    }
    DescribeAclsResponse {
        error_message: None,
        resources,
        ..Default::default()
    }
}

pub(super) fn refused(error: ErrorCode, message: Option<ByteString>) -> DescribeAclsResponse {
    DescribeAclsResponse {
        error_code: error.code(),
        error_message: message,
        ..Default::default()
    }
}
