//! How the generator reaches a cluster: a broker to begin with, and the security of its connections.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use ottla_config::Properties;

use super::security::Security;
use super::wire::Connection;

#[derive(Args, Clone, Debug)]
pub struct AccessArgs {
    /// A broker of the cluster, as host:port.
    #[arg(long, default_value = "127.0.0.1:9092")]
    pub bootstrap: String,
    /// A properties file with the settings of Kafka's clients for TLS and logins with passwords.
    #[arg(long, value_name = "FILE")]
    pub command_config: Option<PathBuf>,
}

impl AccessArgs {
    pub fn access(&self) -> Result<Access> {
        Ok(Access::secured(&self.bootstrap, self.security()?))
    }

    /// Reads the file.
    pub fn security(&self) -> Result<Security> {
        let Some(file) = &self.command_config else {
            return Ok(Security::default());
        };
        let shown = file.display().to_string();
        let bytes = std::fs::read(file).with_context(|| shown.clone())?;
        let settings = Properties::parse_bytes(&bytes, &shown)?.into_map();
        Security::load(&settings).context(shown)
    }
}

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
