//! Reports failed and cordoned directories of this broker to the controller.
//!
//! When either set changes, the broker's heartbeats carry both until the controller has taken them
//! (`heartbeats`). This module passes changes from the thread that notices them to the heartbeats.
//!
//! Kafka: `BrokerLifecycleManager.propagateDirectoryFailure`, `propagateDirectoryCordoned`.

use std::sync::Arc;

use ottla_storage::log_dirs::LogDirs;
use ottla_sync::Notify;

use crate::node::Node;

#[derive(Debug)]
pub struct DirReports {
    node: Arc<Node>,
    changed: Notify,
}

impl DirReports {
    pub fn new(node: Arc<Node>) -> DirReports {
        DirReports {
            node,
            changed: Notify::new(),
        }
    }

    /// Notes that a directory has failed, or that the set of cordoned directories has changed. Can
    /// be called from any thread.
    pub fn on_changed(&self) {
        self.changed.notify_one();
    }

    /// Reports changes until the broker stops.
    pub async fn send_all(self: Arc<Self>, log_dirs: Arc<LogDirs>) {
        loop {
            ottla_sync::select! {
                () = self.changed.notified() => {}
                () = self.node.context.stopping() => return,
            }
            if let Some(heartbeats) = self.node.heartbeats() {
                heartbeats.on_directories_changed(|| {
                    (
                        log_dirs.offline_directory_ids(),
                        log_dirs.cordoned_directory_ids(),
                    )
                });
            }
        }
    }
}
