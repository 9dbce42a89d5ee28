//! TLS by Kafka's `ssl.*` settings, for listeners, for connections to other nodes and for clients: reads key stores and
//! trust stores, decides which certificates to trust, and says who a certificate is of.
//!
//! Owns what a listener or a client has loaded, until it is loaded anew. Never touches a socket: rustls gets bytes from
//! the crates above. Files are read when asked for, on the caller's thread.
//!
//! Invariants:
//! - A store that cannot be used replaces nothing: what is in force stays.
//! - An error is a sentence for people that names the setting, the file and the way out; no password or key is in it.
//!
//! Kafka: `DefaultSslEngineFactory`, `SslFactory`, `SslPrincipalMapper`.

// Tests make files of their own.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod authority_leaf;
pub mod certificate;
mod distinguished_name;
pub mod jks;
mod pem;
pub mod principal_mapper;
mod rustls_config;
mod settings;
mod store;
mod suites;
mod tls_context;
mod verifier;

pub use certificate::{Certificate, CertificateFacts};
pub use principal_mapper::PrincipalMapper;
pub use settings::{ClientAuth, Given, Purpose, TlsSettings};
pub use store::trusted_certificates;
pub use tls_context::{Reloaded, TlsContext};

/// Why something cannot be used: a sentence for people.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(pub String);

impl TlsError {
    fn new(message: impl Into<String>) -> TlsError {
        TlsError(message.into())
    }
}
