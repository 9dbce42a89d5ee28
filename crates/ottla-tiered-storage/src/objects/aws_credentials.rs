//! Where S3 credentials come from when the settings do not hold them.
//!
//! The order is that of the AWS SDK for Java: environment, web identity token, profile, container,
//! instance metadata. `object_store` does all but profiles, and files that are rotated.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::StaticCredentialProvider;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential};
use ottla_sync::fs;

use super::rotated::{CredentialsFile, Provider, Rotated};
use crate::error::RemoteStorageError;
use crate::settings::AwsProvider;

/// Reads a variable of the process's environment.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Adds the credentials of a provider to the builder.
pub fn provide(
    builder: AmazonS3Builder,
    provider: AwsProvider,
    environment: Environment<'_>,
) -> Result<AmazonS3Builder, RemoteStorageError> {
    let refused =
        |what: &str| RemoteStorageError::settings("storage.aws.credentials.provider.class", what);
    match provider {
        AwsProvider::Anonymous => Ok(builder.with_skip_signature(true)),
        AwsProvider::Environment => {
            from_environment(builder.clone(), environment).ok_or_else(|| {
                refused("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not in the environment")
            })
        }
        AwsProvider::WebIdentity => {
            from_web_identity(builder.clone(), environment).ok_or_else(|| {
                refused("AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN are not in the environment")
            })
        }
        AwsProvider::Profile => {
            let profile = ProfileFile::locate(environment);
            profile.read()?;
            Ok(builder.with_credentials(Arc::new(Rotated::new(profile))))
        }
        AwsProvider::Container => from_container(builder.clone(), environment).ok_or_else(|| {
            refused(
                "neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, nor \
                 AWS_CONTAINER_CREDENTIALS_FULL_URI with AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE \
                 is in the environment",
            )
        }),
        AwsProvider::Instance => Ok(builder),
        AwsProvider::Default => {
            if let Some(builder) = from_environment(builder.clone(), environment) {
                return Ok(builder);
            }
            if let Some(builder) = from_web_identity(builder.clone(), environment) {
                return Ok(builder);
            }
            let profile = ProfileFile::locate(environment);
            if profile.read().is_ok() {
                return Ok(builder.with_credentials(Arc::new(Rotated::new(profile))));
            }
            // Without any of them, object_store asks the metadata service of the instance.
            Ok(from_container(builder.clone(), environment).unwrap_or(builder))
        }
    }
}

fn from_environment(
    builder: AmazonS3Builder,
    environment: Environment<'_>,
) -> Option<AmazonS3Builder> {
    let mut builder = builder
        .with_access_key_id(environment("AWS_ACCESS_KEY_ID")?)
        .with_secret_access_key(environment("AWS_SECRET_ACCESS_KEY")?);
    if let Some(token) = environment("AWS_SESSION_TOKEN") {
        builder = builder.with_token(token);
    }
    Some(builder)
}

fn from_web_identity(
    builder: AmazonS3Builder,
    environment: Environment<'_>,
) -> Option<AmazonS3Builder> {
    let token_file = environment("AWS_WEB_IDENTITY_TOKEN_FILE")?;
    let role = environment("AWS_ROLE_ARN")?;
    let mut builder = builder
        .with_config(AmazonS3ConfigKey::WebIdentityTokenFile, token_file)
        .with_config(AmazonS3ConfigKey::RoleArn, role);
    for (variable, key) in [
        ("AWS_ROLE_SESSION_NAME", AmazonS3ConfigKey::RoleSessionName),
        ("AWS_ENDPOINT_URL_STS", AmazonS3ConfigKey::StsEndpoint),
    ] {
        if let Some(value) = environment(variable) {
            builder = builder.with_config(key, value);
        }
    }
    Some(builder)
}

fn from_container(
    builder: AmazonS3Builder,
    environment: Environment<'_>,
) -> Option<AmazonS3Builder> {
    if let Some(uri) = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        let key = AmazonS3ConfigKey::ContainerCredentialsRelativeUri;
        return Some(builder.with_config(key, uri));
    }
    let uri = environment("AWS_CONTAINER_CREDENTIALS_FULL_URI")?;
    let token_file = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")?;
    Some(
        builder
            .with_config(AmazonS3ConfigKey::ContainerCredentialsFullUri, uri)
            .with_config(
                AmazonS3ConfigKey::ContainerAuthorizationTokenFile,
                token_file,
            ),
    )
}

/// A profile of `~/.aws/credentials`, or of the file that AWS_SHARED_CREDENTIALS_FILE names.
#[derive(Debug)]
pub struct ProfileFile {
    path: PathBuf,
    profile: String,
}

