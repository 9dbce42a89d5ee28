//! Tells the controller how this broker's directories are: which have failed, which are cordoned.
//!
//! Whenever either has changed, the broker's heartbeats say both until the controller has taken it (`heartbeats`). Here is
//! what brings it from whichever thread has met it to them.
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

    /// A directory has failed, or others are cordoned. May be called from any thread.
    pub fn on_changed(&self) {
        self.changed.notify_one();
    }

    /// Reports until the broker stops.
    pub async fn send_all(self: Arc<Self>, log_dirs: Arc<LogDirs>) {
        loop {
            ottla_sync::select! {
                () = self.changed.notified() => {}
                () = self.node.context.stopping() => return,
            }
            if let Some(heartbeats) = self.node.heartbeats() {
                heartbeats.on_directories_changed(
                    log_dirs.offline_directory_ids(),
                    log_dirs.cordoned_directory_ids(),
                );
            }
        }
    }
}
