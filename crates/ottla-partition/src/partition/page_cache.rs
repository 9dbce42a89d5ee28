//! Limits the page cache used by appends, over all partitions of the broker.
//!
//! Written pages are queued, oldest first. When the queue exceeds the limit, the oldest pages leave
//! it: they are dropped from the cache unless a reader is about to need them; then they are left to
//! the kernel, as all pages are without a limit. The queue holds whole pages that no append touches
//! any more and whose writeback has been started. The kernel keeps pages that are still dirty when
//! they are dropped. Nothing here says which pages are on disk.
//!
//! The reason: on a virtual machine whose host reclaims free or idle memory, the host must provide
//! every page by which the log grows, which costs more than the append itself. Pages that were just
//! dropped are still there. A reader that returns to dropped pages reads from disk.
//! docs/benchmarks.md, "Where the time goes", has figures of both. The limit is therefore set, or
//! decided by `policy.rs` from what appends and drops cost, from the available memory, and from what
//! is read again (docs/decisions/0059-page-cache.md).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ottla_log::{StorageError, WrittenPages};
use ottla_metrics::{Metric, Metrics};
use ottla_sync::Mutex;
use ottla_sync::machine::Memory;
use ottla_sync::thread;
use ottla_types::Offset;

use super::Partition;
use super::append_meter::cpu_ns_since;

mod policy;

use policy::{Bound, PHASES, Policy, Sample};

/// `ottla.page.cache.max.bytes`: the policy decides.
pub const AUTOMATIC: i64 = -2;

/// The pages that appends left in the cache, oldest first, and their cost.
#[derive(Default)]
pub struct PageCache {
    recent: Mutex<Recent<(Weak<Partition>, WrittenPages)>>,
    watch: Mutex<Watch>,
    costs: Costs,
    /// As of the last sample.
    needs_costs: AtomicBool,
}

/// Totals since the start.
#[derive(Default)]
struct Costs {
    /// Bytes added to the queue.
    appended_bytes: AtomicU64,
    measured_bytes: AtomicU64,
    measured_cpu_ns: AtomicU64,
    drop_cpu_ns: AtomicU64,
}

/// The policy, and the totals of its last sample.
#[derive(Default)]
struct Watch {
    policy: Policy,
    totals: Totals,
}

#[derive(Clone, Copy, Default)]
struct Totals {
    appended_bytes: u64,
    measured_bytes: u64,
    measured_cpu_ns: u64,
    dropped_bytes: u64,
    drop_cpu_ns: u64,
    reread_bytes: u64,
    stalled_ms: u64,
}

/// The values of the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageCacheState {
    /// Bytes of the queued pages that appends left in the cache.
    pub held_bytes: u64,
    /// Pages beyond these are dropped; `None` without a limit.
    pub limit_bytes: Option<u64>,
    /// The phase of the policy, one of [`PageCacheState::PHASES`]; `None` if a setting decides.
    pub phase: Option<&'static str>,
}

impl PageCacheState {
    pub const PHASES: [&'static str; 4] = PHASES;
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
        let bytes = pages.bytes();
        self.costs
            .appended_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        let (bound, is_automatic) = match u64::try_from(max_bytes) {
            Ok(max_bytes) => (Bound::Drop(max_bytes), false),
            Err(_) if max_bytes == AUTOMATIC => (self.watch.lock().policy.bound(), true),
            Err(_) => return Vec::new(),
        };
        let (Bound::Drop(limit_bytes) | Bound::Remember(limit_bytes)) = bound;
        let entry = (Arc::downgrade(partition), pages);
        let surplus = self.recent.lock().add(entry, bytes, limit_bytes);
        if matches!(bound, Bound::Remember(_)) {
            return Vec::new();
        }
        let of_partitions = surplus
            .into_iter()
            .filter_map(|(partition, pages)| Some((partition.upgrade()?, pages)));
        of_partitions
            .filter(|(partition, pages)| {
                let end_offset = pages.end_offset();
                is_read_past(end_offset, partition.readers.slowest(now_ms))
                    && !(is_automatic && is_in_reach(partition, end_offset, now_ms))
            })
            .collect()
    }

    /// Whether the policy compares what appends cost. Most of the time it does not, and an append
    /// then makes no system call to measure it.
    pub(super) fn needs_costs(&self) -> bool {
        self.needs_costs.load(Ordering::Relaxed)
    }

    /// Counts an append that was measured, on the same thread.
    pub(super) fn count_append(&self, bytes: u64, began: Duration) {
        if let Some(cpu_ns) = cpu_ns_since(began) {
            let costs = &self.costs;
            costs.measured_bytes.fetch_add(bytes, Ordering::Relaxed);
            costs.measured_cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        }
    }

    /// Drops pages, and measures the cost. Blocks.
    pub(super) fn drop_pages(&self, pages: WrittenPages) -> Result<(), StorageError> {
        let began = thread::cpu_time();
        let result = pages.drop_from_cache();
        if let Some(cpu_ns) = began.and_then(cpu_ns_since) {
            self.costs.drop_cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        }
        result
    }

