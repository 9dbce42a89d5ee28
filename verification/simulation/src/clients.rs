//! Threads of client processes.

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
