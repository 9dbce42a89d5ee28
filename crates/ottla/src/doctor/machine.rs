//! Checks of the machine: limits, memory, kernel settings, the clock.

use std::fs;

use ottla_broker::{Limits, Shortage, meminfo_bytes};
use ottla_config::{BrokerConfig, Properties};
use ottla_types::TopicPartition;

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

pub(super) fn look(properties: &Properties) -> Result<Vec<Check>, String> {
    let (config, _) =
        BrokerConfig::from_properties(properties).map_err(|error| error.to_string())?;
    let limits = Limits::of(&config);
    let shortages = limits.shortages(partitions_in(&config.log_dirs));
    let of = |subject| {
        shortages
            .iter()
            .find(|shortage| shortage.subject == subject)
    };
    let mut checks = vec![
        open_files(limits.handles.process as u64, of("open files")),
        memory(&limits, meminfo_bytes("MemAvailable"), of("memory")),
        Check::good("processors", limits.machine.processors.to_string()),
    ];
    checks.extend(swap(
        meminfo_bytes("SwapTotal"),
        number_in("/proc/sys/vm/swappiness"),
    ));
    checks.extend(number_in("/proc/sys/net/core/somaxconn").map(backlog));
    checks.push(clock(is_clock_synchronised()));
    Ok(checks)
}

/// How many partitions the directories hold.
fn partitions_in(log_dirs: &[String]) -> usize {
    let entries = log_dirs.iter().filter_map(|dir| fs::read_dir(dir).ok());
    let names = entries
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let partitions = names.filter(|name| TopicPartition::from_dir_name(name).is_ok());
    partitions.count()
}

fn open_files(limit: u64, shortage: Option<&Shortage>) -> Check {
    const REMEDY: &str =
        "LimitNOFILE=1048576 in the systemd unit, or `ulimit -Hn 1048576` as root before the start";
    if let Some(shortage) = shortage {
        return Check::warning("open files", &shortage.what, &shortage.remedy);
    }
    if limit >= ENOUGH_FILES {
        return Check::good("open files", format!("up to {limit}"));
    }
    let what =
        format!("at most {limit}; each segment of a partition and each connection needs some");
    match limit < FEW_FILES {
        true => Check::problem("open files", what, REMEDY),
        false => Check::warning("open files", what, REMEDY),
    }
}

fn memory(limits: &Limits, available: Option<u64>, shortage: Option<&Shortage>) -> Check {
    if let Some(shortage) = shortage {
        return Check::warning("memory", &shortage.what, &shortage.remedy);
    }
    let all = limits.machine.memory_bytes;
    let room = available.map_or(all, |available| available.min(all));
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
            "not synchronised: record timestamps, and therefore retention, depend on it",
            "timedatectl set-ntp true",
        ),
        None => Check::good(
            "clock",
            "the kernel does not report whether it is synchronised",
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

/// `None` if there is no such file.
fn number_in(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::check::Level;
    use super::*;

    fn properties() -> Properties {
        crate::server::read_properties(None, &[]).unwrap()
    }

    fn with_memory(bytes: u64) -> Limits {
        let (config, _) = BrokerConfig::from_properties(&properties()).unwrap();
        let mut limits = Limits::of(&config);
        limits.machine.memory_bytes = bytes;
        limits
    }

    #[test]
    fn insufficient_limits_are_reported_with_a_command() {
        assert_eq!(open_files(1024, None).level, Level::Problem);
        assert_eq!(open_files(65_536, None).level, Level::Warning);
        assert_eq!(open_files(1_048_576, None).level, Level::Good);
        let limits = with_memory(8 << 30);
        assert_eq!(memory(&limits, Some(1 << 33), None).level, Level::Good);
        assert_eq!(memory(&limits, Some(1 << 26), None).level, Level::Warning);
        let limits = with_memory(1 << 27);
        assert_eq!(memory(&limits, Some(1 << 33), None).level, Level::Warning);
        let shortages = limits.shortages(1_000_000);
        let check = memory(&limits, Some(1 << 33), shortages.last());
        assert!(
            check.what.starts_with("1000000 partitions take"),
            "{check:?}"
        );
        assert_eq!(swap(Some(1 << 30), Some(60)).unwrap().level, Level::Warning);
        assert_eq!(swap(Some(0), Some(60)).unwrap().level, Level::Good);
        assert_eq!(
            backlog(128).remedy.unwrap(),
            "sysctl -w net.core.somaxconn=4096"
        );
        assert_eq!(clock(Some(false)).level, Level::Warning);
    }

    #[test]
    fn the_checks_run_on_this_machine() {
        let subjects: Vec<String> = look(&properties())
            .unwrap()
            .into_iter()
            .map(|check| check.subject)
            .collect();
        assert!(subjects.contains(&"open files".to_owned()), "{subjects:?}");
        assert!(subjects.contains(&"clock".to_owned()), "{subjects:?}");
    }
}
