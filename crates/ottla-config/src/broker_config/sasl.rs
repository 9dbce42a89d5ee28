//! SASL settings: the mechanisms of this node's listeners, and its credentials at the listeners of
//! other nodes.
//!
//! Credentials are searched for as in Kafka; the first place that contains some is used:
//!
//! 1. `listener.name.<listener>.<mechanism>.sasl.jaas.config`,
//! 2. the section `<listener>.KafkaServer` of the JAAS file,
//! 3. its section `KafkaServer`.
//!
//! Kafka: `ChannelBuilders.channelBuilderConfigs`, `JaasContext.loadServerContext`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_sasl::jaas::{JaasFile, LoginModule, parse_property};
use ottla_sasl::{
    ClientCredentials, EnabledMechanism, KerberosLogin, KerberosRules, KerberosService, KeySource,
    Mechanism, PeerCredentials, SaslListener, SaslPeer, Secret, TokenSource, TokenValidator,
    service_name_of,
};

use super::ConfigError;
use super::listeners::{Listener, SecurityProtocol};
use super::oauth::OAuthSettings;
use super::values::Values;
use crate::config_def::split_list;

/// The resolved SASL settings. Listener names are in upper case.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct SaslConfig {
    /// The SASL listeners of this node.
    listeners: BTreeMap<String, Arc<SaslListener>>,
    /// The SASL listeners of other nodes that this node connects to.
    peers: BTreeMap<String, Arc<SaslPeer>>,
}

const MECHANISMS: &str = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI";

impl SaslConfig {
    /// The SASL settings of a listener of this node; `None` for one without SASL.
    pub fn listener(&self, name: &str) -> Option<&Arc<SaslListener>> {
        self.listeners.get(name)
    }

    /// The distinct sources of token issuers' keys.
    pub fn key_sources(&self) -> Vec<KeySource> {
        let mut sources: Vec<KeySource> = Vec::new();
        let enabled = self.listeners.values().flat_map(|it| &it.mechanisms);
        for validator in enabled.filter_map(|mechanism| mechanism.tokens.as_deref()) {
            if let TokenValidator::Signed { keys, .. } = validator
                && !sources.contains(keys)
            {
                sources.push(keys.clone());
            }
        }
        sources
    }

    /// The listeners with GSSAPI, and the service that clients log in to there.
    pub fn kerberos_services(&self) -> Vec<(&str, &KerberosService)> {
        let mechanisms = self.listeners.iter().flat_map(|(name, listener)| {
            let services = listener.mechanisms.iter();
            services.filter_map(move |it| Some((name.as_str(), it.kerberos.as_deref()?)))
        });
        mechanisms.collect()
    }

    /// The credentials of this node at a listener of other nodes.
    pub fn peer(&self, listener: &str) -> Option<&Arc<SaslPeer>> {
        self.peers.get(listener)
    }

    /// Resolves the settings. Unusable ones are ignored and reported.
    pub(super) fn resolve(
        listeners: &SaslListeners<'_>,
        values: &Values<'_>,
    ) -> (SaslConfig, Vec<ConfigError>) {
        let mut reader = Reader {
            values,
            file: None,
            problems: Vec::new(),
        };
        let mut sasl = SaslConfig::default();
        let with_sasl: Vec<&Listener> = listeners
            .own
            .iter()
            .filter(|listener| listener.protocol.uses_sasl())
            .collect();
        let peers = listeners.peers();
        let has_none = with_sasl.is_empty() && peers.is_empty();
        if has_none || values.ignores_logins() {
            return (sasl, Vec::new());
        }
        reader.read_file();
        reader.refuse_what_would_be_ignored();
        for listener in with_sasl {
            let resolved = reader.listener(listener);
            sasl.listeners
                .insert(listener.name.clone(), Arc::new(resolved));
        }
        for (name, key) in peers {
            let enabled = sasl.listeners.get(&name);
            if let Some(peer) = reader.peer(&name, key, enabled) {
                sasl.peers.insert(name, Arc::new(peer));
            }
        }
        (sasl, reader.problems)
    }
}

