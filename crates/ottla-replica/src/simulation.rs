//! Replicas of one partition, a controller, and a network that loses, repeats and reorders, in one
//! seeded run: the same seed gives the same run.
//!
//! Time is simulated. Nodes are killed and lose unflushed records, or are stopped cleanly; the
//! controller fences live nodes, and its metadata reaches each node late. In the second part of a
//! run nothing fails any more, and the replicas must converge.
//!
//! A killed node loses everything after its last flush and is registered without the clean shutdown
//! marker, so the controller removes it from the ISR and the ELR (KIP-966). A node is killed only
//! while another member of the ISR or the ELR keeps its disk, since nothing is guaranteed beyond
//! that.

mod checkers;
mod cluster;
mod model_controller;
mod model_log;
mod node;
mod random;
mod tests;
