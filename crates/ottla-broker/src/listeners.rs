//! The broker listeners that accept connections. Listeners of the file are opened at start; dynamic
//! settings add and remove listeners while the broker runs (`follow_listeners.rs`).
//!
//! Kafka: `SocketServer.dataPlaneAcceptors`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_config::Listener;
use ottla_net::ListenerInfo;
use ottla_sync::task::JoinHandle;
use ottla_sync::{Mutex, Notify};

#[derive(Debug, Default)]
pub(crate) struct OpenListeners {
    by_name: Mutex<BTreeMap<String, OpenListener>>,
    /// Notified when the settings of this broker have changed.
    settings_changed: Notify,
}

#[derive(Debug)]
struct OpenListener {
    info: Arc<ListenerInfo>,
    /// The configuration with which it was opened, from the file or from a dynamic setting.
    configured: Listener,
    /// Accepts connections, and owns the socket.
    accepting: JoinHandle<()>,
}

impl OpenListeners {
    pub(crate) fn on_settings_changed(&self) {
        self.settings_changed.notify_one();
    }

    /// Completes after a change of settings since the last call.
    pub(crate) async fn settings_changed(&self) {
        self.settings_changed.notified().await;
    }

    pub(crate) fn insert(
        &self,
        info: Arc<ListenerInfo>,
        configured: Listener,
        accepting: JoinHandle<()>,
    ) {
        let listener = OpenListener {
            info: Arc::clone(&info),
            configured,
            accepting,
        };
        let replaced = self.by_name.lock().insert(info.name.clone(), listener);
        assert!(replaced.is_none(), "a listener is opened once");
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.by_name.lock().keys().cloned().collect()
    }

    /// The names of open listeners that differ from the settings. This includes a listener that was
    /// removed and added again with another address or protocol before this broker saw the change.
    pub(crate) fn outdated(&self, configured: &[Listener]) -> Vec<String> {
        let by_name = self.by_name.lock();
        let outdated = by_name.iter().filter(|(name, open)| {
            let new = configured.iter().find(|it| it.name == **name);
            new.is_none_or(|new| !new.is_same(&open.configured))
        });
        outdated.map(|(name, _)| name.clone()).collect()
    }

    /// The open listeners besides these.
    pub(crate) fn besides(&self, listeners: &[Arc<ListenerInfo>]) -> Vec<Arc<ListenerInfo>> {
        let by_name = self.by_name.lock();
        let is_other = |open: &&OpenListener| listeners.iter().all(|it| it.name != open.info.name);
        let others = by_name.values().filter(is_other);
        others.map(|it| Arc::clone(&it.info)).collect()
    }

    /// The open listener of this name.
    #[cfg(test)]
    pub(crate) fn find(&self, name: &str) -> Option<Arc<ListenerInfo>> {
        let by_name = self.by_name.lock();
        by_name.get(name).map(|it| Arc::clone(&it.info))
    }

    /// Stops accepting on a listener and returns it. The socket is closed then, and no connection is
    /// added.
    pub(crate) async fn close(&self, name: &str) -> Option<Arc<ListenerInfo>> {
        let removed = self.by_name.lock().remove(name)?;
        removed.accepting.abort();
        // It was aborted or has ended before. A panic was reported where it happened.
        let _ = removed.accepting.await;
        Some(removed.info)
    }

    /// Stops accepting on all listeners.
    pub(crate) async fn close_all(&self) {
        for name in self.names() {
            self.close(&name).await;
        }
    }
}
