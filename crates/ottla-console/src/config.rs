//! The configuration of a console, and the rules for logins.

use std::net::{IpAddr, SocketAddr};

use ottla_client::{ClientConfig, SaslMechanism, ScramMechanism};

use crate::from_broker::{Activity, FromBroker, Latency};
use crate::host::without_port;
use crate::measure::MeasureConfig;
use crate::oidc::OidcConfig;
use crate::registry::RegistryConfig;

/// The cluster of a console, and its permissions.
#[derive(Clone, Debug)]
pub struct ConsoleConfig {
    /// The cluster, and the credentials of a console without logins.
    pub client: ClientConfig,
    /// Those with which the broker lets people log in at the moment, if that is known.
    pub accepted_mechanisms: Option<FromBroker<SaslMechanism>>,
    /// Whether people log in although the address is a loopback address.
    pub login: bool,
    /// Whether every change is refused.
    pub read_only: bool,
    /// Names under which browsers reach the console, besides `localhost` and IP addresses: the
    /// names of a reverse proxy.
    pub public_names: Vec<String>,
    /// Where people log in. It needs a public name, for the provider sends browsers back there.
    pub oidc: Option<OidcConfig>,
    /// Where the schemas of records are.
    pub registry: Option<RegistryConfig>,
    /// Those of the broker beside which the console runs.
    pub latencies: Option<FromBroker<Latency>>,
    /// Of the same broker: one item, or none if it has stopped.
    pub activity: Option<FromBroker<Activity>>,
    /// Without it, the console shows and runs no benchmarks.
    pub measure: Option<MeasureConfig>,
}

impl ConsoleConfig {
    pub fn new(client: ClientConfig) -> ConsoleConfig {
        ConsoleConfig {
            client,
            accepted_mechanisms: None,
            login: false,
            read_only: false,
            public_names: Vec::new(),
            oidc: None,
            registry: None,
            latencies: None,
            activity: None,
            measure: None,
        }
    }

    /// Whether people must log in at a console on this address: always, unless only programs of
    /// this machine can reach it.
    pub fn needs_login(&self, address: SocketAddr) -> bool {
        self.login
            || !address.ip().is_loopback()
            || !self.public_names.is_empty()
            || self.oidc.is_some()
    }

    /// Refuses an address at which no user could log in, and a console without logins that has no
    /// credentials. The error is a sentence for people.
    pub fn check(&self, address: SocketAddr) -> Result<(), String> {
        if self.oidc.is_some() && self.public_names.is_empty() {
            return Err(
                "an identity provider sends browsers back to a name of the console, and it has none; give it with \
                 --public-name, or beside a server with ottla.console.public.names"
                    .to_owned(),
            );
        }
        if !self.needs_login(address) {
            return self.client.validate().map_err(|error| {
                format!("{error}; or give --login, so that people log in themselves")
            });
        }
        if self.client.security.uses_sasl() {
            return Ok(());
        }
        let asks_for_it = [
            (!address.ip().is_loopback(), "listen on 127.0.0.1"),
            (self.login, "leave out --login"),
            (!self.public_names.is_empty(), "leave out --public-name"),
        ];
        let without = asks_for_it.iter().filter(|(asks, _)| *asks);
        let without: Vec<&str> = without.map(|(_, without)| *without).collect();
        Err(format!(
            "the console on {address} needs a login, and without SASL the cluster has none; set \
             security.protocol and sasl.mechanism in --command-config, or {}",
            without.join(" and ")
        ))
    }

    /// The mechanisms with which people can log in with a password; the configured one comes first.
    /// None if the configured one is that of tokens, and a provider gives them, or if the cluster is known to accept none.
    pub(crate) fn mechanisms(&self) -> Vec<SaslMechanism> {
        let configured = self.client.security.sasl_mechanism;
        if self.oidc.is_some() && configured == Some(SaslMechanism::OAuthBearer) {
            return Vec::new();
        }
        let mut all = vec![
            SaslMechanism::Scram(ScramMechanism::Sha512),
            SaslMechanism::Scram(ScramMechanism::Sha256),
            SaslMechanism::Plain,
        ];
        if let Some(accepted) = &self.accepted_mechanisms {
            let accepted = accepted.read();
            all.retain(|mechanism| accepted.contains(mechanism));
        }
        all.sort_by_key(|mechanism| Some(*mechanism) != configured);
        all
    }

