//! `.txnindex`: the aborted transactions that ended in a segment, in the order of their markers.
//!
//! The file exists only if there is an entry. An entry is a version (i16, 0), the producer ID, the
//! first and last offset of the transaction, and the last stable offset when it ended (i64 each).
//! Kafka: `TransactionIndex`, `AbortedTxn`.

use std::cmp::Ordering;
use std::io;

use ottla_types::{Offset, ProducerId};

use super::entries::{Entries, OpenFile};
use crate::disk_read::DiskWait;

pub(crate) struct TransactionIndex {
    entries: Entries<{ AbortedTxn::SIZE }>,
}

/// A transaction that ended with an abort marker at `last_offset`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbortedTxn {
    pub producer_id: ProducerId,
    /// The first record of the transaction in this partition.
    pub first_offset: Offset,
    /// The marker.
    pub last_offset: Offset,
    /// The last stable offset after the marker. A search for transactions aborted below an offset
    /// may stop at the first entry whose last stable offset reaches it.
    pub last_stable_offset: Offset,
}

impl AbortedTxn {
    pub(crate) const SIZE: usize = 34;
    const VERSION: i16 = 0;

    pub(crate) fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..2].copy_from_slice(&Self::VERSION.to_be_bytes());
        bytes[2..10].copy_from_slice(&self.producer_id.0.to_be_bytes());
        bytes[10..18].copy_from_slice(&self.first_offset.0.to_be_bytes());
        bytes[18..26].copy_from_slice(&self.last_offset.0.to_be_bytes());
        bytes[26..].copy_from_slice(&self.last_stable_offset.0.to_be_bytes());
        bytes
    }

    /// The offset of the marker of an entry, by which a search finds its place.
    fn last_offset_in(bytes: &[u8; Self::SIZE]) -> Offset {
        Offset(i64::from_be_bytes(
            bytes[18..26].try_into().expect("8 bytes"),
        ))
    }

    /// The entry, or `None` for an unknown newer version.
    pub(crate) fn from_bytes(bytes: &[u8; Self::SIZE]) -> Option<AbortedTxn> {
        let long = |at: usize| i64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let version = i16::from_be_bytes([bytes[0], bytes[1]]);
        (version <= Self::VERSION).then(|| AbortedTxn {
            producer_id: ProducerId(long(2)),
            first_offset: Offset(long(10)),
            last_offset: Offset(long(18)),
            last_stable_offset: Offset(long(26)),
        })
    }
}

/// Result of [`TransactionIndex::collect`].
pub(crate) struct Collected {
    pub(crate) aborted: Vec<AbortedTxn>,
    /// Whether no later segment can hold more.
    pub(crate) is_complete: bool,
}

impl TransactionIndex {
    pub(crate) fn new(in_file: u32) -> Self {
        Self {
            entries: Entries::new(in_file),
        }
    }

    pub(crate) fn entries(&self) -> &Entries<{ AbortedTxn::SIZE }> {
        &self.entries
    }

    pub(crate) fn append(&self, aborted: AbortedTxn) {
        self.entries.push(aborted.to_bytes());
    }

    /// The aborted transactions with records in `[from, upper_bound)`. Reads only these entries, and
    /// finds the first by a binary search: offsets of markers strictly grow, and last stable offsets
    /// never fall.
    pub(crate) fn collect(
        &self,
        from: Offset,
        upper_bound: Offset,
        open: impl OpenFile + Copy,
    ) -> io::Result<Collected> {
        let mut aborted = Vec::new();
        let mut next = self.count_below(from, open)?;
        loop {
            let block = self.entries.block(next, open)?;
            if block.is_empty() {
                return Ok(Collected {
                    aborted,
                    is_complete: false,
                });
            }
            next += block.len() as u32;
            for entry in &block {
                let txn = parse(entry)?;
                if txn.first_offset < upper_bound {
                    aborted.push(txn);
                }
                if txn.last_stable_offset >= upper_bound {
                    return Ok(Collected {
                        aborted,
                        is_complete: true,
                    });
                }
            }
        }
    }

