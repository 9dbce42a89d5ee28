//! Threads of client processes, and their start-up.

use std::time::Duration;

use anyhow::Result;
use ottla_client::admin::NewTopic;
use ottla_client::{Admin, Client, ClientConfig, ClientError};
use ottla_sync::simulation::Host;
use ottla_sync::task::Handle;
use ottla_sync::thread::JoinHandle;
use ottla_testkit::client_histories::workload::Scene;
use ottla_types::ErrorCode;

use crate::cluster::REPLICAS;

/// Runs a future on a thread of a host.
pub(crate) fn on<T: 'static, F: Future<Output = T>>(
    host: &Host,
    work: impl FnOnce() -> F + 'static,
) -> JoinHandle<T> {
    host.spawn("client", move || Handle::current().block_on(work()))
}

/// A client for requests to nodes whose addresses are known.
pub(crate) fn unconnected(bootstrap: &str) -> Client {
    let mut config = ClientConfig::new(bootstrap).expect("an address");
    config.request_timeout = Duration::from_secs(5);
    Client::unconnected(config)
}

/// Creates a topic. It may be there: an earlier attempt may have succeeded without a response.
pub(crate) async fn create_topic(
    scene: &Scene,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> Result<()> {
    let configs = configs.iter();
    let topic = NewTopic {
        name: name.to_owned(),
        partitions: Some(partitions),
        replication_factor: Some(REPLICAS),
        configs: configs
            .map(|&(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        ..NewTopic::default()
    };
    let admin = Admin::new(scene.client().await?);
    for result in admin.create_topics(&[topic], false).await? {
        if result.error_code != ErrorCode::TopicAlreadyExists.code() {
            ClientError::check(result.name.to_string(), result.error_code, None::<&str>)?;
        }
    }
    Ok(())
}
