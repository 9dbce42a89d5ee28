//! TLS with rustls: who is trusted, and who this client is.

use std::sync::Arc;

use ottla_sync::net::TcpStream;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::SecurityConfig;

/// Speaks TLS over a connection, once the broker has shown whom it is.
pub(crate) async fn wrap(
    stream: TcpStream,
    address: &str,
    config: &SecurityConfig,
) -> Result<TlsStream<TcpStream>, String> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(client_config(config)?));
    connector
        .connect(name, stream)
        .await
        .map_err(|error| format!("TLS: {error}"))
}

fn client_config(config: &SecurityConfig) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let roots = Arc::new(roots(config)?);
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
        .build()
        .map_err(|error| format!("ssl.truststore: {error}"))?;
    let builder = match config.accepts_any_hostname {
        true => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyHostname(verifier))),
        false => builder.with_webpki_verifier(verifier),
    };
    let (Some(chain), Some(key)) = (&config.keystore_certificate_chain, &config.keystore_key)
    else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(chain, "ssl.keystore.certificate.chain")?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| format!("ssl.keystore.key: {error}; give a private key in PEM"))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| format!("ssl.keystore.key: {error}"))
}

fn roots(config: &SecurityConfig) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match &config.truststore {
        Some(pem) => {
            for certificate in certificates(pem, "ssl.truststore.certificates")? {
                roots
                    .add(certificate)
                    .map_err(|error| format!("ssl.truststore.certificates: {error}"))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(
                    "the system has no certificates to trust; give ssl.truststore.location".into(),
                );
            }
        }
    }
    Ok(roots)
}

fn certificates(pem: &str, what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{what}: {error}"))?;
    match certificates.is_empty() {
        true => Err(format!("{what}: there is no certificate in it; give PEM")),
        false => Ok(certificates),
    }
}

/// Checks everything but the name, as Kafka's clients do with an empty
/// `ssl.endpoint.identification.algorithm`.
#[derive(Debug)]
struct AnyHostname(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyHostname {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.0
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
