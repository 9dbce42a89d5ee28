//! Opens and closes listeners of a running broker as its dynamic settings say.
//!
//! The registration of the broker does not change, as in Kafka: other nodes and clients learn the
//! listeners that the properties file advertises.
//!
//! Kafka: `DynamicListenerConfig.reconfigure`, `SocketServer.addListeners`,
//! `SocketServer.removeListeners`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ottla_config::{BrokerConfig, Listener};
use ottla_net::{BoundAt, BoundListener, ListeningListener, accept_connections};

use crate::Broker;

/// The interval between attempts to open a listener that could not be opened.
const OPEN_RETRY: Duration = Duration::from_secs(10);

/// Accepts connections of a broker listener, which was opened for `configured`.
pub(crate) fn open(broker: &Arc<Broker>, listening: ListeningListener, configured: Listener) {
    let info = Arc::clone(&listening.info);
    let network = Arc::clone(&broker.network);
    let accepting = accept_connections(network, Arc::clone(broker), listening);
    broker
        .listeners
        .insert(info, configured, ottla_sync::task::spawn(accepting));
}

/// Whether the settings in force have the listener of this name as the file has it. Dynamic settings may
/// have removed it, and added it again with another address.
pub(crate) fn is_kept(broker: &Broker, of_file: &[Listener], name: &str) -> bool {
    let config = broker.config();
    let bound = of_file.iter().find(|it| it.name == name);
    bound.is_some_and(|bound| config.listeners.iter().any(|it| it.is_same(bound)))
}

/// Whether dynamic settings may have removed this listener of the file.
pub(crate) fn is_removable(config: &BrokerConfig, listener: &Listener) -> bool {
    let mut advertised = config.advertised_listeners.iter();
    !listener.is_controller && !advertised.any(|it| it.name == listener.name)
}

/// Why listeners are not open, by name.
pub(crate) type NotOpened = BTreeMap<String, String>;

/// Follows the settings until the broker stops.
pub(crate) async fn follow(broker: Arc<Broker>, mut not_opened: NotOpened) {
    let following = async {
        loop {
            if not_opened.is_empty() {
                broker.listeners.settings_changed().await;
            } else {
                // Whichever comes first.
                let changed = broker.listeners.settings_changed();
                let _ = ottla_sync::time::timeout(OPEN_RETRY, changed).await;
            }
            not_opened = apply(&broker, &not_opened).await;
        }
    };
    ottla_sync::select! {
        () = following => {}
        () = broker.stopping() => {}
    }
}

/// Closes listeners that the settings no longer have, and opens new ones. Returns the listeners
/// that could not be opened, with the reasons. Logs a reason only if it differs from the previous
/// attempt.
pub(crate) async fn apply(broker: &Arc<Broker>, before: &NotOpened) -> NotOpened {
    // One state of the settings. A later one is a change, which is followed next.
    let config = Arc::clone(&broker.config());
    for name in broker.listeners.outdated(&config.listeners) {
        close(broker, &name).await;
    }
    let open_before = broker.listeners.names();
    let listeners = config.listeners.iter();
    let added = listeners.filter(|it| !it.is_controller && !open_before.contains(&it.name));
    let mut not_opened = NotOpened::new();
    for listener in added {
        let name = listener.name.clone();
        match add(broker, &config, listener.clone()).await {
            Ok(listening) => {
                tracing::info!(
                    listener = name,
                    "accepting connections on {}",
                    listening.info.local_addr
                );
                open(broker, listening, listener.clone());
            }
            Err(error) => {
                if before.get(&name) != Some(&error) {
                    tracing::error!(
                        listener = name,
                        "the listener of this broker's dynamic settings is not open: {error}; \
                         the attempt is repeated every {} s",
                        OPEN_RETRY.as_secs()
                    );
                }
                not_opened.insert(name, error);
            }
        }
    }
    not_opened
}

/// Binds a listener and loads its stores. It listens, and does not accept yet.
async fn add(
    broker: &Arc<Broker>,
    config: &Arc<BrokerConfig>,
    listener: Listener,
) -> Result<ListeningListener, String> {
    let (adding, config) = (Arc::clone(broker), Arc::clone(config));
    let add = move || {
        let tls = &adding.context.tls;
        // First, so that warnings about certificates are not repeated while the port is in use.
        let bound = BoundListener::bind(&config, &listener, BoundAt::Runtime)?;
        tls.add_listener(&config, &listener.name)
            .map_err(|error| error.to_string())?;
        let listening = bound.listen();
        if listening.is_err() {
            tls.remove_listener(&listener.name);
        }
        listening
    };
    let added = ottla_sync::task::spawn_blocking(add).await;
    added.unwrap_or_else(|error| Err(format!("opening it was aborted: {error}")))
}

/// Closes a listener and its connections. Requests in flight are not answered, as in Kafka.
async fn close(broker: &Arc<Broker>, name: &str) {
    let Some(info) = broker.listeners.close(name).await else {
        return;
    };
    let mut closed = 0;
    broker.network.connections.for_each(|connection| {
        if Arc::ptr_eq(&connection.listener, &info) {
            connection.close();
            closed += 1;
        }
    });
    broker.context.tls.remove_listener(name);
    tracing::info!(
        listener = name,
        "the listener is closed, as are its {closed} connections"
    );
}
