//! Fetch sessions (KIP-227): a client names its partitions once, and from then on only those that changed; the broker
//! answers only for those of which it has something new to say.
//!
//! Each end is a state machine without clock, lock or socket. `client` is the end of consumers and of followers, `server`
//! that of brokers.
//!
//! Kafka: `FetchSessionHandler` and `FetchSession`.

pub mod client;
pub mod server;

/// The session ID of a request or a response without a session.
pub const NO_SESSION: i32 = 0;
/// The epoch of a request that names everything and asks for a session. With the ID of a session it closes that one.
pub const INITIAL_EPOCH: i32 = 0;
/// The epoch of a request that names everything and asks for no session.
pub const FINAL_EPOCH: i32 = -1;

/// The epoch of the request after one of an open session: it wraps around, past the epochs that mean something else.
fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        i32::MAX => 1,
        _ => epoch + 1,
    }
}
