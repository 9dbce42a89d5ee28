//! Opens the store that the settings name.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, Checksum};
#[cfg(feature = "azure")]
use object_store::azure::MicrosoftAzureBuilder;
#[cfg(feature = "gcs")]
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use object_store::local::LocalFileSystem;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::aws_credentials::{CredentialsFile, Environment, Rotated, SettingsFile, provide};
use super::object_storage::ObjectStorage;
use crate::error::RemoteStorageError;
#[cfg(feature = "azure")]
use crate::settings::{AzureCredentials, AzureSettings};
use crate::settings::{BackendSettings, S3Credentials, S3Settings};
#[cfg(feature = "gcs")]
use crate::settings::{GcsCredentials, GcsSettings};

/// Attempts of one request after the first.
const MAX_RETRIES: usize = 4;
/// How long a request is tried again, unless the settings say it.
const RETRY_TIME: Duration = Duration::from_secs(60);
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How long a store may say nothing, in the middle of an answer or of an upload of a part.
const SILENCE: Duration = Duration::from_secs(60);
/// Files need no parts; this bounds the size of a write.
const FILE_PART_SIZE: usize = 8 << 20;

/// Opens a store. Sends no request to it.
pub fn open_store(
    settings: &BackendSettings,
    environment: Environment<'_>,
) -> Result<ObjectStorage, RemoteStorageError> {
    match settings {
        BackendSettings::S3(settings) => open_s3(settings, environment),
        #[cfg(feature = "gcs")]
        BackendSettings::Gcs(settings) => open_gcs(settings),
        #[cfg(not(feature = "gcs"))]
        BackendSettings::Gcs(_) => Err(not_built("GCS", "gcs")),
        #[cfg(feature = "azure")]
        BackendSettings::Azure(settings) => open_azure(settings),
        #[cfg(not(feature = "azure"))]
        BackendSettings::Azure(_) => Err(not_built("Azure", "azure")),
        BackendSettings::FileSystem { root } => {
            let store = LocalFileSystem::new_with_prefix(root)
                .map_err(|error| RemoteStorageError::settings("storage.root", error))?
                .with_automatic_cleanup(true)
                // The local segment goes once its copy has ended.
                .with_fsync(true);
            let location = format!("file://{}", root.display());
            Ok(ObjectStorage::new(
                Arc::new(store),
                location,
                FILE_PART_SIZE,
            ))
        }
    }
}

#[cfg(not(all(feature = "gcs", feature = "azure")))]
fn not_built(store: &str, feature: &str) -> RemoteStorageError {
    let cause = format!(
        "this build has no client for {store}; build it with the feature {feature} of \
         ottla-tiered-storage, or use S3"
    );
    RemoteStorageError::settings("storage.backend.class", cause)
}

fn open_s3(
    settings: &S3Settings,
    environment: Environment<'_>,
) -> Result<ObjectStorage, RemoteStorageError> {
    let mut client = client_options(settings.endpoint_url.as_deref());
    if let Some(timeout) = settings.api_call_attempt_timeout {
        client = client.with_timeout(timeout).with_read_timeout(timeout);
    }
    if !settings.certificate_check {
        client = client.with_allow_invalid_certificates(true);
    }
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&settings.bucket)
        .with_region(&settings.region)
        // Few objects make up a segment, and not every server deletes several at once.
        .with_disable_bulk_delete(true)
        // TLS protects the bytes already, so their SHA-256 would be processor time for nothing.
        // AWS's own clients do the same.
        .with_unsigned_payload(!is_plain_http(settings.endpoint_url.as_deref()))
        .with_client_options(client)
        .with_retry(retries(settings.api_call_timeout));
    if settings.checksum_check {
        builder = builder.with_checksum_algorithm(Checksum::CRC64NVME);
    }
    let is_virtual_hosted = !settings
        .path_style_access
        .unwrap_or(settings.endpoint_url.is_some());
    builder = builder.with_virtual_hosted_style_request(is_virtual_hosted);
    if let Some(endpoint) = &settings.endpoint_url {
        let endpoint = endpoint.trim_end_matches('/');
        // object_store takes the endpoint of a virtual host with the bucket in it.
        let endpoint = match endpoint.split_once("://") {
            Some((scheme, host)) if is_virtual_hosted => {
                format!("{scheme}://{}.{host}", settings.bucket)
            }
            _ => endpoint.to_owned(),
        };
        builder = builder.with_endpoint(endpoint);
    }
    builder = match &settings.credentials {
        S3Credentials::Static { id, secret, token } => {
            let builder = builder
                .with_access_key_id(id)
                .with_secret_access_key(secret);
            match token {
                Some(token) => builder.with_token(token),
                None => builder,
            }
        }
        S3Credentials::File(path) => {
            let file = SettingsFile { path: path.clone() };
            file.read()?;
            builder.with_credentials(Arc::new(Rotated::new(file)))
        }
        S3Credentials::Provider(provider) => provide(builder, *provider, environment)?,
    };
    let store = builder
        .build()
        .map_err(|error| RemoteStorageError::settings("storage.s3.*", error))?;
    let location = format!("s3://{}", settings.bucket);
    let mut storage = ObjectStorage::new(Arc::new(store), location, settings.part_size)
        .operation_timeout(settings.api_call_timeout);
    if settings.storage_class != S3Settings::STANDARD {
        storage = storage.storage_class(&settings.storage_class);
    }
    Ok(storage)
}