    /// The number of transactions whose markers lie below `offset`.
    fn count_below(&self, offset: Offset, open: impl OpenFile) -> io::Result<u32> {
        let order = |entry: &_| match AbortedTxn::last_offset_in(entry) < offset {
            true => Ordering::Less,
            false => Ordering::Greater,
        };
        let last = self.entries.floor(order, open, DiskWait::Allowed)?;
        Ok(last.map_or(0, |(number, _)| number + 1))
    }

    pub(crate) fn all(&self, open: impl OpenFile) -> io::Result<Vec<AbortedTxn>> {
        if self.entries.len() == 0 {
            return Ok(Vec::new());
        }
        let entries = self.entries.all(open)?;
        entries.iter().map(parse).collect()
    }
}

fn parse(entry: &[u8; AbortedTxn::SIZE]) -> io::Result<AbortedTxn> {
    AbortedTxn::from_bytes(entry).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the transaction index holds an entry of a newer version",
        )
    })
}

#[cfg(test)]
mod tests {
    use ottla_types::{Offset, ProducerId};

    use super::{AbortedTxn, TransactionIndex};

    fn txn(first: i64, last: i64, stable: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id: ProducerId(7),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(stable),
        }
    }

    #[test]
    fn entries_are_kafkas_bytes() {
        let bytes = txn(0x0102, 0x0304, 0x0506).to_bytes();
        let expected = [
            [0, 0].as_slice(),
            &[0, 0, 0, 0, 0, 0, 0, 7],
            &[0, 0, 0, 0, 0, 0, 1, 2],
            &[0, 0, 0, 0, 0, 0, 3, 4],
            &[0, 0, 0, 0, 0, 0, 5, 6],
        ]
        .concat();
        assert_eq!(bytes.as_slice(), expected);
        assert_eq!(
            AbortedTxn::from_bytes(&bytes),
            Some(txn(0x0102, 0x0304, 0x0506))
        );
    }

    #[test]
    fn collecting_stops_at_the_last_stable_offset() {
        let index = TransactionIndex::new(0);
        let open = || -> std::io::Result<ottla_sync::fs::File> {
            unreachable!("all entries are in memory")
        };
        for entry in [txn(0, 10, 11), txn(5, 20, 12), txn(30, 40, 41)] {
            index.append(entry);
        }
        let collect = |from, to| {
            let found = index.collect(Offset(from), Offset(to), open).unwrap();
            let firsts: Vec<i64> = found.aborted.iter().map(|txn| txn.first_offset.0).collect();
            (firsts, found.is_complete)
        };
        assert_eq!(collect(0, 5), (vec![0], true));
        assert_eq!(collect(11, 12), (vec![5], true));
        assert_eq!(collect(0, 31), (vec![0, 5, 30], true));
        assert_eq!(collect(21, 50), (vec![30], false));
    }

    /// Against the definition: an entry is listed if it overlaps the range, and the list ends where
    /// the last stable offset reaches its end.
    #[test]
    fn a_search_equals_a_read_of_the_whole_index() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || {
            let file = file.path();
            ottla_sync::fs::File::options()
                .read(true)
                .write(true)
                .open(file)
        };
        let index = TransactionIndex::new(0);
        // Ten at a time end while an older transaction is open, which then ends too.
        let stable = |n: i64| match n % 10 {
            9 => n * 10 + 8,
            place => (n - place) * 10,
        };
        let entries: Vec<AbortedTxn> = (0..2_000)
            .map(|n| txn(n * 10, n * 10 + 7, stable(n)))
            .collect();
        for (number, entry) in entries.iter().enumerate() {
            index.append(*entry);
            if number == 1_499 {
                index.entries().write_tail(open).unwrap();
            }
        }
        for from in (0..20_100).step_by(97) {
            for length in [1, 60, 3_000] {
                let (from, end) = (Offset(from), Offset(from + length));
                let found = index.collect(from, end, open).unwrap();
                let last = entries.iter().position(|it| it.last_stable_offset >= end);
                let read = &entries[..last.map_or(entries.len(), |last| last + 1)];
                let overlapping = read
                    .iter()
                    .filter(|it| it.last_offset >= from && it.first_offset < end);
                let overlapping: Vec<AbortedTxn> = overlapping.copied().collect();
                assert_eq!(found.aborted, overlapping, "{from}, {end}");
                assert_eq!(found.is_complete, last.is_some(), "{from}, {end}");
            }
        }
    }
}
