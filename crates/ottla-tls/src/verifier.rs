//! Certificate verification with rules of Java's TLS that people rely on: a certificate in the
//! trust store itself is trusted, whatever its issuer; a CA certificate is accepted as a server's;
//! and a server without DNS names among its alternative names is identified by its `CN`. webpki
//! does everything else.
//!
//! A certificate in the trust store that is not a CA is trusted itself, but other certificates that
//! it signed are not, as in Java since `jdk.security.allowNonCaAnchor`.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};

use crate::TlsError;
use crate::authority_leaf::{self, ShownBy};
use crate::certificate::{Certificate, CertificateFacts};
use crate::settings::ClientAuth;

/// The trusted certificates.
#[derive(Debug)]
pub struct Trust {
    /// All certificates of the trust store.
    listed: Vec<CertificateDer<'static>>,
    /// The CAs among them, or the system's if there is no trust store.
    roots: Arc<RootCertStore>,
    /// The names of all of them.
    names: Vec<DistinguishedName>,
}

/// The maximum size of the names that are sent to clients. Java's clients refuse a message of a handshake
/// above 32,768 bytes (`jdk.tls.maxHandshakeMessageSize`), and the names share it with a few short fields.
const MOST_NAMES_BYTES: usize = 32_000;

impl Trust {
    pub fn of_store(certificates: &[Certificate]) -> Trust {
        let mut roots = RootCertStore::empty();
        for certificate in certificates.iter().filter(|it| it.facts.is_authority) {
            if let Err(error) = roots.add(certificate.der.clone()) {
                let subject = &certificate.facts.subject;
                tracing::warn!(
                    "certificates signed by {subject} of the trust store are not trusted: {error}"
                );
            }
        }
        Trust {
            listed: certificates.iter().map(|it| it.der.clone()).collect(),
            roots: Arc::new(roots),
            names: certificates
                .iter()
                .filter_map(|it| it.subject_der().map(DistinguishedName::from))
                .collect(),
        }
    }

    /// The system's certificates, used without a trust store. Java uses the certificates that it
    /// ships with.
    pub fn of_system() -> Trust {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Trust {
            listed: Vec::new(),
            names: roots.subjects(),
            roots: Arc::new(roots),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.listed.is_empty() && self.roots.is_empty()
    }

    /// The names for clients that choose among several certificates. As in Java, certificates that are no
    /// CAs are among them: a client whose own certificate is in the trust store would not send it
    /// otherwise. None if they are too many for a message; a client then sends any certificate.
    fn hints(&self) -> Vec<DistinguishedName> {
        let bytes: usize = self.names.iter().map(|name| name.as_ref().len() + 2).sum();
        match bytes <= MOST_NAMES_BYTES {
            true => self.names.clone(),
            false => Vec::new(),
        }
    }

    fn accepts_authority(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        shown_by: ShownBy,
        now: UnixTime,
    ) -> bool {
        let is_authority = CertificateFacts::of(leaf).is_ok_and(|facts| facts.is_authority);
        is_authority && authority_leaf::is_trusted(leaf, intermediates, &self.listed, shown_by, now)
    }
}

/// Signatures are verified alike for both ends, by the provider's algorithms.
macro_rules! verified_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls12_signature(message, cert, dss, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature(message, cert, dss, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider
                .signature_verification_algorithms
                .supported_schemes()
        }
    };
}