#[cfg(feature = "gcs")]
fn open_gcs(settings: &GcsSettings) -> Result<ObjectStorage, RemoteStorageError> {
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name(&settings.bucket)
        .with_client_options(client_options(settings.endpoint_url.as_deref()))
        .with_retry(retries(None));
    if let Some(endpoint) = &settings.endpoint_url {
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    builder = match &settings.credentials {
        GcsCredentials::Json(json) => builder.with_service_account_key(json),
        GcsCredentials::Path(path) => builder.with_service_account_path(path),
        GcsCredentials::Default => builder,
        GcsCredentials::None => {
            let anonymous = GcpCredential {
                bearer: String::new(),
            };
            builder
                .with_credentials(Arc::new(object_store::StaticCredentialProvider::new(
                    anonymous,
                )))
                .with_skip_signature(true)
        }
    };
    let store = builder
        .build()
        .map_err(|error| RemoteStorageError::settings("storage.gcs.*", error))?;
    Ok(ObjectStorage::new(
        Arc::new(store),
        format!("gs://{}", settings.bucket),
        settings.chunk_size,
    ))
}

#[cfg(feature = "azure")]
fn open_azure(settings: &AzureSettings) -> Result<ObjectStorage, RemoteStorageError> {
    let mut builder = MicrosoftAzureBuilder::new()
        .with_container_name(&settings.container)
        .with_client_options(client_options(settings.endpoint_url.as_deref()))
        .with_retry(retries(None));
    if let Some(account) = &settings.account {
        builder = builder.with_account(account);
    }
    if let Some(endpoint) = &settings.endpoint_url {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    builder = match &settings.credentials {
        AzureCredentials::Key(key) => builder.with_access_key(key),
        AzureCredentials::SasToken(pairs) => builder.with_sas_authorization(pairs.clone()),
        AzureCredentials::Default => builder,
    };
    let store = builder
        .build()
        .map_err(|error| RemoteStorageError::settings("storage.azure.*", error))?;
    let account = settings.account.as_deref().unwrap_or_default();
    let location = format!("azure://{account}/{}", settings.container);
    Ok(ObjectStorage::new(
        Arc::new(store),
        location,
        settings.block_size,
    ))
}

/// HTTP is allowed where an endpoint says it.
fn client_options(endpoint: Option<&str>) -> ClientOptions {
    ClientOptions::new()
        .with_allow_http(is_plain_http(endpoint))
        .with_connect_timeout(CONNECT_TIME)
        .with_timeout_disabled()
        .with_read_timeout(SILENCE)
}

fn is_plain_http(endpoint: Option<&str>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

/// The budget of one request: attempts and time, whichever is used up first.
fn retries(timeout: Option<Duration>) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: MAX_RETRIES,
        retry_timeout: timeout.unwrap_or(RETRY_TIME),
    }
}
