//! Settings of the stores below the chunked format: S3, GCS, Azure, a directory.
//!
//! Names and rules come from Aiven's plugin: `S3StorageConfig`, `GcsStorageConfig`,
//! `FileSystemStorageConfig`. The prefix is `storage.`.

use std::path::PathBuf;
use std::time::Duration;

use super::azure::{self, AzureSettings};
use super::given::Given;
use crate::error::RemoteStorageError;

/// Where objects are kept. `Debug` is not offered: there are passwords in it.
pub enum BackendSettings {
    S3(S3Settings),
    Gcs(GcsSettings),
    Azure(AzureSettings),
    FileSystem { root: PathBuf },
}

pub struct S3Settings {
    pub bucket: String,
    pub endpoint_url: Option<String>,
    pub region: String,
    pub storage_class: String,
    /// None: virtual hosts at AWS, paths at another endpoint.
    pub path_style_access: Option<bool>,
    pub part_size: usize,
    /// With all attempts.
    pub api_call_timeout: Option<Duration>,
    /// Of one attempt.
    pub api_call_attempt_timeout: Option<Duration>,
    pub certificate_check: bool,
    pub checksum_check: bool,
    pub credentials: S3Credentials,
}

impl S3Settings {
    pub const STANDARD: &'static str = "STANDARD";
}

pub enum S3Credentials {
    Static {
        id: String,
        secret: String,
        token: Option<String>,
    },
    /// `aws.credentials.file`.
    File(PathBuf),
    Provider(AwsProvider),
}

/// A credentials provider of the AWS SDK for Java.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AwsProvider {
    Default,
    Environment,
    WebIdentity,
    Profile,
    Container,
    Instance,
    Anonymous,
}

impl AwsProvider {
    const PACKAGE: &str = "software.amazon.awssdk.auth.credentials.";
    const CLASSES: [(&str, AwsProvider); 7] = [
        ("DefaultCredentialsProvider", AwsProvider::Default),
        (
            "EnvironmentVariableCredentialsProvider",
            AwsProvider::Environment,
        ),
        (
            "WebIdentityTokenFileCredentialsProvider",
            AwsProvider::WebIdentity,
        ),
        ("ProfileCredentialsProvider", AwsProvider::Profile),
        ("ContainerCredentialsProvider", AwsProvider::Container),
        ("InstanceProfileCredentialsProvider", AwsProvider::Instance),
        ("AnonymousCredentialsProvider", AwsProvider::Anonymous),
    ];
}

// Read and checked in every build; only the client of this store uses it.
#[cfg_attr(not(feature = "gcs"), allow(dead_code))]
pub struct GcsSettings {
    pub bucket: String,
    pub endpoint_url: Option<String>,
    pub chunk_size: usize,
    pub credentials: GcsCredentials,
}

// Read and checked in every build; only the client of this store uses it.
#[cfg_attr(not(feature = "gcs"), allow(dead_code))]
pub enum GcsCredentials {
    Json(String),
    Path(String),
    Default,
    /// `gcs.credentials.default=false`.
    None,
}

const CLASS: &str = "storage.backend.class";
const PACKAGE: &str = "io.aiven.kafka.tieredstorage.storage.";
const DEFAULT_PART: i64 = 25 << 20;

pub fn read(given: &Given<'_>) -> Result<BackendSettings, RemoteStorageError> {
    let class = given.required(CLASS)?;
    match class.strip_prefix(PACKAGE).unwrap_or_default() {
        "s3.S3Storage" => Ok(BackendSettings::S3(read_s3(given)?)),
        "gcs.GcsStorage" => Ok(BackendSettings::Gcs(read_gcs(given)?)),
        "azure.AzureBlobStorage" => Ok(BackendSettings::Azure(azure::read(given)?)),
        "filesystem.FileSystemStorage" => {
            let root = given.required("storage.root")?;
            // The plugin reads it and replaces objects in any case.
            given.ignore("storage.overwrite.enabled");
            Ok(BackendSettings::FileSystem { root: root.into() })
        }
        _ => Err(given.error(
            CLASS,
            format!(
                "is {class}; give {PACKAGE}s3.S3Storage, {PACKAGE}gcs.GcsStorage, \
                 {PACKAGE}azure.AzureBlobStorage or {PACKAGE}filesystem.FileSystemStorage"
            ),
        )),
    }
}

