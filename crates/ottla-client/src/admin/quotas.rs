//! Client quotas and user credentials.

use std::collections::BTreeMap;

use ottla_protocol::messages::alter_client_quotas_request as alter;
use ottla_protocol::messages::alter_user_scram_credentials_request::{
    AlterUserScramCredentialsRequest, ScramCredentialDeletion, ScramCredentialUpsertion,
};
use ottla_protocol::messages::describe_client_quotas_request::{
    ComponentData, DescribeClientQuotasRequest,
};
use ottla_protocol::messages::describe_user_scram_credentials_request::{
    DescribeUserScramCredentialsRequest, UserName,
};
use ottla_protocol::messages::describe_user_scram_credentials_response::DescribeUserScramCredentialsResult;
use ottla_sasl::ScramMechanism;
use ottla_types::ErrorCode;

use super::{Admin, text};
use crate::error::ClientError;

/// The entity of a quota: for each type (`user`, `client-id`, `ip`) a name, or `None` for the
/// default.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use std::collections::BTreeMap;
/// use ottla_client::admin::QuotaEntity;
///
/// // The default for clients of alice that have no quota of their own.
/// let entity: QuotaEntity = BTreeMap::from([
///     ("user".to_owned(), Some("alice".to_owned())),
///     ("client-id".to_owned(), None),
/// ]);
/// let quotas = BTreeMap::from([("consumer_byte_rate".to_owned(), Some(1_048_576.0))]);
/// admin.alter_client_quotas(&entity, &quotas).await?;
/// # Ok(())
/// # }
/// ```
pub type QuotaEntity = BTreeMap<String, Option<String>>;

/// Which names of a type match. The numbers are Kafka's.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::admin::QuotaMatch;
///
/// let filter = [("user".to_owned(), QuotaMatch::Exactly("alice".to_owned()))];
/// println!("{:?}", admin.describe_client_quotas(&filter).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QuotaMatch {
    Exactly(String),
    Default,
    Any,
}

/// A SCRAM credential to store.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin, salt: Vec<u8>) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::ScramMechanism;
/// use ottla_client::admin::NewScramCredential;
///
/// // `salt` holds random bytes, for example 16 of them.
/// let credential = NewScramCredential {
///     mechanism: ScramMechanism::Sha512,
///     iterations: 8192,
///     password: "secret".to_owned(),
///     salt,
/// };
/// admin.alter_scram_credentials("alice", &[credential], &[]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NewScramCredential {
    pub mechanism: ScramMechanism,
    pub iterations: u32,
    pub password: String,
    /// Must be random.
    pub salt: Vec<u8>,
}

