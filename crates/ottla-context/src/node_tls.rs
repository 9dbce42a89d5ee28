//! What the node shows and trusts where it uses TLS: for each listener that does, its own and those of other nodes that
//! it connects to.
//!
//! Kafka resolves the settings of a listener in `ChannelBuilders.channelBuilderConfigs`; which listener has to trust
//! itself is in `SslChannelBuilder`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use ottla_config::{BrokerConfig, SecurityProtocol};
use ottla_sync::{ArcSwap, Mutex};
use ottla_tls::{Given, Purpose, Reloaded, TlsContext, TlsError, TlsSettings};

/// One listener with TLS.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// Upper case.
    pub listener: String,
    pub context: Arc<TlsContext>,
}

#[derive(Debug, Default)]
pub struct NodeTls {
    by_listener: ArcSwap<BTreeMap<String, Arc<TlsContext>>>,
    /// What the last attempt to replace one has failed over, by listener.
    failures: Mutex<BTreeMap<String, TlsError>>,
    /// How many of the warnings of its end each certificate has had: by listener, alias and end.
    warned: Mutex<BTreeMap<(String, String, i64), usize>>,
}

/// How many days before its end a certificate is warned of.
const WARNED_DAYS: [i64; 4] = [30, 7, 1, 0];
const DAY_SECONDS: i64 = 24 * 60 * 60;

impl NodeTls {
    /// Reads what the configuration names, for all listeners. Blocks. The error is the first, for people.
    pub fn load(&self, config: &BrokerConfig) -> Result<(), TlsError> {
        let mut by_listener = BTreeMap::new();
        for listener in &config.listeners {
            let name = &listener.name;
            let found = config.listener_setting(name, CLIENT_AUTH);
            if let Some((key, value)) = found
                && is_ignored(&key, CLIENT_AUTH, listener.protocol)
            {
                tracing::warn!(
                    "{key}={value} does not apply to listener {name}, which uses SASL_SSL; give \
                     listener.name.{}.{key} if its clients are to show certificates too",
                    name.to_lowercase()
                );
            }
        }
        for (listener, settings) in settings(config) {
            let context = TlsContext::load(settings)?;
            for warning in context.warnings() {
                tracing::error!("{warning}");
            }
            by_listener.insert(listener, Arc::new(context));
        }
        self.by_listener.store(Arc::new(by_listener));
        Ok(())
    }

    /// That of the listener over which this node connects to controllers.
    pub fn of_controllers(&self, config: &BrokerConfig) -> Option<Arc<TlsContext>> {
        self.of(config.controller_listener_names.first()?)
    }

    /// Warns of certificates that are about to expire: at 30, 7 and 1 days, and when they have.
    pub fn warn_of_expiry(&self, now: SystemTime) {
        let mut warned = self.warned.lock();
        for ListenerTls { listener, context } in self.all() {
            for (alias, facts) in context.certificates() {
                let left = facts.seconds_left(now);
                let stage = WARNED_DAYS
                    .iter()
                    .filter(|days| left <= **days * DAY_SECONDS)
                    .count();
                // One that replaces it begins anew.
                let key = (listener.clone(), alias, facts.not_after);
                let before = warned.insert(key, stage).unwrap_or(0);
                if stage <= before {
                    continue;
                }
                let (of, days) = (facts.describe(), left / DAY_SECONDS);
                match left > 0 {
                    true => tracing::warn!(
                        listener,
                        "the certificate of {of} expires in {days} days; replace its file, which is read again without a restart"
                    ),
                    false => tracing::error!(
                        listener,
                        "the certificate of {of} has expired; clients that check it are kept out until its file is replaced"
                    ),
                }
            }
        }
    }

