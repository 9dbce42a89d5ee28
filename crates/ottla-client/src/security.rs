//! Connection security: `security.protocol` with its TLS and SASL settings.

mod supplied_token;

mod config;
mod tls;

pub use config::{SecurityConfig, SecurityProtocol};
pub use supplied_token::SuppliedToken;
pub use tls::server_name;
pub(crate) use tls::wrap;
