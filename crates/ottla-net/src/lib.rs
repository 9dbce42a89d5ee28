//! Network connections: accepts them, splits their bytes into requests, sends the responses in
//! order, and connects to other nodes.
//!
//! This crate owns listeners, connections, their limits, and the memory that requests may use. It
//! never interprets a request (that is the task of a [`Service`]), and never touches logs.

// Tests create files and threads.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod address_limits;
mod audit;
mod authorizer;
mod broker_peers;
mod client_identity;
mod connection;
mod connections;
mod creation_rate;
mod decoded_memory;
mod failed_logins;
mod frame;
mod handshakes;
mod kerberos;
mod listener;
mod login;
mod movable_task;
mod network;
mod peer_connection;
mod peer_security;
mod request_context;
mod request_memory;
mod response;
mod sasl_credentials;
mod send;
mod service;
mod stream;
mod token_keys;
mod unsent_answers;

pub use address_limits::AddressLimits;
pub use audit::{AuditQueue, AuditReports, AuditTopic, check_audit_file, lost_line};
pub use authorizer::{Authorizer, Decisions, IsInTable};
pub use broker_peers::{BrokerPeers, ProduceTo};
pub use client_identity::ClientIdentity;
pub use connections::{Connection, Connections, ListenerInfo};
pub use creation_rate::{AddressQuotas, AddressRates};
pub use decoded_memory::{DecodedMemory, DecodedPart};
pub use kerberos::check_kerberos;
pub use listener::{BoundAt, BoundListener, ListeningListener, accept_connections};
pub use network::{Network, follow_address_limits};
pub use ottla_security::{Operation, ResourceType};
pub use peer_connection::{PeerConnection, PeerError, PeerFailure, PeerSettings};
pub use peer_security::PeerSecurity;
pub use request_context::{RemoteMemory, RequestContext, WaitedTime};
pub use request_memory::{Covered, RequestMemory};
pub use response::encode_response;
pub use service::{Answer, MisplacedRequest, PendingAnswer, RequestError, Service};
pub use token_keys::{keep_token_keys, load_token_keys};
pub use unsent_answers::UnsentAnswers;
