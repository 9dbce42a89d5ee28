//! Putting a workload on a cluster with the native client.
//!
//! Each generator is a thread of its own that may sleep until a record is due; the client runs beside it on its
//! runtime.

pub mod generator;
pub mod produce;
