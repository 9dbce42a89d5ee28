//! Azure Blob Storage, and where its credentials come from when the settings do not hold them.
//!
//! The order is that of `DefaultAzureCredential`: the secret of an application, workload identity,
//! managed identity. The logins of developer tools, which it tries after that, are left out.

use std::sync::Arc;

use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use super::aws_credentials::Environment;
use super::client::{client_options, retries};
use super::object_storage::ObjectStorage;
use crate::error::RemoteStorageError;
use crate::settings::{AzureCredentials, AzureSettings};

const CLIENT_ID: &str = "AZURE_CLIENT_ID";
const TENANT_ID: &str = "AZURE_TENANT_ID";
const CLIENT_SECRET: &str = "AZURE_CLIENT_SECRET";
const TOKEN_FILE: &str = "AZURE_FEDERATED_TOKEN_FILE";
const AUTHORITY: &str = "AZURE_AUTHORITY_HOST";
/// In App Service; `object_store` reads `IDENTITY_HEADER` itself.
const IDENTITY_ENDPOINT: &str = "IDENTITY_ENDPOINT";

pub fn open_azure(
    settings: &AzureSettings,
    environment: Environment<'_>,
) -> Result<ObjectStorage, RemoteStorageError> {
    let builder = MicrosoftAzureBuilder::new()
        .with_account(&settings.account)
        .with_container_name(&settings.container)
        .with_endpoint(settings.endpoint_url.clone())
        .with_client_options(client_options(Some(&settings.endpoint_url)))
        .with_retry(retries(None));
    let builder = match &settings.credentials {
        AzureCredentials::Key(key) => builder.with_access_key(key),
        // It is percent-encoded, and so must not be taken apart here.
        AzureCredentials::SasToken(token) => builder.with_config(AzureConfigKey::SasKey, token),
        AzureCredentials::Default => with_identity(builder, environment),
    };
    let store = builder
        .build()
        .map_err(|error| RemoteStorageError::settings("storage.azure.*", error))?;
    Ok(ObjectStorage::new(
        Arc::new(store),
        format!("azure://{}/{}", settings.account, settings.container),
        settings.block_size,
    ))
}

fn with_identity(
    mut builder: MicrosoftAzureBuilder,
    environment: Environment<'_>,
) -> MicrosoftAzureBuilder {
    let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
    for (name, key) in [
        (CLIENT_ID, AzureConfigKey::ClientId),
        (TENANT_ID, AzureConfigKey::AuthorityId),
        (CLIENT_SECRET, AzureConfigKey::ClientSecret),
        (TOKEN_FILE, AzureConfigKey::FederatedTokenFile),
        (IDENTITY_ENDPOINT, AzureConfigKey::MsiEndpoint),
    ] {
        if let Some(value) = variable(name) {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(host) = variable(AUTHORITY) {
        builder = builder.with_authority_host(host.trim_end_matches('/'));
    }
    let is_set = |names: &[&str]| names.iter().all(|name| variable(name).is_some());
    let kind = if is_set(&[CLIENT_ID, TENANT_ID, CLIENT_SECRET]) {
        "client_secret"
    } else if is_set(&[CLIENT_ID, TENANT_ID, TOKEN_FILE]) {
        "workload_identity"
    } else {
        "managed_identity"
    };
    builder.with_credential_type(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_chosen_in_the_order_of_azures_sdk() {
        let kind = |variables: &[&str]| {
            let environment = |name: &str| {
                variables
                    .contains(&name)
                    .then(|| "https://host/".to_owned())
            };
            let builder = with_identity(MicrosoftAzureBuilder::new(), &environment);
            let value = |key| builder.get_config_value(&key);
            (
                value(AzureConfigKey::CredentialType).unwrap(),
                value(AzureConfigKey::AuthorityHost),
            )
        };
        let all = [CLIENT_ID, TENANT_ID, TOKEN_FILE, CLIENT_SECRET, AUTHORITY];
        let host = Some("https://host".to_owned());
        assert_eq!(kind(&all), ("client_secret".to_owned(), host));
        assert_eq!(kind(&all[..3]), ("workload_identity".to_owned(), None));
        assert_eq!(kind(&all[..1]), ("managed_identity".to_owned(), None));
        assert_eq!(kind(&[]), ("managed_identity".to_owned(), None));
    }
}
