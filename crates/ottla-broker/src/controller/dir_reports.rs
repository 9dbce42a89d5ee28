//! Tells the controller how this broker's directories are: which have failed, which are cordoned.
//!
//! Whenever either has changed, the broker's heartbeats say both until the controller has taken it (`heartbeats`). Here is
//! what brings it from whichever thread has met it to them.
//!
//! Kafka: `BrokerLifecycleManager.propagateDirectoryFailure`, `propagateDirectoryCordoned`.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::Broker;

#[derive(Debug, Default)]
pub(crate) struct DirReports {
    changed: Notify,
}

impl DirReports {
    /// A directory has failed, or others are cordoned. May be called from any thread.
    pub(crate) fn on_changed(&self) {
        self.changed.notify_one();
    }

    /// Reports until the broker stops.
    pub(crate) async fn send_all(broker: Arc<Broker>) {
        loop {
            tokio::select! {
                () = broker.dir_reports.changed.notified() => {}
                () = broker.stopping() => return,
            }
            if let Some(heartbeats) = broker.heartbeats()
                && let Some(log_dirs) = broker.log_dirs()
            {
                heartbeats.on_directories_changed(
                    log_dirs.offline_directory_ids(),
                    log_dirs.cordoned_directory_ids(),
                );
            }
        }
    }
}
