//! Client quotas, ACLs and SCRAM users.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::StatusCode;
use ottla_client::admin::{NewScramCredential, QuotaMatch};
use ottla_client::{ClientError, ScramMechanism};
use ottla_protocol::messages::create_acls_request::AclCreation;
use ottla_protocol::messages::delete_acls_request::DeleteAclsFilter;
use ottla_security::{Operation, Pattern, PatternType, PermissionType, ResourceType};
use ottla_types::ErrorCode;
use serde::{Deserialize, Serialize};

use crate::console::Visitor;
use crate::extract::{Body, Path, Query};
use crate::list::{ListQuery, Page};
use crate::problem::Problem;

/// The combinations of entity types that quotas can have (`ClientQuotaEntity`).
const ENTITIES: [&[&str]; 4] = [&["user"], &["client-id"], &["user", "client-id"], &["ip"]];
/// Kafka's bounds for SCRAM iterations.
const ITERATIONS: std::ops::RangeInclusive<u32> =
    ScramMechanism::MIN_ITERATIONS..=ScramMechanism::MAX_ITERATIONS;
const DEFAULT_ITERATIONS: u32 = 8192;

#[derive(Serialize, Deserialize)]
pub(super) struct Quota {
    /// Entity type to name, or `null` for the default.
    entity: BTreeMap<String, Option<String>>,
    quotas: BTreeMap<String, Option<f64>>,
}

pub(super) async fn quotas(
    visitor: Visitor,
    Query(list): Query<ListQuery>,
) -> Result<Json<Page<Quota>>, Problem> {
    let mut items = Vec::new();
    for entity in ENTITIES {
        let filter = entity
            .iter()
            .map(|kind| ((*kind).to_owned(), QuotaMatch::Any));
        let filter: Vec<_> = filter.collect();
        let found = visitor.admin.describe_client_quotas(&filter).await?;
        items.extend(found.into_iter().map(|(entity, quotas)| {
            Quota {
                entity,
                quotas: quotas
                    .into_iter()
                    .map(|(name, value)| (name, Some(value)))
                    .collect(),
            }
        }));
    }
    items.retain(|it| it.entity.values().flatten().any(|it| list.matches(it)) || list.matches(""));
    Ok(Json(list.page_in_order(items)?))
}

