//! A few replicas of one partition, a controller, and a network between them that loses, repeats and reorders,
//! in one seeded run: the same seed gives the same run.
//!
//! Time is simulated. Nodes are killed and lose what was not flushed, or are stopped orderly; the controller
//! fences nodes that are up, and its metadata reach each node late. In the second part of a run nothing fails
//! any more, and everything has to come together.
//!
//! What a node may lose: at a kill, everything behind the last flush; and it is registered anew without the
//! marker of a clean stop, whereupon the controller takes it out of the ISR and of the eligible leaders
//! (KIP-966). A node is killed only while another one that is in the ISR or the ELR keeps its disk, since
//! nothing is promised beyond that.

mod checkers;
mod cluster;
mod model_controller;
mod model_log;
mod node;
mod random;
mod tests;
