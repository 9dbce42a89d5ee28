//! Limits the page cache used by appends, over all partitions of the broker.
//!
//! Written pages are queued, oldest first. When the queue exceeds the limit, the oldest pages leave
//! it: they are dropped from the cache unless a reader is about to need them; then they are left to
//! the kernel, as all pages are without a limit. The queue holds whole pages that no append touches
//! any more and whose writeback has been started. The kernel keeps those that are still dirty when
//! they are dropped. Nothing here tells what is on disk.
//!
//! The reason: on a virtual machine whose host reclaims free or idle memory, the host must provide
//! every page by which the log grows, which costs more than the append itself. Pages that were just
//! dropped are still there. A reader that returns to dropped pages reads from disk, so there is no
//! limit by default; docs/benchmarks.md, "Where the time goes", has both figures.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use ottla_log::WrittenPages;
use ottla_sync::Mutex;
use ottla_types::Offset;

use super::Partition;

/// The pages that appends left in the cache, oldest first.
#[derive(Default)]
pub struct PageCache {
    recent: Mutex<Recent<(Weak<Partition>, WrittenPages)>>,
}

impl PageCache {
    /// Adds pages of a partition and returns those to drop. `max_bytes` is
    /// `ottla.page.cache.max.bytes`; -1 for no limit.
    pub(super) fn add(
        &self,
        partition: &Arc<Partition>,
        pages: WrittenPages,
        max_bytes: i64,
        now_ms: u64,
    ) -> Vec<(Arc<Partition>, WrittenPages)> {
        let Ok(max_bytes) = u64::try_from(max_bytes) else {
            return Vec::new();
        };
        let bytes = pages.bytes();
        let entry = (Arc::downgrade(partition), pages);
        let surplus = self.recent.lock().add(entry, bytes, max_bytes);
        let of_partitions = surplus
            .into_iter()
            .filter_map(|(partition, pages)| Some((partition.upgrade()?, pages)));
        of_partitions
            .filter(|(partition, pages)| {
                is_read_past(pages.end_offset(), partition.readers.slowest(now_ms))
            })
            .collect()
    }
}

impl std::fmt::Debug for PageCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageCache({} bytes)", self.recent.lock().bytes)
    }
}

/// Whether every recently seen reader is at or after `end_offset`.
fn is_read_past(end_offset: Offset, slowest_reader: Option<Offset>) -> bool {
    slowest_reader.is_none_or(|next_offset| next_offset >= end_offset)
}

/// A queue that is limited by the sum of its entries' sizes.
struct Recent<T> {
    entries: VecDeque<(T, u64)>,
    /// The sum of their sizes.
    bytes: u64,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent {
            entries: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl<T> Recent<T> {
    /// Adds an entry and removes the oldest until the rest is within `max_bytes`.
    fn add(&mut self, entry: T, bytes: u64, max_bytes: u64) -> Vec<T> {
        self.entries.push_back((entry, bytes));
        self.bytes += bytes;
        let mut surplus = Vec::new();
        while self.bytes > max_bytes
            && let Some((oldest, bytes)) = self.entries.pop_front()
        {
            self.bytes -= bytes;
            surplus.push(oldest);
        }
        surplus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_leave_when_there_is_too_much() {
        let mut recent = Recent::default();
        assert!(recent.add("a", 4, 10).is_empty());
        assert!(
            recent.add("b", 6, 10).is_empty(),
            "the bound itself is allowed"
        );
        assert_eq!(recent.add("c", 1, 10), ["a"]);
        assert_eq!(recent.add("d", 10, 10), ["b", "c"]);
        assert_eq!(
            recent.add("e", 11, 10),
            ["d", "e"],
            "not even the newest fits"
        );
        assert_eq!(recent.bytes, 0);
        assert!(recent.add("f", 10, 10).is_empty());
        assert_eq!(recent.add("g", 1, 0), ["f", "g"], "the bound was lowered");
    }

    #[test]
    fn what_a_reader_still_needs_stays() {
        let end = Offset(100);
        assert!(is_read_past(end, None));
        assert!(is_read_past(end, Some(Offset(100))));
        assert!(is_read_past(end, Some(Offset(250))));
        assert!(!is_read_past(end, Some(Offset(99))));
        assert!(!is_read_past(end, Some(Offset(0))));
    }
}
