//! TLS with Kafka's `ssl.*` settings, for listeners, connections to other nodes, and clients: reads
//! key stores and trust stores, verifies certificates, and derives principals from them.
//!
//! This crate owns the loaded configuration of a listener or client until it is reloaded. It never
//! touches a socket: the crates above pass bytes to rustls. Files are read on the caller's thread.
//!
//! Invariants:
//! - A store that cannot be used replaces nothing; the previous one stays in use.
//! - An error is a sentence for people that names the setting, the file and the remedy. It contains
//!   no password or key.
//!
//! Kafka: `DefaultSslEngineFactory`, `SslFactory`, `SslPrincipalMapper`.

// Tests create files.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod authority_leaf;
pub mod certificate;
mod distinguished_name;
pub mod jks;
pub mod kernel;
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
pub use store::{client_identity, pkcs8_key, trusted_certificates};
pub use tls_context::{Reloaded, TlsContext};

/// Why settings or files cannot be used: a sentence for people.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(pub String);

impl TlsError {
    fn new(message: impl Into<String>) -> TlsError {
        TlsError(message.into())
    }
}
