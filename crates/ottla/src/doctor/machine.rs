//! Checks of the machine: limits, memory, kernel settings, the clock.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::check::{Check, bytes_text};

/// A partition keeps a few files per segment open, and each client uses a socket.
const ENOUGH_FILES: u64 = 100_000;
const FEW_FILES: u64 = 4_096;
/// Enough for a broker with few partitions and clients, and some page cache.
const ENOUGH_MEMORY: u64 = 256_000_000;
/// Length of the accept queue.
const ENOUGH_BACKLOG: u64 = 1_024;
/// Above this, the kernel may swap out the broker's memory to keep files in the page cache.
const MUCH_SWAPPINESS: u64 = 10;

pub(super) fn look() -> Vec<Check> {
    let limit = getrlimit(Resource::Nofile).maximum;
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let mut checks = vec![
        open_files(limit),
        memory(
            of_meminfo(&meminfo, "MemAvailable"),
            number_in("/sys/fs/cgroup/memory.max"),
        ),
    ];
    checks.extend(swap(
        of_meminfo(&meminfo, "SwapTotal"),
        number_in("/proc/sys/vm/swappiness"),
    ));
    checks.extend(number_in("/proc/sys/net/core/somaxconn").map(backlog));
    checks.push(clock(is_clock_synchronised()));
    checks
}

/// `None` means no limit.
fn open_files(limit: Option<u64>) -> Check {
    const MEND: &str =
        "LimitNOFILE=1048576 in the systemd unit, or `ulimit -Hn 1048576` as root before the start";
    match limit {
        None => Check::good("open files", "no limit"),
        Some(limit) if limit >= ENOUGH_FILES => Check::good("open files", format!("up to {limit}")),
        Some(limit) => {
            let what = format!(
                "at most {limit}; each segment of a partition and each connection needs some"
            );
            match limit < FEW_FILES {
                true => Check::problem("open files", what, MEND),
                false => Check::warning("open files", what, MEND),
            }
        }
    }
}

fn memory(available: Option<u64>, limit: Option<u64>) -> Check {
    let Some(available) = available else {
        return Check::good("memory", "unknown: there is no /proc/meminfo");
    };
    let room = available.min(limit.unwrap_or(u64::MAX));
    let what = format!("{} available", bytes_text(room));
    match room >= ENOUGH_MEMORY {
        true => Check::good("memory", what),
        false => Check::warning(
            "memory",
            what,
            "stop other processes, or raise the limit of the container (memory.max)",
        ),
    }
}

fn swap(total: Option<u64>, swappiness: Option<u64>) -> Option<Check> {
    let (total, swappiness) = (total?, swappiness?);
    if total == 0 {
        return Some(Check::good("swap", "none"));
    }
    let what = format!("{}, vm.swappiness={swappiness}", bytes_text(total));
    Some(match swappiness <= MUCH_SWAPPINESS {
        true => Check::good("swap", what),
        false => Check::warning(
            "swap",
            format!("{what}: a broker that is swapped out answers late"),
            "sysctl -w vm.swappiness=1",
        ),
    })
}

fn backlog(limit: u64) -> Check {
    let what = format!("{limit} connections may wait to be accepted (net.core.somaxconn)");
    match limit >= ENOUGH_BACKLOG {
        true => Check::good("backlog", what),
        false => Check::warning("backlog", what, "sysctl -w net.core.somaxconn=4096"),
    }
}

fn clock(is_synchronised: Option<bool>) -> Check {
    match is_synchronised {
        Some(true) => Check::good("clock", "synchronised"),
        Some(false) => Check::warning(
            "clock",
            "not synchronised: record timestamps, and retention with them, follow it",
            "timedatectl set-ntp true",
        ),
        None => Check::good(
            "clock",
            "the kernel does not say whether it is synchronised",
        ),
    }
}

/// The kernel's clock state, which time synchronisation daemons set.
fn is_clock_synchronised() -> Option<bool> {
    // SAFETY: the struct is plain data for which zeros are valid; with `modes` 0 the call only
    // writes to this struct.
    let state = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        libc::adjtimex(&mut timex)
    };
    match state {
        -1 => None,
        libc::TIME_ERROR => Some(false),
        _ => Some(true),
    }
}

/// The value of a line such as `MemAvailable:   1024 kB`, in bytes.
fn of_meminfo(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
    let kilobytes: u64 = line
        .strip_prefix(':')?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    Some(kilobytes * 1024)
}

/// `None` for `max`, and if there is no such file.
fn number_in(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::check::Level;
    use super::*;

    #[test]
    fn what_is_too_little_is_told_with_a_command() {
        assert_eq!(open_files(Some(1024)).level, Level::Problem);
        assert_eq!(open_files(Some(65_536)).level, Level::Warning);
        assert_eq!(open_files(Some(1_048_576)).level, Level::Good);
        assert_eq!(open_files(None).level, Level::Good);
        assert_eq!(memory(Some(8 << 30), Some(1 << 26)).level, Level::Warning);
        assert_eq!(memory(Some(8 << 30), None).level, Level::Good);
        assert_eq!(swap(Some(1 << 30), Some(60)).unwrap().level, Level::Warning);
        assert_eq!(swap(Some(0), Some(60)).unwrap().level, Level::Good);
        assert_eq!(
            backlog(128).mend.unwrap(),
            "sysctl -w net.core.somaxconn=4096"
        );
        assert_eq!(clock(Some(false)).level, Level::Warning);
    }

    #[test]
    fn memory_is_read_in_kilobytes() {
        let text = "MemTotal:       100 kB\nMemAvailable:    7 kB\n";
        assert_eq!(of_meminfo(text, "MemAvailable"), Some(7 * 1024));
        assert_eq!(of_meminfo(text, "SwapTotal"), None);
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let subjects: Vec<String> = look().into_iter().map(|check| check.subject).collect();
        assert!(subjects.contains(&"open files".to_owned()), "{subjects:?}");
        assert!(subjects.contains(&"clock".to_owned()), "{subjects:?}");
    }
}
