//! SASL for clients and brokers: the messages of a login, and the JAAS entries that contain the
//! credentials.
//!
//! This crate owns the mechanisms PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC
//! 7677), the messages of OAUTHBEARER (RFC 7628), and JAAS. Of GSSAPI it has the settings and the
//! mapping of names; the messages are made by the library that `ottla-gssapi` loads. It never touches
//! a socket, a file, a clock or randomness; nonces are arguments.
//!
//! Invariants:
//! 1. Malformed bytes from a peer lead to an error, never to a panic.
//! 2. The time of a comparison of secrets does not depend on their contents.
//! 3. No error message and no `Debug` output contains a password, a key or a token.
//!
//! Kafka: `org.apache.kafka.common.security.{plain,scram,oauthbearer}.internals`, `JaasConfig`, `JaasContext`.

#![forbid(unsafe_code)]
#![warn(clippy::iter_over_hash_type)]

pub mod jaas;

mod mechanism;

mod secret;

pub mod plain;

pub mod scram;

pub mod oauthbearer;

mod oauth_rules;

pub mod oauth_token;

mod token_source;

mod kerberos_rules;

mod kerberos;

mod delegation_token;

mod client_login;

mod listener;

pub use client_login::{ClientCredentials, ClientLogin};
pub use delegation_token::{
    TokenCredentials, is_token_hmac, token_credential, token_decoy, token_hmac,
};
pub use kerberos::{KerberosLogin, KerberosService, service_name_of};
pub use kerberos_rules::{KerberosName, KerberosRules};
pub use listener::{EnabledMechanism, PeerCredentials, SaslListener, SaslPeer};
pub use mechanism::Mechanism;
pub use oauth_rules::{KeySource, TokenRules, TokenValidator, UnsecuredRules, path_of_file_url};
pub use scram::ScramMechanism;
pub use secret::{Secret, is_same_secret};
pub use token_source::{
    Assertion, AssertionAlgorithm, AssertionTemplate, SourceProblem, TokenEndpoint, TokenGrant,
    TokenPlace, TokenRefresh, TokenRequest, TokenSource, form_encoded, form_of, refusal_in_answer,
    token_in_answer,
};
