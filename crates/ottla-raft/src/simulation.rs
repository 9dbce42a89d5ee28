//! A quorum in one thread with simulated time, network and disks: everything that happens follows from a seed.
//!
//! First faults: messages are delayed, lost, doubled and overtake each other, nodes are cut off from each other,
//! crash between any two effects and lose what they had not flushed, and voters come and go. Then healing, in
//! which everything must agree again. `checkers` looks on.
//!
//! A seed that fails is named, with the last things that happened; `docs/testing.md` says how it is repeated.

mod checkers;
mod disk;
mod network;
mod node;
mod trouble;
mod world;

#[cfg(test)]
mod tests;
