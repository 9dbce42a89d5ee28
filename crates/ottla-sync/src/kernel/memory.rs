//! The memory that this process can still have, which changes while it runs: other processes take
//! memory and give it back, and a host may take it from a virtual machine.
//!
//! Pages of the page cache count as available, because the kernel reuses them. Both versions of
//! control groups are read, each up to the root of its hierarchy. Missing or unreadable files are
//! left out.

use std::path::Path;
use std::time::Duration;

use super::machine::{Version, bytes_of, memory_groups};

/// The memory at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Unused memory and the page cache, of the machine or of a control group, whichever has less.
    pub available_bytes: u64,
    /// How long tasks have waited for memory (`some` of PSI), of the process's group if it has its
    /// own count; `None` if the kernel does not count it.
    pub stalled: Option<Duration>,
}

/// `None` if the system does not tell. Takes a fraction of a millisecond, and no disk.
pub fn memory() -> Option<Memory> {
    Memory::read(|path| std::fs::read_to_string(path).ok())
}

impl Memory {
    fn read(read: impl Fn(&Path) -> Option<String>) -> Option<Memory> {
        let text = |path: &str| read(Path::new(path));
        let of_machine = bytes_of(&text("/proc/meminfo")?, "MemAvailable")?;
        let groups = text("/proc/self/cgroup").unwrap_or_default();
        let groups = memory_groups(&groups, &text("/proc/self/mountinfo").unwrap_or_default());
        let of_groups = groups
            .iter()
            .filter_map(|(version, directory)| available_in(*version, directory, &read));
        let own = groups
            .iter()
            .find(|(version, _)| *version == Version::Two)
            .and_then(|(_, directory)| read(&directory.join("memory.pressure")));
        let pressure = own.or_else(|| text("/proc/pressure/memory"));
        Some(Memory {
            available_bytes: of_groups.fold(of_machine, u64::min),
            stalled: pressure.and_then(|pressure| stalled(&pressure)),
        })
    }
}

/// The memory that a group's limit leaves after memory that is not page cache; `None` without a
/// limit.
fn available_in(
    version: Version,
    directory: &Path,
    read: impl Fn(&Path) -> Option<String>,
) -> Option<u64> {
    let limit = version.limit(directory, &read)?;
    let (usage, cached) = match version {
        // Without `total_`, the groups below are not included.
        Version::One => (
            "memory.usage_in_bytes",
            ["total_inactive_file", "total_active_file"],
        ),
        Version::Two => ("memory.current", ["inactive_file", "active_file"]),
    };
    let usage: u64 = read(&directory.join(usage))?.trim().parse().ok()?;
    let stat = read(&directory.join("memory.stat"))?;
    let cached = cached.iter().filter_map(|key| number_of(&stat, key));
    let in_use = usage.saturating_sub(cached.sum());
    Some(limit.saturating_sub(in_use))
}

/// A number of `memory.stat`: `inactive_file 1234`.
fn number_of(stat: &str, key: &str) -> Option<u64> {
    let mut lines = stat.lines();
    let number = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    number.trim().parse().ok()
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`, in microseconds.
fn stalled(pressure: &str) -> Option<Duration> {
    let mut lines = pressure.lines();
    let some = lines.find_map(|line| line.strip_prefix("some "))?;
    let mut fields = some.split(' ');
    let total = fields.find_map(|field| field.strip_prefix("total="))?;
    Some(Duration::from_micros(total.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory_of(files: &[(&str, &str)]) -> Option<Memory> {
        Memory::read(|path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| format!("{text}\n"))
        })
    }

    const MEMINFO: (&str, &str) = (
        "/proc/meminfo",
        "MemTotal: 24000 kB\nMemFree: 1000 kB\nMemAvailable: 20000 kB",
    );
    const PRESSURE: (&str, &str) = (
        "/proc/pressure/memory",
        "some avg10=1.50 avg60=0.00 avg300=0.00 total=2500000\n\
         full avg10=0.00 avg60=0.00 avg300=0.00 total=70",
    );

    #[test]
    fn a_machine_without_groups() {
        let memory = memory_of(&[MEMINFO, PRESSURE]).unwrap();
        assert_eq!(memory.available_bytes, 20_000 * 1024);
        assert_eq!(memory.stalled, Some(Duration::from_millis(2500)));
        assert_eq!(memory_of(&[MEMINFO]).unwrap().stalled, None);
        assert_eq!(memory_of(&[PRESSURE]), None);
    }

    #[test]
    fn a_cgroup_v2_leaves_its_limit_minus_uncached_memory() {
        let of_group = |name: &str| format!("/sys/fs/cgroup/system.slice/ottla.service/{name}");
        let names = ["memory.max", "memory.current", "memory.stat"].map(of_group);
        let pressure = of_group("memory.pressure");
        let mut files = vec![
            MEMINFO,
            PRESSURE,
            ("/proc/self/cgroup", "0::/system.slice/ottla.service"),
            (
                "/proc/self/mountinfo",
                "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate",
            ),
            (names[0].as_str(), "1000000"),
            (names[1].as_str(), "900000"),
            (
                names[2].as_str(),
                "anon 200000\nfile 710000\ninactive_file 500000\nactive_file 200000",
            ),
        ];
        let memory = memory_of(&files).unwrap();
        assert_eq!(memory.available_bytes, 800_000);
        assert_eq!(memory.stalled, Some(Duration::from_millis(2500)));
        files.push((
            pressure.as_str(),
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=9",
        ));
        let own = memory_of(&files).unwrap().stalled;
        assert_eq!(own, Some(Duration::from_micros(9)), "that of the group");
        files[4].1 = "max";
        assert_eq!(
            memory_of(&files).unwrap().available_bytes,
            20_000 * 1024,
            "no limit"
        );
    }

    #[test]
    fn a_group_of_the_first_version_counts_the_groups_below() {
        let group = "/sys/fs/cgroup/memory/jobs";
        let names = [
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "memory.stat",
        ];
        let names = names.map(|name| format!("{group}/{name}"));
        let memory = memory_of(&[
            MEMINFO,
            ("/proc/self/cgroup", "4:memory:/jobs\n0::/"),
            (
                "/proc/self/mountinfo",
                "31 29 0:27 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory",
            ),
            (names[0].as_str(), "1000000"),
            (names[1].as_str(), "900000"),
            (
                names[2].as_str(),
                "inactive_file 1\nactive_file 1\ntotal_inactive_file 300000\ntotal_active_file 100000",
            ),
        ]);
        assert_eq!(memory.unwrap().available_bytes, 500_000);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(memory().is_some_and(|memory| memory.available_bytes > 1_000_000));
    }
}
