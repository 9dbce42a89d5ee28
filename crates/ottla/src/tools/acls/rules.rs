//! ACLs as this command reads, filters and prints them: Kafka's notation for a resource, and an
//! entry about it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use clap::{ArgAction, Args};
use ottla_client::Admin;
use ottla_protocol::messages::delete_acls_request::DeleteAclsFilter;
use ottla_security::{
    Acl, AclFilter, CLUSTER_NAME, Operation, Pattern, PatternType, PermissionType, ResourceType,
    WILDCARD,
};
use serde_json::{Value, json};

#[derive(Args, Debug)]
pub(super) struct Resources {
    /// A topic; * is any. Repeatable.
    #[arg(long)]
    topic: Vec<String>,
    /// A group; * is any. Repeatable.
    #[arg(long)]
    group: Vec<String>,
    /// The cluster.
    #[arg(long, action = ArgAction::SetTrue)]
    pub(super) cluster: bool,
    /// A transactional id; * is any. Repeatable.
    #[arg(long, value_name = "ID")]
    pub(super) transactional_id: Vec<String>,
    /// A delegation token; * is any. Repeatable.
    #[arg(long, value_name = "TOKEN")]
    delegation_token: Vec<String>,
    /// A principal for whom tokens are created or described. Repeatable.
    #[arg(long, value_name = "PRINCIPAL")]
    user_principal: Vec<String>,
}

impl Resources {
    /// The resources with their types. A transactional ID is not trimmed, as in Kafka.
    pub(super) fn named(&self) -> impl Iterator<Item = (ResourceType, &str)> {
        let topics = self.topic.iter().map(|it| (ResourceType::Topic, it.trim()));
        let groups = self.group.iter().map(|it| (ResourceType::Group, it.trim()));
        let ids = self.transactional_id.iter();
        let ids = ids.map(|it| (ResourceType::TransactionalId, it.as_str()));
        let tokens = self.delegation_token.iter();
        let tokens = tokens.map(|it| (ResourceType::DelegationToken, it.trim()));
        let users = self.user_principal.iter();
        let users = users.map(|it| (ResourceType::User, it.trim()));
        topics.chain(groups).chain(ids).chain(tokens).chain(users)
    }
}

/// An ACL entry without its resource: principal, host, operation and permission.
pub(super) type Entry = (String, String, Operation, PermissionType);
/// Resources by type and name, with the pattern type.
pub(super) type Target = (ResourceType, String, PatternType);

pub(super) fn cluster() -> Target {
    let name = CLUSTER_NAME.to_owned();
    (ResourceType::Cluster, name, PatternType::Literal)
}

/// Accepts `DescribeConfigs`, `describe_configs` and `DESCRIBE_CONFIGS` alike.
pub(super) fn operation(name: &str) -> anyhow::Result<Operation> {
    let plain = |text: &str| text.trim().replace('_', "").to_ascii_lowercase();
    let mut all = Operation::ALL.iter();
    let found = all.find(|operation| plain(operation.name()) == plain(name));
    match found {
        Some(Operation::Unknown | Operation::Any) | None => bail!(
            "{name} is not an operation; give one of {}",
            Operation::ALL[2..]
                .iter()
                .map(|operation| operation.title())
                .collect::<Vec<_>>()
                .join(", ")
        ),
        Some(operation) => Ok(*operation),
    }
}

pub(super) fn shown_target((resource_type, name, pattern_type): &Target) -> String {
    format!(
        "ResourcePattern(resourceType={resource_type}, name={name}, patternType={pattern_type})"
    )
}

pub(super) fn shown_entry((principal, host, operation, permission_type): &Entry) -> String {
    format!(
        "(principal={principal}, host={host}, operation={operation}, permissionType={permission_type})"
    )
}

pub(super) fn shown_entries<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> String {
    let lines = entries
        .into_iter()
        .map(|entry| format!("\t{}", shown_entry(entry)));
    lines.collect::<Vec<_>>().join("\n")
}

/// A filter for the resource, or for all; `entry` narrows it down to one ACL.
pub(super) fn filter(target: Option<&Target>, entry: Option<&Entry>) -> DeleteAclsFilter {
    DeleteAclsFilter {
        resource_type_filter: target.map_or(ResourceType::Any, |it| it.0).code(),
        resource_name_filter: target.map(|it| it.1.clone().into()),
        pattern_type_filter: target.map_or(PatternType::Any, |it| it.2).code(),
        principal_filter: entry.map(|it| it.0.clone().into()),
        host_filter: entry.map(|it| it.1.clone().into()),
        operation: entry.map_or(Operation::Any, |it| it.2).code(),
        permission_type: entry.map_or(PermissionType::Any, |it| it.3).code(),
        ..Default::default()
    }
}

