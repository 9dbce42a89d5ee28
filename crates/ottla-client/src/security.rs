//! Connection security: `security.protocol` with its TLS and SASL settings.

mod config;
mod tls;

pub use config::{SecurityConfig, SecurityProtocol};
pub(crate) use tls::wrap;
