//! Recent readers of a partition and their positions: consumers and followers, by connection. Also
//! how far behind the log end the partition was read lately, by anyone.
//!
//! Used by the page cache, which must not drop pages that they are about to read. It is a hint: a
//! missing entry costs a disk read, an extra one keeps pages that the kernel can reclaim by itself.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use ottla_sync::Mutex;
use ottla_types::Offset;

use ottla_net::Connection;

/// A reader is forgotten after this time without a read, or when its connection is closed.
const FORGOTTEN_AFTER_MS: u64 = 30_000;
/// Maximum number of readers; beyond it, the readers with the largest lag are kept.
const MAX_READERS: usize = 32;

/// A distance is remembered for one to two of these.
const REACH_MS: u64 = 300_000;

#[derive(Debug, Default)]
pub struct Readers {
    /// `None` before the first read: most partitions are idle.
    reads: Mutex<Option<Box<Reads>>>,
    /// Pages with records below this offset were dropped from the page cache.
    dropped_below: AtomicI64,
}

#[derive(Debug, Default)]
struct Reads {
    seen: Vec<Reader>,
    reach: Reach,
}

/// The largest distance from the log end at which the partition was read, in records.
#[derive(Debug, Default)]
struct Reach {
    /// In the running period, and in the one before.
    current: i64,
    previous: i64,
    began_ms: u64,
}

#[derive(Debug)]
struct Reader {
    connection: Weak<Connection>,
    /// The fetch offset of its last read: it has everything before.
    next_offset: Offset,
    seen_ms: u64,
}

impl Readers {
    /// Records a read from `next_offset`, `behind` records before the log end. `now_ms` is on the
    /// broker's clock.
    pub fn note(
        &self,
        connection: &Arc<Connection>,
        next_offset: Offset,
        behind: i64,
        now_ms: u64,
    ) {
        let is_known = |known: &&mut Reader| std::ptr::eq(known.connection.as_ptr(), &**connection);
        let mut reads = self.reads.lock();
        let Reads { seen, reach } = &mut **reads.get_or_insert_default();
        // Most reads are at the log end.
        if behind > 0 {
            reach.note(behind, now_ms);
        }
        if let Some(known) = seen.iter_mut().find(is_known) {
            known.next_offset = next_offset;
            known.seen_ms = now_ms;
            return;
        }
        let reader = Reader {
            connection: Arc::downgrade(connection),
            next_offset,
            seen_ms: now_ms,
        };
        if seen.len() == MAX_READERS {
            forget_gone(seen, now_ms);
        }
        if seen.len() < MAX_READERS {
            seen.push(reader);
        } else if let Some(fastest) = seen.iter_mut().max_by_key(|reader| reader.next_offset)
            && fastest.next_offset > next_offset
        {
            *fastest = reader;
        }
    }

    /// The position of the reader that is furthest behind; `None` without recent readers.
    pub fn slowest(&self, now_ms: u64) -> Option<Offset> {
        let mut reads = self.reads.lock();
        let seen = &mut reads.as_mut()?.seen;
        forget_gone(seen, now_ms);
        seen.iter().map(|reader| reader.next_offset).min()
    }

    /// The largest distance from the log end at which the partition was read lately, in records.
    pub(super) fn reach(&self, now_ms: u64) -> i64 {
        let mut reads = self.reads.lock();
        let Some(Reads { reach, .. }) = reads.as_deref_mut() else {
            return 0;
        };
        reach.note(0, now_ms);
        reach.current.max(reach.previous)
    }

    /// Pages whose records are below `end_offset` were dropped.
    pub fn note_dropped(&self, end_offset: Offset) {
        self.dropped_below.fetch_max(end_offset.0, Ordering::AcqRel);
    }

    /// Records from this offset on are written anew, to pages that were not dropped.
    pub(super) fn note_truncated(&self, log_end_offset: Offset) {
        self.dropped_below
            .fetch_min(log_end_offset.0, Ordering::AcqRel);
    }

    /// Whether pages were dropped that a read from this offset needs.
    pub fn needs_dropped(&self, next_offset: Offset) -> bool {
        next_offset.0 < self.dropped_below.load(Ordering::Relaxed)
    }
}

impl Reach {
    fn note(&mut self, behind: i64, now_ms: u64) {
        let periods = now_ms.saturating_sub(self.began_ms) / REACH_MS;
        if periods > 0 {
            self.previous = if periods == 1 { self.current } else { 0 };
            self.current = 0;
            self.began_ms += periods * REACH_MS;
        }
        self.current = self.current.max(behind);
    }
}

