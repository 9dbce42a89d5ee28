//! `.txnindex`: the aborted transactions that ended in a segment, in the order of their markers.
//!
//! The file exists only if there is an entry. An entry is a version (i16, 0), the producer ID, the
//! first and last offset of the transaction, and the last stable offset when it ended (i64 each).
//! Kafka: `TransactionIndex`, `AbortedTxn`.

use std::io;

use ottla_types::{Offset, ProducerId};

use super::entries::{Entries, OpenFile};

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

    /// The aborted transactions with records in `[from, upper_bound)`.
    pub(crate) fn collect(
        &self,
        from: Offset,
        upper_bound: Offset,
        open: impl OpenFile,
    ) -> io::Result<Collected> {
        let mut aborted = Vec::new();
        for txn in self.all(open)? {
            if txn.last_offset >= from && txn.first_offset < upper_bound {
                aborted.push(txn);
            }
            if txn.last_stable_offset >= upper_bound {
                return Ok(Collected {
                    aborted,
                    is_complete: true,
                });
            }
        }
        Ok(Collected {
            aborted,
            is_complete: false,
        })
    }

    pub(crate) fn all(&self, open: impl OpenFile) -> io::Result<Vec<AbortedTxn>> {
        if self.entries.len() == 0 {
            return Ok(Vec::new());
        }
        let entries = self.entries.all(open)?;
        entries
            .iter()
            .map(|entry| {
                AbortedTxn::from_bytes(entry).ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the transaction index holds an entry of a newer version",
                    )
                })
            })
            .collect()
    }
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
    fn collecting_stops_where_the_last_stable_offset_says_so() {
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
}
