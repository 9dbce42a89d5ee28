//! `.timeindex`: from a timestamp to an offset up to which no record is newer.
//!
//! An entry is the largest timestamp of the segment so far (i64) and the last offset, relative to
//! the segment's base (u32), of the batch that has it. Both grow. The last entry of a sealed
//! segment is its largest timestamp. Kafka: `TimeIndex`.

use std::io;

use ottla_types::{Offset, Timestamp};

use super::entries::{Entries, OpenFile};
use crate::disk_read::DiskWait;

pub(crate) struct TimeIndex {
    base_offset: Offset,
    entries: Entries<{ TimeIndex::ENTRY_SIZE }>,
    last: ottla_sync::Mutex<Option<TimestampOffset>>,
}

/// A timestamp and the offset of its batch or record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimestampOffset {
    pub timestamp: Timestamp,
    pub offset: Offset,
}

impl TimeIndex {
    pub(crate) const ENTRY_SIZE: usize = 12;

    /// The index of a file with `in_file` entries, the last of which is `last`.
    pub(crate) fn new(base_offset: Offset, in_file: u32, last: Option<TimestampOffset>) -> Self {
        Self {
            base_offset,
            entries: Entries::new(in_file),
            last: ottla_sync::Mutex::new(last),
        }
    }

    pub(crate) fn entries(&self) -> &Entries<{ TimeIndex::ENTRY_SIZE }> {
        &self.entries
    }

    /// Adds an entry if its timestamp is larger than the last: timestamps in the index strictly
    /// grow.
    pub(crate) fn append_if_younger(&self, entry: TimestampOffset) {
        let mut last = self.last.lock();
        let last_timestamp = last.map_or(Timestamp::NONE, |last| last.timestamp);
        if entry.timestamp <= last_timestamp {
            return;
        }
        let relative = u32::try_from(entry.offset.since(self.base_offset));
        let relative = relative.expect("the segment rolls before offsets overflow its index");
        let mut bytes = [0; Self::ENTRY_SIZE];
        bytes[..8].copy_from_slice(&entry.timestamp.0.to_be_bytes());
        bytes[8..].copy_from_slice(&relative.to_be_bytes());
        self.entries.push(bytes);
        *last = Some(entry);
    }

    /// The offset of the last entry at or before `timestamp`; the segment's base offset if there is
    /// none.
    pub(crate) fn lookup(&self, timestamp: Timestamp, open: impl OpenFile) -> io::Result<Offset> {
        let found = self.entries.floor(
            |entry| self.parse(entry).timestamp.cmp(&timestamp),
            open,
            DiskWait::Allowed,
        )?;
        Ok(found.map_or(self.base_offset, |(_, entry)| self.parse(&entry).offset))
    }

    pub(crate) fn last_entry(&self) -> Option<TimestampOffset> {
        *self.last.lock()
    }

    /// The number of entries below `offset`, and the last of them.
    pub(crate) fn count_below(
        &self,
        offset: Offset,
        open: impl OpenFile,
    ) -> io::Result<(u32, Option<TimestampOffset>)> {
        let order = |entry: &_| match self.parse(entry).offset < offset {
            true => std::cmp::Ordering::Less,
            false => std::cmp::Ordering::Greater,
        };
        let last = self.entries.floor(order, open, DiskWait::Allowed)?;
        Ok(last.map_or((0, None), |(number, entry)| {
            (number + 1, Some(self.parse(&entry)))
        }))
    }

    /// Removes the entries from number `keep` on; `last` is the one before.
    pub(crate) fn truncate(
        &self,
        keep: u32,
        last: Option<TimestampOffset>,
        open: impl OpenFile,
    ) -> io::Result<()> {
        *self.last.lock() = last;
        self.entries.truncate(keep, open)
    }

    pub(crate) fn parse(&self, entry: &[u8; Self::ENTRY_SIZE]) -> TimestampOffset {
        Self::parse_entry(self.base_offset, entry)
    }

    pub(crate) fn parse_entry(
        base_offset: Offset,
        entry: &[u8; Self::ENTRY_SIZE],
    ) -> TimestampOffset {
        let timestamp = i64::from_be_bytes(entry[..8].try_into().expect("eight bytes"));
        let relative = u32::from_be_bytes(entry[8..].try_into().expect("four bytes"));
        TimestampOffset {
            timestamp: Timestamp(timestamp),
            offset: base_offset.plus(i64::from(relative)),
        }
    }
}

#[cfg(test)]
mod tests {
    use ottla_sync::fs::File;

    use ottla_types::{Offset, Timestamp};

    use super::{TimeIndex, TimestampOffset};

    #[test]
    fn entries_are_kafkas_bytes_and_only_grow() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path());
        let index = TimeIndex::new(Offset(100), 0, None);
        let add = |timestamp, offset| {
            index.append_if_younger(TimestampOffset {
                timestamp: Timestamp(timestamp),
                offset: Offset(offset),
            });
        };
        add(-1, 100);
        add(0x0102, 105);
        add(0x0102, 110);
        add(0x0203, 120);
        index.entries().write_tail(open).unwrap();
        let expected = [
            [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 5],
            [0, 0, 0, 0, 0, 0, 2, 3, 0, 0, 0, 20],
        ];
        assert_eq!(std::fs::read(file.path()).unwrap(), expected.concat());
        for (timestamp, offset) in [(0x0101, 100), (0x0102, 105), (0x0202, 105), (9999, 120)] {
            let found = index.lookup(Timestamp(timestamp), open).unwrap();
            assert_eq!(found, Offset(offset), "{timestamp}");
        }
        assert_eq!(index.last_entry().unwrap().offset, Offset(120));
        assert_eq!(index.entries().len(), 2);
    }
}
