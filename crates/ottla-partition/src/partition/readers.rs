//! Recent readers of a partition and their positions: consumers and followers, by connection.
//!
//! Used by the page cache, which must not drop what they are about to read. It is a hint: a missing
//! entry costs a disk read, an extra one keeps pages that the kernel can reclaim by itself.

use std::sync::{Arc, Weak};

use ottla_sync::Mutex;
use ottla_types::Offset;

use ottla_net::Connection;

/// A reader is forgotten after this time without a read, or when its connection is closed.
const FORGOTTEN_AFTER_MS: u64 = 30_000;
/// Maximum number of readers; beyond it, those that are furthest behind are kept.
const MAX_READERS: usize = 32;

#[derive(Debug, Default)]
pub struct Readers {
    seen: Mutex<Vec<Reader>>,
}

#[derive(Debug)]
struct Reader {
    connection: Weak<Connection>,
    /// The fetch offset of its last read: it has everything before.
    next_offset: Offset,
    seen_ms: u64,
}

impl Readers {
    /// Records a read from `next_offset`. `now_ms` is on the broker's clock.
    pub fn note(&self, connection: &Arc<Connection>, next_offset: Offset, now_ms: u64) {
        let is_known = |known: &&mut Reader| std::ptr::eq(known.connection.as_ptr(), &**connection);
        let mut seen = self.seen.lock();
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
            forget_gone(&mut seen, now_ms);
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
    pub(super) fn slowest(&self, now_ms: u64) -> Option<Offset> {
        let mut seen = self.seen.lock();
        forget_gone(&mut seen, now_ms);
        seen.iter().map(|reader| reader.next_offset).min()
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
        readers.note(&first, Offset(10), 0);
        readers.note(&second, Offset(500), 1_000);
        assert_eq!(readers.slowest(1_000), Some(Offset(10)));
        readers.note(&first, Offset(900), 2_000);
        assert_eq!(readers.slowest(2_000), Some(Offset(500)));
        readers.note(&first, Offset(950), FORGOTTEN_AFTER_MS);
        let second_is_gone = 1_000 + FORGOTTEN_AFTER_MS;
        assert_eq!(readers.slowest(second_is_gone - 1), Some(Offset(500)));
        assert_eq!(readers.slowest(second_is_gone), Some(Offset(950)));
        assert_eq!(readers.slowest(2 * FORGOTTEN_AFTER_MS), None);
    }

    #[test]
    fn who_has_closed_its_connection_is_gone() {
        let readers = Readers::default();
        let (staying, leaving) = (connection(), connection());
        readers.note(&leaving, Offset(0), 0);
        readers.note(&staying, Offset(7), 0);
        assert_eq!(readers.slowest(0), Some(Offset(0)));
        drop(leaving);
        assert_eq!(readers.slowest(0), Some(Offset(7)));
    }

    #[test]
    fn of_many_readers_the_slow_ones_are_remembered() {
        let readers = Readers::default();
        let all: Vec<_> = (0..MAX_READERS + 2).map(|_| connection()).collect();
        for (place, connection) in all.iter().take(MAX_READERS).enumerate() {
            readers.note(connection, Offset(1_000 + place as i64), 0);
        }
        readers.note(&all[MAX_READERS], Offset(5), 0);
        readers.note(&all[MAX_READERS + 1], Offset(9_000), 0);
        assert_eq!(readers.slowest(0), Some(Offset(5)));
        let seen = readers.seen.lock();
        assert_eq!(seen.len(), MAX_READERS);
        let fastest = Offset(1_000 + MAX_READERS as i64 - 1);
        assert!(seen.iter().all(|reader| reader.next_offset < fastest));
    }
}
