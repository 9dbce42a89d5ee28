//! Locks, channels, threads, tasks, clocks, random numbers and files, as the product uses them and as a simulation
//! decides them.
//!
//! Without the feature `simulation` every name here is that of `parking_lot`, `tokio`, `arc-swap` or the standard
//! library, re-exported, so it costs what that costs. With it, the names are types that ask first whether their caller
//! is a simulated thread ([`simulation::run`]): then the seed decides who goes on, and time, random numbers and files
//! are the simulation's. Otherwise they do what the product's do. So one build of a workspace has both, and its other
//! tests notice nothing.

mod kernel;
pub mod planted;
#[cfg(not(feature = "simulation"))]
mod product;
#[cfg(not(feature = "simulation"))]
pub use product::*;

#[cfg(feature = "simulation")]
mod simulated;
#[cfg(feature = "simulation")]
pub mod simulation;
#[cfg(feature = "simulation")]
pub use simulated::*;

/// Whether this build can simulate. A released binary must not.
pub const IS_SIMULATION_BUILD: bool = cfg!(feature = "simulation");

#[doc(hidden)]
pub use tokio;

/// As `tokio::select!`. In a build that can simulate, the branches are polled in their order, because tokio would draw
/// it from the system's random numbers.
#[cfg(not(feature = "simulation"))]
#[macro_export]
macro_rules! select {
    ($($branches:tt)*) => { $crate::tokio::select! { $($branches)* } };
}

/// As `tokio::select!`. In a build that can simulate, the branches are polled in their order, because tokio would draw
/// it from the system's random numbers.
#[cfg(feature = "simulation")]
#[macro_export]
macro_rules! select {
    (biased; $($branches:tt)*) => { $crate::tokio::select! { biased; $($branches)* } };
    ($($branches:tt)*) => { $crate::tokio::select! { biased; $($branches)* } };
}
