//! What a process may use of its machine: of this one, or of the one that a simulated host is.

pub use crate::kernel::machine::Machine;
use crate::simulation::world;

/// The same for every simulated host, so that a run does not depend on the machine that it is on.
const SIMULATED: Machine = Machine {
    memory_bytes: 2 * 1024 * 1024 * 1024,
    is_memory_limited: false,
    processors: 2,
};

/// What the process has in memory that no file backs. A simulated host says nothing of it.
pub fn anonymous_bytes() -> Option<u64> {
    match world::is_simulated() {
        true => None,
        false => crate::kernel::machine::anonymous_bytes(),
    }
}

/// Reads the limits of the machine and of the control groups.
pub fn read() -> Machine {
    match world::is_simulated() {
        true => SIMULATED,
        false => Machine::read(),
    }
}