fn read_s3(given: &Given<'_>) -> Result<S3Settings, RemoteStorageError> {
    let timeout = |name| -> Result<Option<Duration>, RemoteStorageError> {
        let ms = given.number(name, 1..=i64::MAX)?;
        Ok(ms.map(|ms| Duration::from_millis(ms.unsigned_abs())))
    };
    // Of the SDK, for servers that do not know its newer checksums; nothing here sends those.
    given.ignore("storage.s3.legacy.md5.plugin.enabled");
    let part_size = given.number(
        "storage.s3.multipart.upload.part.size",
        5 << 20..=i32::MAX.into(),
    )?;
    Ok(S3Settings {
        bucket: given.required("storage.s3.bucket.name")?.to_owned(),
        endpoint_url: given.url("storage.s3.endpoint.url")?,
        region: given.required("storage.s3.region")?.to_owned(),
        storage_class: given
            .non_empty("storage.s3.storage.class")?
            .unwrap_or(S3Settings::STANDARD)
            .to_owned(),
        path_style_access: given.optional_boolean("storage.s3.path.style.access.enabled")?,
        part_size: part_size.unwrap_or(DEFAULT_PART) as usize,
        api_call_timeout: timeout("storage.s3.api.call.timeout")?,
        api_call_attempt_timeout: timeout("storage.s3.api.call.attempt.timeout")?,
        certificate_check: given.boolean("storage.aws.certificate.check.enabled", true)?,
        checksum_check: given.boolean("storage.aws.checksum.check.enabled", false)?,
        credentials: read_s3_credentials(given)?,
    })
}

fn read_s3_credentials(given: &Given<'_>) -> Result<S3Credentials, RemoteStorageError> {
    const ID: &str = "storage.aws.access.key.id";
    const SECRET: &str = "storage.aws.secret.access.key";
    const FILE: &str = "storage.aws.credentials.file";
    const PROVIDER: &str = "storage.aws.credentials.provider.class";
    let id = given.non_empty(ID)?;
    let secret = given.non_empty(SECRET)?;
    let token = given.non_empty("storage.aws.session.token")?;
    let file = given.non_empty(FILE)?;
    let provider = given.non_empty(PROVIDER)?;
    let ways = [
        (ID, id.is_some() || secret.is_some()),
        (FILE, file.is_some()),
        (PROVIDER, provider.is_some()),
    ];
    let mut set = ways.iter().filter(|(_, is_set)| *is_set);
    if let (Some((first, _)), Some((second, _))) = (set.next(), set.next()) {
        let cause = format!("is set together with {second}; remove one of them");
        return Err(given.error(first, cause));
    }
    match (id, secret, file, provider) {
        (Some(id), Some(secret), ..) => Ok(S3Credentials::Static {
            id: id.to_owned(),
            secret: secret.to_owned(),
            token: token.map(str::to_owned),
        }),
        (Some(_), None, ..) => Err(given.error(SECRET, format!("is missing beside {ID}"))),
        (None, Some(_), ..) => Err(given.error(ID, format!("is missing beside {SECRET}"))),
        (_, _, Some(file), _) => Ok(S3Credentials::File(file.into())),
        (_, _, _, None) => Ok(S3Credentials::Provider(AwsProvider::Default)),
        (_, _, _, Some(class)) => {
            let name = class.strip_prefix(AwsProvider::PACKAGE).unwrap_or_default();
            let mut known = AwsProvider::CLASSES.iter();
            match known.find(|(known, _)| *known == name) {
                Some((_, provider)) => Ok(S3Credentials::Provider(*provider)),
                None => {
                    let names = AwsProvider::CLASSES.map(|(name, _)| name).join(", ");
                    Err(given.error(
                        PROVIDER,
                        format!(
                            "is {class}; of {} these are known: {names}",
                            AwsProvider::PACKAGE
                        ),
                    ))
                }
            }
        }
    }
}

fn read_gcs(given: &Given<'_>) -> Result<GcsSettings, RemoteStorageError> {
    const CHUNK: &str = "storage.gcs.resumable.upload.chunk.size";
    const QUARTER_MIB: i64 = 256 << 10;
    let chunk_size = given
        .number(CHUNK, QUARTER_MIB..=i32::MAX.into())?
        .unwrap_or(DEFAULT_PART);
    if chunk_size % QUARTER_MIB != 0 {
        return Err(given.error(CHUNK, format!("is {chunk_size}; give a multiple of 262144")));
    }
    let json = given.non_empty("storage.gcs.credentials.json")?;
    let path = given.non_empty("storage.gcs.credentials.path")?;
    let default = given.optional_boolean("storage.gcs.credentials.default")?;
    let credentials = match (json, path, default) {
        (Some(json), None, None) => GcsCredentials::Json(json.to_owned()),
        (None, Some(path), None) => GcsCredentials::Path(path.to_owned()),
        (None, None, Some(true)) => GcsCredentials::Default,
        (None, None, Some(false)) => GcsCredentials::None,
        _ => {
            let cause = "give exactly one of gcs.credentials.json, gcs.credentials.path and \
                         gcs.credentials.default";
            return Err(given.error("storage.gcs.credentials.*", cause));
        }
    };
    Ok(GcsSettings {
        bucket: given.required("storage.gcs.bucket.name")?.to_owned(),
        endpoint_url: given.url("storage.gcs.endpoint.url")?,
        // One buffer of it is sent while the next one is filled; a store has its own least size.
        chunk_size: chunk_size.max(5 << 20) as usize,
        credentials,
    })
}
