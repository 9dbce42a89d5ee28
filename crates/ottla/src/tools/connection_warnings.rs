//! What the console clients say while no broker can be connected to. They go on trying for long, and
//! somebody who mistyped the address must not be left without a word.

use std::time::Duration;

use ottla_client::{Client, ClientError};
use tokio::task::JoinHandle;

/// As Kafka's clients, `reconnect.backoff.ms` and `reconnect.backoff.max.ms`.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Asks for the cluster's brokers, for as long as it takes to connect to one, and says of each attempt that failed.
pub(super) async fn connect(client: &Client, who: &str) -> Result<(), ClientError> {
    let warnings = warn_until_connected(client.clone(), who);
    client.refresh_metadata(Some(&[]), false).await?;
    warnings.abort();
    Ok(())
}

/// Says of each attempt to connect that it failed, until one succeeds. `who` is how Kafka's logs name the
/// client: `Producer clientId=console-producer`.
pub(super) fn warn_until_connected(client: Client, who: &str) -> JoinHandle<()> {
    let who = who.to_owned();
    tokio::spawn(async move {
        let mut pause = FIRST_PAUSE;
        while let Err(error) = client.any_node().await {
            let servers = client.config().bootstrap_servers.join(", ");
            eprintln!(
                "WARN [{who}] Connection to node -1 ({servers}) could not be established. Node may not be \
                 available. ({error})"
            );
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    })
}
