//! The connection to a cluster that the administrative tools share.

use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use ottla_client::admin::EndpointType;
use ottla_client::{Admin, Client, ClientConfig};

use super::load_properties;

/// How long a cluster that does not answer may be starting. Kafka's tools take a minute to give up.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

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

/// Connects to brokers, or to the controller that is active among the ones given.
pub(super) async fn connect_to_either(
    brokers: Option<&str>,
    controllers: Option<&str>,
    command_config: Option<&str>,
    client_id: &str,
) -> anyhow::Result<Admin> {
    match (brokers, controllers) {
        (Some(brokers), _) => connect(brokers, command_config, client_id).await,
        (None, Some(controllers)) => {
            let config = client_config(controllers, command_config, client_id, None)?;
            reach(&Client::unconnected(config.clone())).await?;
            Ok(Admin::of_controllers(config).await?)
        }
        (None, None) => {
            bail!("You must specify either --bootstrap-controller or --bootstrap-server.")
        }
    }
}

/// Connects with the settings of a properties file, the servers of the command line first.
pub(super) async fn connect(
    bootstrap_servers: &str,
    command_config: Option<&str>,
    client_id: &str,
) -> anyhow::Result<Admin> {
    connect_within(bootstrap_servers, command_config, client_id, None).await
}

/// As [`connect`], with a limit on the time of each operation.
pub(super) async fn connect_within(
    bootstrap_servers: &str,
    command_config: Option<&str>,
    client_id: &str,
    limit: Option<Duration>,
) -> anyhow::Result<Admin> {
    let config = client_config(bootstrap_servers, command_config, client_id, limit)?;
    let client = Client::unconnected(config);
    reach(&client).await?;
    client.refresh_metadata(Some(&[]), false).await?;
    Ok(Admin::new(client))
}

fn client_config(
    bootstrap_servers: &str,
    command_config: Option<&str>,
    client_id: &str,
    limit: Option<Duration>,
) -> anyhow::Result<ClientConfig> {
    let mut config = ClientConfig {
        client_id: client_id.to_owned(),
        ..ClientConfig::default()
    };
    if let Some(path) = command_config {
        config.apply(&load_properties(path)?)?;
    }
    config.set_bootstrap_servers(bootstrap_servers)?;
    if let Some(limit) = limit {
        config.default_api_timeout = limit;
        config.request_timeout = config.request_timeout.min(limit);
    }
    Ok(config)
}

/// Waits for a while until one of the servers can be connected to.
async fn reach(client: &Client) -> anyhow::Result<()> {
    let deadline = Instant::now() + CONNECT_PATIENCE;
    let mut has_warned = false;
    while let Err(error) = client.any_node().await {
        if !error.is_retriable() || Instant::now() >= deadline {
            return Err(error.into());
        }
        if !has_warned {
            eprintln!("WARN {error}; trying for {} s", CONNECT_PATIENCE.as_secs());
            has_warned = true;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
