//! The end of the process: of the simulated host's, which a panic ends anyway, or of the system's.

use crate::simulation::world;

/// How many files and sockets the process may have open; a simulated host, as many as a system usually lets it.
pub fn open_files_limit() -> Option<u64> {
    match world::is_simulated() {
        true => Some(1_024),
        false => crate::kernel::open_files_limit(),
    }
}

/// Instead of `std::process::abort`, where something unwinds. A simulated thread goes on unwinding: its host was killed,
/// or the panic fails the run.
pub fn abort() {
    if !world::is_simulated() {
        std::process::abort();
    }
}
