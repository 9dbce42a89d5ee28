//! TLS: trust and identity of this client, with `ottla-tls`, which brokers use as well.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use ottla_sync::net::TcpStream;
use ottla_tls::{Given, Purpose, TlsContext, TlsError, TlsSettings};
use rustls::CertificateError;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::CERTIFICATE_REFUSED;

/// Loads the files of the `ssl.*` settings.
pub(super) fn load(ssl: &BTreeMap<String, String>) -> Result<Arc<TlsContext>, TlsError> {
    let settings = TlsSettings::read("this client", Purpose::Client, |key| {
        Some(Given {
            key: key.to_owned(),
            value: ssl.get(key)?.clone(),
        })
    });
    TlsContext::load(settings).map(Arc::new)
}

/// The name that the certificate of the broker at `host:port` must have.
pub fn server_name(address: &str) -> Result<ServerName<'static>, String> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_matches(['[', ']']).to_owned();
    ServerName::try_from(host).map_err(|error| error.to_string())
}

/// Performs the TLS handshake on a connection, and verifies the broker.
pub(crate) async fn wrap(
    stream: TcpStream,
    address: &str,
    tls: &TlsContext,
) -> Result<TlsStream<TcpStream>, String> {
    let name = server_name(address)?;
    let connected = TlsConnector::from(tls.client()).connect(name, stream).await;
    connected.map_err(|error| match advice(&error) {
        Some(advice) => format!("{CERTIFICATE_REFUSED}{error}; {advice}"),
        None => format!("TLS: {error}"),
    })
}

/// What to change if the broker's certificate is the reason of a failed handshake.
fn advice(error: &io::Error) -> Option<&'static str> {
    let of_tls = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let rustls::Error::InvalidCertificate(problem) = of_tls else {
        return None;
    };
    Some(match problem {
        CertificateError::UnknownIssuer => {
            "this client trusts no authority that signed it; set ssl.truststore.location to the trust store of this \
             cluster"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "replace the broker's certificate, or correct the clock of this machine"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "connect to a name that is in the certificate, or give the broker a certificate with this name"
        }
        _ => "check the broker's certificate and ssl.truststore.location",
    })
}
