//! Requests to the controller. If this node is the active controller, its controller thread decides
//! them; otherwise they are sent to the active controller.

pub mod requests;

pub mod channel;

pub mod handle;
