//! How connections are secured, as a client's settings say.

use std::fmt;

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
    /// Certificates in PEM that a broker's must lead to; nothing stands for those of the system.
    pub truststore: Option<String>,
    /// The client's own certificate and those above it, in PEM.
    pub keystore_certificate_chain: Option<String>,
    /// Its private key, in PEM.
    pub keystore_key: Option<String>,
    /// `ssl.endpoint.identification.algorithm` is empty: whatever name the broker's certificate has will do.
    pub accepts_any_hostname: bool,
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
        let pem_only = "this client reads PEM; convert the store, as with `keytool -importkeystore` and \
                        `openssl pkcs12`";
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
            "ssl.truststore.type" | "ssl.keystore.type" => value.only(&["PEM"], pem_only)?,
            "ssl.truststore.location" => self.truststore = Some(read(value)?),
            "ssl.truststore.certificates" => self.truststore = Some(value.text().to_owned()),
            "ssl.keystore.location" => {
                // One file has the key and the certificates.
                let pem = read(value)?;
                self.keystore_certificate_chain = Some(pem.clone());
                self.keystore_key = Some(pem);
            }
            "ssl.keystore.certificate.chain" => {
                self.keystore_certificate_chain = Some(value.text().to_owned());
            }
            "ssl.keystore.key" => self.keystore_key = Some(value.text().to_owned()),
            "ssl.key.password" | "ssl.truststore.password" | "ssl.keystore.password" => {
                value.only(
                    &[""],
                    "PEM has no password, and this client reads no encrypted keys",
                )?;
            }
            "ssl.endpoint.identification.algorithm" => {
                value.only(&["https", ""], "there is no other")?;
                self.accepts_any_hostname = value.text().is_empty();
            }
            "ssl.protocol" => value.only(&["TLS", "TLSv1.3", "TLSv1.2"], "there is no other")?,
            "ssl.enabled.protocols" => {
                for protocol in value.text().split(',') {
                    let protocol = Value::new(key, protocol);
                    protocol.only(&["TLSv1.2", "TLSv1.3"], "older ones are broken")?;
                }
            }
            "ssl.cipher.suites"
            | "ssl.engine.factory.class"
            | "ssl.provider"
            | "ssl.secure.random.implementation"
            | "sasl.client.callback.handler.class" => {
                value.only(
                    &[""],
                    "it is Java's, and this client has its own TLS and logins",
                )?;
            }
            _ => return Ok(PREFIXES_WITHOUT_EFFECT.iter().any(|it| key.starts_with(it))),
        }
        Ok(true)
    }

    /// Refuses what is missing.
    pub(crate) fn validate(&self) -> Result<(), ClientError> {
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

fn read(value: Value<'_>) -> Result<String, ClientError> {
    ottla_sync::fs::read_to_string(value.text())
        .map_err(|error| value.refused(format_args!("a file in PEM that can be read ({error})")))
}
