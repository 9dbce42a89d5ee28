//! The TLS contexts of the node: one for each of its own listeners with TLS, and one for each
//! listener of other nodes that it only connects to.
//!
//! Kafka: `ChannelBuilders.channelBuilderConfigs` resolves the settings of a listener;
//! `SslChannelBuilder` decides which listener must trust its own certificate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use ottla_config::{BrokerConfig, SecurityProtocol};
use ottla_sync::{ArcSwap, Mutex};
use ottla_tls::{
    CertificateFacts, ClientAuth, Given, Purpose, Reloaded, TlsContext, TlsError, TlsSettings,
};

/// One listener with TLS.
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// Upper case.
    pub listener: String,
    pub context: Arc<TlsContext>,
}

impl ListenerTls {
    /// What clients need for the TLS of this listener, for people.
    pub fn needs_of_clients(&self) -> Vec<String> {
        let mut needs = Vec::new();
        for (_, chain) in self.context.chains() {
            let (Some(own), Some(last)) = (chain.first(), chain.last()) else {
                continue;
            };
            let own_of = own.describe();
            needs.push(match own.issuer == own.subject {
                true => format!("trust in the self-signed certificate of {own_of}"),
                false => format!("trust in {}, the authority of {own_of}", last.issuer),
            });
        }
        match self.context.client_auth() {
            ClientAuth::None => {}
            ClientAuth::Requested => needs.push(
                "if they present a certificate, one that the trust store of the listener trusts"
                    .to_owned(),
            ),
            ClientAuth::Required => needs.push(
                "a certificate of their own that the trust store of the listener trusts".to_owned(),
            ),
        }
        needs
    }
}

/// What [`NodeTls::examine`] has found.
#[derive(Debug, Default)]
pub struct ExaminedTls {
    /// About settings and files that cannot be used.
    pub errors: Vec<TlsError>,
    /// About listeners that can be used nevertheless.
    pub warnings: Vec<String>,
    /// The listeners whose settings and files can be used.
    pub usable: Vec<ListenerTls>,
    /// About certificates that are valid and expire soon.
    pub expiring: Vec<String>,
}

#[derive(Debug, Default)]
pub struct NodeTls {
    by_listener: ArcSwap<BTreeMap<String, Arc<TlsContext>>>,
    /// Why the last reload failed, by listener.
    failures: Mutex<BTreeMap<String, TlsError>>,
    /// How many expiry warnings were logged for each certificate, by listener, and by alias, subject
    /// and expiry time.
    warned: Mutex<BTreeMap<(String, (String, String, i64)), usize>>,
}

/// A warning is logged this many days before a certificate expires.
const WARNED_DAYS: [i64; 4] = [30, 7, 1, 0];
const DAY_SECONDS: i64 = 24 * 60 * 60;

impl NodeTls {
    /// Loads key and trust stores of all listeners. Blocks. Returns the first error, as text for
    /// people.
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
                     listener.name.{}.{key} if its clients must present certificates too",
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

    /// Loads the stores of a listener that is being added. Does nothing for one without TLS. Blocks.
    pub fn add_listener(&self, config: &BrokerConfig, listener: &str) -> Result<(), TlsError> {
        let Some(context) = load_listener(config, listener)? else {
            return Ok(());
        };
        for warning in context.warnings() {
            tracing::error!("{warning}");
        }
        let context = Arc::new(context);
        self.change(|all| {
            all.insert(listener.to_owned(), Arc::clone(&context));
        });
        Ok(())
    }

    /// Forgets the stores of a listener that was removed.
    pub fn remove_listener(&self, listener: &str) {
        self.change(|all| {
            all.remove(listener);
        });
        self.failures.lock().remove(listener);
    }

    fn change(&self, change: impl Fn(&mut BTreeMap<String, Arc<TlsContext>>)) {
        self.by_listener.rcu(|before| {
            let mut by_listener = BTreeMap::clone(before);
            change(&mut by_listener);
            by_listener
        });
    }

