//! Logins by an identity provider (OpenID Connect Core 1.0): the authorization code flow with PKCE (RFC 7636), a state and a
//! nonce.
//!
//! The page requests the address of the provider, the browser goes there and returns to the page with a code, and the
//! page sends the code to the console, which exchanges it for tokens. The ID token identifies the user. With the access
//! token, the console logs in to the cluster, whose brokers decide whether they accept the token and what the user may
//! do.
//!
//! Invariants:
//! - The state, the nonce and the verifier follow from a secret that the browser keeps in a cookie: a code from another
//!   browser is refused, and begun logins take no memory.
//! - The console sends no redirects. It returns addresses of the provider's endpoints only.
//! - Tokens and the client's secret are in no response, no address and no log line. The one exception is the ID token
//!   in the address of a logout, which the protocol requires; it cannot be used to log in.
//! - Responses of the provider are bounded in size and time.

mod answer;

mod config;

mod flow;

mod provider;

mod renewal;

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::cookie::Cookie;

pub(crate) use answer::{Tokens, shown};
pub use config::OidcConfig;
pub(crate) use flow::{FLOW_AGE, Flow, Flows};
pub(crate) use provider::{Failure, Person, Provider};
pub(crate) use renewal::{Login, keep};

/// Codes that are changed for tokens at a time.
const LOGINS: usize = 8;

/// The state of a console with a provider.
pub(crate) struct Oidc {
    pub(crate) provider: Arc<Provider>,
    pub(crate) flows: Flows,
    /// Of a browser that is at the provider.
    pub(crate) cookie: Cookie,
    pub(crate) logins: Semaphore,
}

impl Oidc {
    pub(crate) fn new(config: OidcConfig) -> Oidc {
        Oidc {
            provider: Arc::new(Provider::new(config)),
            flows: Flows::default(),
            cookie: Cookie::new(Some(FLOW_AGE)),
            logins: Semaphore::new(LOGINS),
        }
    }
}

#[cfg(test)]
mod tests;
