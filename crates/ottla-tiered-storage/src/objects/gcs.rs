//! Google Cloud Storage through its XML API, and where its credentials come from.
//!
//! The plugin accepts every kind of Google's credentials. `object_store` knows service accounts,
//! authorized users and the metadata server; others are refused by name. As in the plugin, a file
//! may also hold nothing but an access token, which another process replaces before it expires.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::StaticCredentialProvider;
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use ottla_sync::fs;
use serde::Deserialize;

use super::aws_credentials::Environment;
use super::client::{client_options, retries};
use super::gcs_requests::GcsConnector;
use super::object_storage::ObjectStorage;
use super::rotated::{CredentialsFile, Provider, Rotated};
use crate::error::RemoteStorageError;
use crate::settings::{GcsCredentials, GcsSettings};

const JSON: &str = "storage.gcs.credentials.json";
/// A file with credentials (`GoogleCredentials.getApplicationDefault`).
const FILE_VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

pub fn open_gcs(
    settings: &GcsSettings,
    environment: Environment<'_>,
) -> Result<ObjectStorage, RemoteStorageError> {
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name(&settings.bucket)
        .with_client_options(client_options(settings.endpoint_url.as_deref()))
        .with_http_connector(GcsConnector)
        .with_retry(retries(None));
    if let Some(endpoint) = &settings.endpoint_url {
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    builder = match &settings.credentials {
        GcsCredentials::Json(json) => {
            let provider = provider(&builder, json, None)
                .map_err(|cause| RemoteStorageError::settings(JSON, cause))?;
            builder.with_credentials(provider)
        }
        GcsCredentials::Path(path) => from_file(builder, path)?,
        GcsCredentials::Default => match environment(FILE_VARIABLE) {
            Some(path) if !path.is_empty() => from_file(builder, &path)?,
            // The file of the gcloud command, otherwise the metadata server.
            _ => builder,
        },
        GcsCredentials::None => builder
            .with_credentials(access_token(String::new()))
            .with_skip_signature(true),
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

fn from_file(
    builder: GoogleCloudStorageBuilder,
    path: &str,
) -> Result<GoogleCloudStorageBuilder, RemoteStorageError> {
    let file = KeyFile {
        path: PathBuf::from(path),
        builder: builder.clone(),
    };
    file.read()?;
    Ok(builder.with_credentials(Arc::new(Rotated::new(file))))
}

/// A file with credentials of Google, or with an access token.
#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
    /// How the server that gives out tokens is connected to.
    builder: GoogleCloudStorageBuilder,
}

impl CredentialsFile for KeyFile {
    type Credential = GcpCredential;

    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self) -> Result<Provider<GcpCredential>, RemoteStorageError> {
        let text = fs::read(&self.path)
            .map_err(|error| RemoteStorageError::local(&self.path, "read", &error))?;
        let text = String::from_utf8_lossy(&text);
        provider(&self.builder, &text, Some(&self.path)).map_err(|cause| {
            let what = format!("credentials in {}", self.path.display());
            RemoteStorageError::settings(&what, cause)
        })
    }
}

/// What tells the kinds of credentials apart.
#[derive(Deserialize)]
struct Kind {
    r#type: Option<String>,
    access_token: Option<String>,
}

/// The error never shows the text: it holds a key.
fn provider(
    builder: &GoogleCloudStorageBuilder,
    json: &str,
    path: Option<&Path>,
) -> Result<Provider<GcpCredential>, String> {
    let kind: Kind = serde_json::from_str(json).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("line {line}, column {column} is not JSON with credentials of Google")
    })?;
    let builder = builder.clone();
    let builder = match (kind.r#type.as_deref(), kind.access_token, path) {
        (None, Some(token), _) => return Ok(access_token(token)),
        (Some("service_account"), ..) => builder.with_service_account_key(json),
        (Some("authorized_user"), _, Some(path)) => {
            builder.with_application_credentials(path.display().to_string())
        }
        (Some("authorized_user"), _, None) => {
            let cause = "is of the type authorized_user; write it to a file, and name the file in \
                         storage.gcs.credentials.path";
            return Err(cause.to_owned());
        }
        (other, ..) => {
            let other = other.unwrap_or("none");
            return Err(format!(
                "the type is {other}; known are service_account, authorized_user, and an \
                 access_token without a type"
            ));
        }
    };
    let store = builder.build().map_err(|error| error.to_string())?;
    Ok(store.credentials().clone())
}

fn access_token(bearer: String) -> Provider<GcpCredential> {
    Arc::new(StaticCredentialProvider::new(GcpCredential { bearer }))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use object_store::CredentialProvider;

    use super::*;

    fn builder() -> GoogleCloudStorageBuilder {
        GoogleCloudStorageBuilder::new().with_bucket_name("b")
    }

    #[tokio::test]
    async fn an_access_token_is_read_again_when_its_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token.json");
        let write = |token: &str, seconds| {
            std::fs::write(&path, format!(r#"{{"access_token": "{token}"}}"#)).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            file.set_modified(at).unwrap();
        };
        write("first", 1);
        let rotated = Rotated::new(KeyFile {
            path: path.clone(),
            builder: builder(),
        });
        let token = async || rotated.get_credential().await.unwrap().bearer.clone();
        assert_eq!(token().await, "first");
        write("second", 2);
        assert_eq!(token().await, "second");
    }

    #[test]
    fn credentials_of_other_kinds_are_refused_by_name() {
        for (json, expected) in [
            (
                r#"{"type": "external_account", "secret": "s3cret"}"#,
                "external_account",
            ),
            (
                r#"{"type": "authorized_user", "secret": "s3cret"}"#,
                "storage.gcs.credentials.path",
            ),
            (r#"{"secret": "s3cret"}"#, "the type is none"),
            (r#"{"access_token": s3cret}"#, "line 1"),
            (
                r#"{"type": "service_account", "secret": "s3cret"}"#,
                "private_key",
            ),
        ] {
            let error = provider(&builder(), json, None).unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn the_variable_of_google_names_the_default_credentials() {
        let settings = GcsSettings {
            bucket: "b".to_owned(),
            endpoint_url: None,
            chunk_size: 5 << 20,
            credentials: GcsCredentials::Default,
        };
        let environment = |name: &str| (name == FILE_VARIABLE).then(|| "/no/such/file".to_owned());
        let error = open_gcs(&settings, &environment).err().unwrap();
        assert_eq!(error.what, "read /no/such/file");
    }
}