impl ProfileFile {
    pub fn locate(environment: Environment<'_>) -> ProfileFile {
        let path = environment("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
        let home = environment("HOME").unwrap_or_default();
        ProfileFile {
            path: path.unwrap_or_else(|| Path::new(&home).join(".aws/credentials")),
            profile: environment("AWS_PROFILE").unwrap_or_else(|| "default".to_owned()),
        }
    }
}

impl CredentialsFile for ProfileFile {
    type Credential = AwsCredential;

    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self) -> Result<Provider<AwsCredential>, RemoteStorageError> {
        let text = fs::read(&self.path)
            .map_err(|error| RemoteStorageError::local(&self.path, "read", &error))?;
        let values = profile_values(&String::from_utf8_lossy(&text), &self.profile);
        let missing = |cause: &str| {
            let what = format!("profile {} in {}", self.profile, self.path.display());
            RemoteStorageError::settings(&what, cause)
        };
        let Some(values) = values else {
            return Err(missing("there is no such profile"));
        };
        match (
            values.get("aws_access_key_id"),
            values.get("aws_secret_access_key"),
        ) {
            (Some(id), Some(secret)) => Ok(fixed(AwsCredential {
                key_id: id.clone(),
                secret_key: secret.clone(),
                token: values.get("aws_session_token").cloned(),
            })),
            _ => Err(missing(
                "it has no aws_access_key_id and aws_secret_access_key; roles, single sign-on and \
                 credential processes of profiles are not supported",
            )),
        }
    }
}

fn fixed(credential: AwsCredential) -> Provider<AwsCredential> {
    Arc::new(StaticCredentialProvider::new(credential))
}

/// The keys of a section of an INI file.
fn profile_values(text: &str, profile: &str) -> Option<BTreeMap<String, String>> {
    let mut values: Option<BTreeMap<String, String>> = None;
    let mut is_inside = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            is_inside = section.trim() == profile;
            if is_inside {
                values.get_or_insert_default();
            }
        } else if let (true, Some((key, value))) = (is_inside, line.split_once('=')) {
            values
                .get_or_insert_default()
                .insert(key.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    values
}

/// A properties file with the three settings (`aws.credentials.file`), with or without the prefix
/// that they have in a broker's file.
#[derive(Debug)]
pub struct SettingsFile {
    pub path: PathBuf,
}

impl CredentialsFile for SettingsFile {
    type Credential = AwsCredential;

    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self) -> Result<Provider<AwsCredential>, RemoteStorageError> {
        let bytes = fs::read(&self.path)
            .map_err(|error| RemoteStorageError::local(&self.path, "read", &error))?;
        let name = self.path.display().to_string();
        let properties = ottla_config::Properties::parse_bytes(&bytes, &name)
            .map_err(|error| RemoteStorageError::settings(&name, error))?;
        let value = |key: &str| {
            let full = format!("rsm.config.storage.{key}");
            let value = properties.value(&full).or_else(|| properties.value(key));
            value.map(str::to_owned)
        };
        match (value("aws.access.key.id"), value("aws.secret.access.key")) {
            (Some(key_id), Some(secret_key)) => Ok(fixed(AwsCredential {
                key_id,
                secret_key,
                token: value("aws.session.token"),
            })),
            _ => Err(RemoteStorageError::settings(
                &name,
                "it has no aws.access.key.id and aws.secret.access.key",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use object_store::CredentialProvider;

    use super::*;

    #[test]
    fn the_named_profile_is_read() {
        let text = "[default]\naws_access_key_id = A\n# [other]\n[other]\naws_access_key_id=B\n\
                    aws_secret_access_key = C=D\n";
        let values = profile_values(text, "other").unwrap();
        assert_eq!(values["aws_access_key_id"], "B");
        assert_eq!(values["aws_secret_access_key"], "C=D");
        assert_eq!(profile_values(text, "none"), None);
    }

    #[tokio::test]
    async fn a_file_that_changes_is_read_again_and_one_that_breaks_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        let write = |id: &str, seconds| {
            let text = format!("[default]\naws_access_key_id={id}\naws_secret_access_key=s\n");
            std::fs::write(&path, text).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            file.set_modified(at).unwrap();
        };
        write("first", 1);
        let environment = |name: &str| {
            (name == "AWS_SHARED_CREDENTIALS_FILE").then(|| path.display().to_string())
        };
        let rotated = Rotated::new(ProfileFile::locate(&environment));
        let id = async || rotated.get_credential().await.unwrap().key_id.clone();
        assert_eq!(id().await, "first");
        write("second", 2);
        assert_eq!(id().await, "second");
        std::fs::write(&path, "").unwrap();
        assert_eq!(id().await, "second");
    }

    #[test]
    fn a_provider_without_its_variables_is_refused_by_name() {
        let nothing = |_: &str| None;
        for (provider, named) in [
            (AwsProvider::Environment, "AWS_ACCESS_KEY_ID"),
            (AwsProvider::WebIdentity, "AWS_WEB_IDENTITY_TOKEN_FILE"),
            (AwsProvider::Container, "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        ] {
            let error = provide(AmazonS3Builder::new(), provider, &nothing).unwrap_err();
            assert!(error.cause.contains(named), "{error}");
        }
        assert!(provide(AmazonS3Builder::new(), AwsProvider::Default, &nothing).is_ok());
    }
}
