//! Settings of Azure Blob Storage (`AzureBlobStorageConfig` of Aiven's plugin). The prefix is
//! `storage.azure.`.

use super::given::Given;
use crate::error::RemoteStorageError;

// Read and checked in every build; only the client of this store uses it.
#[cfg_attr(not(feature = "azure"), allow(dead_code))]
pub struct AzureSettings {
    /// Without a name in the settings, the one in the endpoint: SAS tokens need none.
    pub account: String,
    pub container: String,
    /// Without a slash at the end.
    pub endpoint_url: String,
    pub block_size: usize,
    pub credentials: AzureCredentials,
}

// Read and checked in every build; only the client of this store uses it.
#[cfg_attr(not(feature = "azure"), allow(dead_code))]
pub enum AzureCredentials {
    Key(String),
    /// Percent-encoded, as in a URL.
    SasToken(String),
    /// The identity of this machine or process.
    Default,
}

const ACCOUNT: &str = "storage.azure.account.name";
const ENDPOINT: &str = "storage.azure.endpoint.url";
const CONNECTION: &str = "storage.azure.connection.string";
const MIN_BLOCK: i64 = 100 << 10;
const DEFAULT_BLOCK: i64 = 25 << 20;

pub fn read(given: &Given<'_>) -> Result<AzureSettings, RemoteStorageError> {
    let access = Access::read(given)?;
    let endpoint_url = match (&access.endpoint_url, &access.account) {
        (Some(url), _) => url.trim_end_matches('/').to_owned(),
        (None, Some(account)) => format!("https://{account}.blob.core.windows.net"),
        (None, None) => {
            let cause = format!("is missing; give it or {ENDPOINT}");
            return Err(given.error(ACCOUNT, cause));
        }
    };
    let account = match (access.account, &access.key) {
        (Some(account), _) => account,
        (None, None) => account_in(&endpoint_url).to_owned(),
        (None, Some(_)) => {
            let cause = "is missing beside storage.azure.account.key";
            return Err(given.error(ACCOUNT, cause));
        }
    };
    let block_size = given
        .number(
            "storage.azure.upload.block.size",
            MIN_BLOCK..=i32::MAX.into(),
        )?
        .unwrap_or(DEFAULT_BLOCK);
    Ok(AzureSettings {
        account,
        container: given.required("storage.azure.container.name")?.to_owned(),
        endpoint_url,
        block_size: block_size as usize,
        credentials: match (access.key, access.sas_token) {
            (Some(key), _) => AzureCredentials::Key(key),
            (None, Some(token)) => AzureCredentials::SasToken(token),
            (None, None) => AzureCredentials::Default,
        },
    })
}

/// Where the store is and what opens it, from settings or from a connection string.
#[derive(Default)]
struct Access {
    account: Option<String>,
    key: Option<String>,
    sas_token: Option<String>,
    endpoint_url: Option<String>,
}

impl Access {
    fn read(given: &Given<'_>) -> Result<Access, RemoteStorageError> {
        let text = |name: &str| -> Result<Option<String>, RemoteStorageError> {
            Ok(given.non_empty(name)?.map(str::to_owned))
        };
        let access = Access {
            account: text(ACCOUNT)?,
            key: text("storage.azure.account.key")?,
            sas_token: text("storage.azure.sas.token")?,
            endpoint_url: given.url(ENDPOINT)?,
        };
        let Some(connection) = given.non_empty(CONNECTION)? else {
            if access.account.is_none() && access.sas_token.is_none() {
                let cause = "is missing; give it, azure.sas.token or azure.connection.string";
                return Err(given.error(ACCOUNT, cause));
            }
            return Ok(access);
        };
        let Access {
            account: None,
            key: None,
            sas_token: None,
            endpoint_url: None,
        } = access
        else {
            let cause = "is set together with azure.account.name, azure.account.key, \
                         azure.sas.token or azure.endpoint.url; remove those";
            return Err(given.error(CONNECTION, cause));
        };
        Access::parse(connection).map_err(|cause| given.error(CONNECTION, cause))
    }

    /// A connection string, as the Azure portal shows it. Errors never show a value.
    fn parse(connection: &str) -> Result<Access, String> {
        let mut access = Access::default();
        let (mut protocol, mut suffix) = ("https", "core.windows.net");
        let parts = connection.split(';').map(str::trim);
        for part in parts.filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                return Err("has a part without `=`".to_owned());
            };
            match name {
                "AccountName" => access.account = Some(value.to_owned()),
                "AccountKey" => access.key = Some(value.to_owned()),
                "SharedAccessSignature" => access.sas_token = Some(value.to_owned()),
                "BlobEndpoint" => access.endpoint_url = Some(value.to_owned()),
                "DefaultEndpointsProtocol" => protocol = value,
                "EndpointSuffix" => suffix = value,
                // Of the account's services that keep no blobs, and of the copy in another region.
                "BlobSecondaryEndpoint"
                | "QueueEndpoint"
                | "QueueSecondaryEndpoint"
                | "TableEndpoint"
                | "TableSecondaryEndpoint"
                | "FileEndpoint"
                | "FileSecondaryEndpoint" => {}
                _ => return Err(format!("has an unknown part {name}")),
            }
        }
        if access.key.is_none() && access.sas_token.is_none() {
            return Err("has neither AccountKey nor SharedAccessSignature".to_owned());
        }
        match (&access.endpoint_url, &access.account) {
            (Some(url), _) if url.starts_with("http://") || url.starts_with("https://") => {}
            (Some(_), _) => return Err("has a BlobEndpoint without http:// or https://".to_owned()),
            (None, Some(account)) => {
                access.endpoint_url = Some(format!("{protocol}://{account}.blob.{suffix}"));
            }
            (None, None) => return Err("has neither AccountName nor BlobEndpoint".to_owned()),
        }
        Ok(access)
    }
}

/// The account that an endpoint belongs to: the first label of its host, or the end of its path.
fn account_in(url: &str) -> &str {
    let address = url.split_once("://").map_or(url, |(_, address)| address);
    match address.rsplit_once('/') {
        Some((_, last)) => last,
        None => address.split(['.', ':']).next().unwrap_or_default(),
    }
}
