//! Divides the file handles of the process between logs and sockets.
//!
//! | part | for | how much |
//! | --- | --- | --- |
//! | reserved | the metadata log, locks, listeners, connections to other nodes, checkpoints and other work on directories | 64, and 56 for each log directory, but at most a quarter |
//! | logs | open segments | half of the rest |
//! | sockets | connections of clients and other brokers | the other half |
//!
//! A log that is not in use gives its handles to other logs (`ottla-log/src/handles.rs`), and a
//! listener whose share is used up accepts no connection until one closes. So logs and sockets
//! cannot take each other's handles.

/// The file handles of a process, by purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandleBudget {
    /// The limit of the process (`RLIMIT_NOFILE`).
    pub process: usize,
    pub reserved: usize,
    pub logs: usize,
    pub sockets: usize,
}

/// Used if the limit is "unlimited"; more than the kernel grants.
const MOST: usize = 1 << 20;
const RESERVED: usize = 64;
/// Twice the number of threads that may work on one directory at a time.
const RESERVED_PER_DIRECTORY: usize = 56;

impl HandleBudget {
    /// Divides the current limit of the process.
    pub fn of_process(log_directories: usize) -> HandleBudget {
        HandleBudget::of_limit(ottla_sync::process::open_files_limit(), log_directories)
    }

    /// Divides `limit`; `None` means unlimited.
    pub fn of_limit(limit: Option<u64>, log_directories: usize) -> HandleBudget {
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        HandleBudget::divide(limit.unwrap_or(MOST), log_directories)
    }

    fn divide(process: usize, log_directories: usize) -> HandleBudget {
        let process = process.min(MOST);
        let wanted = RESERVED_PER_DIRECTORY.saturating_mul(log_directories);
        let reserved = wanted.saturating_add(RESERVED).min(process / 4);
        let logs = (process - reserved) / 2;
        HandleBudget {
            process,
            reserved,
            logs,
            sockets: process - reserved - logs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::HandleBudget;

    #[test]
    fn each_part_has_its_share_of_a_small_and_of_a_large_limit() {
        let parts = |limit, dirs| {
            let budget = HandleBudget::divide(limit, dirs);
            assert_eq!(
                budget.reserved + budget.logs + budget.sockets,
                budget.process
            );
            (budget.reserved, budget.logs, budget.sockets)
        };
        assert_eq!(parts(256, 1), (64, 96, 96));
        assert_eq!(parts(1_024, 1), (120, 452, 452));
        assert_eq!(parts(20_000, 1), (120, 9_940, 9_940));
        assert_eq!(parts(20_000, 10), (624, 9_688, 9_688));
        assert_eq!(parts(usize::MAX, 1), (120, 524_228, 524_228));
    }
}
