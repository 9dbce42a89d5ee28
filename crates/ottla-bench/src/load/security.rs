//! The security settings of the generator's connections, loaded once. They are the settings of
//! Kafka's clients, as the native client reads them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use ottla_client::{ClientCredentials, ClientLogin, SaslMechanism, properties};
use rustls::ClientConfig;
use rustls::client::Resumption;

/// The TLS and login settings of a connection. The default is a plain connection.
#[derive(Debug, Default)]
pub struct Security {
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) user: Option<User>,
}

/// A user with a password.
#[derive(Debug)]
pub(super) struct User {
    mechanism: SaslMechanism,
    credentials: ClientCredentials,
    /// The last login, so that the next one need not derive the salted password again: a run would
    /// measure that instead of the broker.
    last: Mutex<Option<ClientLogin>>,
}

impl Security {
    /// Reads the settings of Kafka's clients: `security.protocol`, `ssl.*` and `sasl.*`.
    pub fn load(settings: &BTreeMap<String, String>) -> Result<Security> {
        let config = properties::admin(settings)?.security;
        let tls = config.rustls_config()?;
        let user = match config.uses_sasl() {
            true => Some(User {
                mechanism: config.mechanism(),
                credentials: config.credentials.clone().context(
                    "the load generator logs in with passwords only: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
                )?,
                last: Mutex::default(),
            }),
            false => None,
        };
        Ok(Security { tls, user })
    }

    /// The same without resumption of TLS sessions: each connection does a full handshake.
    #[must_use]
    pub fn without_resumption(mut self) -> Security {
        if let Some(config) = &mut self.tls {
            Arc::make_mut(config).resumption = Resumption::disabled();
        }
        self
    }
}

impl User {
    pub(super) fn mechanism(&self) -> SaslMechanism {
        self.mechanism
    }

    pub(super) fn login(&self, nonce: String) -> Result<ClientLogin> {
        let Some(login) = ClientLogin::new(self.mechanism, &self.credentials, nonce) else {
            bail!("{} does not take a password", self.mechanism);
        };
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match &*last {
            Some(last) => login.after(last),
            None => login,
        })
    }

    pub(super) fn on_logged_in(&self, login: ClientLogin) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(login);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(settings: &[(&str, &str)]) -> Result<Security> {
        let settings = settings.iter();
        Security::load(
            &settings
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn client_settings_are_read() {
        let plain = load(&[]).unwrap();
        assert!(plain.tls.is_none() && plain.user.is_none());
        let entry = "org.apache.kafka.common.security.plain.PlainLoginModule required \
                     username=\"alice\" password=\"hush\";";
        let login = load(&[
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.jaas.config", entry),
        ]);
        let user = login.unwrap().user.unwrap();
        let mut login = user.login("nonce".to_owned()).unwrap();
        assert_eq!(login.first_message(), b"\0alice\0hush");
        assert!(load(&[("security.protocol", "SASL_PLAINTEXT")]).is_err());
    }
}
