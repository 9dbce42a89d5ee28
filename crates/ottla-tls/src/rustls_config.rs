//! Builds the rustls configurations from settings and stores.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig, SignatureScheme, SupportedProtocolVersion};

use crate::TlsError;
use crate::settings::{ClientAuth, Purpose, TlsSettings};
use crate::store::{Identity, KeyStore, TrustStore};
use crate::suites;
use crate::verifier::{ClientVerifier, ServerVerifier, Trust};

/// The rustls configurations of one listener or client.
pub struct Configs {
    /// `None` for a client without a key.
    pub server: Option<Arc<ServerConfig>>,
    /// The verifier of the server; `None` if it asks clients for no certificate.
    pub client_verifier: Option<Arc<ClientVerifier>>,
    pub client: Arc<ClientConfig>,
    /// The client configuration without host name verification.
    pub client_of_any_name: Arc<ClientConfig>,
}

/// The keys of a store. The first one with a signature scheme that the peer supports is used.
#[derive(Debug)]
struct Keys(Vec<Arc<CertifiedKey>>);

impl Keys {
    fn of(
        settings: &TlsSettings,
        keystore: Option<&KeyStore>,
        provider: &CryptoProvider,
    ) -> Result<Keys, TlsError> {
        let mut keys = Vec::new();
        let Some(keystore) = keystore else {
            return Ok(Keys(keys));
        };
        for identity in &keystore.identities {
            keys.push(Arc::new(certified(settings, keystore, identity, provider)?));
        }
        Ok(Keys(keys))
    }

    fn fitting(&self, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let mut keys = self.0.iter();
        keys.find(|key| key.key.choose_scheme(schemes).is_some())
            .cloned()
    }
}

impl ResolvesServerCert for Keys {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.fitting(hello.signature_schemes())
    }
}

impl ResolvesClientCert for Keys {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.fitting(schemes)
    }

    fn has_certs(&self) -> bool {
        !self.0.is_empty()
    }
}

fn certified(
    settings: &TlsSettings,
    keystore: &KeyStore,
    identity: &Identity,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let Some(leaf) = identity.chain.first() else {
        return Err(settings.error(keystore.origin.key, "the key has no certificate"));
    };
    let of = leaf.facts.describe();
    let key = provider
        .key_provider
        .load_private_key(identity.key.clone_key());
    let key = key.map_err(|error| {
        settings.error(
            keystore.origin.key,
            format!(
                "Private key could not be loaded: that of {of} is of a kind that is not supported ({error}); \
                 give one of RSA, EC (P-256, P-384 or P-521) or Ed25519 in PKCS#8"
            ),
        )
    })?;
    let chain = identity.chain.iter().map(|it| it.der.clone()).collect();
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok(certified)
        }
        Err(error) => Err(settings.error(
            keystore.origin.key,
            format!("the private key does not match the certificate of {of} ({error}); give the matching key"),
        )),
    }
}

