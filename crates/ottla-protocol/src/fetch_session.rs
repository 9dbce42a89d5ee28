//! Fetch sessions (KIP-227): a client lists its partitions once, and afterwards only changed ones;
//! the broker returns only partitions with new data or changed metadata.
//!
//! Each end is a state machine without clock, lock or socket. `client` is used by consumers and
//! followers, `server` by brokers.
//!
//! Kafka: `FetchSessionHandler` and `FetchSession`.

pub mod client;
pub mod server;

/// The session ID of a request or a response without a session.
pub const NO_SESSION: i32 = 0;
/// The epoch of a full request for a new session. If it names a session, that session is closed.
pub const INITIAL_EPOCH: i32 = 0;
/// The epoch of a full request that does not ask for a session.
pub const FINAL_EPOCH: i32 = -1;

/// The epoch of the next request in an open session. It wraps around to 1, past the reserved
/// epochs.
fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        i32::MAX => 1,
        _ => epoch + 1,
    }
}
