//! Putting a workload on a cluster with the native client.
//!
//! Each generator is a separate thread that may sleep until a record is due; the client runs on its own
//! runtime.

pub mod generator;
pub mod produce;
