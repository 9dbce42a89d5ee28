//! Sockets: accepts connections, cuts their bytes into requests, and sends the answers in order; and opens
//! connections to other nodes.
//!
//! Owns: listeners, connections and their limits. Never touches: what a request means (`dispatch` and
//! `api` do), logs.

mod address_limits;
mod broker_peers;
mod connection;
mod connections;
mod creation_rate;
mod frame;
mod listener;
// Used by the quorum, the fetchers and the way to the controller.
#[allow(dead_code)]
mod peer_connection;
mod send;

pub(crate) use address_limits::{AddressLimits, follow_address_limits};
pub(crate) use broker_peers::BrokerPeers;
pub(crate) use connection::{Answer, PendingAnswer};
pub(crate) use connections::Connections;
pub use connections::{Connection, ListenerInfo};
pub(crate) use listener::{BoundListener, accept_connections};
#[allow(unused_imports)]
pub(crate) use peer_connection::{PeerConnection, PeerError, PeerFailure, PeerSettings};
