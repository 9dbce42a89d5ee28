//! Bounds the page cache that appends leave behind, over all partitions of the broker.
//!
//! What appends have written stands in a queue, oldest first. When more than the bound is in it, the oldest
//! pages leave: they are dropped from the cache unless somebody is about to read them, and then they are
//! the kernel's to decide on, as all pages are where there is no bound. The queue holds whole pages that no
//! append touches any more and whose writeback was started when they entered it; those that are not on disk
//! when they leave it, the kernel keeps. Nothing here says what is on disk.
//!
//! Why at all: on a virtual machine whose host takes back memory that is free or idle, every page that the
//! log grows by is one that the host has to give again, which costs more than the append itself. Pages that
//! were dropped a moment ago are still there. Who comes back for what was dropped reads it from the disk, so
//! there is no bound unless somebody asks for one; docs/benchmarks.md, "Where the time goes", has both figures.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use ottla_log::WrittenPages;
use ottla_sync::Mutex;
use ottla_types::Offset;

use super::Partition;

/// The pages that appends have left in the cache, oldest first.
#[derive(Default)]
pub struct PageCache {
    recent: Mutex<Recent<(Weak<Partition>, WrittenPages)>>,
}

impl PageCache {
    /// Notes pages of a partition, and returns those that are to be dropped for them. `max_bytes` is
    /// `ottla.page.cache.max.bytes`: -1 for no bound.
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

/// Whether nobody who was seen lately still has to read something below `end_offset`.
fn is_read_past(end_offset: Offset, slowest_reader: Option<Offset>) -> bool {
    slowest_reader.is_none_or(|next_offset| next_offset >= end_offset)
}

/// A queue that is bounded by the sizes of its entries.
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
    /// Adds an entry and takes out the oldest ones, until the rest is within `max_bytes`.
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
