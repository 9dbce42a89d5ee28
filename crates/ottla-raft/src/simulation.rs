//! A quorum in one thread with simulated time, network and disks: everything follows from a seed.
//!
//! First faults: messages are delayed, lost, duplicated and reordered, nodes are partitioned, crash
//! between any two effects and lose unflushed records, and voters change. Then healing, after which
//! everything must agree. `checkers` checks the invariants.
//!
//! A failing seed is printed with its last events; `docs/testing.md` describes how to replay it.

mod checkers;
mod disk;
mod network;
mod node;
mod trouble;
mod world;

#[cfg(test)]
mod tests;
