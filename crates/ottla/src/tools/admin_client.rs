//! The connection to a cluster, shared by the administrative tools.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use ottla_client::admin::EndpointType;
use ottla_client::{Admin, Client, ClientConfig, ClientError, SlowRequestListener};
use ottla_types::shell_word;

use super::{load_client_properties, warn_of_unknown};

/// How long a tool waits for a cluster that may be starting. Kafka's tools give up after a minute.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// The setting that overrides it.
const PATIENCE_SETTING: &str = "default.api.timeout.ms";
/// A connection attempt that takes longer is reported.
const NOTICED_WAIT: Duration = Duration::from_secs(1);
/// A request without an answer for so long is reported.
const SLOW_REQUEST: Duration = Duration::from_secs(5);
/// Minimum time to try each of several servers.
const LEAST_PER_SERVER: Duration = Duration::from_secs(1);

/// The brokers at which a tool finds the cluster.
#[derive(Args, Debug)]
pub(super) struct Brokers {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    pub(super) bootstrap_server: String,
    /// Properties file with settings of the client.
    #[arg(long, value_name = "FILE")]
    pub(super) command_config: Option<String>,
}

impl Brokers {
    /// Connects, with a limit on the time of each operation if one is given.
    pub(super) async fn connect(
        &self,
        client_id: &str,
        limit: Option<Duration>,
    ) -> anyhow::Result<Admin> {
        let config = self.command_config.as_deref();
        connect_within(&self.bootstrap_server, config, client_id, limit).await
    }

    /// The flags with which another command finds the same cluster, for a shell.
    pub(super) fn flags(&self) -> String {
        let config = self.command_config.as_deref();
        cluster_flags("--bootstrap-server", &self.bootstrap_server, config)
    }
}

/// Where a tool finds the cluster: at its brokers, or at its controllers (KIP-919).
#[derive(Args, Debug)]
#[group(id = "bootstrap", required = true, multiple = false)]
pub(super) struct Bootstrap {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, short = 'b', value_name = "SERVERS")]
    bootstrap_server: Option<String>,
    /// Controllers to connect to first, instead of brokers.
    #[arg(long, short = 'C', value_name = "SERVERS")]
    bootstrap_controller: Option<String>,
}

impl Bootstrap {
    /// The nodes that are connected to.
    pub(super) fn endpoint_type(&self) -> EndpointType {
        if self.bootstrap_controller.is_some() {
            EndpointType::Controller
        } else {
            EndpointType::Broker
        }
    }

    /// The flags with which another command finds the same cluster, for a shell.
    pub(super) fn flags(&self, command_config: Option<&str>) -> String {
        let (flag, servers) = match (&self.bootstrap_server, &self.bootstrap_controller) {
            (_, Some(servers)) => ("--bootstrap-controller", servers),
            (Some(servers), None) => ("--bootstrap-server", servers),
            (None, None) => return String::new(),
        };
        cluster_flags(flag, servers, command_config)
    }

    pub(super) async fn connect(
        &self,
        command_config: Option<&str>,
        client_id: &str,
    ) -> anyhow::Result<Admin> {
        connect_to_either(
            self.bootstrap_server.as_deref(),
            self.bootstrap_controller.as_deref(),
            command_config,
            client_id,
        )
        .await
    }
}

/// The flags with which another command finds the same cluster, for a shell. `flag` is the one that
/// names the servers.
pub fn cluster_flags(flag: &str, servers: &str, command_config: Option<&str>) -> String {
    let config = command_config.map(|file| format!(" --command-config {}", shell_word(file)));
    format!(
        "{flag} {}{}",
        shell_word(servers),
        config.unwrap_or_default()
    )
}

/// Connects to brokers, or to the active controller among the given ones.
pub(super) async fn connect_to_either(
    brokers: Option<&str>,
    controllers: Option<&str>,
    command_config: Option<&str>,
    client_id: &str,
) -> anyhow::Result<Admin> {
    match (brokers, controllers) {
        (Some(brokers), _) => connect(brokers, command_config, client_id).await,
        (None, Some(controllers)) => {
            let (config, patience) = client_config(controllers, command_config, client_id, None)?;
            reach(&Client::unconnected(config.clone()), patience).await?;
            Ok(Admin::of_controllers(config).await?)
        }
        (None, None) => {
            bail!("You must specify either --bootstrap-controller or --bootstrap-server.")
        }
    }
}

/// Connects with the settings of a properties file; the servers of the command line take
/// precedence.
pub(super) async fn connect(
    bootstrap_servers: &str,
    command_config: Option<&str>,
    client_id: &str,
) -> anyhow::Result<Admin> {
    connect_within(bootstrap_servers, command_config, client_id, None).await
}

