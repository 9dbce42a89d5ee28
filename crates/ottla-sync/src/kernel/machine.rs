//! The resources of this process: the memory of the machine or of its control group, whichever is
//! less, and the processors allowed by its affinity and the group's quota.
//!
//! Both versions of control groups are read, each up to the root of its hierarchy, because limits
//! of parent groups apply too. Missing or unreadable files set no limit.

use std::path::{Path, PathBuf};

/// Memory and processors of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The memory limit, in bytes.
    pub memory_bytes: u64,
    /// Whether the limit is below the machine's memory, because of a control group or a setting.
    pub is_memory_limited: bool,
    /// Number of threads that can run at once.
    pub processors: usize,
}

/// Used if nothing can be read: a small machine.
const UNKNOWN_MEMORY_BYTES: u64 = 1024 * 1024 * 1024;

impl Machine {
    /// The same with at most `memory_bytes`.
    pub fn with_at_most(self, memory_bytes: u64) -> Machine {
        Machine {
            memory_bytes: self.memory_bytes.min(memory_bytes),
            is_memory_limited: self.is_memory_limited || memory_bytes < self.memory_bytes,
            ..self
        }
    }

    /// Reads `/proc` and the control group files.
    pub fn read() -> Machine {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let text = |path: &str| read(Path::new(path)).unwrap_or_default();
        let of_machine = meminfo_bytes("MemTotal");
        let of_group = group_limit(
            &text("/proc/self/cgroup"),
            &text("/proc/self/mountinfo"),
            read,
        );
        // The standard library takes affinity and the quotas of both control group versions into
        // account.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Machine::of(of_machine, of_group, processors)
    }

    fn of(of_machine: Option<u64>, of_group: Option<u64>, processors: usize) -> Machine {
        let of_machine = of_machine.unwrap_or(UNKNOWN_MEMORY_BYTES);
        let limit = of_group.filter(|&limit| limit < of_machine);
        Machine {
            memory_bytes: limit.unwrap_or(of_machine),
            is_memory_limited: limit.is_some(),
            processors,
        }
    }
}

/// Resident anonymous memory of the process (heap and stacks), in bytes.
pub fn anonymous_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages = anonymous_pages(&statm)?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

/// From `/proc/self/statm`: resident minus shared pages.
fn anonymous_pages(statm: &str) -> Option<u64> {
    let mut fields = statm.split_whitespace().skip(1);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let (resident, shared) = (next()?, next()?);
    Some(resident.saturating_sub(shared))
}

/// A number of `/proc/meminfo`, in bytes: `MemTotal`, `MemAvailable`, `SwapTotal`.
pub fn meminfo_bytes(key: &str) -> Option<u64> {
    bytes_of(&std::fs::read_to_string("/proc/meminfo").ok()?, key)
}

pub(super) fn bytes_of(meminfo: &str, key: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let kilobytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The smallest memory limit of the process's groups.
fn group_limit(groups: &str, mounts: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let groups = memory_groups(groups, mounts);
    let limits = groups
        .iter()
        .filter_map(|(version, directory)| version.limit(directory, &read));
    limits.min()
}

/// The visible directories of the process's groups that may limit its memory. The groups of a
/// hierarchy come from the process's own up to the root.
pub(super) fn memory_groups(groups: &str, mounts: &str) -> Vec<(Version, PathBuf)> {
    let hierarchies = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        match (number, controllers) {
            ("0", "") => Some((Version::Two, group)),
            _ if controllers.split(',').any(|it| it == "memory") => Some((Version::One, group)),
            _ => None,
        }
    });
    let directories = hierarchies.flat_map(|(version, group)| {
        let directories = group_directories(mounts, version, group);
        directories
            .into_iter()
            .map(move |directory| (version, directory))
    });
    directories.collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Version {
    One,
    Two,
}

impl Version {
    /// The memory limit of a group, without those above it.
    pub(super) fn limit(
        self,
        directory: &Path,
        read: impl Fn(&Path) -> Option<String>,
    ) -> Option<u64> {
        let files = self.limit_files().iter().map(|file| directory.join(file));
        // "max" does not parse and means no limit.
        let limits = files.filter_map(|file| read(&file)?.trim().parse().ok());
        limits.min()
    }