    /// Takes settings and files that have changed. What cannot be taken is logged, once, and leaves what is in force.
    /// Blocks.
    pub fn refresh(&self, config: &BrokerConfig) {
        let mut failures = self.failures.lock();
        for (listener, settings) in settings(config) {
            let Some(context) = self.of(&listener) else {
                continue;
            };
            match context.reload(settings) {
                Ok(Reloaded::Unchanged) => {}
                Ok(Reloaded::Replaced) => {
                    failures.remove(&listener);
                    for (alias, facts) in context.certificates() {
                        tracing::info!(
                            listener,
                            alias,
                            "the certificate of {} is in force; sessions of the previous one are not resumed",
                            facts.describe()
                        );
                    }
                }
                Err(error) if failures.get(&listener) == Some(&error) => {}
                Err(error) => {
                    tracing::error!(
                        listener,
                        "what was loaded before stays in force, as its replacement cannot be used: {error}"
                    );
                    failures.insert(listener, error);
                }
            }
        }
    }

    /// Whether [`NodeTls::refresh`] would take what a configuration names. Blocks.
    pub fn check(&self, config: &BrokerConfig) -> Result<(), TlsError> {
        for (listener, settings) in settings(config) {
            if let Some(context) = self.of(&listener) {
                context.check(settings)?;
            }
        }
        Ok(())
    }

    /// That of a listener, which has one if its protocol is SSL or SASL_SSL.
    pub fn of(&self, listener: &str) -> Option<Arc<TlsContext>> {
        self.by_listener.load().get(listener).cloned()
    }

    pub fn all(&self) -> Vec<ListenerTls> {
        let loaded = self.by_listener.load();
        let all = loaded.iter().map(|(listener, context)| ListenerTls {
            listener: listener.clone(),
            context: Arc::clone(context),
        });
        all.collect()
    }

    /// What is wrong with the settings and files of each listener, and what is in force though it should not be. Reads
    /// the files; changes nothing.
    pub fn examine(config: &BrokerConfig) -> (Vec<TlsError>, Vec<String>) {
        let mut errors = Vec::new();
        let mut warnings = Vec::new();
        for (_, settings) in settings(config) {
            match TlsContext::load(settings) {
                Ok(context) => warnings.extend(context.warnings()),
                Err(error) => errors.push(error),
            }
        }
        (errors, warnings)
    }
}

/// The listeners with TLS that a node of this configuration needs, and their settings.
pub(crate) fn settings(config: &BrokerConfig) -> Vec<(String, TlsSettings)> {
    let inter_broker = &config.inter_broker_listener_name;
    let of_own = config.listeners.iter().map(|listener| {
        let is_of_nodes = config.process_roles.broker && listener.name == *inter_broker;
        let purpose = match is_of_nodes {
            true => Purpose::ListenerOfNodes,
            false => Purpose::Listener,
        };
        (listener.name.clone(), listener.protocol, purpose)
    });
    let mut all: Vec<_> = of_own.collect();
    // Where this node is only a client: a broker connects to the controllers over the first of their listeners.
    if let Some(name) = config.controller_listener_names.first()
        && !all.iter().any(|(known, ..)| known == name)
        && let Some(protocol) = config.listener_protocol(name)
    {
        all.push((name.clone(), protocol, Purpose::Client));
    }
    all.retain(|(_, protocol, _)| protocol.uses_tls());
    let settings = all.into_iter().map(|(name, protocol, purpose)| {
        let settings = of_listener(config, &name, protocol, purpose);
        (name, settings)
    });
    settings.collect()
}

fn of_listener(
    config: &BrokerConfig,
    name: &str,
    protocol: SecurityProtocol,
    purpose: Purpose,
) -> TlsSettings {
    let owner = match purpose {
        Purpose::Client => format!("the connection to listener {name} of other nodes"),
        Purpose::Listener | Purpose::ListenerOfNodes => format!("listener {name}"),
    };
    TlsSettings::read(owner, purpose, |key| {
        let (given, value) = config.listener_setting(name, key)?;
        (!is_ignored(&given, key, protocol)).then(|| Given {
            key: given,
            value: value.to_owned(),
        })
    })
}

const CLIENT_AUTH: &str = "ssl.client.auth";

/// With SASL, that says who a client is; a certificate is asked for only where the listener itself says so.
fn is_ignored(given: &str, key: &str, protocol: SecurityProtocol) -> bool {
    key == CLIENT_AUTH && given == key && protocol == SecurityProtocol::SaslSsl
}
