//! The security settings of a client.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use std::time::UNIX_EPOCH;

use ottla_oauth::LoginTokens;
use ottla_sasl::{ClientCredentials, KerberosLogin, Mechanism, Secret, TokenSource, jaas};
use ottla_tls::TlsContext;

use super::supplied_token::SuppliedToken;
use crate::error::ClientError;
use crate::properties::value::Value;

/// `security.protocol`.
///
/// ```
/// use ottla_client::{SecurityConfig, SecurityProtocol};
///
/// assert_eq!(SecurityConfig::default().protocol, SecurityProtocol::Plaintext);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SecurityProtocol {
    #[default]
    Plaintext,
    Ssl,
    SaslPlaintext,
    SaslSsl,
}

/// Security settings. Kafka's defaults: no TLS, no SASL, and host names are verified.
///
/// ```
/// use ottla_client::{ClientConfig, SaslMechanism, SecurityProtocol};
///
/// let mut config = ClientConfig::new("kafka-1.example.com:9093").unwrap();
/// config.security.protocol = SecurityProtocol::SaslSsl;
/// config.security.ssl.insert("ssl.truststore.type".to_owned(), "PEM".to_owned());
/// config.security.ssl.insert("ssl.truststore.location".to_owned(), "ca.crt".to_owned());
/// config.security.log_in_as(SaslMechanism::Plain, "alice", "secret");
/// ```
#[derive(Clone, Default)]
pub struct SecurityConfig {
    pub protocol: SecurityProtocol,
    /// `None` is GSSAPI, Kafka's default.
    pub sasl_mechanism: Option<Mechanism>,
    /// The credentials in `sasl.jaas.config`.
    pub credentials: Option<ClientCredentials>,
    /// The entry in `sasl.jaas.config` if it is one for OAUTHBEARER.
    pub token_entry: Option<jaas::LoginModule>,
    /// The entry in `sasl.jaas.config` if it is one for GSSAPI.
    pub kerberos_entry: Option<jaas::LoginModule>,
    /// `sasl.kerberos.service.name`.
    pub kerberos_service_name: Option<String>,
    /// The `sasl.oauthbearer.*` and `sasl.login.*` settings as given: where OAUTHBEARER tokens come from.
    pub token_settings: BTreeMap<String, Secret>,
    /// The OAUTHBEARER tokens in use, shared by all clones.
    tokens: Arc<LoginTokens>,
    /// Takes the place of the settings of OAUTHBEARER.
    supplied_token: Option<SuppliedToken>,
    /// The `ssl.*` settings as given.
    pub ssl: BTreeMap<String, String>,
    /// The loaded key and trust stores.
    pub(super) tls: OnceLock<Arc<TlsContext>>,
}

