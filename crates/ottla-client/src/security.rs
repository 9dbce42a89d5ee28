//! Who a client talks to and who it is: `security.protocol` with its TLS and SASL settings.

mod config;
mod jaas;
mod sasl;
mod tls;

pub use config::{SaslMechanism, SecurityConfig, SecurityProtocol};
pub(crate) use sasl::Login;
pub(crate) use tls::wrap;
