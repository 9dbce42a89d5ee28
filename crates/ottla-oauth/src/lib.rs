//! OAuth's access to servers and files: the keys of token issuers, with which a broker checks tokens, and the tokens
//! with which clients, and nodes at other nodes, log in. The console sends its requests to schema registries in the
//! same way.
//!
//! Owns the tokens that are in use until they are replaced. Never touches: the meaning of tokens and answers
//! (`ottla-sasl`), and the times at which keys are read again (`ottla-net`). Reading keys blocks, so callers run on
//! threads that may block. A login for which there is a token does not wait.
//!
//! Invariants:
//! - No error and no log line contains a secret or a token.
//! - An answer is read up to a bound, and within a time.
//!
//! Kafka: `HttpJwtRetriever`, `DefaultAssertionCreator`, `FileJwtRetriever`, `RefreshingHttpsJwks`.

// Tests make files and servers of their own.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod http;

mod issuer_keys;

mod assertion;

mod login_tokens;

pub use http::{Answer, Server, Unanswered};
pub use issuer_keys::read_issuer_keys;
pub use login_tokens::{LoginTokens, TokenError};

#[cfg(test)]
mod test_server;
