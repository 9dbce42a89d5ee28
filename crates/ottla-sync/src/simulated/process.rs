//! The end of the process: of the simulated host's, which a panic ends anyway, or of the system's.

use crate::simulation::world;

/// Instead of `std::process::abort`, where something unwinds. A simulated thread goes on unwinding: its host was killed,
/// or the panic fails the run.
pub fn abort() {
    if !world::is_simulated() {
        std::process::abort();
    }
}
