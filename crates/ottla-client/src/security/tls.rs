//! TLS: trust and identity of this client, with `ottla-tls`, which brokers use as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_sync::net::TcpStream;
use ottla_tls::{Given, Purpose, TlsContext, TlsError, TlsSettings};
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

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
    TlsConnector::from(tls.client())
        .connect(name, stream)
        .await
        .map_err(|error| format!("TLS: {error}"))
}