    fn limit_files(self) -> &'static [&'static str] {
        match self {
            Version::One => &["memory.limit_in_bytes"],
            // Above `memory.high` the kernel throttles the process.
            Version::Two => &["memory.max", "memory.high"],
        }
    }

    /// Whether a mount is the memory controller of this version, by its type and options.
    fn is_of(self, file_system: &str, options: &str) -> bool {
        match self {
            Version::One => file_system == "cgroup" && options.split(',').any(|it| it == "memory"),
            Version::Two => file_system == "cgroup2",
        }
    }
}

/// The visible directories of a group and its parents.
fn group_directories(mounts: &str, version: Version, group: &str) -> Vec<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut of_mount = before.split(' ').skip(3);
        let (root, mount_point) = (of_mount.next()?, of_mount.next()?);
        let mut of_file_system = after.split(' ');
        let (file_system, options) = (of_file_system.next()?, of_file_system.nth(1)?);
        version
            .is_of(file_system, options)
            .then_some((root, mount_point))
    });
    let Some((root, mount_point)) = mount else {
        return Vec::new();
    };
    // In a container, the mount's root may be the container's own group.
    let group = Path::new(group);
    let below = group.strip_prefix(root).unwrap_or(Path::new(""));
    let below = below.strip_prefix("/").unwrap_or(below);
    let ancestors = below.ancestors();
    ancestors
        .map(|ancestor| Path::new(mount_point).join(ancestor))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION_1: &str = "\
        30 29 0:26 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n\
        31 29 0:27 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n";
    const VERSION_2: &str =
        "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn limit(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<u64> {
        group_limit(groups, mounts, |path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| format!("{text}\n"))
        })
    }

    #[test]
    fn the_first_version_has_a_hierarchy_for_memory() {
        let groups = "4:memory:/jobs/kafka\n3:cpu:/other\n0::/\n";
        let files = [
            (
                "/sys/fs/cgroup/memory/jobs/kafka/memory.limit_in_bytes",
                "268435456",
            ),
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712",
            ),
            ("/sys/fs/cgroup/cpu/other/memory.limit_in_bytes", "1"),
        ];
        assert_eq!(limit(groups, VERSION_1, &files), Some(268_435_456));
    }

    #[test]
    fn the_second_version_has_one_hierarchy() {
        let groups = "0::/system.slice/ottla.service\n";
        let own = "/sys/fs/cgroup/system.slice/ottla.service/memory.max";
        let above = "/sys/fs/cgroup/system.slice/memory.max";
        assert_eq!(limit(groups, VERSION_2, &[(own, "max")]), None);
        assert_eq!(
            limit(groups, VERSION_2, &[(own, "max"), (above, "500")]),
            Some(500),
            "that of a group above"
        );
        let high = "/sys/fs/cgroup/system.slice/ottla.service/memory.high";
        assert_eq!(
            limit(groups, VERSION_2, &[(own, "700"), (high, "600")]),
            Some(600)
        );
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        let groups = "4:memory:/docker/0123\n";
        let mounts = "31 29 0:27 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let files = [("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000")];
        assert_eq!(limit(groups, mounts, &files), Some(1000));
    }

    #[test]
    fn nothing_that_can_be_read_is_no_limit() {
        assert_eq!(limit("", "", &[]), None);
        assert_eq!(limit("4:memory:/a\n", "nonsense", &[]), None);
        assert_eq!(limit("nonsense", VERSION_1, &[]), None);
        assert_eq!(
            bytes_of("MemTotal:       24610020 kB\n", "MemTotal"),
            Some(25_200_660_480)
        );
        assert_eq!(bytes_of("MemFree: 1 kB\n", "MemTotal"), None);
    }

    #[test]
    fn unbacked_memory_is_resident_minus_shared() {
        assert_eq!(anonymous_pages("5000 900 300 20 0 700 0\n"), Some(600));
        assert_eq!(anonymous_pages("5000"), None);
        assert!(anonymous_bytes().is_some_and(|bytes| bytes > 100_000));
    }

    #[test]
    fn a_group_limit_counts_only_below_the_machines_memory() {
        let machine = Machine::of(Some(1000), Some(u64::MAX / 2), 3);
        assert_eq!(
            (machine.memory_bytes, machine.is_memory_limited),
            (1000, false)
        );
        let machine = Machine::of(Some(1000), Some(400), 3);
        assert_eq!(
            (machine.memory_bytes, machine.is_memory_limited),
            (400, true)
        );
        assert_eq!(
            Machine::of(None, None, 1).memory_bytes,
            UNKNOWN_MEMORY_BYTES
        );
    }
}
