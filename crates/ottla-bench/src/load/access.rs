//! How the generator reaches a cluster: a broker to begin with, and the security of its connections.

use std::sync::Arc;

use anyhow::Result;

use super::security::Security;
use super::wire::Connection;

#[derive(Clone, Debug)]
pub struct Access {
    bootstrap: String,
    security: Arc<Security>,
}

impl Access {
    /// Plain connections. `bootstrap` is `host:port` of a broker.
    pub fn plain(bootstrap: &str) -> Access {
        Access::secured(bootstrap, Security::default())
    }

    pub fn secured(bootstrap: &str, security: Security) -> Access {
        Access {
            bootstrap: bootstrap.to_owned(),
            security: Arc::new(security),
        }
    }

    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Connects to the first broker.
    pub fn open_bootstrap(&self) -> Result<Connection> {
        self.open(&self.bootstrap)
    }

    /// Connects to the broker at `host:port`.
    pub fn open(&self, address: &str) -> Result<Connection> {
        Connection::open(address, &self.security)
    }
}