    /// Whether [`NodeTls::add_listener`] would succeed. Blocks.
    pub fn check_listener(config: &BrokerConfig, listener: &str) -> Result<(), TlsError> {
        load_listener(config, listener).map(|_| ())
    }

    /// The context of the listener through which this node connects to controllers.
    pub fn of_controllers(&self, config: &BrokerConfig) -> Option<Arc<TlsContext>> {
        self.of(config.controller_listener_names.first()?)
    }

    /// Logs a warning when a certificate has 30, 7 or 1 days left, and an error when it has
    /// expired.
    pub fn warn_of_expiry(&self, now: SystemTime) {
        for (listener, facts) in self.take_expiring(now) {
            let left = facts.seconds_left(now);
            match left > 0 {
                true => tracing::warn!(listener, "{}", expiry(&facts, left)),
                false => tracing::error!(
                    listener,
                    "the certificate of {} has expired; clients that verify it cannot connect until its file is replaced",
                    facts.describe()
                ),
            }
        }
    }

    /// The certificates to warn of, with their listeners. Each is returned once for each stage.
    fn take_expiring(&self, now: SystemTime) -> Vec<(String, CertificateFacts)> {
        let mut warned = self.warned.lock();
        let mut expiring = Vec::new();
        for ListenerTls { listener, context } in self.all() {
            for (alias, facts) in shown(&context) {
                let left = facts.seconds_left(now);
                let stage = WARNED_DAYS
                    .iter()
                    .filter(|days| left <= **days * DAY_SECONDS)
                    .count();
                // A new certificate has another expiry time, and so starts at 0.
                let of = (alias, facts.subject.clone(), facts.not_after);
                let before = warned.insert((listener.clone(), of), stage).unwrap_or(0);
                if stage > before {
                    expiring.push((listener.clone(), facts));
                }
            }
        }
        expiring
    }

    /// Reloads settings and files that have changed. If that fails, the error is logged once until
    /// it changes or the files can be used again, and the previous context stays in use. Blocks.
    pub fn refresh(&self, config: &BrokerConfig) {
        let mut failures = self.failures.lock();
        for (listener, settings) in settings(config) {
            let Some(context) = self.of(&listener) else {
                continue;
            };
            match context.reload(settings) {
                // The files in force are back. The next failure is a new one.
                Ok(Reloaded::Unchanged) => drop(failures.remove(&listener)),
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
                        "the previous files stay in force, because their replacement cannot be used: {error}"
                    );
                    failures.insert(listener, error);
                }
            }
        }
    }

    /// Whether [`NodeTls::refresh`] would accept this configuration. Blocks.
    pub fn check(&self, config: &BrokerConfig) -> Result<(), TlsError> {
        for (listener, settings) in settings(config) {
            if let Some(context) = self.of(&listener) {
                context.check(settings)?;
            }
        }
        Ok(())
    }

    /// The context of a listener; `None` unless its protocol is SSL or SASL_SSL.
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

    /// Examines the settings and files of each listener at this time. Reads the files and changes
    /// nothing. Blocks.
    pub fn examine(config: &BrokerConfig, now: SystemTime) -> ExaminedTls {
        let mut examined = ExaminedTls::default();
        for (listener, settings) in settings(config) {
            let context = match TlsContext::load(settings) {
                Ok(context) => Arc::new(context),
                Err(error) => {
                    examined.errors.push(error);
                    continue;
                }
            };
            examined.warnings.extend(context.warnings());
            for (_, facts) in shown(&context) {
                let left = facts.seconds_left(now);
                // An expired certificate is among the warnings.
                if (0..=WARNED_DAYS[0] * DAY_SECONDS).contains(&left) {
                    let text = expiry(&facts, left);
                    examined
                        .expiring
                        .push(format!("listener {listener}: {text}"));
                }
            }
            examined.usable.push(ListenerTls { listener, context });
        }
        examined
    }
}

