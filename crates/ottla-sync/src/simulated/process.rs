//! The end of the process: of the simulated host's, which a panic ends anyway, or of the real one.

use crate::simulation::world;

/// The process's limit of open files and sockets; a typical limit on a simulated host.
pub fn open_files_limit() -> Option<u64> {
    match world::is_simulated() {
        true => Some(1_024),
        false => crate::kernel::open_files_limit(),
    }
}

/// The user whose rights the process has; always the same on simulated hosts.
pub fn effective_user() -> u32 {
    match world::is_simulated() {
        true => 0,
        false => crate::kernel::effective_user(),
    }
}

/// Replaces `std::process::abort` during unwinding. A simulated thread continues to unwind: its
/// host was killed, or the panic fails the run.
pub fn abort() {
    if !world::is_simulated() {
        std::process::abort();
    }
}