fn forget_gone(seen: &mut Vec<Reader>, now_ms: u64) {
    seen.retain(|reader| {
        reader.connection.strong_count() > 0
            && now_ms.saturating_sub(reader.seen_ms) < FORGOTTEN_AFTER_MS
    });
}

#[cfg(test)]
mod tests {
    use ottla_config::SecurityProtocol;

    use super::*;
    use ottla_net::ListenerInfo;

    fn connection() -> Arc<Connection> {
        let listener = ListenerInfo {
            name: "PLAINTEXT".into(),
            protocol: SecurityProtocol::Plaintext,
            local_addr: "127.0.0.1:9092".parse().unwrap(),
            is_controller: false,
        };
        let peer = "127.0.0.1:40000".parse().unwrap();
        Arc::new(Connection::new(1, Arc::new(listener), peer, 0))
    }

    #[test]
    fn the_slowest_counts_until_it_is_silent() {
        let readers = Readers::default();
        let (first, second) = (connection(), connection());
        assert_eq!(readers.slowest(0), None);
        readers.note(&first, Offset(10), 0, 0);
        readers.note(&second, Offset(500), 0, 1_000);
        assert_eq!(readers.slowest(1_000), Some(Offset(10)));
        readers.note(&first, Offset(900), 0, 2_000);
        assert_eq!(readers.slowest(2_000), Some(Offset(500)));
        readers.note(&first, Offset(950), 0, FORGOTTEN_AFTER_MS);
        let second_is_gone = 1_000 + FORGOTTEN_AFTER_MS;
        assert_eq!(readers.slowest(second_is_gone - 1), Some(Offset(500)));
        assert_eq!(readers.slowest(second_is_gone), Some(Offset(950)));
        assert_eq!(readers.slowest(2 * FORGOTTEN_AFTER_MS), None);
    }

    #[test]
    fn the_largest_distance_is_remembered_for_a_while() {
        let readers = Readers::default();
        let follower = connection();
        assert_eq!(readers.reach(0), 0);
        readers.note(&follower, Offset(100), 900, 1_000);
        readers.note(&follower, Offset(990), 10, 2_000);
        assert_eq!(readers.reach(2_000), 900);
        readers.note(&follower, Offset(1_990), 20, REACH_MS + 1_000);
        assert_eq!(readers.reach(2 * REACH_MS - 1), 900);
        assert_eq!(readers.reach(2 * REACH_MS), 20);
        assert_eq!(readers.reach(9 * REACH_MS), 0);
    }

    #[test]
    fn a_read_from_below_the_dropped_pages_needs_them() {
        let readers = Readers::default();
        assert!(!readers.needs_dropped(Offset(0)));
        readers.note_dropped(Offset(50));
        // Another thread was faster with later pages.
        readers.note_dropped(Offset(40));
        assert!(readers.needs_dropped(Offset(49)));
        assert!(!readers.needs_dropped(Offset(50)));
    }

    #[test]
    fn a_reader_is_removed_with_its_connection() {
        let readers = Readers::default();
        let (staying, leaving) = (connection(), connection());
        readers.note(&leaving, Offset(0), 0, 0);
        readers.note(&staying, Offset(7), 0, 0);
        assert_eq!(readers.slowest(0), Some(Offset(0)));
        drop(leaving);
        assert_eq!(readers.slowest(0), Some(Offset(7)));
    }

    #[test]
    fn of_many_readers_the_slow_ones_are_remembered() {
        let readers = Readers::default();
        let all: Vec<_> = (0..MAX_READERS + 2).map(|_| connection()).collect();
        for (place, connection) in all.iter().take(MAX_READERS).enumerate() {
            readers.note(connection, Offset(1_000 + place as i64), 0, 0);
        }
        readers.note(&all[MAX_READERS], Offset(5), 0, 0);
        readers.note(&all[MAX_READERS + 1], Offset(9_000), 0, 0);
        assert_eq!(readers.slowest(0), Some(Offset(5)));
        let reads = readers.reads.lock();
        let seen = &reads.as_ref().expect("there were reads").seen;
        assert_eq!(seen.len(), MAX_READERS);
        let fastest = Offset(1_000 + MAX_READERS as i64 - 1);
        assert!(seen.iter().all(|reader| reader.next_offset < fastest));
    }
}
