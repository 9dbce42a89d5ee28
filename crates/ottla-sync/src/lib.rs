//! Locks, channels, threads, tasks, clocks, random numbers and files, either the real ones or those
//! of a simulation.
//!
//! Without the feature `simulation`, every name re-exports the type of `parking_lot`, `tokio`,
//! `arc-swap` or the standard library, at no cost. Only tasks are boxed. With it, the types first
//! check whether the caller is a simulated thread ([`simulation::run`]). For a simulated caller, the
//! seed schedules the threads, and time, random numbers and files are simulated; for others, the
//! real types are used. One build of a workspace therefore serves simulations and all other tests.

use std::pin::Pin;

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

/// Whether this build can simulate. Released binaries must not.
pub const IS_SIMULATION_BUILD: bool = cfg!(feature = "simulation");

/// A future whose type is hidden from the code that awaits it, so that its code is generated once, by the crate that
/// makes it. The code of an async function is generated in each codegen unit of each crate that awaits it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[doc(hidden)]
pub use tokio;

/// As `tokio::select!`. A build that can simulate polls the branches in order, because tokio would
/// choose the order with the system's random numbers.
#[cfg(not(feature = "simulation"))]
#[macro_export]
macro_rules! select {
    ($($branches:tt)*) => { $crate::tokio::select! { $($branches)* } };
}

/// As `tokio::select!`. A build that can simulate polls the branches in order, because tokio would
/// choose the order with the system's random numbers.
#[cfg(feature = "simulation")]
#[macro_export]
macro_rules! select {
    (biased; $($branches:tt)*) => { $crate::tokio::select! { biased; $($branches)* } };
    ($($branches:tt)*) => { $crate::tokio::select! { biased; $($branches)* } };
}
