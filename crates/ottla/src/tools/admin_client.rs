//! The connection to a cluster that the administrative tools share.

use std::time::{Duration, Instant};

use ottla_client::{Admin, Client, ClientConfig};

use super::load_properties;

/// How long a cluster that does not answer may be starting. Kafka's tools take a minute to give up.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

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
    let client = Client::unconnected(config);
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
    client.refresh_metadata(Some(&[]), false).await?;
    Ok(Admin::new(client))
}
