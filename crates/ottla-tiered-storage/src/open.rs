//! Opens the store that a broker's settings name.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::chunked::ChunkedStorage;
use crate::error::RemoteStorageError;
use crate::local_tiered_storage::LocalTieredStorage;
use crate::remote_storage::RemoteStorageManager;
use crate::settings::StorageSettings;

/// Opens a store by all settings of a broker, by their full names. `environment` gives the
/// variables that hold credentials. Asks nothing of the store.
pub fn open(
    settings: &BTreeMap<String, String>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Arc<dyn RemoteStorageManager>, RemoteStorageError> {
    match StorageSettings::from_broker(settings)? {
        StorageSettings::Local(settings) => Ok(Arc::new(LocalTieredStorage::open(&settings)?)),
        StorageSettings::Chunked(settings) => {
            Ok(Arc::new(ChunkedStorage::open(&settings, environment)?))
        }
    }
}