impl Admin {
    /// The quotas of the entities with exactly these types, in the order of the response.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::admin::QuotaMatch;
    ///
    /// let filter = [("client-id".to_owned(), QuotaMatch::Any)];
    /// for (entity, quotas) in admin.describe_client_quotas(&filter).await? {
    ///     println!("{entity:?}: {quotas:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn describe_client_quotas(
        &self,
        filter: &[(String, QuotaMatch)],
    ) -> Result<BTreeMap<QuotaEntity, Vec<(String, f64)>>, ClientError> {
        let component = |(kind, wanted): &(String, QuotaMatch)| {
            let (match_type, name) = match wanted {
                QuotaMatch::Exactly(name) => (0, Some(text(name))),
                QuotaMatch::Default => (1, None),
                QuotaMatch::Any => (2, None),
            };
            ComponentData {
                entity_type: text(kind),
                match_type,
                r#match: name,
                ..Default::default()
            }
        };
        let request = DescribeClientQuotasRequest {
            components: filter.iter().map(component).collect(),
            strict: true,
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        let what = "describing quotas";
        ClientError::check(what, response.error_code, response.error_message.as_ref())?;
        let entries = response.entries.unwrap_or_default().into_iter();
        Ok(entries
            .map(|entry| {
                let entity = entry.entity.into_iter().map(|part| {
                    let name = part.entity_name.map(|name| name.to_string());
                    (part.entity_type.to_string(), name)
                });
                let values = entry.values.into_iter();
                (
                    entity.collect(),
                    values
                        .map(|value| (value.key.to_string(), value.value))
                        .collect(),
                )
            })
            .collect())
    }

    /// Sets quotas of an entity. A quota without a value is removed.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeMap;
    ///
    /// let entity = BTreeMap::from([("user".to_owned(), Some("alice".to_owned()))]);
    /// let quotas = BTreeMap::from([
    ///     ("producer_byte_rate".to_owned(), Some(10_485_760.0)),
    ///     ("request_percentage".to_owned(), None),
    /// ]);
    /// admin.alter_client_quotas(&entity, &quotas).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn alter_client_quotas(
        &self,
        entity: &QuotaEntity,
        quotas: &BTreeMap<String, Option<f64>>,
    ) -> Result<(), ClientError> {
        let request = alter::AlterClientQuotasRequest {
            entries: vec![alter::EntryData {
                entity: entity
                    .iter()
                    .map(|(kind, name)| alter::EntityData {
                        entity_type: text(kind),
                        entity_name: name.as_deref().map(text),
                        ..Default::default()
                    })
                    .collect(),
                ops: quotas
                    .iter()
                    .map(|(key, value)| alter::OpData {
                        key: text(key),
                        value: value.unwrap_or_default(),
                        remove: value.is_none(),
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        response.entries.iter().try_for_each(|entry| {
            ClientError::check(
                "changing quotas",
                entry.error_code,
                entry.error_message.as_ref(),
            )
        })
    }

    /// The SCRAM mechanisms of users, or of all users if none is named. Users without credentials
    /// are omitted.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// for user in admin.describe_scram_credentials(&[]).await? {
    ///     println!("{}: {} mechanisms", user.user, user.credential_infos.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn describe_scram_credentials(
        &self,
        users: &[String],
    ) -> Result<Vec<DescribeUserScramCredentialsResult>, ClientError> {
        let name = |user: &String| UserName {
            name: text(user),
            ..Default::default()
        };
        let request = DescribeUserScramCredentialsRequest {
            users: (!users.is_empty()).then(|| users.iter().map(name).collect()),
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        let what = "describing credentials";
        ClientError::check(what, response.error_code, response.error_message.as_ref())?;
        let mut results = response.results;
        results.retain(|result| result.error_code != ErrorCode::ResourceNotFound.code());
        Ok(results)
    }

    /// Stores and deletes credentials of a user.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::ScramMechanism;
    ///
    /// // Alice can no longer log in with SCRAM-SHA-256.
    /// admin.alter_scram_credentials("alice", &[], &[ScramMechanism::Sha256]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn alter_scram_credentials(
        &self,
        user: &str,
        upsertions: &[NewScramCredential],
        deletions: &[ScramMechanism],
    ) -> Result<(), ClientError> {
        let request = AlterUserScramCredentialsRequest {
            deletions: deletions
                .iter()
                .map(|mechanism| ScramCredentialDeletion {
                    name: text(user),
                    mechanism: *mechanism as i8,
                    ..Default::default()
                })
                .collect(),
            upsertions: upsertions
                .iter()
                .map(|new| {
                    let password = new.password.as_bytes();
                    let salted = new
                        .mechanism
                        .salted_password(password, &new.salt, new.iterations);
                    ScramCredentialUpsertion {
                        name: text(user),
                        mechanism: new.mechanism as i8,
                        iterations: new.iterations as i32,
                        salt: new.salt.clone().into(),
                        salted_password: salted.into(),
                        ..Default::default()
                    }
                })
                .collect(),
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        response.results.iter().try_for_each(|result| {
            ClientError::check(
                format!("changing the credentials of {user}"),
                result.error_code,
                result.error_message.as_ref(),
            )
        })
    }
}
