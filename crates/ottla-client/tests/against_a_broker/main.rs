//! The clients against a real broker: the one that the environment names, or brokers of Ottla.
//!
//! One test program, because linking each of these files would take longer than compiling it.
//! `tests/shared_groups.rs`, which `cargo xtask client` does not run, is a program of its own.

// Tests make files and threads of their own.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "../support/cluster.rs"]
mod cluster;

mod consumer_calls;
mod coordinated_groups;
mod examples_run;
mod producers_and_consumers;
mod secured;
mod watched_clients;
