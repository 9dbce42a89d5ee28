//! A seeded simulation of one tiered partition on three brokers.
//!
//! The tasks and the follower's machine are the types that ship. Logs, the metadata topic, the
//! store and the controller are models. A run has a phase with faults (the store is slow, fails
//! before or after it has done its work, or is away; records are lost, or written without an
//! answer; brokers are killed; leaders change) and a phase without, in which everything must heal.
//!
//! Checked at all times: every object in the store has a record that is not the last one of its
//! segment; a local segment is deleted only if remote storage has its records; a leader can read
//! each committed record once between the start and the end of its log. At the end: all closed
//! segments are copied, no deletion is pending, and no remote segment is before the log start.

mod brokers;
mod cluster;
mod random;
mod store;
mod tests;