pub fn build(
    settings: &TlsSettings,
    keystore: Option<&KeyStore>,
    truststore: Option<&TrustStore>,
) -> Result<Configs, TlsError> {
    let (provider, versions) = versions_and_suites(settings)?;
    let provider = Arc::new(provider);
    let keys = Arc::new(Keys::of(settings, keystore, &provider)?);
    let auth = settings.client_auth()?;
    let is_listener = settings.purpose != Purpose::Client;
    if is_listener && keystore.is_none() {
        return Err(TlsError(format!(
            "{} has no certificate; give {} (PEM, PKCS12 or JKS, with ssl.keystore.type and its password), or \
             ssl.keystore.key and ssl.keystore.certificate.chain in PEM",
            settings.owner,
            settings.name("ssl.keystore.location"),
        )));
    }
    let trust = match truststore {
        Some(store) => Trust::of_store(&store.certificates),
        None => Trust::of_system(),
    };
    let asks_for_certificates = is_listener && auth != ClientAuth::None;
    if trust.is_empty() && (asks_for_certificates || !is_listener) {
        return Err(settings.error(
            "ssl.truststore.location",
            format!(
                "{} trusts no certificate: there is no trust store, and the system has no certificates to trust; give one",
                settings.owner
            ),
        ));
    }
    let trust = Arc::new(trust);
    let refused = |error: rustls::Error| {
        settings.error(
            "ssl.enabled.protocols",
            format!("these protocols and cipher suites cannot be used together: {error}"),
        )
    };
    let mut client_verifier = None;
    let server = match keystore {
        None => None,
        Some(_) => {
            let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(&versions)
                .map_err(refused)?;
            let builder = match auth {
                ClientAuth::None => builder.with_no_client_auth(),
                auth => {
                    let verifier = Arc::new(ClientVerifier::new(
                        Arc::clone(&trust),
                        auth,
                        settings.names_expired_clients(),
                        Arc::clone(&provider),
                    )?);
                    client_verifier = Some(Arc::clone(&verifier));
                    builder.with_client_cert_verifier(verifier)
                }
            };
            let mut server = builder.with_cert_resolver(Arc::clone(&keys) as _);
            // As in Java: the order of ssl.cipher.suites counts, or else the strongest first.
            server.ignore_client_order = true;
            // As in Java. Each resumed session brings the next ticket.
            server.send_tls13_tickets = 1;
            // Only connections that `kernel.rs` handles give up their keys.
            server.enable_secret_extraction = true;
            // Tickets are encrypted with a key of this configuration, so a new configuration does
            // not resume earlier sessions.
            if let Ok(ticketer) = rustls::crypto::aws_lc_rs::Ticketer::new() {
                server.ticketer = ticketer;
            }
            Some(Arc::new(server))
        }
    };
    let checks_hostname = settings.checks_hostname()?;
    let client = |checks_hostname| {
        let trust = Arc::clone(&trust);
        let verifier = ServerVerifier::new(trust, checks_hostname, Arc::clone(&provider))?;
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(refused)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::clone(&keys) as _);
        Ok::<_, TlsError>(Arc::new(client))
    };
    Ok(Configs {
        server,
        client_verifier,
        client: client(checks_hostname)?,
        client_of_any_name: client(false)?,
    })
}

fn versions_and_suites(
    settings: &TlsSettings,
) -> Result<(CryptoProvider, Vec<&'static SupportedProtocolVersion>), TlsError> {
    let owner = &settings.owner;
    let (provider, unknown) = suites::provider(&settings.list("ssl.cipher.suites"));
    if !unknown.is_empty() {
        let (unknown, key) = (unknown.join(", "), settings.name("ssl.cipher.suites"));
        tracing::warn!(
            "{owner}: {key} has suites that are not supported and are ignored: {unknown}"
        );
    }
    if provider.cipher_suites.is_empty() {
        let known = rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES.iter();
        let known: Vec<String> = known.map(|it| suites::java_name(*it)).collect();
        return Err(settings.error(
            "ssl.cipher.suites",
            format!(
                "none of them is supported; give some of {}",
                known.join(", ")
            ),
        ));
    }
    let mut names = settings.list("ssl.enabled.protocols");
    if names.is_empty() {
        names = ["TLSv1.2", "TLSv1.3"].map(str::to_owned).to_vec();
    }
    let known: Vec<_> = names
        .iter()
        .filter_map(|name| suites::version(name))
        .collect();
    let dropped: Vec<_> = names
        .iter()
        .filter(|name| suites::version(name).is_none())
        .collect();
    let key = settings.name("ssl.enabled.protocols");
    if known.is_empty() {
        return Err(settings.error(
            "ssl.enabled.protocols",
            format!(
                "none of {} is supported; give TLSv1.2, TLSv1.3 or both",
                names.join(", ")
            ),
        ));
    }
    for name in dropped {
        tracing::warn!("{owner}: {key} has {name}, which is insecure and is ignored");
    }
    Ok((provider, known))
}

/// Messages about certificates that are not valid now.
pub fn out_of_time(settings: &TlsSettings, keystore: &KeyStore, now: SystemTime) -> Vec<String> {
    let key = keystore.origin.key;
    let all = keystore
        .identities
        .iter()
        .flat_map(|identity| &identity.chain);
    all.filter_map(|certificate| {
        let reason = certificate.facts.out_of_time(now)?;
        let of = certificate.facts.describe();
        let way_out = match (certificate.facts.seconds_left(now) < 0, &keystore.origin.stamp) {
            (true, Some(_)) => "replace it in this file, which needs no restart",
            (true, None) => "give a new one in this setting",
            (false, _) => "correct the clock of this machine, or use a certificate that is valid now",
        };
        let message = format!(
            "the certificate of {of} cannot be used: {reason}, and clients that verify it cannot connect; {way_out}"
        );
        Some(settings.error(key, message).0)
    })
    .collect()
}