    /// Shows the policy what happened since the last time, unless there were no appends.
    pub(crate) fn sample(&self, memory: &Memory, metrics: &Metrics, now_ms: u64) {
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let stalled = memory.stalled.unwrap_or_default();
        let now = Totals {
            appended_bytes: total(&self.costs.appended_bytes),
            measured_bytes: total(&self.costs.measured_bytes),
            measured_cpu_ns: total(&self.costs.measured_cpu_ns),
            dropped_bytes: metrics.get(Metric::PageCacheDropped),
            drop_cpu_ns: total(&self.costs.drop_cpu_ns),
            reread_bytes: metrics.get(Metric::PageCacheReread),
            stalled_ms: u64::try_from(stalled.as_millis()).unwrap_or(u64::MAX),
        };
        let held_bytes = self.recent.lock().bytes;
        let mut watch = self.watch.lock();
        let before = std::mem::replace(&mut watch.totals, now);
        let phase = watch.policy.phase();
        // A counter can be read before an earlier value of it has arrived from another core.
        watch.policy.on_sample(&Sample {
            now_ms,
            measured_bytes: now.measured_bytes.saturating_sub(before.measured_bytes),
            measured_cpu_ns: now.measured_cpu_ns.saturating_sub(before.measured_cpu_ns),
            appended_bytes: now.appended_bytes.saturating_sub(before.appended_bytes),
            dropped_bytes: now.dropped_bytes.saturating_sub(before.dropped_bytes),
            drop_cpu_ns: now.drop_cpu_ns.saturating_sub(before.drop_cpu_ns),
            reread_bytes: now.reread_bytes.saturating_sub(before.reread_bytes),
            stalled_ms: now.stalled_ms.saturating_sub(before.stalled_ms),
            held_bytes,
            available_bytes: memory.available_bytes,
        });
        let needs_costs = watch.policy.needs_costs();
        self.needs_costs.store(needs_costs, Ordering::Relaxed);
        if watch.policy.phase() != phase {
            let (now, bound) = (watch.policy.phase(), watch.policy.bound());
            tracing::debug!(held_bytes, ?bound, "the page cache is {now}");
        }
    }

    /// Whether there were appends since the last sample.
    pub(crate) fn has_grown(&self) -> bool {
        let appended_bytes = self.costs.appended_bytes.load(Ordering::Relaxed);
        appended_bytes != self.watch.lock().totals.appended_bytes
    }

    /// A setting decides now: the policy starts anew if it is asked again.
    pub(crate) fn forget_policy(&self) {
        self.watch.lock().policy = Policy::default();
        self.needs_costs.store(false, Ordering::Relaxed);
    }

    /// `max_bytes` is `ottla.page.cache.max.bytes`.
    pub fn state(&self, max_bytes: i64) -> PageCacheState {
        let held_bytes = self.recent.lock().bytes;
        let watch = self.watch.lock();
        let (limit_bytes, phase) = match (max_bytes, watch.policy.bound()) {
            (AUTOMATIC, Bound::Drop(limit)) => (Some(limit), Some(watch.policy.phase())),
            (AUTOMATIC, Bound::Remember(_)) => (None, Some(watch.policy.phase())),
            _ => (u64::try_from(max_bytes).ok(), None),
        };
        PageCacheState {
            held_bytes,
            limit_bytes,
            phase,
        }
    }
}

impl std::fmt::Debug for PageCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageCache({} bytes)", self.recent.lock().bytes)
    }
}

/// Whether a recent reader had as much lag as these pages have. The next reader may have it, too.
fn is_in_reach(partition: &Partition, end_offset: Offset, now_ms: u64) -> bool {
    let log_end_offset = partition.reader().log_end_offset();
    let behind = log_end_offset.0 - end_offset.0;
    behind < partition.readers.reach(now_ms)
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

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_policy_decides_unless_a_setting_does() {
        let cache = PageCache::default();
        cache.recent.lock().bytes = 5 * GIB;
        let metrics = Metrics::default();
        // Tasks wait for memory for half of the time.
        for second in 1..=4 {
            let memory = Memory {
                available_bytes: 6 * GIB,
                stalled: Some(Duration::from_millis(500 * second)),
            };
            cache.sample(&memory, &metrics, 1_000 * second);
        }
        let state = |limit_bytes, phase| PageCacheState {
            held_bytes: 5 * GIB,
            limit_bytes,
            phase,
        };
        let relieving = state(Some(2 * GIB), Some("relieving"));
        assert_eq!(cache.state(AUTOMATIC), relieving);
        assert_eq!(cache.state(-1), state(None, None));
        assert_eq!(cache.state(512), state(Some(512), None));
        cache.forget_policy();
        assert_eq!(cache.state(AUTOMATIC), state(None, Some("growing")));
    }

    #[test]
    fn appends_are_measured_only_while_their_costs_are_compared() {
        let cache = PageCache::default();
        cache.recent.lock().bytes = 5 * GIB;
        let metrics = Metrics::default();
        let memory = Memory {
            available_bytes: 6 * GIB,
            stalled: None,
        };
        for second in 1..=2 {
            assert!(!cache.needs_costs());
            cache.costs.appended_bytes.fetch_add(GIB, Ordering::Relaxed);
            cache.sample(&memory, &metrics, 1_000 * second);
        }
        assert_eq!(cache.state(AUTOMATIC).phase, Some("trying"));
        assert!(cache.needs_costs());
        cache.forget_policy();
        assert!(!cache.needs_costs());
    }

    #[test]
    fn the_oldest_pages_leave_above_the_limit() {
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
    fn pages_that_a_reader_needs_stay() {
        let end = Offset(100);
        assert!(is_read_past(end, None));
        assert!(is_read_past(end, Some(Offset(100))));
        assert!(is_read_past(end, Some(Offset(250))));
        assert!(!is_read_past(end, Some(Offset(99))));
        assert!(!is_read_past(end, Some(Offset(0))));
    }
}
