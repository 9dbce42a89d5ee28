//! How connections are secured, as a client's settings say.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use ottla_tls::TlsContext;

use super::jaas::credentials;
use crate::error::ClientError;
use crate::properties::value::Value;
use crate::scram::ScramMechanism;

/// `security.protocol`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SecurityProtocol {
    #[default]
    Plaintext,
    Ssl,
    SaslPlaintext,
    SaslSsl,
}

/// `sasl.mechanism`, as far as this client has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SaslMechanism {
    Plain,
    Scram(ScramMechanism),
}

/// Settings about security. Kafka's defaults: no TLS, no SASL, and names of hosts are checked.
#[derive(Clone, Default)]
pub struct SecurityConfig {
    pub protocol: SecurityProtocol,
    /// Nothing stands for GSSAPI, Kafka's default, which this client does not have.
    pub sasl_mechanism: Option<SaslMechanism>,
    pub username: String,
    pub password: String,
    /// `ssl.*`, as given.
    pub ssl: BTreeMap<String, String>,
    /// What they name, once it was read.
    pub(super) tls: OnceLock<Arc<TlsContext>>,
}

impl fmt::Debug for SecurityConfig {
    /// Without what must not be seen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecurityConfig")
            .field("protocol", &self.protocol)
            .field("sasl_mechanism", &self.sasl_mechanism)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// Settings of mechanisms that this client does not have, and of Java's TLS. They change nothing here.
const PREFIXES_WITHOUT_EFFECT: &[&str] = &[
    "sasl.kerberos.",
    "sasl.login.",
    "sasl.oauthbearer.",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
];

impl SecurityConfig {
    pub(crate) fn uses_tls(&self) -> bool {
        matches!(
            self.protocol,
            SecurityProtocol::Ssl | SecurityProtocol::SaslSsl
        )
    }

    pub(crate) fn uses_sasl(&self) -> bool {
        matches!(
            self.protocol,
            SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl
        )
    }

    /// Takes a setting; false if it is not about security.
    pub(crate) fn apply(&mut self, key: &str, value: Value<'_>) -> Result<bool, ClientError> {
        match key {
            "security.protocol" => {
                self.protocol = match value.text().to_ascii_uppercase().as_str() {
                    "PLAINTEXT" => SecurityProtocol::Plaintext,
                    "SSL" => SecurityProtocol::Ssl,
                    "SASL_PLAINTEXT" => SecurityProtocol::SaslPlaintext,
                    "SASL_SSL" => SecurityProtocol::SaslSsl,
                    _ => return Err(value.refused("PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL")),
                };
            }
            "sasl.mechanism" => {
                self.sasl_mechanism = match value.text() {
                    "PLAIN" => Some(SaslMechanism::Plain),
                    name => match ScramMechanism::from_name(name) {
                        Some(scram) => Some(SaslMechanism::Scram(scram)),
                        None => return Err(value.refused("PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")),
                    },
                };
            }
            "sasl.jaas.config" => {
                let login = credentials(value.text());
                let accepted = "org.apache.kafka.common.security.plain.PlainLoginModule or \
                     org.apache.kafka.common.security.scram.ScramLoginModule, then `required \
                     username=\"…\" password=\"…\";`";
                (self.username, self.password) = login.ok_or_else(|| value.refused(accepted))?;
            }
            "ssl.protocol" => {
                value.only(&["TLS", "TLSv1.3", "TLSv1.2"], "there is no other")?;
            }
            "ssl.engine.factory.class"
            | "ssl.provider"
            | "ssl.secure.random.implementation"
            | "sasl.client.callback.handler.class" => {
                value.only(
                    &[""],
                    "it is Java's, and this client has its own TLS and logins",
                )?;
            }
            _ if PREFIXES_WITHOUT_EFFECT.iter().any(|it| key.starts_with(it)) => {}
            _ if key.starts_with("ssl.") => {
                self.ssl.insert(key.to_owned(), value.text().to_owned());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What this client shows and trusts, where it uses TLS; read with the first call.
    pub(crate) fn tls(&self) -> Result<Option<&TlsContext>, ClientError> {
        if !self.uses_tls() {
            return Ok(None);
        }
        let tls = match self.tls.get() {
            Some(tls) => tls,
            None => {
                let loaded = super::tls::load(&self.ssl);
                let loaded = loaded.map_err(|error| ClientError::Config(error.0))?;
                self.tls.get_or_init(|| loaded)
            }
        };
        Ok(Some(tls))
    }

    /// Refuses what is missing.
    pub(crate) fn validate(&self) -> Result<(), ClientError> {
        self.tls()?;
        if self.uses_sasl() && self.sasl_mechanism.is_none() {
            return Err(ClientError::Config(
                "sasl.mechanism=GSSAPI, which is Kafka's default: this client does not have it; \
                 give PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
                    .into(),
            ));
        }
        if self.uses_sasl() && self.username.is_empty() {
            return Err(ClientError::Config(
                "sasl.jaas.config: there is no username; give a login module with username and password"
                    .into(),
            ));
        }
        Ok(())
    }
}