pub(super) async fn change_quota(
    visitor: Visitor,
    Body(quota): Body<Quota>,
) -> Result<StatusCode, Problem> {
    if quota.entity.is_empty() {
        return Err(Problem::invalid(
            "entity",
            "the entity is empty; give user, client-id, both, or ip",
        ));
    }
    if quota.quotas.is_empty() {
        return Err(Problem::invalid(
            "quotas",
            "there is no change; give a quota, or null to remove one",
        ));
    }
    visitor
        .note
        .names(format!("{:?} {:?}", quota.entity, quota.quotas));
    visitor
        .admin
        .alter_client_quotas(&quota.entity, &quota.quotas)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Names in lower case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct Acl {
    resource_type: String,
    resource_name: String,
    #[serde(default = "literal")]
    pattern_type: String,
    principal: String,
    #[serde(default = "any_host")]
    host: String,
    operation: String,
    permission: String,
}

fn literal() -> String {
    "literal".into()
}

fn any_host() -> String {
    "*".into()
}

impl From<&ottla_security::Acl> for Acl {
    fn from(acl: &ottla_security::Acl) -> Acl {
        Acl {
            resource_type: acl.pattern.resource_type.name().to_lowercase(),
            resource_name: acl.pattern.name.to_string(),
            pattern_type: acl.pattern.pattern_type.name().to_lowercase(),
            principal: acl.principal.to_string(),
            host: acl.host.to_string(),
            operation: acl.operation.name().to_lowercase(),
            permission: acl.permission_type.name().to_lowercase(),
        }
    }
}

pub(super) async fn acls(
    visitor: Visitor,
    Query(list): Query<ListQuery>,
) -> Result<Json<Page<Acl>>, Problem> {
    let all = all_acls(&visitor).await?;
    let mut items: Vec<Acl> = all.iter().map(Acl::from).collect();
    items.retain(|it| list.matches(&it.principal) || list.matches(&it.resource_name));
    items.sort();
    Ok(Json(list.page_in_order(items)?))
}

/// The ACLs of the cluster.
pub(super) async fn all_acls(visitor: &Visitor) -> Result<Vec<ottla_security::Acl>, ClientError> {
    let any = DeleteAclsFilter {
        resource_type_filter: ResourceType::Any.code(),
        // An empty text, which is the default, would be a name.
        resource_name_filter: None,
        principal_filter: None,
        host_filter: None,
        pattern_type_filter: PatternType::Any.code(),
        operation: Operation::Any.code(),
        permission_type: PermissionType::Any.code(),
        ..DeleteAclsFilter::default()
    };
    let resources = visitor.admin.describe_acls(&any).await?;
    let mut all = Vec::new();
    for resource in &resources {
        let pattern = Pattern {
            resource_type: ResourceType::from_code(resource.resource_type),
            name: resource.resource_name.to_string().into(),
            pattern_type: PatternType::from_code(resource.pattern_type),
        };
        all.extend(resource.acls.iter().map(|acl| ottla_security::Acl {
            pattern: pattern.clone(),
            principal: acl.principal.to_string().into(),
            host: acl.host.to_string().into(),
            operation: Operation::from_code(acl.operation),
            permission_type: PermissionType::from_code(acl.permission_type),
        }));
    }
    Ok(all)
}

/// The codes of the words in an ACL.
struct Codes {
    resource_type: i8,
    pattern_type: i8,
    operation: i8,
    permission: i8,
}

impl Acl {
    fn codes(&self) -> Result<Codes, Problem> {
        let resource_type = found(
            "resource_type",
            &self.resource_type,
            &ResourceType::ALL[2..],
            |it| it.name(),
        )?;
        let pattern_types = [PatternType::Literal, PatternType::Prefixed];
        let operation = found("operation", &self.operation, &Operation::ALL[2..], |it| {
            it.name()
        })?;
        if operation != Operation::All && !resource_type.operations().contains(&operation) {
            let names = resource_type
                .operations()
                .iter()
                .map(|it| it.name().to_lowercase());
            let names: Vec<String> = names.collect();
            return Err(Problem::invalid(
                "operation",
                format!(
                    "operation={}: a {} has no such operation; give all, {}",
                    self.operation,
                    self.resource_type,
                    names.join(", ")
                ),
            ));
        }
        Ok(Codes {
            resource_type: resource_type.code(),
            pattern_type: found("pattern_type", &self.pattern_type, &pattern_types, |it| {
                it.name()
            })?
            .code(),
            operation: operation.code(),
            permission: found(
                "permission",
                &self.permission,
                &PermissionType::ALL[2..],
                |it| it.name(),
            )?
            .code(),
        })
    }

    fn shown(&self) -> String {
        format!(
            "{} {} {} on {} {} {} from {}",
            self.permission,
            self.principal,
            self.operation,
            self.pattern_type,
            self.resource_type,
            self.resource_name,
            self.host
        )
    }
}

/// The item with a name.
pub(super) fn found<T: Copy>(
    field: &'static str,
    given: &str,
    all: &[T],
    name_of: impl Fn(T) -> &'static str,
) -> Result<T, Problem> {
    let is_meant = |it: &&T| name_of(**it).eq_ignore_ascii_case(given);
    all.iter().find(is_meant).copied().ok_or_else(|| {
        let names: Vec<String> = all.iter().map(|it| name_of(*it).to_lowercase()).collect();
        Problem::invalid(field, format!("{field}={given}: give {}", names.join(", ")))
    })
}

pub(super) async fn create_acl(
    visitor: Visitor,
    Body(acl): Body<Acl>,
) -> Result<StatusCode, Problem> {
    let codes = acl.codes()?;
    visitor.note.names(acl.shown());
    let creation = AclCreation {
        resource_type: codes.resource_type,
        resource_name: acl.resource_name.into(),
        resource_pattern_type: codes.pattern_type,
        principal: acl.principal.into(),
        host: acl.host.into(),
        operation: codes.operation,
        permission_type: codes.permission,
        ..AclCreation::default()
    };
    visitor.admin.create_acls(&[creation]).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn delete_acl(
    visitor: Visitor,
    Body(acl): Body<Acl>,
) -> Result<StatusCode, Problem> {
    let codes = acl.codes()?;
    let shown = acl.shown();
    visitor.note.names(&*shown);
    let filter = DeleteAclsFilter {
        resource_type_filter: codes.resource_type,
        resource_name_filter: Some(acl.resource_name.into()),
        pattern_type_filter: codes.pattern_type,
        principal_filter: Some(acl.principal.into()),
        host_filter: Some(acl.host.into()),
        operation: codes.operation,
        permission_type: codes.permission,
        ..DeleteAclsFilter::default()
    };
    let deleted = visitor.admin.delete_acls(&[filter]).await?;
    match deleted.is_empty() {
        true => Err(Problem::not_found(format!("there is no ACL: {shown}"))),
        false => Ok(StatusCode::NO_CONTENT),
    }
}

#[derive(Serialize)]
pub(super) struct User {
    user: String,
    credentials: Vec<Credential>,
}

#[derive(Serialize)]
struct Credential {
    mechanism: &'static str,
    iterations: i32,
}

pub(super) async fn users(
    visitor: Visitor,
    Query(list): Query<ListQuery>,
) -> Result<Json<Page<User>>, Problem> {
    let described = visitor.admin.describe_scram_credentials(&[]).await?;
    let mut items = Vec::new();
    for user in described.into_iter().filter(|it| list.matches(&it.user)) {
        let what = format!("the credentials of {}", &*user.user);
        ClientError::check(what, user.error_code, user.error_message.as_ref())?;
        let credentials = user.credential_infos.iter().filter_map(|it| {
            Some(Credential {
                mechanism: ScramMechanism::from_code(it.mechanism)?.name(),
                iterations: it.iterations,
            })
        });
        items.push(User {
            credentials: credentials.collect(),
            user: user.user.to_string(),
        });
    }
    items.sort_by(|one, other| one.user.cmp(&other.user));
    Ok(Json(list.page_in_order(items)?))
}

#[derive(Deserialize)]
pub(super) struct NewPassword {
    mechanism: String,
    password: String,
    iterations: Option<u32>,
}

pub(super) async fn set_password(
    visitor: Visitor,
    Path(user): Path<String>,
    Body(new): Body<NewPassword>,
) -> Result<StatusCode, Problem> {
    let mechanism = found(
        "mechanism",
        &new.mechanism,
        &ScramMechanism::ALL,
        ScramMechanism::name,
    )?;
    let iterations = new.iterations.unwrap_or(DEFAULT_ITERATIONS);
    if !ITERATIONS.contains(&iterations) {
        return Err(Problem::invalid(
            "iterations",
            format!(
                "iterations={iterations}: give {} to {}",
                ITERATIONS.start(),
                ITERATIONS.end()
            ),
        ));
    }
    if new.password.is_empty() {
        return Err(Problem::invalid(
            "password",
            "the password is empty; give one",
        ));
    }
    visitor.note.names(mechanism.name());
    let credential = NewScramCredential {
        mechanism,
        iterations,
        password: new.password,
        salt: rand::random::<[u8; 24]>().to_vec(),
    };
    visitor
        .admin
        .alter_scram_credentials(&user, &[credential], &[])
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
pub(super) struct UserDeletion {
    mechanism: Option<String>,
}

pub(super) async fn delete_user(
    visitor: Visitor,
    Path(user): Path<String>,
    Query(deletion): Query<UserDeletion>,
) -> Result<StatusCode, Problem> {
    let mut deleted = match &deletion.mechanism {
        Some(mechanism) => vec![found(
            "mechanism",
            mechanism,
            &ScramMechanism::ALL,
            ScramMechanism::name,
        )?],
        None => Vec::new(),
    };
    if deleted.is_empty() {
        let users = visitor
            .admin
            .describe_scram_credentials(std::slice::from_ref(&user))
            .await?;
        let infos = users.iter().flat_map(|it| &it.credential_infos);
        let numbers: Vec<i8> = infos.map(|it| it.mechanism).collect();
        let has = |mechanism: &ScramMechanism| numbers.contains(&(*mechanism as i8));
        deleted.extend(ScramMechanism::ALL.into_iter().filter(has));
    }
    if deleted.is_empty() {
        return Err(Problem::from(ClientError::broker(
            format!("user {user}"),
            ErrorCode::ResourceNotFound.code(),
            Some("it has no SCRAM credentials"),
        )));
    }
    visitor
        .admin
        .alter_scram_credentials(&user, &[], &deleted)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
