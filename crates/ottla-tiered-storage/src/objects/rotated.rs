//! Credentials in a file that is replaced while the broker runs.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use object_store::CredentialProvider;
use ottla_sync::{Mutex, fs};

use crate::error::RemoteStorageError;

/// Gives the credentials that a file holds, or fetches tokens with them.
pub type Provider<C> = Arc<dyn CredentialProvider<Credential = C>>;

/// A file with credentials.
pub trait CredentialsFile: std::fmt::Debug + Send + Sync + 'static {
    type Credential: std::fmt::Debug + Send + Sync + 'static;

    fn path(&self) -> &Path;
    fn read(&self) -> Result<Provider<Self::Credential>, RemoteStorageError>;
}

/// Credentials that are read again when their file changes. A file that cannot be read replaces
/// nothing.
#[derive(Debug)]
pub struct Rotated<F: CredentialsFile> {
    file: F,
    current: Mutex<Option<Current<F::Credential>>>,
}

#[derive(Debug)]
struct Current<C> {
    changed: Option<SystemTime>,
    provider: Provider<C>,
}

impl<F: CredentialsFile> Rotated<F> {
    pub fn new(file: F) -> Rotated<F> {
        Rotated {
            file,
            current: Mutex::new(None),
        }
    }

    fn current(&self) -> Result<Provider<F::Credential>, RemoteStorageError> {
        let changed = fs::metadata(self.file.path())
            .and_then(|metadata| metadata.modified())
            .ok();
        let mut current = self.current.lock();
        if let Some(current) = &*current
            && current.changed == changed
        {
            return Ok(current.provider.clone());
        }
        match (self.file.read(), &*current) {
            (Ok(provider), _) => {
                *current = Some(Current {
                    changed,
                    provider: provider.clone(),
                });
                Ok(provider)
            }
            (Err(error), Some(current)) => {
                tracing::warn!("{error}; the credentials read before stay in use");
                Ok(current.provider.clone())
            }
            (Err(error), None) => Err(error),
        }
    }
}

#[async_trait]
impl<F: CredentialsFile> CredentialProvider for Rotated<F> {
    type Credential = F::Credential;

    async fn get_credential(&self) -> object_store::Result<Arc<F::Credential>> {
        let provider = self.current();
        let provider = provider.map_err(|error| object_store::Error::Generic {
            store: "credentials",
            source: Box::new(error),
        })?;
        provider.get_credential().await
    }
}
