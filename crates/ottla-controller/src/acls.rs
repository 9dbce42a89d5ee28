//! `CreateAcls` and `DeleteAcls`.
//!
//! In Kafka: `AclControlManager`, and the checks of `AclApis` before it.

use std::collections::BTreeSet;

use ottla_metadata::MetadataVersion;
use ottla_protocol::messages::create_acls_request::AclCreation;
use ottla_protocol::messages::create_acls_response::AclCreationResult;
use ottla_protocol::messages::delete_acls_request::DeleteAclsFilter;
use ottla_protocol::messages::delete_acls_response::{
    DeleteAclsFilterResult, DeleteAclsMatchingAcl,
};
use ottla_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse,
};
use ottla_protocol::metadata_records::{MetadataRecord, RemoveAccessControlEntryRecord};
use ottla_security::{
    Acl, AclFilter, CLUSTER_NAME, HostRange, Operation, Pattern, PatternType, PermissionType,
    ResourceType,
};
use ottla_types::{ErrorCode, Uuid};

use crate::decision::{ApiError, ControllerContext, Decision, MAX_RECORDS_PER_USER_OPERATION};

pub fn create_acls(
    context: &mut ControllerContext<'_>,
    request: &CreateAclsRequest,
) -> Decision<CreateAclsResponse> {
    let mut created = BTreeSet::new();
    let mut records = Vec::new();
    let mut results = Vec::new();
    for creation in &request.creations {
        let acl = acl(creation);
        let error = match validate_new_acl(&acl, context.metadata_version()) {
            Ok(()) => {
                // Creating an ACL that exists succeeds.
                if !context.image.kept.acls.contains(&acl) && created.insert(acl.clone()) {
                    let record = acl.to_record(context.random_uuid());
                    records.push(MetadataRecord::AccessControlEntry(record));
                }
                ApiError::NONE
            }
            Err(error) => error,
        };
        results.push(creation_result(&error));
    }
    if records.len() > MAX_RECORDS_PER_USER_OPERATION {
        let error = ApiError::new(
            ErrorCode::PolicyViolation,
            "Unable to perform excessively large batch operation.",
        );
        results.fill(creation_result(&error));
        records.clear();
    }
    let response = CreateAclsResponse {
        results,
        ..Default::default()
    };
    Decision::new(records, response)
}

fn creation_result(error: &ApiError) -> AclCreationResult {
    AclCreationResult {
        error_code: error.code.code(),
        // On success, Kafka sends an empty message instead of null.
        error_message: error.wire_message(),
        ..Default::default()
    }
}

fn acl(creation: &AclCreation) -> Acl {
    Acl {
        pattern: Pattern {
            resource_type: ResourceType::from_code(creation.resource_type),
            name: creation.resource_name.clone(),
            pattern_type: PatternType::from_code(creation.resource_pattern_type),
        },
        principal: creation.principal.clone(),
        host: creation.host.clone(),
        operation: Operation::from_code(creation.operation),
        permission_type: PermissionType::from_code(creation.permission_type),
    }
}

/// An address is not checked, as in Kafka.
fn validate_host(host: &str, level: MetadataVersion) -> Result<(), ApiError> {
    let invalid = |message: String| ApiError::new(ErrorCode::InvalidRequest, message);
    if host.is_empty() {
        return Err(invalid("Host pattern cannot be null or empty".to_owned()));
    }
    if !HostRange::is_one(host) {
        return Ok(());
    }
    if !level.is_cidr_acl_supported() {
        let needed = MetadataVersion::IBP_4_4_IV1;
        return Err(ApiError::new(
            ErrorCode::UnsupportedVersion,
            format!("CIDR-based ACL host patterns require metadata version {needed} or higher."),
        ));
    }
    HostRange::parse(host)
        .map(drop)
        .map_err(|reason| invalid(format!("Invalid CIDR notation '{host}': {reason}")))
}

