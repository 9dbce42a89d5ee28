//! SASL GSSAPI (RFC 4752) with Kerberos: both sides of a login, with the system's library.
//!
//! The library (MIT's `libgssapi_krb5.so.2`) is loaded when the first login needs it, so that a
//! program that never uses Kerberos starts without it. All unsafe code of the crate is in
//! `library.rs`, `handles.rs` and `realm.rs`.
//!
//! What reaches the library blocks: it reads files, and a client asks the KDC. `login.rs` runs it
//! where blocking is allowed.
//!
//! Invariants:
//! 1. Malformed bytes from a peer lead to an error, never to a panic.
//! 2. A login offers and accepts no security layer: after it, bytes are sent as they are, or in TLS.
//!
//! Kafka: Java's `GssKrb5Server` and `GssKrb5Client`, and `KerberosLogin`.

mod error;

mod library;

mod handles;

mod security_layer;

mod keytab;

mod server_login;

mod client_login;

mod realm;

mod login;

pub use error::GssError;
pub use login::{Accepted, Login, accept};
pub use server_login::{ServerKerberos, check_service};