/// The certificates that a listener presents, with their issuers in the chain, and their aliases.
fn shown(context: &TlsContext) -> Vec<(String, CertificateFacts)> {
    let chains = context.chains().into_iter();
    let shown = chains.flat_map(|(alias, chain)| {
        let of_alias = move |facts| (alias.clone(), facts);
        chain.into_iter().map(of_alias)
    });
    shown.collect()
}

/// What to do about a certificate with this much time left.
fn expiry(facts: &CertificateFacts, seconds_left: i64) -> String {
    let days = match seconds_left / DAY_SECONDS {
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    };
    format!(
        "the certificate of {} expires in {days}; replace its file, which needs no restart",
        facts.describe()
    )
}

/// The listeners with TLS that a node with this configuration needs, and their settings.
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
    // A broker without the controller role connects to the first controller listener, and is only a
    // client there.
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

/// The stores of one listener; `None` if it has no TLS.
fn load_listener(config: &BrokerConfig, listener: &str) -> Result<Option<TlsContext>, TlsError> {
    let mut all = settings(config).into_iter();
    let own = all.find(|(name, _)| name == listener);
    own.map(|(_, settings)| TlsContext::load(settings))
        .transpose()
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

/// With SASL, the client is authenticated by SASL. A certificate is requested only if the setting
/// has the prefix of this listener.
fn is_ignored(given: &str, key: &str, protocol: SecurityProtocol) -> bool {
    key == CLIENT_AUTH && given == key && protocol == SecurityProtocol::SaslSsl
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ottla_config::Properties;
    use ottla_testkit::certificates::{Authority, Wanted};

    use super::*;

    #[test]
    fn each_certificate_is_warned_of_at_30_7_and_1_days_and_when_it_has_expired() {
        let authority = Authority::new("authority");
        let middle = authority.under("middle");
        let own = middle.issue(Wanted::default());
        let chain = format!("{}{}", own.certificate, middle.pem());
        let mut properties = Properties::new("server.properties");
        for (key, value) in [
            ("process.roles", "broker"),
            ("node.id", "1"),
            ("listeners", "SSL://localhost:9092"),
            ("security.inter.broker.protocol", "SSL"),
            ("controller.listener.names", "CONTROLLER"),
            (
                "listener.security.protocol.map",
                "SSL:SSL,CONTROLLER:PLAINTEXT",
            ),
            ("controller.quorum.bootstrap.servers", "localhost:9093"),
            ("log.dirs", "/data"),
            ("ssl.keystore.type", "PEM"),
            ("ssl.keystore.key", &own.key),
            ("ssl.keystore.certificate.chain", &chain),
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.certificates", &authority.pem()),
            ("ssl.client.auth", "required"),
        ] {
            properties.set(key, value);
        }
        let (config, _) = BrokerConfig::from_properties(&properties).unwrap();
        let tls = NodeTls::default();
        tls.load(&config).unwrap();
        let (_, facts) = tls.all()[0].context.certificates().remove(0);
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(facts.not_after as u64);
        let day = Duration::from_secs(DAY_SECONDS as u64);
        for (days_left, warnings) in [(31, 0), (30, 1), (29, 0), (7, 1), (1, 1), (0, 1), (0, 0)] {
            let expiring = tls.take_expiring(end - days_left * day);
            // Both end on the same day.
            assert_eq!(expiring.len(), 2 * warnings, "{days_left}");
            assert!(expiring.iter().all(|(listener, _)| listener == "SSL"));
        }

        let needs =
            NodeTls::examine(&config, ottla_sync::time::wall_clock()).usable[0].needs_of_clients();
        assert!(
            needs[0]
                .starts_with("trust in CN=authority,O=Ottla, the authority of CN=broker,O=Ottla"),
            "{needs:?}"
        );
        assert!(
            needs[1].starts_with("a certificate of their own"),
            "{needs:?}"
        );
    }
}
