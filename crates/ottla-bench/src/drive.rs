//! Applies a workload to a cluster with the native client.
//!
//! Each generator is a separate thread that may sleep until a record is due; the client has its own
//! runtime.

pub mod generator;
pub mod produce;
