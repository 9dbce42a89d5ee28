//! Opens the store that the settings name.

use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::local::LocalFileSystem;

use super::aws_credentials::{Environment, SettingsFile, provide};
#[cfg(feature = "azure")]
use super::azure::open_azure;
use super::client::{client_options, is_plain_http, retries};
#[cfg(feature = "gcs")]
use super::gcs::open_gcs;
use super::object_storage::ObjectStorage;
use super::rotated::{CredentialsFile, Rotated};
use crate::error::RemoteStorageError;
use crate::settings::{BackendSettings, S3Credentials, S3Settings};

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
        BackendSettings::Gcs(settings) => open_gcs(settings, environment),
        #[cfg(not(feature = "gcs"))]
        BackendSettings::Gcs(_) => Err(not_built("GCS", "gcs")),
        #[cfg(feature = "azure")]
        BackendSettings::Azure(settings) => open_azure(settings, environment),
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
