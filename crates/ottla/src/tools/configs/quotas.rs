//! `configs` for quotas of users, clients and addresses, and for SCRAM credentials of users.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use ottla_client::admin::{ConfigOperation, NewScramCredential, QuotaEntity, QuotaMatch};
use ottla_client::{Admin, ClientError, ScramMechanism};
use ottla_config::java_double;
use ottla_types::ErrorCode;

use super::EntityType;
use crate::tools::java_exceptions;

const CLIENT_QUOTAS: [&str; 4] = [
    "consumer_byte_rate",
    "controller_mutation_rate",
    "producer_byte_rate",
    "request_percentage",
];
const IP_QUOTAS: [&str; 1] = ["connection_creation_rate"];

/// Iterations of a credential that does not specify them.
const DEFAULT_ITERATIONS: u32 = 4096;

/// The quota entities: types with a name each; an empty name means the default, and `None` all
/// entities.
pub(super) type Subjects = [(EntityType, Option<String>)];

/// The entity type in the protocol.
fn quota_type(kind: EntityType) -> &'static str {
    match kind {
        EntityType::Users => "user",
        EntityType::Clients => "client-id",
        _ => "ip",
    }
}

fn names(subjects: &Subjects) -> QuotaEntity {
    let name = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
    subjects
        .iter()
        .map(|(kind, wanted)| (quota_type(*kind).to_owned(), name(wanted)))
        .collect()
}

fn filter(subjects: &Subjects) -> Vec<(String, QuotaMatch)> {
    subjects
        .iter()
        .map(|(kind, name)| {
            let wanted = match name.as_deref() {
                None => QuotaMatch::Any,
                Some("") => QuotaMatch::Default,
                Some(name) => QuotaMatch::Exactly(name.to_owned()),
            };
            (quota_type(*kind).to_owned(), wanted)
        })
        .collect()
}

pub(super) async fn describe(admin: &Admin, subjects: &Subjects) -> anyhow::Result<()> {
    let quotas = admin.describe_client_quotas(&filter(subjects)).await?;
    for (entity, values) in quotas {
        let values: Vec<String> = values
            .iter()
            .map(|(key, value)| format!("{key}={}", java_double(*value)))
            .collect();
        println!(
            "Quota configs for {} are {}",
            shown(&entity),
            values.join(", ")
        );
    }
    let is_about_users = subjects.iter().all(|(kind, _)| *kind == EntityType::Users);
    let is_about_default = subjects.iter().any(|(_, name)| name.as_deref() == Some(""));
    if is_about_users && !is_about_default {
        let users: Vec<String> = subjects
            .iter()
            .filter_map(|(_, name)| name.clone())
            .collect();
        describe_credentials(admin, &users).await?;
    }
    Ok(())
}

/// `user-principal 'alice', client-id 'c'`
fn shown(entity: &QuotaEntity) -> String {
    let part = |(kind, title): (&str, &str)| {
        entity.get(kind).map(|name| match name {
            Some(name) => format!("{title} '{name}'"),
            None => format!("the default {title}"),
        })
    };
    let parts: Vec<String> = [
        ("user", "user-principal"),
        ("client-id", "client-id"),
        ("ip", "ip"),
    ]
    .into_iter()
    .filter_map(part)
    .collect();
    parts.join(", ")
}

async fn describe_credentials(admin: &Admin, users: &[String]) -> anyhow::Result<()> {
    for found in admin.describe_scram_credentials(users).await? {
        let user = &*found.user;
        match ClientError::check("", found.error_code, found.error_message.as_ref()) {
            Ok(()) => {
                let infos = found.credential_infos.iter().map(|info| {
                    let mechanism = ScramMechanism::from_code(info.mechanism);
                    let name = mechanism.map_or("UNKNOWN", ScramMechanism::name);
                    format!("{name}=iterations={}", info.iterations)
                });
                let infos: Vec<String> = infos.collect();
                println!(
                    "SCRAM credential configs for user-principal '{user}' are {}",
                    infos.join(", ")
                );
            }
            Err(error) => {
                let class = java_exceptions::class_name(&error);
                println!(
                    "Error retrieving SCRAM credential configs for user-principal '{user}': {}: {}",
                    class.rsplit('.').next().unwrap_or_default(),
                    error.broker_message()
                );
            }
        }
    }
    Ok(())
}