/// Verifies the certificates of servers.
#[derive(Debug)]
pub struct ServerVerifier {
    trust: Arc<Trust>,
    /// `None` if no CA is trusted.
    inner: Option<Arc<WebPkiServerVerifier>>,
    checks_hostname: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerVerifier {
    pub fn new(
        trust: Arc<Trust>,
        checks_hostname: bool,
        provider: Arc<CryptoProvider>,
    ) -> Result<ServerVerifier, TlsError> {
        let roots = Arc::clone(&trust.roots);
        let inner = if roots.is_empty() {
            None
        } else {
            let built = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
            Some(
                built
                    .build()
                    .map_err(|error| TlsError::new(error.to_string()))?,
            )
        };
        Ok(ServerVerifier {
            trust,
            inner,
            checks_hostname,
            provider,
        })
    }

    /// Verifies the host name.
    fn check_name(&self, leaf: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
        if !self.checks_hostname {
            return Ok(());
        }
        let parsed = rustls::server::ParsedCertificate::try_from(leaf)?;
        let checked = rustls::client::verify_server_name(&parsed, name);
        let Err(error) = checked else {
            return Ok(());
        };
        let facts = CertificateFacts::of(leaf).ok();
        let by_common_name = facts.filter(|facts| !facts.has_dns_names());
        let common_name = by_common_name.and_then(|facts| facts.common_name);
        match (name, common_name) {
            (ServerName::DnsName(name), Some(common)) if is_name_of(name.as_ref(), &common) => {
                Ok(())
            }
            _ => Err(error),
        }
    }
}

/// Whether a name matches a `CN`, whose first label may be a wildcard.
fn is_name_of(name: &str, common_name: &str) -> bool {
    if name.eq_ignore_ascii_case(common_name) {
        return true;
    }
    let (Some(domain), Some((label, rest))) =
        (common_name.strip_prefix("*."), name.split_once('.'))
    else {
        return false;
    };
    !label.is_empty() && domain.contains('.') && rest.eq_ignore_ascii_case(domain)
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_listed = self.trust.listed.iter().any(|listed| listed == end_entity);
        if !is_listed {
            let verified = match &self.inner {
                Some(inner) => inner.verify_server_cert(
                    end_entity,
                    intermediates,
                    server_name,
                    ocsp_response,
                    now,
                ),
                None => Err(CertificateError::UnknownIssuer.into()),
            };
            match verified {
                Ok(verified) => return Ok(verified),
                // Host names are verified below, with Java's rules.
                Err(Error::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                )) => {}
                Err(error) => {
                    let shown_by = ShownBy::Server;
                    if !self
                        .trust
                        .accepts_authority(end_entity, intermediates, shown_by, now)
                    {
                        return Err(error);
                    }
                }
            }
        }
        self.check_name(end_entity, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    verified_signatures!();
}

/// Verifies the certificates of clients.
#[derive(Debug)]
pub struct ClientVerifier {
    trust: Arc<Trust>,
    inner: Option<Arc<dyn ClientCertVerifier>>,
    is_mandatory: bool,
    /// Whether the log names clients that are refused only because their certificate has expired.
    names_expired: bool,
    /// For clients that choose among several certificates.
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientVerifier {
    pub fn new(
        trust: Arc<Trust>,
        auth: ClientAuth,
        names_expired: bool,
        provider: Arc<CryptoProvider>,
    ) -> Result<ClientVerifier, TlsError> {
        let roots = Arc::clone(&trust.roots);
        let inner = if roots.is_empty() {
            None
        } else {
            let built = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
            Some(
                built
                    .build()
                    .map_err(|error| TlsError::new(error.to_string()))?,
            )
        };
        Ok(ClientVerifier {
            hints: trust.hints(),
            trust,
            inner,
            is_mandatory: auth == ClientAuth::Required,
            names_expired,
            provider,
        })
    }

    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.trust.listed.iter().any(|listed| listed == end_entity) {
            return Ok(ClientCertVerified::assertion());
        }
        let verified = match &self.inner {
            Some(inner) => inner.verify_client_cert(end_entity, intermediates, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        let shown_by = ShownBy::Client;
        match verified {
            Err(_)
                if self
                    .trust
                    .accepts_authority(end_entity, intermediates, shown_by, now) =>
            {
                Ok(ClientCertVerified::assertion())
            }
            verified => verified,
        }
    }

    /// Logs the name in a certificate that was accepted until it expired. Others could have any name
    /// in it.
    fn name_expired(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) {
        let Ok(facts) = CertificateFacts::of(end_entity) else {
            return;
        };
        let end = Duration::from_secs(u64::try_from(facts.not_after).unwrap_or_default());
        let end = UnixTime::since_unix_epoch(end);
        if end < now && self.verify(end_entity, intermediates, end).is_ok() {
            tracing::info!(
                "Certificate with common name \"{}\" expired on {}",
                facts.subject,
                facts.end()
            );
        }
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verify(end_entity, intermediates, now);
        if verified.is_err() && self.names_expired {
            self.name_expired(end_entity, intermediates, now);
        }
        verified
    }

    verified_signatures!();
}