fn validate_new_acl(acl: &Acl, level: MetadataVersion) -> Result<(), ApiError> {
    let invalid = |message: String| Err(ApiError::new(ErrorCode::InvalidRequest, message));
    let Pattern {
        resource_type,
        name,
        pattern_type,
    } = &acl.pattern;
    if *resource_type == ResourceType::Cluster && name != CLUSTER_NAME {
        return invalid(format!(
            "The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        ));
    }
    if name.is_empty() {
        return invalid("Invalid empty resource name".to_owned());
    }
    if matches!(resource_type, ResourceType::Unknown | ResourceType::Any) {
        return invalid(format!("Invalid resourceType {resource_type}"));
    }
    if !matches!(pattern_type, PatternType::Literal | PatternType::Prefixed) {
        return invalid(format!("Invalid patternType {pattern_type}"));
    }
    if matches!(acl.operation, Operation::Unknown | Operation::Any) {
        return invalid(format!("Invalid operation {}", acl.operation));
    }
    if !matches!(
        acl.permission_type,
        PermissionType::Allow | PermissionType::Deny
    ) {
        return invalid(format!("Invalid permissionType {}", acl.permission_type));
    }
    if !acl.principal.contains(':') {
        return invalid(format!(
            "Could not parse principal from `{}` (no colon is present separating the principal type \
             from the principal name)",
            acl.principal
        ));
    }
    validate_host(&acl.host, level)?;
    Ok(())
}

pub fn delete_acls(
    context: &mut ControllerContext<'_>,
    request: &DeleteAclsRequest,
) -> Decision<DeleteAclsResponse> {
    let mut deleted: BTreeSet<Uuid> = BTreeSet::new();
    let mut filter_results = Vec::new();
    for filter in &request.filters {
        let filter = acl_filter(filter);
        let matching = match validate_filter(&filter) {
            Ok(()) => matching(context, &filter),
            Err(error) => {
                filter_results.push(failed(&error));
                continue;
            }
        };
        deleted.extend(matching.iter().map(|(_, id)| *id));
        if deleted.len() > MAX_RECORDS_PER_USER_OPERATION {
            let error = ApiError::new(
                ErrorCode::InvalidRequest,
                format!(
                    "Cannot remove more than {MAX_RECORDS_PER_USER_OPERATION} acls in a single delete \
                     operation."
                ),
            );
            // Nothing is deleted in that case.
            return Decision::unchanged(DeleteAclsResponse {
                filter_results: vec![failed(&error); request.filters.len()],
                ..Default::default()
            });
        }
        filter_results.push(DeleteAclsFilterResult {
            error_code: ErrorCode::None.code(),
            error_message: None,
            matching_acls: matching.iter().map(|(acl, _)| matching_acl(acl)).collect(),
            ..Default::default()
        });
    }
    let remove = |id| {
        MetadataRecord::RemoveAccessControlEntry(RemoveAccessControlEntryRecord {
            id,
            ..Default::default()
        })
    };
    let response = DeleteAclsResponse {
        filter_results,
        ..Default::default()
    };
    Decision::new(deleted.into_iter().map(remove).collect(), response)
}

fn acl_filter(filter: &DeleteAclsFilter) -> AclFilter {
    AclFilter {
        resource_type: ResourceType::from_code(filter.resource_type_filter),
        name: filter.resource_name_filter.clone(),
        pattern_type: PatternType::from_code(filter.pattern_type_filter),
        principal: filter.principal_filter.clone(),
        host: filter.host_filter.clone(),
        operation: Operation::from_code(filter.operation),
        permission_type: PermissionType::from_code(filter.permission_type),
    }
}

fn validate_filter(filter: &AclFilter) -> Result<(), ApiError> {
    let invalid = |message| Err(ApiError::new(ErrorCode::InvalidRequest, message));
    if filter.is_pattern_unknown() {
        return invalid("Unknown patternFilter.");
    }
    if filter.is_entry_unknown() {
        return invalid("Unknown entryFilter.");
    }
    Ok(())
}

/// In the order of the ACLs. Two ids can have the same ACL, written by an earlier version of the
/// controller.
fn matching(context: &ControllerContext<'_>, filter: &AclFilter) -> Vec<(Acl, Uuid)> {
    let acls = context.image.kept.acls.acls();
    let matching = acls.filter(|(_, acl)| filter.matches(acl));
    let mut matching: Vec<(Acl, Uuid)> = matching.map(|(id, acl)| (acl, id)).collect();
    matching.sort();
    matching
}

fn failed(error: &ApiError) -> DeleteAclsFilterResult {
    DeleteAclsFilterResult {
        error_code: error.code.code(),
        error_message: error.wire_message(),
        ..Default::default()
    }
}

fn matching_acl(acl: &Acl) -> DeleteAclsMatchingAcl {
    DeleteAclsMatchingAcl {
        error_code: ErrorCode::None.code(),
        error_message: None,
        resource_type: acl.pattern.resource_type.code(),
        resource_name: acl.pattern.name.clone(),
        pattern_type: acl.pattern.pattern_type.code(),
        principal: acl.principal.clone(),
        host: acl.host.clone(),
        operation: acl.operation.code(),
        permission_type: acl.permission_type.code(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::Cluster;

    fn creation(principal: &str, name: &str) -> AclCreation {
        AclCreation {
            resource_type: ResourceType::Topic.code(),
            resource_name: name.into(),
            resource_pattern_type: PatternType::Literal.code(),
            principal: principal.into(),
            host: "*".into(),
            operation: Operation::Read.code(),
            permission_type: PermissionType::Allow.code(),
            ..Default::default()
        }
    }

    fn create(cluster: &mut Cluster, creations: Vec<AclCreation>) -> (usize, Vec<String>) {
        let request = CreateAclsRequest {
            creations,
            ..Default::default()
        };
        let decision = create_acls(&mut cluster.context(), &request);
        let messages = decision.response.results.iter().map(|result| {
            let message = result.error_message.as_deref().unwrap_or_default();
            format!("{} {message}", result.error_code)
        });
        let messages = messages.collect();
        let records = decision.records.len();
        cluster.apply(&decision.records);
        (records, messages)
    }

    #[test]
    fn an_existing_acl_is_not_created_again() {
        let mut cluster = Cluster::single_node();
        let twice = vec![creation("User:a", "foo"), creation("User:a", "foo")];
        let ok = || vec!["0 ".to_owned(); 2];
        assert_eq!(create(&mut cluster, twice.clone()), (1, ok()));
        assert_eq!(create(&mut cluster, twice), (0, ok()));
        assert_eq!(cluster.image.kept.acls.len(), 1);
    }

    #[test]
    fn an_invalid_acl_is_refused() {
        let mut cluster = Cluster::single_node();
        let changed = |change: &dyn Fn(&mut AclCreation)| {
            let mut creation = creation("User:a", "foo");
            change(&mut creation);
            creation
        };
        let creations = vec![
            changed(&|it| it.resource_type = ResourceType::Cluster.code()),
            changed(&|it| it.resource_name = "".into()),
            changed(&|it| it.resource_type = ResourceType::Any.code()),
            changed(&|it| it.resource_pattern_type = PatternType::Match.code()),
            changed(&|it| it.operation = Operation::Any.code()),
            changed(&|it| it.permission_type = PermissionType::Any.code()),
            changed(&|it| it.principal = "alice".into()),
            changed(&|_| ()),
        ];
        let expected = [
            "42 The only valid name for the CLUSTER resource is kafka-cluster",
            "42 Invalid empty resource name",
            "42 Invalid resourceType ANY",
            "42 Invalid patternType MATCH",
            "42 Invalid operation ANY",
            "42 Invalid permissionType ANY",
            "42 Could not parse principal from `alice` (no colon is present separating the principal \
             type from the principal name)",
            "0 ",
        ];
        let (records, messages) = create(&mut cluster, creations);
        assert_eq!(
            (records, messages),
            (1, expected.map(String::from).to_vec())
        );
    }

    #[test]
    fn host_ranges_need_a_feature_level() {
        let from = |host: &str| AclCreation {
            host: host.to_owned().into(),
            ..creation("User:a", "foo")
        };
        let hosts = ["10.0.0.0/8", "2001:db8::/32", "10.0.0.0/33", "", "10.1.2.3"];
        let mut cluster = Cluster::single_node();
        let (records, messages) = create(&mut cluster, hosts.map(from).to_vec());
        let too_old = "35 CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.";
        let empty = "42 Host pattern cannot be null or empty";
        assert_eq!(
            (records, messages),
            (
                1,
                [too_old, too_old, too_old, empty, "0 "]
                    .map(String::from)
                    .to_vec()
            )
        );
        let mut cluster = cluster.with_feature("metadata.version", 32);
        let (records, messages) = create(&mut cluster, hosts.map(from).to_vec());
        let wrong = "42 Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]";
        assert_eq!(
            (records, messages),
            (
                2,
                ["0 ", "0 ", wrong, empty, "0 "].map(String::from).to_vec()
            )
        );
    }

    #[test]
    fn both_copies_of_a_duplicate_acl_are_deleted() {
        let mut cluster = Cluster::single_node();
        let acl = acl(&creation("User:a", "foo"));
        let record = |id| MetadataRecord::AccessControlEntry(acl.to_record(Uuid::from_u128(id)));
        cluster.apply(&[record(1), record(2)]);
        let remove = RemoveAccessControlEntryRecord {
            id: Uuid::from_u128(1),
            ..Default::default()
        };
        let request = DeleteAclsRequest {
            filters: vec![DeleteAclsFilter {
                resource_type_filter: ResourceType::Topic.code(),
                resource_name_filter: None,
                principal_filter: None,
                host_filter: None,
                pattern_type_filter: PatternType::Any.code(),
                operation: Operation::Any.code(),
                permission_type: PermissionType::Any.code(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let decision = delete_acls(&mut cluster.context(), &request);
        assert_eq!(decision.records.len(), 2);
        assert_eq!(decision.response.filter_results[0].matching_acls.len(), 2);
        // The other one still exists.
        cluster.apply(&[MetadataRecord::RemoveAccessControlEntry(remove)]);
        assert_eq!(create(&mut cluster, vec![creation("User:a", "foo")]).0, 0);
    }

    #[test]
    fn a_filter_deletes_matching_acls() {
        let mut cluster = Cluster::single_node();
        let creations = vec![
            creation("User:a", "foo"),
            creation("User:b", "foo"),
            creation("User:a", "bar"),
        ];
        create(&mut cluster, creations);
        let filter = DeleteAclsFilter {
            resource_type_filter: ResourceType::Topic.code(),
            resource_name_filter: Some("foo".into()),
            pattern_type_filter: PatternType::Match.code(),
            principal_filter: None,
            host_filter: None,
            operation: Operation::Any.code(),
            permission_type: PermissionType::Any.code(),
            ..Default::default()
        };
        let unknown = DeleteAclsFilter {
            operation: 99,
            ..filter.clone()
        };
        let request = DeleteAclsRequest {
            filters: vec![filter.clone(), unknown, filter],
            ..Default::default()
        };
        let decision = delete_acls(&mut cluster.context(), &request);
        let results: Vec<(i16, usize)> = decision
            .response
            .filter_results
            .iter()
            .map(|result| (result.error_code, result.matching_acls.len()))
            .collect();
        assert_eq!(results, [(0, 2), (42, 0), (0, 2)]);
        assert_eq!(decision.records.len(), 2);
        cluster.apply(&decision.records);
        assert_eq!(cluster.image.kept.acls.len(), 1);
    }
}
