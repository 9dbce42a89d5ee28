//! The resources of a process, on the real machine or on a simulated host.

pub use crate::kernel::machine::{Machine, meminfo_bytes};
pub use crate::kernel::memory::Memory;
use crate::simulation::world;

/// Equal for every simulated host, so that a run does not depend on the machine.
const SIMULATED: Machine = Machine {
    memory_bytes: 2 * 1024 * 1024 * 1024,
    is_memory_limited: false,
    processors: 2,
};

/// Resident anonymous memory of the process; unknown on a simulated host.
pub fn anonymous_bytes() -> Option<u64> {
    match world::is_simulated() {
        true => None,
        false => crate::kernel::machine::anonymous_bytes(),
    }
}

/// Reads the limits of the machine and the control groups.
pub fn read() -> Machine {
    match world::is_simulated() {
        true => SIMULATED,
        false => Machine::read(),
    }
}

/// The memory that is available now; unknown on a simulated host.
pub fn memory() -> Option<Memory> {
    match world::is_simulated() {
        true => None,
        false => crate::kernel::memory::memory(),
    }
}
