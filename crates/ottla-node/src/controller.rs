//! Requests to the controller: decided by the thread of this node where it leads, sent to the active controller where
//! that is another process.

pub mod requests;

pub mod channel;

pub mod handle;
