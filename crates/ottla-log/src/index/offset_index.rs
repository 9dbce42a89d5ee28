//! `.index`: from an offset to the position of the batch that ends at or before it.
//!
//! An entry is the last offset of a batch, relative to the segment's base (u32), and the batch's position
//! in the `.log` file (u32), both big-endian. Kafka: `OffsetIndex`.

use std::io;

use ottla_types::Offset;

use super::entries::{Entries, OpenFile};
use crate::disk_read::DiskWait;

pub(crate) struct OffsetIndex {
    base_offset: Offset,
    entries: Entries<{ OffsetIndex::ENTRY_SIZE }>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OffsetPosition {
    pub(crate) offset: Offset,
    pub(crate) position: u64,
}

impl OffsetIndex {
    pub(crate) const ENTRY_SIZE: usize = 8;

    pub(crate) fn new(base_offset: Offset, in_file: u32) -> Self {
        Self {
            base_offset,
            entries: Entries::new(in_file),
        }
    }

    pub(crate) fn entries(&self) -> &Entries<{ OffsetIndex::ENTRY_SIZE }> {
        &self.entries
    }

    /// `offset` is the last of the batch at `position`; both grow with every entry.
    pub(crate) fn append(&self, offset: Offset, position: u64) {
        let relative = u32::try_from(offset.since(self.base_offset));
        let relative = relative.expect("the segment rolls before offsets overflow its index");
        let position = u32::try_from(position).expect("segments are smaller than 2 GiB");
        let mut entry = [0; Self::ENTRY_SIZE];
        entry[..4].copy_from_slice(&relative.to_be_bytes());
        entry[4..].copy_from_slice(&position.to_be_bytes());
        self.entries.push(entry);
    }

    /// A position at or before the batch that holds `target`.
    pub(crate) fn lookup(
        &self,
        target: Offset,
        open: impl OpenFile,
        wait: DiskWait,
    ) -> io::Result<u64> {
        let found =
            self.entries
                .floor(|entry| self.parse(entry).offset.cmp(&target), open, wait)?;
        Ok(found.map_or(0, |(_, entry)| self.parse(&entry).position))
    }

    /// The offset of the first entry at or after `position`. Every batch of a read that ends at
    /// `position` ends at or below it.
    pub(crate) fn first_offset_at_or_after(
        &self,
        position: u64,
        open: impl OpenFile + Copy,
    ) -> io::Result<Option<Offset>> {
        let before = self.entries.floor(
            |entry| match self.parse(entry).position.cmp(&position) {
                std::cmp::Ordering::Equal => std::cmp::Ordering::Greater,
                order => order,
            },
            open,
            DiskWait::Allowed,
        )?;
        let next = before.map_or(0, |(number, _)| number + 1);
        let entry = self.entries.get(next, open)?;
        Ok(entry.map(|entry| self.parse(&entry).offset))
    }

    /// The number of entries below both `offset` and `position`, and the position of the last of
    /// them.
    pub(crate) fn count_below(
        &self,
        offset: Offset,
        position: u64,
        open: impl OpenFile,
    ) -> io::Result<(u32, u64)> {
        let order = |entry: &_| {
            let entry = self.parse(entry);
            match entry.offset < offset && entry.position < position {
                true => std::cmp::Ordering::Less,
                false => std::cmp::Ordering::Greater,
            }
        };
        let last = self.entries.floor(order, open, DiskWait::Allowed)?;
        Ok(last.map_or((0, 0), |(number, entry)| {
            (number + 1, self.parse(&entry).position)
        }))
    }

    pub(crate) fn entry(&self, n: u32, open: impl OpenFile) -> io::Result<Option<OffsetPosition>> {
        Ok(self.entries.get(n, open)?.map(|entry| self.parse(&entry)))
    }

    pub(crate) fn last_entry(&self, open: impl OpenFile) -> io::Result<Option<OffsetPosition>> {
        match self.entries.len() {
            0 => Ok(None),
            len => self.entry(len - 1, open),
        }
    }

    fn parse(&self, entry: &[u8; Self::ENTRY_SIZE]) -> OffsetPosition {
        let (words, _) = entry.as_chunks::<4>();
        OffsetPosition {
            offset: self
                .base_offset
                .plus(i64::from(u32::from_be_bytes(words[0]))),
            position: u64::from(u32::from_be_bytes(words[1])),
        }
    }
}

#[cfg(test)]
mod tests {
    use ottla_sync::fs::File;

    use ottla_types::Offset;

    use super::{DiskWait, OffsetIndex, OffsetPosition};

    #[test]
    fn entries_are_kafkas_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path());
        let index = OffsetIndex::new(Offset(1000), 0);
        index.append(Offset(1010), 0x0a0b);
        index.append(Offset(1020), 0x0c0d);
        index.entries().write_tail(open).unwrap();
        let expected = [0, 0, 0, 10, 0, 0, 10, 11, 0, 0, 0, 20, 0, 0, 12, 13];
        assert_eq!(std::fs::read(file.path()).unwrap(), expected);

        assert_eq!(
            index.lookup(Offset(1009), open, DiskWait::Allowed).unwrap(),
            0
        );
        assert_eq!(
            index.lookup(Offset(1010), open, DiskWait::Allowed).unwrap(),
            0x0a0b
        );
        assert_eq!(
            index.lookup(Offset(1019), open, DiskWait::Allowed).unwrap(),
            0x0a0b
        );
        assert_eq!(
            index.lookup(Offset(5000), open, DiskWait::Allowed).unwrap(),
            0x0c0d
        );
        assert_eq!(
            index.last_entry(open).unwrap(),
            Some(OffsetPosition {
                offset: Offset(1020),
                position: 0x0c0d
            })
        );
        for (position, offset) in [
            (0, Some(1010)),
            (0x0a0b, Some(1010)),
            (0x0a0c, Some(1020)),
            (0x0c0d, Some(1020)),
            (0x0c0e, None),
        ] {
            let found = index.first_offset_at_or_after(position, open).unwrap();
            assert_eq!(found, offset.map(Offset), "{position}");
        }
    }
}
