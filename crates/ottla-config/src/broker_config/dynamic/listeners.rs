//! Rules for changes of the listeners of a running broker: listeners are added and removed, and the
//! remaining ones do not change.
//!
//! Kafka: `DynamicListenerConfig.validateReconfiguration`. It accepts another address of an existing
//! listener, and settings under its prefix that are changed alone, and ignores both; here they are
//! refused.

use std::collections::BTreeMap;

use super::super::BrokerConfig;
use super::super::listeners::Listener;

impl BrokerConfig {
    /// Whether this broker can change to the listeners of `new` while it runs. The message is for
    /// the client.
    pub(super) fn check_listeners(&self, new: &BrokerConfig) -> Result<(), String> {
        let is_missing =
            |listener: &Listener| !new.listeners.iter().any(|it| it.name == listener.name);
        if self.advertised_listeners.iter().any(is_missing) {
            return Err(format!(
                "Advertised listeners '{}' must be a subset of listeners '{}'; keep them in the new value of \
                 listeners, or take them out of advertised.listeners in the properties file and restart the broker",
                names(&self.advertised_listeners),
                names(&new.listeners)
            ));
        }
        for listener in &new.listeners {
            let name = &listener.name;
            let Some(old) = self.listeners.iter().find(|it| it.name == *name) else {
                continue;
            };
            if self.fixed_settings(name) != new.fixed_settings(name) {
                return Err(format!(
                    "Configs cannot be updated dynamically for existing listener ListenerName({name}), restart \
                     broker or create a new listener for update"
                ));
            }
            if old.protocol != listener.protocol {
                return Err(format!(
                    "Security protocol cannot be updated for existing listener ListenerName({name})"
                ));
            }
            if !listener.is_same(old) {
                return Err(format!(
                    "listeners={listener}: the address of an existing listener cannot be changed while the broker \
                     runs; keep {old}, and add a listener with another name, or change the properties file and \
                     restart the broker"
                ));
            }
        }
        Ok(())
    }

    /// The settings under the prefix of a listener that it keeps as long as it is open.
    fn fixed_settings(&self, name: &str) -> BTreeMap<&str, &str> {
        let prefix = format!("listener.name.{}.", name.to_lowercase());
        let all = [
            &self.static_settings,
            &self.dynamic_default_settings,
            &self.dynamic_settings,
        ];
        let own = all.into_iter().flatten();
        own.filter(|(key, _)| key.starts_with(&prefix) && Self::is_fixed_of_listener(key))
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect()
    }
}

impl Listener {
    /// Whether a running broker has nothing to do to change from one to the other.
    pub fn is_same(&self, other: &Listener) -> bool {
        let facts = |it: &Listener| (it.protocol, it.port);
        self.name == other.name && facts(self) == facts(other) && host(self) == host(other)
    }
}

/// The host of a listener; `None` for all addresses.
fn host(listener: &Listener) -> Option<&str> {
    let host = listener.host.as_deref();
    host.filter(|host| !matches!(*host, "0.0.0.0" | "::"))
}

/// The names of listeners, as Kafka prints a set of them.
fn names(listeners: &[Listener]) -> String {
    let names = listeners
        .iter()
        .map(|listener| format!("ListenerName({})", listener.name));
    format!("Set({})", names.collect::<Vec<_>>().join(", "))
}