/// The listeners that this node binds or connects to.
pub(super) struct SaslListeners<'a> {
    /// The listeners that it binds.
    pub own: &'a [Listener],
    /// The listener of other brokers; `None` if this node is not a broker.
    pub inter_broker: Option<&'a str>,
    /// The listener of the controllers.
    pub controller: Option<&'a str>,
    /// `listener.security.protocol.map`.
    pub protocols: &'a BTreeMap<String, SecurityProtocol>,
}

impl SaslListeners<'_> {
    /// The SASL listeners of other nodes that this node connects to, and the setting with the
    /// mechanism of each.
    fn peers(&self) -> Vec<(String, &'static str)> {
        let inter_broker = (self.inter_broker, "sasl.mechanism.inter.broker.protocol");
        let controller = (self.controller, "sasl.mechanism.controller.protocol");
        [inter_broker, controller]
            .into_iter()
            .filter_map(|(name, key)| Some((name?, key)))
            .filter(|(name, _)| self.protocols.get(*name).is_some_and(|it| it.uses_sasl()))
            .map(|(name, key)| (name.to_owned(), key))
            .collect()
    }
}

struct Reader<'a> {
    values: &'a Values<'a>,
    file: Option<JaasFile>,
    problems: Vec<ConfigError>,
}

/// A JAAS entry and its place, for messages.
struct Found {
    module: LoginModule,
    key: String,
}