/// Like [`connect`], with a timeout for each operation.
pub async fn connect_within(
    bootstrap_servers: &str,
    command_config: Option<&str>,
    client_id: &str,
    limit: Option<Duration>,
) -> anyhow::Result<Admin> {
    let (config, patience) = client_config(bootstrap_servers, command_config, client_id, limit)?;
    let client = Client::unconnected(config);
    reach(&client, patience).await?;
    let bound = client.config().default_api_timeout;
    let warned = Cell::new(false);
    let warn = |error: &ClientError| {
        if !warned.replace(true) {
            eprintln!(
                "WARN {error}; trying for {} ms ({PATIENCE_SETTING} in the file of --command-config)",
                bound.as_millis()
            );
        }
    };
    client.refresh_brokers(warn).await?;
    Ok(Admin::new(client))
}

/// The settings, and how long to try to connect.
fn client_config(
    bootstrap_servers: &str,
    command_config: Option<&str>,
    client_id: &str,
    limit: Option<Duration>,
) -> anyhow::Result<(ClientConfig, Duration)> {
    let (mut config, patience) =
        config_without_credentials(bootstrap_servers, command_config, client_id, limit)?;
    config.validate()?;
    config.slow_requests = Some(report_slow_requests());
    Ok((config, patience))
}

/// Prints one line for each kind of request that is slow.
fn report_slow_requests() -> SlowRequestListener {
    let reported = Mutex::new(BTreeSet::new());
    SlowRequestListener::new(SLOW_REQUEST, move |slow| {
        let mut reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.insert(slow.api) {
            eprintln!("WARN {slow}");
        }
    })
}

/// The same, where users may log in themselves: credentials may be missing.
pub fn config_without_credentials(
    bootstrap_servers: &str,
    command_config: Option<&str>,
    client_id: &str,
    limit: Option<Duration>,
) -> anyhow::Result<(ClientConfig, Duration)> {
    let mut config = ClientConfig {
        client_id: client_id.to_owned(),
        ..ClientConfig::default()
    };
    let mut patience = CONNECT_PATIENCE;
    let mut sets_connection_timeout = false;
    if let Some(path) = command_config {
        let settings = load_client_properties(path)?;
        warn_of_unknown(&settings, &[config.apply_without_credentials(&settings)?]);
        if settings.contains_key(PATIENCE_SETTING) {
            patience = config.default_api_timeout;
        }
        sets_connection_timeout = settings.contains_key("socket.connection.setup.timeout.ms");
    }
    config.set_bootstrap_servers(bootstrap_servers)?;
    if !sets_connection_timeout {
        // An unreachable server must leave time for the other servers.
        let each = patience / config.bootstrap_servers.len() as u32;
        let limit = config.socket_connection_setup_timeout;
        config.socket_connection_setup_timeout = limit.min(each.max(LEAST_PER_SERVER));
    }
    if let Some(limit) = limit {
        config.default_api_timeout = limit;
        config.request_timeout = config.request_timeout.min(limit);
    }
    Ok((config, patience))
}

/// Waits until one of the servers can be connected to, and reports when it has to wait.
async fn reach(client: &Client, patience: Duration) -> anyhow::Result<()> {
    let servers = client.config().bootstrap_servers.join(", ");
    let bound = format!(
        "trying for {} ms ({PATIENCE_SETTING} in the file of --command-config)",
        patience.as_millis()
    );
    let warned = Cell::new(false);
    let warn = |reason: &dyn Display| {
        if !warned.replace(true) {
            eprintln!("WARN {reason}; {bound}");
        }
    };
    let connecting = async {
        loop {
            match client.any_node().await {
                Ok(_) => return Ok(()),
                Err(error) if !error.is_retriable() => return Err(error),
                Err(error) => warn(&error),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let saying_so = async {
        tokio::time::sleep(NOTICED_WAIT).await;
        warn(&format_args!("no answer from {servers} so far"));
        std::future::pending::<()>().await
    };
    let connected = tokio::time::timeout(patience, async {
        tokio::select! {
            connected = connecting => connected,
            () = saying_so => Ok(()),
        }
    });
    match connected.await {
        Ok(connected) => Ok(connected?),
        Err(_) => {
            let outages = client.outages();
            let reason = outages.first().map(|it| it.reason.to_string());
            bail!(reason.unwrap_or_else(|| format!(
                "no answer from {servers} within {} ms; check the address",
                patience.as_millis()
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bootstrap, Brokers};

    #[test]
    fn the_flags_of_another_command_are_words_of_a_shell() {
        let brokers = Brokers {
            bootstrap_server: "a:1,[::1]:2".to_owned(),
            command_config: Some("it's mine.properties".to_owned()),
        };
        let words = r"--bootstrap-server 'a:1,[::1]:2' --command-config 'it'\''s mine.properties'";
        assert_eq!(brokers.flags(), words);
        let controllers = Bootstrap {
            bootstrap_server: None,
            bootstrap_controller: Some("a:1".to_owned()),
        };
        let flags = controllers.flags(Some("a b"));
        assert_eq!(flags, "--bootstrap-controller a:1 --command-config 'a b'");
        assert_eq!(controllers.flags(None), "--bootstrap-controller a:1");
    }
}