pub(super) async fn described(
    admin: &Admin,
    filter: &DeleteAclsFilter,
) -> anyhow::Result<BTreeMap<Target, BTreeSet<Entry>>> {
    let resources = admin.describe_acls(filter).await?.into_iter();
    let described = resources.map(|resource| {
        let target = (
            ResourceType::from_code(resource.resource_type),
            resource.resource_name.to_string(),
            PatternType::from_code(resource.pattern_type),
        );
        let entries = resource.acls.into_iter().map(|acl| {
            (
                acl.principal.to_string(),
                acl.host.to_string(),
                Operation::from_code(acl.operation),
                PermissionType::from_code(acl.permission_type),
            )
        });
        (target, entries.collect())
    });
    Ok(described.collect())
}

/// The ACL of a resource and an entry.
pub(super) fn acl(target: &Target, entry: &Entry) -> Acl {
    let (resource_type, name, pattern_type) = target;
    let (principal, host, operation, permission_type) = entry;
    Acl {
        pattern: Pattern {
            resource_type: *resource_type,
            name: name.clone().into(),
            pattern_type: *pattern_type,
        },
        principal: principal.clone().into(),
        host: host.clone().into(),
        operation: *operation,
        permission_type: *permission_type,
    }
}

/// The filter that matches the same ACLs as [`filter`], for the controller.
pub(super) fn acl_filter(target: &Target, entry: Option<&Entry>) -> AclFilter {
    AclFilter {
        resource_type: target.0,
        name: Some(target.1.clone().into()),
        pattern_type: target.2,
        principal: entry.map(|it| it.0.clone().into()),
        host: entry.map(|it| it.1.clone().into()),
        operation: entry.map_or(Operation::Any, |it| it.2),
        permission_type: entry.map_or(PermissionType::Any, |it| it.3),
    }
}

/// The ACLs that match a filter.
pub(super) async fn acls(admin: &Admin, filter: &DeleteAclsFilter) -> anyhow::Result<Vec<Acl>> {
    let described = described(admin, filter).await?;
    let acls = described.iter().flat_map(|(target, entries)| {
        let of_target = entries.iter().map(move |entry| acl(target, entry));
        of_target.collect::<Vec<_>>()
    });
    Ok(acls.collect())
}

/// A resource for a person: `Topic orders`.
pub(super) fn resource_in_words(resource_type: ResourceType, name: &str) -> String {
    match resource_type {
        ResourceType::Cluster => "the cluster".to_owned(),
        other => format!("{} {name}", other.title()),
    }
}

/// An ACL for a person: `ALLOW Read on Topic orders to User:alice from any address`.
pub(super) fn acl_in_words(acl: &Acl) -> String {
    let Pattern {
        resource_type,
        name,
        pattern_type,
    } = &acl.pattern;
    let resource = match pattern_type {
        PatternType::Literal if name == WILDCARD => format!("every {}", resource_type.title()),
        PatternType::Literal => resource_in_words(*resource_type, name),
        _ => format!("every {} that begins with {name}", resource_type.title()),
    };
    let (permission, operation) = (acl.permission_type, acl.operation.title());
    format!(
        "{permission} {operation} on {resource} to {} {}",
        principal_in_words(&acl.principal),
        host_in_words(&acl.host)
    )
}

/// An ACL for a script.
pub(super) fn acl_to_json(acl: &Acl) -> Value {
    json!({
        "permission": acl.permission_type.name(),
        "principal": &*acl.principal,
        "host": &*acl.host,
        "operation": acl.operation.name(),
        "resourceType": acl.pattern.resource_type.name(),
        "resourceName": &*acl.pattern.name,
        "patternType": acl.pattern.pattern_type.name(),
    })
}

pub(super) fn principal_in_words(principal: &str) -> &str {
    match principal {
        "User:*" => "everybody",
        one => one,
    }
}

pub(super) fn host_in_words(host: &str) -> String {
    match host {
        WILDCARD => "from any address".to_owned(),
        host => format!("from {host}"),
    }
}
