//! Iterates over the batches of a `.log` file from a given position, for every magic.
//!
//! Reads headers through a window of the file; the body of a batch is read on request. Like Kafka's
//! `FileLogInputStream`, it stops without an error at an incomplete batch, because the unwritten
//! end of a file looks the same. An impossible length or magic is an error.

use ottla_sync::fs::File;
use std::io;

use ottla_records::{BatchError, BatchHeader, BatchPrefix};
use ottla_types::{LeaderEpoch, Offset, Timestamp};

use crate::disk_read::{self, DiskWait};

/// Large enough for the headers between two index entries when batches are small.
pub(crate) const LOOKUP_WINDOW: usize = 4 * 1024;
/// For reading whole files. Bytes copied out of the page cache are still in the core's own cache
/// when they are parsed.
pub(crate) const SEQUENTIAL_WINDOW: usize = 256 * 1024;

/// Position and size of a batch, with the fields of its header that all magics share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchLocation {
    pub(crate) position: u64,
    pub(crate) size: u64,
    pub(crate) base_offset: Offset,
    pub(crate) last_offset: Offset,
    pub(crate) max_timestamp: Timestamp,
    pub(crate) leader_epoch: LeaderEpoch,
    /// `None` for magic 0 and 1.
    pub(crate) header: Option<BatchHeader>,
}

impl BatchLocation {
    pub(crate) fn end_position(&self) -> u64 {
        self.position + self.size
    }

    pub(crate) fn next_offset(&self) -> Offset {
        self.last_offset.plus(1)
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ScanError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("at byte {position}: {error}")]
    Corrupt { position: u64, error: BatchError },
    #[error("at byte {position}: a batch that claims to be longer than what follows")]
    Incomplete { position: u64 },
    #[error(
        "at byte {position}: offsets {base_offset} to {last_offset} are not the range of a batch"
    )]
    Offsets {
        position: u64,
        base_offset: Offset,
        last_offset: Offset,
    },
}

pub(crate) struct BatchScanner<'a> {
    file: &'a File,
    position: u64,
    end: u64,
    window: Vec<u8>,
    window_start: u64,
    window_size: usize,
    wait: DiskWait,
}

impl<'a> BatchScanner<'a> {
    /// Starts at `position`, which must be the start of a batch, and stops before `end`.
    pub(crate) fn new(file: &'a File, position: u64, end: u64, window_size: usize) -> Self {
        Self {
            file,
            position,
            end,
            window: Vec::new(),
            window_start: 0,
            window_size,
            wait: DiskWait::Allowed,
        }
    }

    /// With [`DiskWait::Refused`], a read that would have to wait for the disk fails.
    pub(crate) fn with_wait(self, wait: DiskWait) -> Self {
        BatchScanner { wait, ..self }
    }

    /// The next batch, or `None` if no complete batch follows.
    pub(crate) fn next_batch(&mut self) -> Result<Option<BatchLocation>, ScanError> {
        let position = self.position;
        let remaining = self.end.saturating_sub(position);
        if remaining < BatchPrefix::SIZE as u64 {
            return Ok(None);
        }
        let wanted = remaining.min(BatchHeader::SIZE as u64) as usize;
        let bytes = self.load(position, wanted)?;
        let corrupt = |error| ScanError::Corrupt { position, error };
        let prefix = BatchPrefix::parse(bytes).map_err(corrupt)?;
        let size = prefix.size_in_bytes() as u64;
        if size > remaining {
            return Ok(None);
        }
        let header = match prefix.magic {
            BatchHeader::MAGIC => Some(BatchHeader::parse(bytes).map_err(corrupt)?),
            _ => None,
        };
        let (last_offset, max_timestamp, leader_epoch) = match &header {
            Some(header) => (
                header.last_offset(),
                header.max_timestamp,
                header.partition_leader_epoch,
            ),
            None => {
                let timestamp = match (prefix.magic, bytes.get(18..26)) {
                    (1, Some(timestamp)) => {
                        i64::from_be_bytes(timestamp.try_into().expect("eight bytes"))
                    }
                    _ => -1,
                };
                let timestamp = Timestamp(timestamp);
                (prefix.base_offset, timestamp, LeaderEpoch::UNKNOWN)
            }
        };
        if prefix.base_offset.0 < 0 || last_offset < prefix.base_offset || last_offset.0 == i64::MAX
        {
            return Err(ScanError::Offsets {
                position,
                base_offset: prefix.base_offset,
                last_offset,
            });
        }
        self.position += size;
        Ok(Some(BatchLocation {
            position,
            size,
            base_offset: prefix.base_offset,
            last_offset,
            max_timestamp,
            leader_epoch,
            header,
        }))
    }

    /// Fails if [`BatchScanner::next_batch`] stopped before the end: published bytes are whole
    /// batches.
    pub(crate) fn check_end(&self) -> Result<(), ScanError> {
        match self.position < self.end {
            true => Err(ScanError::Incomplete {
                position: self.position,
            }),
            false => Ok(()),
        }
    }

    /// The bytes of a batch returned by [`BatchScanner::next_batch`].
    pub(crate) fn bytes(&mut self, batch: &BatchLocation) -> io::Result<&[u8]> {
        self.load(batch.position, batch.size as usize)
    }

    fn load(&mut self, position: u64, len: usize) -> io::Result<&[u8]> {
        let window_end = self.window_start + self.window.len() as u64;
        if position < self.window_start || position + len as u64 > window_end {
            self.move_window(position, len)?;
        }
        let start = (position - self.window_start) as usize;
        Ok(&self.window[start..start + len])
    }

    /// Moves the window to `position` with at least `len` bytes. Bytes it already holds are not
    /// read again.
    fn move_window(&mut self, position: u64, len: usize) -> io::Result<()> {
        let available = self.end - position;
        let size = (self.window_size as u64).max(len as u64).min(available) as usize;
        // Taken out, so that a failed read does not leave bytes that look loaded.
        let mut window = std::mem::take(&mut self.window);
        let kept = match position.checked_sub(self.window_start) {
            Some(skipped) if skipped < window.len() as u64 => {
                window.copy_within((skipped as usize).., 0);
                window.len() - skipped as usize
            }
            _ => 0,
        };
        window.resize(size, 0);
        let from = position + kept as u64;
        disk_read::read_exact_at(self.file, &mut window[kept..], from, self.wait)?;
        self.window = window;
        self.window_start = position;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use ottla_records::{Compression, RecordBatchBuilder};

    use super::*;

    #[test]
    fn batches_are_found_whole_through_windows_of_any_size() {
        let mut file = File::from(tempfile::tempfile().unwrap());
        let mut expected = Vec::new();
        for n in 0..40 {
            let mut builder = RecordBatchBuilder::new(Compression::None).base_offset(Offset(n));
            let value = vec![n as u8; (n * n * 7 % 400) as usize];
            builder.append(Timestamp(n), None, Some(&value), &[]);
            expected.push(builder.build().to_bytes().to_vec());
        }
        let all = expected.concat();
        file.write_all(&all).unwrap();
        for window in [61, 100, 333, 1000, 100_000] {
            let mut scanner = BatchScanner::new(&file, 0, all.len() as u64, window);
            let mut found = Vec::new();
            while let Some(batch) = scanner.next_batch().unwrap() {
                // Of some only the headers are looked at.
                match batch.base_offset.0 % 3 {
                    0 => found.push(expected[found.len()].clone()),
                    _ => found.push(scanner.bytes(&batch).unwrap().to_vec()),
                }
            }
            assert!(found == expected, "{window}");
        }
    }
}