    /// Whether a `Host` header names this console. A page of another site whose name was changed to
    /// resolve to this machine has its own name there (DNS rebinding).
    pub(crate) fn is_own_host(&self, host: &str) -> bool {
        let name = without_port(host);
        name.eq_ignore_ascii_case("localhost")
            || name
                .trim_start_matches('[')
                .trim_end_matches(']')
                .parse::<IpAddr>()
                .is_ok()
            || self.is_public_name(name)
    }

    /// Whether a name is a configured public name.
    pub(crate) fn is_public_name(&self, name: &str) -> bool {
        let mut names = self.public_names.iter();
        names.any(|own| own.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use ottla_client::SecurityProtocol;
    use parking_lot::Mutex;

    use super::*;

    fn config() -> ConsoleConfig {
        ConsoleConfig::new(ClientConfig::new("127.0.0.1:1").unwrap())
    }

    #[test]
    fn only_a_loopback_address_without_a_public_name_needs_no_login() {
        let (own, others) = (
            "127.0.0.1:1".parse().unwrap(),
            "10.0.0.1:1".parse().unwrap(),
        );
        let mut config = config();
        assert!(!config.needs_login(own) && config.check(own).is_ok());
        assert!(config.needs_login(others) && config.check(others).is_err());
        config.public_names = vec!["console.example".into()];
        assert!(config.needs_login(own));
        let refused = config.check(own).unwrap_err();
        assert!(refused.contains("security.protocol"), "{refused}");
        assert!(
            refused.ends_with(", or leave out --public-name"),
            "{refused}"
        );
        config.public_names.clear();
        config.login = true;
        let refused = config.check(own).unwrap_err();
        assert!(refused.ends_with(", or leave out --login"), "{refused}");
        let refused = config.check(others).unwrap_err();
        assert!(
            refused.ends_with(", or listen on 127.0.0.1 and leave out --login"),
            "{refused}"
        );
    }

    #[test]
    fn a_provider_needs_a_public_name_and_takes_the_place_of_passwords_only_if_it_is_to() {
        let mut config = config();
        config.client.security.protocol = SecurityProtocol::SaslPlaintext;
        let provider = OidcConfig::new("https://id.example", "console", &BTreeMap::new());
        config.oidc = Some(provider.unwrap());
        let own = "127.0.0.1:1".parse().unwrap();
        assert!(config.needs_login(own));
        let refused = config.check(own).unwrap_err();
        assert!(refused.contains("--public-name"), "{refused}");
        config.public_names = vec!["console.example".into()];
        config.check(own).unwrap();
        assert_eq!(config.mechanisms().len(), 3);
        config.client.security.sasl_mechanism = Some(SaslMechanism::OAuthBearer);
        assert!(config.mechanisms().is_empty());
        config.oidc = None;
        assert_eq!(config.mechanisms().len(), 3);
        let accepted = Arc::new(Mutex::new(vec![SaslMechanism::OAuthBearer]));
        let now = accepted.clone();
        config.accepted_mechanisms = Some(FromBroker::new(move || now.lock().clone()));
        assert!(config.mechanisms().is_empty());
        // A dynamic setting of the broker.
        accepted.lock().push(SaslMechanism::Plain);
        assert_eq!(config.mechanisms(), [SaslMechanism::Plain]);
    }

    #[test]
    fn a_console_without_logins_needs_credentials_where_the_cluster_does() {
        let mut config = config();
        let settings = [
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let unknown = config.client.apply_without_credentials(&settings.into());
        assert_eq!(unknown.unwrap(), Vec::<String>::new());
        let address = "127.0.0.1:1".parse().unwrap();
        let refused = config.check(address).unwrap_err();
        assert!(
            refused.contains("there is no username") && refused.contains("--login"),
            "{refused}"
        );
        config.login = true;
        config.check(address).unwrap();
    }

    #[test]
    fn a_name_that_is_not_the_consoles_is_no_host_of_it() {
        let mut config = config();
        for own in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:9",
            "[::1]:9",
            "[::1]",
            "10.1.2.3",
        ] {
            assert!(config.is_own_host(own), "{own}");
        }
        for other in [
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "",
        ] {
            assert!(!config.is_own_host(other), "{other}");
        }
        config.public_names = vec!["console.example".into()];
        assert!(config.is_own_host("Console.Example:443"));
    }
}
