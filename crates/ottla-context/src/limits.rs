//! The resources that the machine grants this process, and whether they suffice for the partitions
//! on its disks.
//!
//! `vm.max_map_count` is not such a limit: Kafka maps the indexes of every segment into memory, and
//! this broker maps no file.

use std::fmt;

use ottla_config::BrokerConfig;
use ottla_sync::machine::{self, Machine};

use crate::budgets::Budgets;
use crate::handle_budget::HandleBudget;

/// Heap per idle partition, with a reserve for partitions that are in use.
const PARTITION_BYTES: u64 = 8 * 1024;
/// Heap of a node without partitions and with a few clients.
const NODE_BYTES: u64 = 64 * 1024 * 1024;
/// The recommended limit of open files.
const ENOUGH_FILES: u64 = 1 << 20;

/// The resources that this process may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub machine: Machine,
    pub handles: HandleBudget,
}

/// A limit that is too low for the partitions on the disks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// `open files`, `memory`
    pub subject: &'static str,
    pub what: String,
    /// The command or setting that raises the limit.
    pub remedy: String,
}

impl Limits {
    /// Memory is the minimum of the machine's, the control group's and `ottla.memory.max.bytes`.
    /// File handles are the current limit of the process.
    pub fn of(config: &BrokerConfig) -> Limits {
        let machine = machine::read();
        Limits {
            machine: match u64::try_from(config.ottla_memory_max_bytes) {
                Ok(at_most @ 1..) => machine.with_at_most(at_most),
                _ => machine,
            },
            handles: HandleBudget::of_process(config.log_dirs.len()),
        }
    }

    /// The limits that are too low for this number of partitions.
    pub fn shortages(&self, partitions: usize) -> Vec<Shortage> {
        let (files, memory) = (self.files(partitions), self.memory(partitions));
        files.into_iter().chain(memory).collect()
    }

    /// Fewer handles than partitions are not an error, but slow if most partitions are in use.
    fn files(&self, partitions: usize) -> Option<Shortage> {
        let HandleBudget { process, logs, .. } = self.handles;
        (partitions > logs).then(|| Shortage {
            subject: "open files",
            what: format!(
                "{partitions} partitions, and {logs} of {process} file handles for them: if more are in use at once, \
                 files are opened and closed continually"
            ),
            remedy: format!(
                "LimitNOFILE={ENOUGH_FILES} in the systemd unit, or `ulimit -Hn {ENOUGH_FILES}` as root before the start"
            ),
        })
    }

    fn memory(&self, partitions: usize) -> Option<Shortage> {
        let needed = (partitions as u64).saturating_mul(PARTITION_BYTES) + NODE_BYTES;
        let machine = &self.machine;
        // The rest of the memory is left to the page cache.
        let heap = Budgets::of(machine).heap_bytes;
        (needed > heap).then(|| Shortage {
            subject: "memory",
            what: format!(
                "{partitions} partitions take about {}, and the heap may take {} of {}: above that, new members of \
                 groups and producers are refused",
                mib(needed),
                mib(heap),
                mib(machine.memory_bytes)
            ),
            remedy: match machine.is_memory_limited {
                true => format!(
                    "raise the limit of the container or unit (memory.max, MemoryMax=) or ottla.memory.max.bytes to {}",
                    mib(2 * needed)
                ),
                false => "a machine with more memory, or fewer partitions".to_owned(),
            },
        })
    }
}

/// `2 processors, 24064 MiB of memory, 1024 file handles`
impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine {
            memory_bytes,
            is_memory_limited,
            processors,
        } = self.machine;
        let plural = if processors == 1 { "" } else { "s" };
        let limited = if is_memory_limited { " (limited)" } else { "" };
        write!(
            f,
            "{processors} processor{plural}, {} of memory{limited}, {} file handles",
            mib(memory_bytes),
            self.handles.process
        )
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.subject, self.what, self.remedy)
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(memory_bytes: u64, open_files: u64) -> Limits {
        Limits {
            machine: Machine {
                memory_bytes,
                is_memory_limited: true,
                processors: 1,
            },
            handles: HandleBudget::of_limit(Some(open_files), 1),
        }
    }

    #[test]
    fn a_limit_too_low_for_the_partitions_is_reported_with_a_command() {
        let subjects = |limits: Limits, partitions| -> Vec<_> {
            let shortages = limits.shortages(partitions);
            shortages.iter().map(|it| it.subject).collect()
        };
        let small = limits(256 << 20, 1_024);
        assert!(small.shortages(452).is_empty());
        assert_eq!(subjects(small, 453), ["open files"]);
        assert_eq!(subjects(small, 10_000), ["open files", "memory"]);
        let large = limits(24 << 30, 1 << 20);
        assert!(large.shortages(200_000).is_empty());
        assert_eq!(
            small.shortages(453)[0].to_string(),
            "open files: 453 partitions, and 452 of 1024 file handles for them: if more are in use at once, files \
             are opened and closed continually; LimitNOFILE=1048576 in the systemd unit, or `ulimit -Hn 1048576` as \
             root before the start"
        );
        assert!(small.shortages(10_000)[1].to_string().contains(
            "10000 partitions take about 142 MiB, and the heap may take 128 MiB of 256 MiB"
        ));
        assert_eq!(
            small.to_string(),
            "1 processor, 256 MiB of memory (limited), 1024 file handles"
        );
    }
}