impl fmt::Debug for SecurityConfig {
    /// Without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecurityConfig")
            .field("protocol", &self.protocol)
            .field("sasl_mechanism", &self.mechanism())
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

const MECHANISMS: &str = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI";

/// Settings of Java's Kerberos and TLS. They have no effect here.
const PREFIXES_WITHOUT_EFFECT: &[&str] = &[
    "sasl.kerberos.",
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

    /// Whether connections log in.
    ///
    /// ```
    /// use ottla_client::{SecurityConfig, SecurityProtocol};
    ///
    /// let mut security = SecurityConfig::default();
    /// security.protocol = SecurityProtocol::SaslSsl;
    /// assert!(security.uses_sasl());
    /// ```
    pub fn uses_sasl(&self) -> bool {
        matches!(
            self.protocol,
            SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl
        )
    }

    /// `sasl.mechanism`.
    ///
    /// ```
    /// use ottla_client::{SaslMechanism, SecurityConfig};
    ///
    /// assert_eq!(SecurityConfig::default().mechanism(), SaslMechanism::Gssapi);
    /// ```
    pub fn mechanism(&self) -> Mechanism {
        self.sasl_mechanism.unwrap_or(Mechanism::Gssapi)
    }

    /// Logs in as this user, with a mechanism that takes passwords.
    ///
    /// ```
    /// use ottla_client::{SaslMechanism, ScramMechanism, SecurityConfig};
    ///
    /// let mut security = SecurityConfig::default();
    /// security.log_in_as(SaslMechanism::Scram(ScramMechanism::Sha512), "alice", "secret");
    /// assert_eq!(security.mechanism().name(), "SCRAM-SHA-512");
    /// ```
    pub fn log_in_as(&mut self, mechanism: Mechanism, user: &str, password: &str) {
        self.sasl_mechanism = Some(mechanism);
        self.credentials = Some(ClientCredentials::password(user, password));
    }

    /// Logs in with OAUTHBEARER and this token.
    ///
    /// ```
    /// use ottla_client::{SaslMechanism, Secret, SecurityConfig, SuppliedToken};
    ///
    /// let mut security = SecurityConfig::default();
    /// security.log_in_with_token(SuppliedToken::new(Secret::new("eyJhbGciOi…")));
    /// assert_eq!(security.mechanism(), SaslMechanism::OAuthBearer);
    /// ```
    pub fn log_in_with_token(&mut self, token: SuppliedToken) {
        self.sasl_mechanism = Some(Mechanism::OAuthBearer);
        self.supplied_token = Some(token);
    }

    /// Applies a setting. Returns false if it is not a security setting.
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
                self.sasl_mechanism = match Mechanism::from_name(value.text()) {
                    None => return Err(value.refused(MECHANISMS)),
                    known => known,
                };
            }
            "sasl.jaas.config" => {
                let entry = jaas::parse_property(value.text())
                    .map_err(|error| ClientError::Config(format!("sasl.jaas.config: {error}")))?;
                if entry.is_of(Mechanism::OAuthBearer) {
                    self.token_entry = Some(entry);
                } else if entry.is_of(Mechanism::Gssapi) {
                    self.kerberos_entry = Some(entry);
                } else {
                    self.credentials = Some(credentials(&entry)?);
                }
            }
            "ssl.protocol" => {
                value.only(&["TLS", "TLSv1.3", "TLSv1.2"], "there is no other")?;
            }
            "ssl.engine.factory.class"
            | "ssl.provider"
            | "ssl.secure.random.implementation"
            | "sasl.login.class"
            | "sasl.client.callback.handler.class" => {
                value.only(
                    &[""],
                    "it is Java's, and this client has its own TLS and logins",
                )?;
            }
            _ if key.starts_with("sasl.oauthbearer.") || key.starts_with("sasl.login.") => {
                self.token_settings
                    .insert(key.to_owned(), Secret::new(value.text()));
            }
            "sasl.kerberos.service.name" => {
                let name = Some(value.text()).filter(|name| !name.is_empty());
                self.kerberos_service_name = name.map(str::to_owned);
            }
            _ if PREFIXES_WITHOUT_EFFECT.iter().any(|it| key.starts_with(it)) => {}
            _ if key.starts_with("ssl.") => {
                self.ssl.insert(key.to_owned(), value.text().to_owned());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The key and trust stores of this client if it uses TLS, loaded by the first call.
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

    /// The configuration of rustls if connections use TLS, for a program that makes its own
    /// connections.
    #[doc(hidden)]
    pub fn rustls_config(&self) -> Result<Option<Arc<rustls::ClientConfig>>, ClientError> {
        Ok(self.tls()?.map(TlsContext::client))
    }

    /// Where OAUTHBEARER tokens come from.
    fn token_source(&self) -> Result<TokenSource, ClientError> {
        let lookup = |key: &str| {
            let given = self.token_settings.get(key)?;
            Some(given.expose().to_owned())
        };
        let source = TokenSource::read(lookup, self.token_entry.as_ref());
        source.map_err(|(_, message)| ClientError::Config(message))
    }

    /// The credentials of a GSSAPI login.
    fn kerberos_login(&self) -> Result<ClientCredentials, ClientError> {
        let key = "sasl.jaas.config";
        let refused = |reason: String| ClientError::Config(format!("{key}: {reason}"));
        let entry = self.kerberos_entry.as_ref().ok_or_else(|| {
            refused(format!(
                "there is no entry for sasl.mechanism=GSSAPI; give {} required useTicketCache=true; after kinit, or \
                 give another mechanism",
                Mechanism::Gssapi.login_module()
            ))
        })?;
        let login = KerberosLogin::of_entry(entry, self.kerberos_service_name.as_deref());
        login.map(ClientCredentials::Kerberos).map_err(refused)
    }

    /// The credentials for a login now. An OAUTHBEARER token may have to be asked for first.
    pub(crate) async fn credentials_now(&self) -> Result<Option<ClientCredentials>, ClientError> {
        match self.mechanism() {
            Mechanism::OAuthBearer => {}
            Mechanism::Gssapi => return self.kerberos_login().map(Some),
            _ => return Ok(self.credentials.clone()),
        }
        if let Some(token) = &self.supplied_token {
            return Ok(Some(ClientCredentials::Token {
                token: token.current(),
                extensions: BTreeMap::new(),
            }));
        }
        let source = self.token_source()?;
        let time_of_day_ms = || {
            let now = ottla_sync::time::wall_clock().duration_since(UNIX_EPOCH);
            i64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
        };
        let got = self.tokens.credentials(&source, time_of_day_ms).await;
        got.map(Some).map_err(|error| match error.is_passing {
            true => ClientError::NoToken(error.message),
            false => ClientError::Config(error.message),
        })
    }

    /// Refuses incomplete settings, except for missing credentials.
    pub(crate) fn validate_mechanism(&self) -> Result<(), ClientError> {
        self.tls()?;
        Ok(())
    }

    /// Refuses incomplete settings.
    pub(crate) fn validate(&self) -> Result<(), ClientError> {
        self.validate_mechanism()?;
        if self.uses_sasl() && self.sasl_mechanism == Some(Mechanism::OAuthBearer) {
            return match self.supplied_token {
                Some(_) => Ok(()),
                None => self.token_source().map(drop),
            };
        }
        if self.uses_sasl() && self.mechanism() == Mechanism::Gssapi {
            return self.kerberos_login().map(drop);
        }
        if self.uses_sasl() && self.credentials.is_none() {
            return Err(ClientError::Config(
                "sasl.jaas.config: there is no username; give a login module with username and password"
                    .into(),
            ));
        }
        Ok(())
    }
}

/// The credentials in a JAAS entry of PLAIN or SCRAM. Error messages do not contain its values.
fn credentials(entry: &jaas::LoginModule) -> Result<ClientCredentials, ClientError> {
    let refused = |reason: String| ClientError::Config(format!("sasl.jaas.config: {reason}"));
    entry.check_class().map_err(refused)?;
    let class = entry.class();
    let (username, password) = entry.credentials().ok_or_else(|| {
        refused(format!(
            "{class} needs username=\"...\" and password=\"...\""
        ))
    })?;
    Ok(ClientCredentials::Password {
        username: username.to_owned(),
        password: Secret::new(password),
        is_token: entry
            .option("tokenauth")
            .is_some_and(|value| value.eq_ignore_ascii_case("true")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_jaas_entry_hides_its_password() {
        let mut config = SecurityConfig::default();
        let mut apply = |jaas: &str| {
            let applied = config.apply("sasl.jaas.config", Value::new("sasl.jaas.config", jaas));
            applied.map_err(|error| error.to_string())
        };
        let plain = Mechanism::Plain.login_module();
        for (jaas, says) in [
            (
                format!("{plain} required username=\"a\" password=\"hush\""),
                "semi-colon",
            ),
            (
                format!("{plain} required password=\"hush\";"),
                "needs username",
            ),
            (
                "com.example.Login required password=\"hush\";".to_owned(),
                "Java class",
            ),
        ] {
            let error = apply(&jaas).unwrap_err();
            assert!(error.contains(says) && !error.contains("hush"), "{error}");
        }
        assert_eq!(
            apply(&format!(
                "{plain} required username=\"a\" password=\"hush\";"
            )),
            Ok(true)
        );
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn gssapi_is_the_default_and_needs_a_service_name_and_jaas_entry() {
        let mut config = SecurityConfig::default();
        let mut apply = |key: &str, value: &str| {
            assert!(config.apply(key, Value::new(key, value)).unwrap());
            config.validate().map_err(|error| error.to_string())
        };
        let missing = apply("security.protocol", "SASL_PLAINTEXT").unwrap_err();
        assert!(
            missing.contains("no entry for sasl.mechanism=GSSAPI"),
            "{missing}"
        );
        let entry = format!(
            "{} required useTicketCache=true;",
            Mechanism::Gssapi.login_module()
        );
        let nameless = apply("sasl.jaas.config", &entry).unwrap_err();
        assert!(nameless.contains("No serviceName defined"), "{nameless}");
        assert_eq!(apply("sasl.kerberos.service.name", "kafka"), Ok(()));
        assert_eq!(apply("sasl.mechanism", "GSSAPI"), Ok(()));
    }

    fn with_tokens(settings: &[(&str, &str)]) -> SecurityConfig {
        let mut config = SecurityConfig::default();
        let entry = format!(
            "{} required extension_trace=\"on\";",
            Mechanism::OAuthBearer.login_module()
        );
        let always = [
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "OAUTHBEARER"),
            ("sasl.jaas.config", &*entry),
        ];
        for (key, value) in always.iter().chain(settings) {
            assert!(config.apply(key, Value::new(key, value)).unwrap());
        }
        config
    }

    #[tokio::test]
    async fn a_token_is_read_from_its_file_for_each_login() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let url = format!("file://{}", file.display());
        let config = with_tokens(&[("sasl.oauthbearer.token.endpoint.url", &url)]);
        config.validate().unwrap();
        let refused = config.credentials_now().await.unwrap_err().to_string();
        assert!(refused.contains("cannot be read"), "{refused}");
        let issuer = ottla_testkit::tokens::TokenIssuer::new("one");
        for seconds in [600, 700] {
            let token = issuer.token("alice", seconds, &Default::default());
            std::fs::write(&file, format!("{token}\n")).unwrap();
            let expected = ClientCredentials::Token {
                token: Secret::new(token),
                extensions: BTreeMap::from([("trace".to_owned(), "on".to_owned())]),
            };
            assert!(config.credentials_now().await.unwrap() == Some(expected));
        }
    }

    #[tokio::test]
    async fn a_replaced_token_is_used_by_the_next_login() {
        let mut config = with_tokens(&[]);
        assert!(config.validate().is_err());
        let token = SuppliedToken::new(Secret::new("hush-1"));
        config.log_in_with_token(token.clone());
        config.validate().unwrap();
        // A client has copies of its configuration.
        let copy = config.clone();
        for text in ["hush-1", "hush-2"] {
            token.replace(Secret::new(text));
            let expected = ClientCredentials::Token {
                token: Secret::new(text),
                extensions: BTreeMap::new(),
            };
            assert!(copy.credentials_now().await.unwrap() == Some(expected));
        }
        assert!(!format!("{token:?} {copy:?}").contains("hush"));
    }

    #[test]
    fn token_settings_are_checked_before_the_first_login() {
        let url = (
            "sasl.oauthbearer.token.endpoint.url",
            "https://issuer/token",
        );
        let id = ("sasl.oauthbearer.client.credentials.client.id", "me");
        let secret = ("sasl.oauthbearer.client.credentials.client.secret", "hush");
        for (settings, says) in [
            (&[][..], "token.endpoint.url is missing"),
            (&[url, secret], "client.credentials.client.id is missing"),
            (
                &[
                    url,
                    id,
                    secret,
                    ("sasl.login.callback.handler.class", "com.example.Handler"),
                ],
                "is a Java class",
            ),
        ] {
            let error = with_tokens(settings).validate().unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("hush"), "{error}");
        }
        let config = with_tokens(&[url, id, secret]);
        config.validate().unwrap();
        assert!(!format!("{config:?}").contains("hush"));
    }
}
