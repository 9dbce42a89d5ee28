//! Lookups in the index files of a remote segment, given as bytes.
//!
//! Kafka: `OffsetIndex`, `TimeIndex`, `TransactionIndex`, `RemoteIndexCache`.

use ottla_types::{Offset, ProducerId, Timestamp};

/// The offset index of a segment: eight bytes an entry, the offset relative to the segment's start
/// and the position in its log file. Bytes after the last whole entry are ignored.
#[derive(Clone, Copy, Debug)]
pub struct OffsetIndex<'a> {
    base_offset: Offset,
    entries: &'a [u8],
}

const OFFSET_ENTRY: usize = 8;
const TIME_ENTRY: usize = 12;
const ABORTED_ENTRY: usize = 34;

fn be_i32(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn be_i64(bytes: &[u8]) -> i64 {
    i64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// How many entries from the first are `is_before`; the entries are sorted.
fn count_while(entries: &[u8], size: usize, is_before: impl Fn(&[u8]) -> bool) -> usize {
    let (mut low, mut high) = (0, entries.len() / size);
    while low < high {
        let middle = (low + high) / 2;
        if is_before(&entries[middle * size..(middle + 1) * size]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl<'a> OffsetIndex<'a> {
    pub fn new(base_offset: Offset, entries: &'a [u8]) -> OffsetIndex<'a> {
        OffsetIndex {
            base_offset,
            entries,
        }
    }

    fn entry(&self, index: usize) -> (Offset, u32) {
        let entry = &self.entries[index * OFFSET_ENTRY..];
        let relative = i64::from(be_i32(entry));
        (self.base_offset.plus(relative), be_i32(&entry[4..]) as u32)
    }

    /// The position in the log file from which to search for `offset`.
    pub fn position(&self, offset: Offset) -> u32 {
        let relative = offset.0.saturating_sub(self.base_offset.0);
        let after = count_while(self.entries, OFFSET_ENTRY, |entry| {
            i64::from(be_i32(entry)) <= relative
        });
        after.checked_sub(1).map_or(0, |index| self.entry(index).1)
    }

    /// An offset that is after all records in the `size` bytes from `position`, if the index has
    /// one; otherwise the end of the segment is.
    pub fn upper_bound(&self, position: u32, size: u32) -> Option<Offset> {
        let end = u64::from(position) + u64::from(size);
        let before = count_while(self.entries, OFFSET_ENTRY, |entry| {
            u64::from(be_i32(&entry[4..]) as u32) < end
        });
        (before < self.entries.len() / OFFSET_ENTRY).then(|| self.entry(before).0)
    }
}

/// The time index of a segment: twelve bytes an entry, a timestamp and the relative offset up to
/// which no record is newer.
#[derive(Clone, Copy, Debug)]
pub struct TimeIndex<'a> {
    base_offset: Offset,
    entries: &'a [u8],
}

impl<'a> TimeIndex<'a> {
    pub fn new(base_offset: Offset, entries: &'a [u8]) -> TimeIndex<'a> {
        TimeIndex {
            base_offset,
            entries,
        }
    }

    /// An offset before which no record has the timestamp or a newer one.
    pub fn offset(&self, timestamp: Timestamp) -> Offset {
        let after = count_while(self.entries, TIME_ENTRY, |entry| {
            be_i64(entry) <= timestamp.0
        });
        match after.checked_sub(1) {
            Some(index) => {
                let relative = be_i32(&self.entries[index * TIME_ENTRY + 8..]);
                self.base_offset.plus(i64::from(relative))
            }
            None => self.base_offset,
        }
    }
}

/// A transaction that was aborted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AbortedTransaction {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
    /// Inclusive.
    pub last_offset: Offset,
    /// The last stable offset when it was aborted.
    pub last_stable_offset: Offset,
}

/// The aborted transactions of a transaction index that have records between `from` and
/// `upper_bound` (exclusive), and whether later segments can have no others.
pub fn collect_aborted(
    index: &[u8],
    from: Offset,
    upper_bound: Offset,
) -> (Vec<AbortedTransaction>, bool) {
    let mut aborted = Vec::new();
    for entry in index.chunks_exact(ABORTED_ENTRY) {
        let transaction = AbortedTransaction {
            producer_id: ProducerId(be_i64(&entry[2..])),
            first_offset: Offset(be_i64(&entry[10..])),
            last_offset: Offset(be_i64(&entry[18..])),
            last_stable_offset: Offset(be_i64(&entry[26..])),
        };
        if transaction.last_offset >= from && transaction.first_offset < upper_bound {
            aborted.push(transaction);
        }
        if transaction.last_stable_offset >= upper_bound {
            return (aborted, true);
        }
    }
    (aborted, false)
}

#[cfg(test)]
mod tests {
    use ottla_types::{Offset, ProducerId, Timestamp};

    use super::{AbortedTransaction, OffsetIndex, TimeIndex, collect_aborted};

    #[test]
    fn positions_of_offsets() {
        let entries: Vec<u8> = [(10, 1000), (20, 2000), (30, 3000)]
            .iter()
            .flat_map(|&(offset, position): &(i32, i32)| {
                [offset.to_be_bytes(), position.to_be_bytes()].concat()
            })
            .collect();
        let index = OffsetIndex::new(Offset(100), &entries);
        let positions = [99, 109, 110, 125, 131].map(|offset| index.position(Offset(offset)));
        assert_eq!(positions, [0, 0, 1000, 2000, 3000]);
        assert_eq!(index.upper_bound(0, 1000), Some(Offset(110)));
        assert_eq!(index.upper_bound(0, 1001), Some(Offset(120)));
        assert_eq!(index.upper_bound(2000, 1000), Some(Offset(130)));
        assert_eq!(index.upper_bound(2000, 1001), None);
        let empty = OffsetIndex::new(Offset(100), &entries[..5]);
        assert_eq!(
            (empty.position(Offset(500)), empty.upper_bound(0, 1)),
            (0, None)
        );
    }

    #[test]
    fn offsets_of_timestamps() {
        let mut entries = Vec::new();
        for (timestamp, offset) in [(500i64, 10i32), (700, 20)] {
            entries.extend(timestamp.to_be_bytes());
            entries.extend(offset.to_be_bytes());
        }
        let index = TimeIndex::new(Offset(100), &entries);
        let offsets = [499, 500, 699, 900].map(|at| index.offset(Timestamp(at)));
        assert_eq!(offsets, [100, 110, 110, 120].map(Offset));
    }

    #[test]
    fn aborted_transactions_up_to_the_bound() {
        let mut index = Vec::new();
        for (producer, first, last, stable) in [(1, 0, 9, 5), (2, 8, 20, 15), (3, 22, 30, 40)] {
            index.extend(0i16.to_be_bytes());
            for number in [producer, first, last, stable] {
                index.extend(i64::to_be_bytes(number));
            }
        }
        let collect = |from, to| {
            let (aborted, is_complete) = collect_aborted(&index, Offset(from), Offset(to));
            let ids: Vec<i64> = aborted.iter().map(|it| it.producer_id.0).collect();
            (ids, is_complete)
        };
        assert_eq!(collect(10, 15), (vec![2], true));
        assert_eq!(collect(9, 41), (vec![1, 2, 3], false));
        assert_eq!(collect(21, 22), (vec![], true));
        let (aborted, _) = collect_aborted(&index, Offset(25), Offset(100));
        let third = AbortedTransaction {
            producer_id: ProducerId(3),
            first_offset: Offset(22),
            last_offset: Offset(30),
            last_stable_offset: Offset(40),
        };
        assert_eq!(aborted, [third]);
    }
}