/// A validated change.
pub(super) enum Change {
    Quotas(BTreeMap<String, Option<f64>>),
    Credentials {
        user: String,
        upsertions: Vec<NewScramCredential>,
        deletions: Vec<ScramMechanism>,
    },
}

impl Change {
    /// Parses the settings to set and remove, which must apply to these entities.
    pub(super) fn new(
        subjects: &Subjects,
        operations: &BTreeMap<String, ConfigOperation>,
    ) -> anyhow::Result<Change> {
        let kinds: BTreeSet<&str> = subjects.iter().map(|(kind, _)| kind.name()).collect();
        let is_users_alone = kinds.len() == 1 && kinds.contains("users");
        let (valid, what, whose): (&[&str], &str, &str) = if kinds.contains("ips") {
            (&IP_QUOTAS, "connection quota", "ips")
        } else if is_users_alone {
            (&CLIENT_QUOTAS, "quota and SCRAM credential", "users")
        } else {
            (&CLIENT_QUOTAS, "quota", "clients")
        };
        let is_scram = |key: &str| ScramMechanism::from_name(key).is_some();
        for (operation_name, is_wanted) in [("added", false), ("deleted", true)] {
            let unknown: Vec<&str> = operations
                .iter()
                .filter(|(_, operation)| (**operation == ConfigOperation::Delete) == is_wanted)
                .map(|(key, _)| key.as_str())
                .filter(|key| !(valid.contains(key) || is_users_alone && is_scram(key)))
                .collect();
            if !unknown.is_empty() {
                bail!(
                    "Only {what} configs can be {operation_name} for '{whose}' using --bootstrap-server. \
                     Unexpected config names: {}; there are {}",
                    unknown.join(","),
                    valid.join(", ")
                );
            }
        }
        let scram = operations.keys().filter(|key| is_scram(key)).count();
        if scram > 0 {
            if scram < operations.len() {
                bail!(
                    "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using \
                     --bootstrap-server."
                );
            }
            return Change::credentials(subjects, operations);
        }
        let mut quotas = BTreeMap::new();
        for (key, operation) in operations {
            let value = match operation {
                ConfigOperation::Set(value) => match value.parse::<f64>() {
                    Ok(number) => Some(number),
                    Err(_) => {
                        bail!("Cannot parse quota configuration value for {key}: {value}")
                    }
                },
                _ => None,
            };
            quotas.insert(key.clone(), value);
        }
        Ok(Change::Quotas(quotas))
    }

    fn credentials(
        subjects: &Subjects,
        operations: &BTreeMap<String, ConfigOperation>,
    ) -> anyhow::Result<Change> {
        let user = subjects.iter().find_map(|(_, name)| name.clone());
        let Some(user) = user.filter(|user| !user.is_empty()) else {
            bail!(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials \
                 using --bootstrap-server."
            );
        };
        let (mut upsertions, mut deletions) = (Vec::new(), Vec::new());
        for (key, operation) in operations {
            let Some(mechanism) = ScramMechanism::from_name(key) else {
                continue;
            };
            match operation {
                ConfigOperation::Set(value) => upsertions.push(credential(mechanism, value)?),
                _ => deletions.push(mechanism),
            }
        }
        Ok(Change::Credentials {
            user,
            upsertions,
            deletions,
        })
    }
}

/// Parses `iterations=8192,password=secret`.
fn credential(mechanism: ScramMechanism, value: &str) -> anyhow::Result<NewScramCredential> {
    let name = mechanism.name();
    let invalid = || {
        anyhow::anyhow!(
            "Invalid credential property {name}; write {name}=[iterations=8192,password=…], the \
             iterations are optional"
        )
    };
    let (iterations, password) = match value.strip_prefix("iterations=") {
        Some(rest) => {
            let (number, rest) = rest.split_once(',').ok_or_else(invalid)?;
            let password = rest.strip_prefix("password=").ok_or_else(invalid)?;
            let iterations = match number {
                "-1" => DEFAULT_ITERATIONS,
                number => number.parse().map_err(|_| invalid())?,
            };
            (iterations, password)
        }
        None => {
            let password = value.strip_prefix("password=").ok_or_else(invalid)?;
            (DEFAULT_ITERATIONS, password)
        }
    };
    // Java's HMAC takes no empty key, so Kafka's tool cannot set such a password either.
    if password.is_empty() {
        bail!("The password of {name} is empty; write {name}=[password=…]");
    }
    if iterations < ScramMechanism::MIN_ITERATIONS {
        bail!(
            "Iterations {iterations} is less than the minimum {} required for {name}",
            ScramMechanism::MIN_ITERATIONS
        );
    }
    if iterations > ScramMechanism::MAX_ITERATIONS {
        bail!(
            "Iterations {iterations} is more than the maximum {} for {name}",
            ScramMechanism::MAX_ITERATIONS
        );
    }
    Ok(NewScramCredential {
        mechanism,
        iterations,
        password: password.to_owned(),
        salt: rand::random::<[u8; 32]>().to_vec(),
    })
}

