//! The space left for appends in a log directory: the free space of its file system minus the
//! reserve (`ottla.disk.reserve.bytes`).
//!
//! The free space is queried every second, and appends are subtracted in between, so that records
//! do not use the reserve, or at most half of it if they make space in the end. Other writes to the
//! directory (metadata log, checkpoints, snapshots, indexes) are not limited and may use it: a node
//! on a full disk can delete records, answer administrators, stop and start. See
//! `docs/decisions/0010-disk-reserve.md`.

use ottla_sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// The reserve is at most this fraction of a file system, so that a small one remains usable.
const MAX_SHARE: i64 = 8;

/// The space left in one log directory.
#[derive(Debug)]
pub struct DiskSpace {
    /// Bytes; negative if the reserve is in use.
    left: AtomicI64,
    /// Bytes.
    reserve: AtomicI64,
    is_short: AtomicBool,
}

impl Default for DiskSpace {
    /// Nothing is refused before the first query.
    fn default() -> DiskSpace {
        DiskSpace {
            left: AtomicI64::new(i64::MAX),
            reserve: AtomicI64::new(0),
            is_short: AtomicBool::new(false),
        }
    }
}

impl DiskSpace {
    /// Whether `bytes` may be appended; if so, they are subtracted.
    pub fn take(&self, bytes: u64) -> bool {
        self.take_beyond(0, bytes)
    }

    /// As [`DiskSpace::take`], for records without which no space is freed: they may use half of the
    /// reserve.
    pub fn take_from_reserve(&self, bytes: u64) -> bool {
        self.take_beyond(self.reserve.load(Ordering::Relaxed) / 2, bytes)
    }

    /// Takes bytes if they use no more than `allowed` of the reserve.
    fn take_beyond(&self, allowed: i64, bytes: u64) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let may_take = |left: i64| left.saturating_add(allowed) >= bytes;
        if !may_take(self.left.load(Ordering::Relaxed)) {
            return false;
        }
        // Concurrent appends may use a little more of the reserve.
        may_take(self.left.fetch_sub(bytes, Ordering::Relaxed))
    }

    /// Whether any append is allowed.
    pub fn is_open(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Sets the file system's values. Returns whether the directory has become short of space or
    /// has enough again.
    pub(super) fn on_look(&self, usable: i64, total: i64, reserve: i64) -> Option<bool> {
        let reserve = reserve.min(total / MAX_SHARE);
        self.reserve.store(reserve, Ordering::Relaxed);
        self.left.store(usable - reserve, Ordering::Relaxed);
        let is_short = usable <= reserve;
        (self.is_short.swap(is_short, Ordering::Relaxed) != is_short).then_some(is_short)
    }
}

#[cfg(test)]
mod tests {
    use super::DiskSpace;

    const MIB: i64 = 1 << 20;

    #[test]
    fn appends_stop_at_the_reserve_and_resume_when_space_is_freed() {
        let space = DiskSpace::default();
        assert!(space.take(u64::MAX), "nothing is known yet");
        assert_eq!(space.on_look(10 * MIB, 1000 * MIB, 9 * MIB), None);
        assert!(space.take(MIB as u64 - 1));
        assert!(!space.take(2), "two bytes would reach into the reserve");
        assert!(space.take(1));
        assert!(!space.is_open());
        assert_eq!(space.on_look(9 * MIB, 1000 * MIB, 9 * MIB), Some(true));
        assert_eq!(space.on_look(8 * MIB, 1000 * MIB, 9 * MIB), None);
        assert!(!space.take(1));
        assert_eq!(space.on_look(20 * MIB, 1000 * MIB, 9 * MIB), Some(false));
        assert!(space.take(1));
    }

    #[test]
    fn what_makes_space_may_use_half_of_the_reserve() {
        let space = DiskSpace::default();
        assert!(space.take_from_reserve(u64::MAX), "nothing is known yet");
        space.on_look(9 * MIB, 1000 * MIB, 8 * MIB);
        assert!(!space.take(2 * MIB as u64));
        assert!(space.take_from_reserve(2 * MIB as u64));
        assert!(!space.take(1));
        assert!(!space.take_from_reserve(3 * MIB as u64 + 1));
        assert!(space.take_from_reserve(3 * MIB as u64));
        assert!(!space.take_from_reserve(1));
        space.on_look(4 * MIB, 1000 * MIB, 8 * MIB);
        assert!(!space.take_from_reserve(1), "others have used the reserve");
    }

    #[test]
    fn the_reserve_is_small_on_a_small_file_system() {
        let space = DiskSpace::default();
        space.on_look(16 * MIB, 16 * MIB, 32 * MIB);
        assert!(space.take(14 * MIB as u64));
        assert!(!space.take(1));
    }
}
