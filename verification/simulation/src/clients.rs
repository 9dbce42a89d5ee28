//! Threads of client processes.

use std::time::Duration;

use ottla_client::{Client, ClientConfig};
use ottla_sync::simulation::Host;
use ottla_sync::task::Handle;
use ottla_sync::thread::JoinHandle;

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
