//! Requests to issuers, and to schema registries. Redirects are not followed: they may lead to a server that is not
//! configured. The proxy comes from the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`); Kafka has
//! system properties of Java for that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ottla_sasl::{Secret, TokenRequest};
use ottla_tls::{Given, Purpose, TlsSettings, client_identity, trusted_certificates};
use rustls::pki_types::PrivateKeyDer;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

/// The longest answer, in bytes.
pub const MOST_BYTES: u64 = 1024 * 1024;

/// An issuer of tokens, and where its settings are.
pub const ISSUER: &str = "the issuer";
pub const JAAS: &str = "sasl.jaas.config: ";

/// A server, and how long it may take.
pub struct Server<'a> {
    pub url: &'a str,
    /// The kind of server, for errors: `the issuer`.
    pub name: &'a str,
    /// Where its settings come from, for errors: `sasl.jaas.config: `.
    pub settings_of: &'a str,
    /// `ssl.*` of its settings: the trust store for the server's certificate, and the client's key
    /// store.
    pub ssl: &'a BTreeMap<String, Secret>,
    pub connect_timeout: Option<Duration>,
    /// For the answer, once the request is sent.
    pub read_timeout: Option<Duration>,
    /// For the whole request.
    pub total_timeout: Duration,
}

/// An answer, whatever its status.
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// Why there is no answer.
#[derive(Debug)]
pub struct Unanswered {
    /// A sentence for people.
    pub reason: String,
    /// Whether the answer is longer than the limit.
    pub is_too_long: bool,
}

impl From<String> for Unanswered {
    fn from(reason: String) -> Unanswered {
        Unanswered {
            reason,
            is_too_long: false,
        }
    }
}

impl From<ureq::Error> for Unanswered {
    fn from(error: ureq::Error) -> Unanswered {
        Unanswered {
            reason: error.to_string(),
            is_too_long: matches!(error, ureq::Error::BodyExceedsLimit(_)),
        }
    }
}

impl Server<'_> {
    pub fn get(&self) -> Result<Answer, String> {
        self.get_with(&[]).map_err(|it| it.reason)
    }

    /// With these headers.
    pub fn get_with(&self, headers: &[(&str, &str)]) -> Result<Answer, Unanswered> {
        let agent = self.agent()?;
        let mut get = agent.get(self.url);
        for (name, value) in headers {
            get = get.header(*name, *value);
        }
        answer(get.call())
    }

    pub fn post(&self, request: &TokenRequest) -> Result<Answer, String> {
        let agent = self.agent()?;
        let mut post = agent
            .post(self.url)
            .header("Accept", "application/json")
            .header("Cache-Control", "no-cache")
            .header("Content-Type", "application/x-www-form-urlencoded");
        if let Some(authorization) = &request.authorization {
            post = post.header("Authorization", authorization.expose());
        }
        answer(post.send(request.body.expose())).map_err(|it| it.reason)
    }

    fn agent(&self) -> Result<ureq::Agent, String> {
        let mut config = ureq::Agent::config_builder()
            .timeout_global(Some(self.total_timeout))
            .timeout_connect(self.connect_timeout)
            .timeout_recv_response(self.read_timeout)
            .timeout_recv_body(self.read_timeout)
            .http_status_as_error(false)
            .max_redirects(0);
        if self.url.starts_with("https:") {
            config = config.tls_config(self.tls()?);
        }
        Ok(ureq::Agent::from(config.build()))
    }

    /// Verifies the server with the trust store of its settings, or with the certificates of the system. Sends the
    /// certificate of the key store if the server requests one.
    fn tls(&self) -> Result<TlsConfig, String> {
        let settings = TlsSettings::read(self.name, Purpose::Client, |key| {
            let value = self.ssl.get(key)?.expose().to_owned();
            Some(Given {
                key: format!("{}{key}", self.settings_of),
                value,
            })
        });
        let trusted = trusted_certificates(&settings).map_err(|error| error.0)?;
        let trusted = trusted
            .iter()
            .map(|it| Certificate::from_der(it).to_owned());
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let mut config = TlsConfig::builder()
            .root_certs(RootCerts::from(trusted.collect::<Vec<_>>()))
            .unversioned_rustls_crypto_provider(Arc::new(provider));
        if let Some((chain, key)) = client_identity(&settings).map_err(|error| error.0)? {
            let chain: Vec<_> = chain
                .iter()
                .map(|it| Certificate::from_der(it).to_owned())
                .collect();
            let key = PrivateKey::from_pem(pem_of(&key).as_bytes());
            let key = key.map_err(|error| format!("the key of the key store: {error}"))?;
            config = config.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
        }
        Ok(config.build())
    }
}

fn answer(
    answered: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<Answer, Unanswered> {
    let mut answer = answered?;
    let status = answer.status().as_u16();
    let body = answer.body_mut().with_config().limit(MOST_BYTES);
    let body = body.read_to_string()?;
    Ok(Answer { status, body })
}

/// The library takes keys of every kind only as PEM.
fn pem_of(key: &PrivateKeyDer<'_>) -> String {
    let label = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    };
    let text = BASE64_STANDARD.encode(key.secret_der());
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}
