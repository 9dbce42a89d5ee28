//! Opens the store that a broker's settings name.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::chunked::ChunkedStorage;
use crate::error::RemoteStorageError;
use crate::local_tiered_storage::LocalTieredStorage;
use crate::remote_storage::RemoteStorageManager;
use crate::settings::{LocalSettings, StorageSettings, prefix_of};

/// Opens a store by all settings of a broker, by their full names. `environment` gives the
/// variables that hold credentials. Sends no request to the store.
pub fn open(
    settings: &BTreeMap<String, String>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Arc<dyn RemoteStorageManager>, RemoteStorageError> {
    match StorageSettings::from_broker(settings)? {
        StorageSettings::Local(local) => {
            let store = LocalTieredStorage::open(&local).map_err(|error| {
                let way_out = "give a directory that this process may create and write";
                directory_error(settings, &local, &format!("{error}; {way_out}"))
            })?;
            Ok(Arc::new(store))
        }
        StorageSettings::Chunked(settings) => {
            Ok(Arc::new(ChunkedStorage::open(&settings, environment)?))
        }
    }
}

/// Like [`open()`], to read a store that brokers own: nothing is created, and the cache directory of a broker is not
/// touched.
pub fn open_to_read(
    settings: &BTreeMap<String, String>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Arc<dyn RemoteStorageManager>, RemoteStorageError> {
    match StorageSettings::from_broker(settings)? {
        StorageSettings::Local(local) => {
            let store = LocalTieredStorage::open_existing(&local).map_err(|error| {
                let cause = format!(
                    "{error}: no broker has stored anything there; give the directory of the brokers"
                );
                directory_error(settings, &local, &cause)
            })?;
            Ok(Arc::new(store))
        }
        StorageSettings::Chunked(mut settings) => {
            settings.chunk_cache = None;
            Ok(Arc::new(ChunkedStorage::open(&settings, environment)?))
        }
    }
}

/// An error that names the setting of the directory.
fn directory_error(
    settings: &BTreeMap<String, String>,
    local: &LocalSettings,
    cause: &str,
) -> RemoteStorageError {
    let setting = format!("{}dir={}", prefix_of(settings), local.dir.display());
    RemoteStorageError::settings(&setting, cause)
}