impl Reader<'_> {
    fn problem(&mut self, key: &str, message: &str) {
        let problem = self.values.conflict(key, message);
        // An entry is read for the clients of a listener, and for the connections of other nodes.
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn read_file(&mut self) {
        let Some(source) = self.values.jaas_file() else {
            return;
        };
        match JaasFile::parse(&source.text) {
            Ok(file) => self.file = Some(file),
            Err(error) => {
                let place = format!("{} line {}", source.path, error.line());
                let message = error.to_string();
                self.problems.push(ConfigError::Conflict { place, message });
            }
        }
    }

    /// Kafka ignores them, and then no client can log in.
    fn refuse_what_would_be_ignored(&mut self) {
        let mechanism = "plain, scram-sha-256, scram-sha-512, oauthbearer or gssapi";
        let ignored: Vec<String> = self
            .values
            .keys()
            .filter(|key| {
                let of_listener = key
                    .strip_prefix("listener.name.")
                    .and_then(|rest| rest.split_once('.'));
                match of_listener {
                    Some((_, base)) => base == "sasl.jaas.config",
                    None => key.ends_with("sasl.jaas.config"),
                }
            })
            .map(str::to_owned)
            .collect();
        for key in ignored {
            let of_listener = key
                .strip_prefix("listener.name.")
                .and_then(|rest| rest.split('.').next());
            let listener = of_listener.unwrap_or("<listener>");
            let message = format!(
                "{key} would have no effect, as in Kafka: a listener takes its users from \
                 listener.name.{listener}.<mechanism>.sasl.jaas.config; rename it, with {mechanism} for <mechanism>"
            );
            self.problem(&key, &message);
        }
    }

    fn listener(&mut self, listener: &Listener) -> SaslListener {
        let prefix = format!("listener.name.{}.", listener.name.to_lowercase());
        let own = format!("{prefix}sasl.enabled.mechanisms");
        let key = match self.values.is_given(&own) {
            true => own,
            false => "sasl.enabled.mechanisms".to_owned(),
        };
        let text = self.values.text(&key).unwrap_or("GSSAPI").to_owned();
        let mut resolved = SaslListener::default();
        let mut names = split_list(&text);
        names.dedup();
        if names.is_empty() {
            let message = format!("{key} is empty; give {MECHANISMS}");
            self.problem(&key, &message);
        }
        for name in &names {
            let mechanism = match Mechanism::from_name(name) {
                Some(mechanism) => mechanism,
                None => {
                    let message = format!(
                        "{key} has {name}, which is not a mechanism; give {MECHANISMS}, in upper case"
                    );
                    self.problem(&key, &message);
                    continue;
                }
            };
            let enabled = self.mechanism(listener, &prefix, mechanism);
            resolved.mechanisms.push(enabled);
        }
        resolved
    }

    fn mechanism(
        &mut self,
        listener: &Listener,
        prefix: &str,
        mechanism: Mechanism,
    ) -> EnabledMechanism {
        let module = self.entry(&listener.name, mechanism);
        let users: BTreeMap<String, Secret> = match &module {
            Some(found) if mechanism == Mechanism::Plain => found
                .module
                .users()
                .map(|(name, password)| (name.to_owned(), Secret::new(password)))
                .collect(),
            _ => BTreeMap::new(),
        };
        if mechanism == Mechanism::Plain && module.is_none() {
            let key = format!("{prefix}plain.sasl.jaas.config");
            let lower = listener.name.to_lowercase();
            let file = match self.values.jaas_file() {
                Some(source) => source.path.as_str(),
                None => "not set",
            };
            let message = format!(
                "Could not find a 'KafkaServer' or '{lower}.KafkaServer' entry in the JAAS configuration. System \
                 property 'java.security.auth.login.config' is {file}; give {key}={} required \
                 user_alice=\"...\";",
                mechanism.login_module()
            );
            self.problem(&key, &message);
        }
        let tokens = match mechanism {
            Mechanism::OAuthBearer => self.tokens(prefix, module.as_ref()),
            _ => None,
        };
        let kerberos = match mechanism {
            Mechanism::Gssapi => self.kerberos(listener, prefix, module.as_ref()),
            _ => None,
        };
        EnabledMechanism {
            mechanism,
            max_reauth_ms: self.max_reauth_ms(prefix, mechanism),
            users,
            tokens,
            kerberos,
        }
    }

    /// The service that clients log in to with GSSAPI.
    fn kerberos(
        &mut self,
        listener: &Listener,
        prefix: &str,
        module: Option<&Found>,
    ) -> Option<Arc<KerberosService>> {
        let Some(found) = module else {
            // An entry that cannot be read was reported.
            let key = format!("{prefix}gssapi.sasl.jaas.config");
            if self.values.text(&key).is_none() {
                let default = match self.values.is_given("sasl.enabled.mechanisms")
                    || self
                        .values
                        .is_given(&format!("{prefix}sasl.enabled.mechanisms"))
                {
                    true => "",
                    false => ", which is Kafka's default",
                };
                let message = format!(
                    "listener {} has sasl.enabled.mechanisms=GSSAPI{default}, and no entry with the key of its \
                     service; give {key}={} required useKeyTab=true storeKey=true keyTab=\"...\" \
                     principal=\"kafka/...\";, or another mechanism",
                    listener.name,
                    Mechanism::Gssapi.login_module()
                );
                self.problem(&key, &message);
            }
            return None;
        };
        let key = found.key.clone();
        let (_, service_name) = self.kerberos_setting(prefix, "sasl.kerberos.service.name");
        if let Err(reason) = service_name_of(&found.module, service_name.as_deref()) {
            self.problem(&key, &format!("{key}: {reason}"));
            return None;
        }
        let (rules_key, rules) =
            self.kerberos_setting(prefix, "sasl.kerberos.principal.to.local.rules");
        let rules = split_list(rules.as_deref().unwrap_or("DEFAULT"));
        let rules = match KerberosRules::parse(rules.iter().map(|rule| &**rule)) {
            Ok(rules) => rules,
            Err(reason) => {
                self.problem(&rules_key, &format!("{rules_key}: {reason}"));
                return None;
            }
        };
        match KerberosService::of_entry(&found.module, rules) {
            Ok(service) => Some(Arc::new(service)),
            Err(reason) => {
                self.problem(&key, &format!("{key}: {reason}"));
                None
            }
        }
    }

    /// A setting of Kerberos for a listener, and the key that it was given with.
    fn kerberos_setting(&self, prefix: &str, name: &str) -> (String, Option<String>) {
        let keys = [
            format!("{prefix}gssapi.{name}"),
            format!("{prefix}{name}"),
            name.to_owned(),
        ];
        let given = keys.into_iter().find(|key| self.values.is_given(key));
        let key = given.unwrap_or_else(|| name.to_owned());
        let text = self.values.text(&key).map(str::trim);
        let text = text.filter(|text| !text.is_empty()).map(str::to_owned);
        (key, text)
    }

    /// How this node logs in to others with GSSAPI.
    fn kerberos_login(&mut self, listener: &str, found: Option<&Found>) -> Option<KerberosLogin> {
        let prefix = format!("listener.name.{}.", listener.to_lowercase());
        let Some(found) = found else {
            let key = format!("{prefix}gssapi.sasl.jaas.config");
            let message = format!(
                "{key} is missing, with which this node logs in to others at listener {listener}; give {key}={} \
                 required useKeyTab=true storeKey=true keyTab=\"...\" principal=\"kafka/...\";",
                Mechanism::Gssapi.login_module()
            );
            self.problem(&key, &message);
            return None;
        };
        let (_, service_name) = self.kerberos_setting(&prefix, "sasl.kerberos.service.name");
        match KerberosLogin::of_entry(&found.module, service_name.as_deref()) {
            Ok(login) => Some(login),
            Err(reason) => {
                self.problem(&found.key, &format!("{}: {reason}", found.key));
                None
            }
        }
    }

    /// How OAUTHBEARER tokens are validated.
    fn tokens(&mut self, prefix: &str, module: Option<&Found>) -> Option<Arc<TokenValidator>> {
        let settings = OAuthSettings {
            values: self.values,
            prefix,
            module: module.map(|found| &found.module),
        };
        match settings.validator() {
            Ok(validator) => Some(Arc::new(validator)),
            Err((key, message)) => {
                self.problem(&key, &message);
                None
            }
        }
    }

    /// The entry with the credentials of a mechanism on a listener.
    fn entry(&mut self, listener: &str, mechanism: Mechanism) -> Option<Found> {
        let lower = listener.to_lowercase();
        let key = format!(
            "listener.name.{lower}.{}.sasl.jaas.config",
            mechanism.name().to_lowercase()
        );
        if let Some(text) = self.values.text(&key) {
            let module = match parse_property(text) {
                Ok(module) => module,
                Err(error) => {
                    let message = format!("{key}: {error}");
                    self.problem(&key, &message);
                    return None;
                }
            };
            let refused = match module.check_class() {
                Err(reason) => Some(reason),
                Ok(()) if !module.is_of(mechanism) => Some(format!(
                    "{} is not the login module of {mechanism}; give {}",
                    module.class(),
                    mechanism.login_module()
                )),
                Ok(()) => None,
            };
            if let Some(reason) = refused {
                let message = format!("{key}: {reason}");
                self.problem(&key, &message);
                return None;
            }
            return Some(Found { module, key });
        }
        let file = self.file.as_ref()?;
        let section = [format!("{lower}.KafkaServer"), "KafkaServer".to_owned()]
            .into_iter()
            .find(|section| file.section(section).is_some())?;
        let entries = file.section(&section)?;
        let module = entries.iter().find(|entry| entry.is_of(mechanism))?.clone();
        Some(Found {
            module,
            key: format!("section {section} of the JAAS file"),
        })
    }

    fn max_reauth_ms(&mut self, prefix: &str, mechanism: Mechanism) -> Option<u64> {
        let name = "connections.max.reauth.ms";
        let lower = mechanism.name().to_lowercase();
        let keys = [
            format!("{prefix}{lower}.{name}"),
            format!("{prefix}{name}"),
            name.to_owned(),
        ];
        let key = keys.into_iter().find(|key| self.values.is_given(key))?;
        let text = self.values.text(&key)?.trim();
        text.parse::<u64>().ok().filter(|limit| *limit > 0)
    }

    /// The credentials of this node at a listener of other nodes. `enabled` are the mechanisms of
    /// the same listener on this node.
    fn peer(
        &mut self,
        listener: &str,
        key: &'static str,
        enabled: Option<&Arc<SaslListener>>,
    ) -> Option<SaslPeer> {
        let name: String = self.values.get(key);
        let mechanism = match Mechanism::from_name(&name) {
            Some(mechanism) => mechanism,
            None => {
                let message = format!(
                    "{key}={name}: there is no such mechanism; listener {listener} needs {MECHANISMS} there"
                );
                self.problem(key, &message);
                return None;
            }
        };
        if let Some(enabled) = enabled
            && !enabled
                .mechanisms
                .iter()
                .any(|it| it.mechanism == mechanism)
        {
            let message = format!(
                "{key}={name}: listener {listener} does not accept it; add it to its sasl.enabled.mechanisms"
            );
            self.problem(key, &message);
        }
        let before = self.problems.len();
        let found = self.entry(listener, mechanism);
        if self.problems.len() > before {
            return None;
        }
        if mechanism == Mechanism::OAuthBearer {
            let credentials = self.token_source(listener, found.as_ref())?;
            return Some(SaslPeer {
                mechanism,
                credentials: PeerCredentials::Token(Box::new(credentials)),
            });
        }
        if mechanism == Mechanism::Gssapi {
            let login = self.kerberos_login(listener, found.as_ref())?;
            return Some(SaslPeer {
                mechanism,
                credentials: PeerCredentials::Known(ClientCredentials::Kerberos(login)),
            });
        }
        let credentials = found.as_ref().and_then(|found| found.module.credentials());
        let Some((username, password)) = credentials else {
            let place = match &found {
                Some(found) => found.key.clone(),
                None => format!(
                    "listener.name.{}.{}.sasl.jaas.config",
                    listener.to_lowercase(),
                    name.to_lowercase()
                ),
            };
            let message = format!(
                "{place} has no username and password, with which this node logs in to others at listener \
                 {listener}; give {place}={} required username=\"...\" password=\"...\";",
                mechanism.login_module()
            );
            self.problem(&place, &message);
            return None;
        };
        Some(SaslPeer {
            mechanism,
            credentials: PeerCredentials::Known(ClientCredentials::password(username, password)),
        })
    }

    /// Where this node gets the tokens with which it logs in at a listener of others.
    fn token_source(&mut self, listener: &str, module: Option<&Found>) -> Option<TokenSource> {
        let prefix = format!("listener.name.{}.", listener.to_lowercase());
        let settings = OAuthSettings {
            values: self.values,
            prefix: &prefix,
            module: module.map(|found| &found.module),
        };
        match settings.source() {
            Ok(source) => Some(source),
            Err((key, message)) => {
                self.problem(&key, &message);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker_config::BrokerConfig;
    use crate::properties::Properties;

    const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";
    const NODE: &str = "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n\
                        listeners=INSIDE://localhost:9092,CONTROLLER://localhost:9093\n\
                        inter.broker.listener.name=INSIDE\n\
                        listener.security.protocol.map=INSIDE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n\
                        controller.quorum.bootstrap.servers=localhost:9093\nlog.dirs=/data\n";

    fn examine(settings: &str, jaas_file: Option<&str>) -> (Option<SaslConfig>, Vec<String>) {
        let text = format!("{NODE}{settings}");
        let mut properties = Properties::parse(&text, "server.properties").unwrap();
        if let Some(text) = jaas_file {
            properties.set_jaas_file("/etc/jaas.conf", text);
        }
        let examined = BrokerConfig::examine(&properties);
        let problems = examined.problems.iter().map(ToString::to_string).collect();
        (examined.config.map(|config| config.sasl), problems)
    }

    #[test]
    fn users_and_the_nodes_own_name_come_from_the_listeners_entry() {
        let (sasl, problems) = examine(
            &format!(
                "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512\nsasl.mechanism.inter.broker.protocol=PLAIN\n\
                 connections.max.reauth.ms=60000\nlistener.name.inside.plain.connections.max.reauth.ms=5\n\
                 listener.name.inside.plain.sasl.jaas.config={PLAIN} required username=\"node\" \
                 password=\"x\" user_node=\"x\" user_alice=\"y\";\n"
            ),
            None,
        );
        assert_eq!(problems, Vec::<String>::new());
        let sasl = sasl.unwrap();
        let inside = sasl.listener("INSIDE").unwrap();
        let plain = inside.find("PLAIN").unwrap();
        assert_eq!(plain.users.keys().collect::<Vec<_>>(), ["alice", "node"]);
        assert_eq!(plain.max_reauth_ms, Some(5));
        assert_eq!(
            inside.find("SCRAM-SHA-512").unwrap().max_reauth_ms,
            Some(60000)
        );
        let peer = sasl.peer("INSIDE").unwrap();
        assert_eq!(
            **peer,
            SaslPeer {
                mechanism: Mechanism::Plain,
                credentials: PeerCredentials::Known(ClientCredentials::password("node", "x")),
            }
        );
        assert!(sasl.peer("CONTROLLER").is_none());
    }

    /// A keytab and its principal, for clients and for logins to other nodes.
    const KERBEROS: &str = "useKeyTab=true storeKey=true keyTab=\"/k\" principal=\"kafka/a@X\"";

    fn examine_kerberos(settings: &str, options: &str) -> (Option<SaslConfig>, Vec<String>) {
        let module = Mechanism::Gssapi.login_module();
        let entry = format!("listener.name.inside.gssapi.sasl.jaas.config={module} required");
        examine(&format!("{settings}{entry} {options};\n"), None)
    }

    #[test]
    fn kerberos_has_a_service_for_clients_and_a_login_to_other_nodes() {
        let settings = "sasl.kerberos.service.name=other\n\
                        listener.name.inside.sasl.kerberos.service.name=kafka\n\
                        sasl.kerberos.principal.to.local.rules=RULE:[1:$1]/L,DEFAULT\n";
        let (sasl, problems) = examine_kerberos(settings, KERBEROS);
        assert_eq!(problems, Vec::<String>::new());
        let sasl = sasl.unwrap();
        let service = KerberosService {
            principal: Some("kafka/a@X".to_owned()),
            keytab: Some("/k".to_owned()),
            rules: KerberosRules::parse(["RULE:[1:$1]/L", "DEFAULT"]).unwrap(),
        };
        assert_eq!(sasl.kerberos_services(), [("INSIDE", &service)]);
        let login = KerberosLogin {
            service: "kafka".to_owned(),
            principal: Some("kafka/a@X".to_owned()),
            keytab: Some("/k".to_owned()),
            ticket_cache: None,
        };
        assert_eq!(
            **sasl.peer("INSIDE").unwrap(),
            SaslPeer {
                mechanism: Mechanism::Gssapi,
                credentials: PeerCredentials::Known(ClientCredentials::Kerberos(login)),
            }
        );
    }

    #[test]
    fn missing_kerberos_settings_are_named() {
        let service = "sasl.kerberos.service.name=kafka\n";
        let rules = format!("{service}sasl.kerberos.principal.to.local.rules=lower\n");
        let named = format!("{KERBEROS} serviceName=other");
        for (settings, options, says) in [
            (
                "",
                KERBEROS,
                "No serviceName defined in either JAAS or Kafka config",
            ),
            (
                service,
                named.as_str(),
                "Conflicting serviceName values found",
            ),
            (service, "useTicketCache=true", "a listener needs a key"),
            (rules.as_str(), KERBEROS, "Invalid rule: lower"),
        ] {
            let (_, problems) = examine_kerberos(settings, options);
            assert!(
                problems.iter().any(|it| it.contains(says)),
                "{says}: {problems:#?}"
            );
        }
    }

    #[test]
    fn the_file_is_second_and_its_sections_have_an_order() {
        let file = format!(
            "KafkaServer {{ {PLAIN} required username=\"general\" password=\"x\" user_a=\"x\"; }};\n\
             inside.KafkaServer {{ {PLAIN} required username=\"of-listener\" password=\"x\"; }};"
        );
        let settings =
            "sasl.enabled.mechanisms=PLAIN\nsasl.mechanism.inter.broker.protocol=PLAIN\n";
        let name = |settings: &str, file: &str| {
            let (sasl, problems) = examine(settings, Some(file));
            assert_eq!(problems, Vec::<String>::new());
            match &sasl.unwrap().peer("INSIDE").unwrap().credentials {
                PeerCredentials::Known(known) => known.username().unwrap().to_owned(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(name(settings, &file), "of-listener");
        let general = file.replace("inside.KafkaServer", "other.KafkaServer");
        assert_eq!(name(settings, &general), "general");
        let own = format!(
            "{settings}listener.name.inside.plain.sasl.jaas.config={PLAIN} required username=\"own\" \
             password=\"x\";\n"
        );
        assert_eq!(name(&own, &file), "own");
    }

    #[test]
    fn errors_name_the_key_and_the_remedy() {
        let plain = "sasl.enabled.mechanisms=PLAIN\nsasl.mechanism.inter.broker.protocol=PLAIN\n";
        let users = "user_a=\"hush\" username=\"a\" password=\"hush\"";
        let good =
            format!("listener.name.inside.plain.sasl.jaas.config={PLAIN} required {users};\n");
        for (settings, says) in [
            (
                String::new(),
                "GSSAPI, which is Kafka's default, and no entry",
            ),
            (
                "sasl.enabled.mechanisms=SCRAM-SHA-1\n".to_owned(),
                "which is not a mechanism",
            ),
            (plain.to_owned(), "'KafkaServer' or 'inside.KafkaServer'"),
            (
                format!("{plain}sasl.jaas.config={PLAIN} required {users};\n"),
                "sasl.jaas.config would have no effect",
            ),
            (
                format!("{plain}listener.name.inside.sasl.jaas.config={PLAIN} required {users};\n"),
                "listener.name.inside.<mechanism>.sasl.jaas.config",
            ),
            (
                format!(
                    "{plain}listener.name.inside.plain.sasl.jaas.config={PLAIN} required {users}\n"
                ),
                "not terminated by semi-colon",
            ),
            (
                format!("{plain}{}", good.replace(PLAIN, "com.example.Login")),
                "Java class",
            ),
            (
                format!("{plain}{}", good.replace("plain.PlainL", "scram.ScramL")),
                "is not the login module of PLAIN",
            ),
            (
                format!("{plain}{}", good.replace("username", "name")),
                "has no username and password",
            ),
            (
                format!(
                    "sasl.enabled.mechanisms=PLAIN\nsasl.mechanism.inter.broker.protocol=SCRAM-SHA-256\n{good}"
                ),
                "listener INSIDE does not accept it",
            ),
        ] {
            let (_, problems) = examine(&settings, None);
            assert!(
                problems.iter().any(|it| it.contains(says)),
                "{says}: {problems:#?}"
            );
            assert!(
                !problems.iter().any(|it| it.contains("hush")),
                "{problems:#?}"
            );
        }
        let (_, problems) = examine(plain, Some("KafkaServer {\n M required a=1;\n};"));
        assert!(
            problems[0].starts_with("/etc/jaas.conf line 2: "),
            "{problems:#?}"
        );
    }

    #[test]
    fn programs_that_only_look_after_files_need_no_credentials() {
        let settings =
            "sasl.enabled.mechanisms=PLAIN\nsasl.mechanism.inter.broker.protocol=PLAIN\n";
        let text = format!("{NODE}{settings}");
        let mut properties = Properties::parse(&text, "server.properties").unwrap();
        assert!(BrokerConfig::from_properties(&properties).is_err());
        properties.ignore_logins();
        let (config, _) = BrokerConfig::from_properties(&properties).unwrap();
        assert_eq!(config.sasl, SaslConfig::default());
    }

    #[test]
    fn a_node_without_sasl_needs_none_of_it() {
        let text = NODE.replace("SASL_PLAINTEXT", "PLAINTEXT");
        let properties = Properties::parse(&text, "server.properties").unwrap();
        let examined = BrokerConfig::examine(&properties);
        assert_eq!(examined.problems, []);
        assert_eq!(examined.config.unwrap().sasl, SaslConfig::default());
    }
}