pub(super) async fn alter(
    admin: &Admin,
    subjects: &Subjects,
    change: Change,
) -> anyhow::Result<()> {
    match change {
        Change::Quotas(quotas) => {
            let existing = admin.describe_client_quotas(&filter(subjects)).await?;
            let existing: BTreeSet<&String> =
                existing.values().flatten().map(|(key, _)| key).collect();
            let missing: Vec<&str> = quotas
                .iter()
                .filter(|(key, value)| value.is_none() && !existing.contains(key))
                .map(|(key, _)| key.as_str())
                .collect();
            if !missing.is_empty() {
                bail!("Invalid config(s): {}", missing.join(","));
            }
            admin.alter_client_quotas(&names(subjects), &quotas).await?;
        }
        Change::Credentials {
            user,
            upsertions,
            deletions,
        } => {
            let altered = admin
                .alter_scram_credentials(&user, &upsertions, &deletions)
                .await;
            if let Err(error) = altered {
                if error.code() == Some(ErrorCode::ResourceNotFound) {
                    bail!("{user} has no such credential: {}", error.broker_message());
                }
                return Err(error.into());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(
        subjects: &[(EntityType, &str)],
        settings: &[(&str, Option<&str>)],
    ) -> anyhow::Result<Change> {
        let subjects: Vec<(EntityType, Option<String>)> = subjects
            .iter()
            .map(|(kind, name)| (*kind, Some((*name).to_owned())))
            .collect();
        let operations = settings
            .iter()
            .map(|(key, value)| {
                let operation = match value {
                    Some(value) => ConfigOperation::Set((*value).to_owned()),
                    None => ConfigOperation::Delete,
                };
                ((*key).to_owned(), operation)
            })
            .collect();
        Change::new(&subjects, &operations)
    }

    #[test]
    fn each_kind_has_its_settings() {
        let alice = [(EntityType::Users, "alice")];
        let rate = ("producer_byte_rate", Some("1024"));
        let scram = ("SCRAM-SHA-256", Some("iterations=8192,password=a,b"));
        let Ok(Change::Quotas(quotas)) = change(&alice, &[rate, ("request_percentage", None)])
        else {
            panic!("quotas")
        };
        assert_eq!(quotas["producer_byte_rate"], Some(1024.0));
        assert_eq!(quotas["request_percentage"], None);
        let Ok(Change::Credentials { upsertions, .. }) = change(&alice, &[scram]) else {
            panic!("credentials")
        };
        assert_eq!(upsertions[0].iterations, 8192);
        assert_eq!(upsertions[0].password, "a,b");
        let both = [(EntityType::Users, "alice"), (EntityType::Clients, "c")];
        for (subjects, settings, says) in [
            (&alice[..], &[rate, scram][..], "both quota and SCRAM"),
            (
                &both[..],
                &[scram][..],
                "Only quota configs can be added for 'clients'",
            ),
            (&alice[..], &[("x", None)][..], "can be deleted for 'users'"),
            (
                &[(EntityType::Ips, "::1")][..],
                &[rate][..],
                "Only connection quota",
            ),
            (
                &alice[..],
                &[("producer_byte_rate", Some("fast"))][..],
                "Cannot parse",
            ),
            (
                &[(EntityType::Users, "")][..],
                &[scram][..],
                "not allowed with User SCRAM",
            ),
            (
                &alice[..],
                &[("SCRAM-SHA-512", Some("iterations=5,password=x"))][..],
                "less than the minimum 4096",
            ),
            (
                &alice[..],
                &[("SCRAM-SHA-512", Some("x"))][..],
                "Invalid credential",
            ),
            (
                &alice[..],
                &[("SCRAM-SHA-512", Some("password="))][..],
                "is empty",
            ),
            (
                &alice[..],
                &[("SCRAM-SHA-512", Some("iterations=8192,password="))][..],
                "is empty",
            ),
        ] {
            let error = change(subjects, settings).err().expect(says).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
