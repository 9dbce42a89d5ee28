//! Distinguishes a torn end of a log from damage in its middle. Changes nothing.
//!
//! Recovery cuts a log at the first bytes that are not a valid batch. For a log without another
//! copy (the metadata log of a single controller) that would lose everything after a flipped bit. A
//! killed process tears only the end, with no whole batch after it. A power loss may do more, but
//! only to unsynced bytes.
//!
//! Kafka cuts the metadata log as well.

use ottla_sync::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ottla_records::{BatchHeader, BatchPrefix};
use ottla_types::Offset;

use super::append::fits_relative;
use super::recover::{Invalid, next_valid};
use crate::batch_scan::{BatchScanner, SEQUENTIAL_WINDOW};
use crate::disk;
use crate::error::StorageError;
use crate::file_names::{LOG_SUFFIX, offset_from_file_name};
use crate::force_again::rewrite;
use crate::handles::MayLack;

/// Offset of the magic byte in a batch.
const MAGIC_AT: usize = 16;

/// A segment and the length of its prefix of whole, valid batches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WholeSegment {
    pub base_offset: Offset,
    pub path: PathBuf,
    pub valid_bytes: u64,
    /// The length of the prefix that was fsynced.
    forced_bytes: u64,
}

impl WholeSegment {
    /// Whether it has valid bytes that were not fsynced.
    pub fn is_unforced(&self) -> bool {
        self.forced_bytes < self.valid_bytes
    }

    /// Brings the valid bytes to disk. Those that were not fsynced are written once more, because
    /// an earlier fsync may have failed.
    pub fn force(&self) -> Result<(), StorageError> {
        let rewritten = disk::open_existing(&self.path).and_then(|file| {
            rewrite(&file, self.forced_bytes..self.valid_bytes)?;
            Ok(file)
        });
        let file = rewritten.map_err(|error| StorageError::new("write", &self.path, error))?;
        disk::sync_data(&file).map_err(|error| StorageError::fsync(&self.path, error))
    }
}

/// Why a log cannot be used as it is.
#[derive(Debug, thiserror::Error)]
pub enum DamagedLog {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(
        "{} is damaged at byte {position} ({reason}), and valid batches follow; restore the file \
         from a copy, or truncate it there and delete later segments to continue without those \
         batches",
        path.display()
    )]
    InTheMiddle {
        path: PathBuf,
        position: u64,
        reason: String,
    },
}

impl MayLack for DamagedLog {
    fn is_lack_of_resources(&self) -> bool {
        matches!(self, DamagedLog::Storage(error) if error.is_lack_of_resources())
    }
}

/// The segments of a log, ascending. The last segment with a valid batch may have a torn end.
/// Earlier damage is an error if it is below `forced`, the offset below which the log was fsynced.
pub fn whole_segments(dir: &Path, forced: Offset) -> Result<Vec<WholeSegment>, DamagedLog> {
    let listing = |error| StorageError::new("list", dir, error);
    let mut segments = Vec::new();
    for entry in ottla_sync::fs::read_dir(dir).map_err(listing)? {
        let path = entry.map_err(listing)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(LOG_SUFFIX)
            && let Some(base_offset) = offset_from_file_name(&name)
        {
            segments.push((base_offset, path));
        }
    }
    segments.sort();
    let mut torn: Option<(PathBuf, u64, String)> = None;
    let mut whole = Vec::new();
    let next_bases = segments.iter().skip(1).map(|(next, _)| Some(*next));
    let next_bases: Vec<_> = next_bases.chain([None]).collect();
    for ((base_offset, path), next_base) in segments.into_iter().zip(next_bases) {
        let end_offset = next_base.unwrap_or(Offset(i64::MAX));
        let found = scan(&path, base_offset, end_offset, forced)
            .map_err(|error| StorageError::new("read", &path, error))?;
        let damaged = match &torn {
            Some(torn) if found.valid_bytes > 0 || found.is_followed => Some(torn.clone()),
            None if found.is_followed && found.next_offset < forced => {
                Some((path.clone(), found.valid_bytes, found.reason.clone()))
            }
            _ => None,
        };
        if let Some((path, position, reason)) = damaged {
            return Err(DamagedLog::InTheMiddle {
                path,
                position,
                reason,
            });
        }
        if !found.reason.is_empty() && torn.is_none() && found.next_offset < forced {
            torn = Some((path.clone(), found.valid_bytes, found.reason));
        }
        whole.push(WholeSegment {
            base_offset,
            path,
            valid_bytes: found.valid_bytes,
            forced_bytes: found.forced_bytes,
        });
    }
    Ok(whole)
}

struct Scanned {
    valid_bytes: u64,
    forced_bytes: u64,
    /// The offset after the valid bytes.
    next_offset: Offset,
    /// Why the next bytes are not a batch; empty if there are none.
    reason: String,
    /// A valid batch follows the invalid bytes.
    is_followed: bool,
}

/// Scans the batches below `end_offset`, the base offset of the next segment. A truncation has
/// replaced the batches at or after it.
fn scan(
    path: &Path,
    base_offset: Offset,
    end_offset: Offset,
    forced: Offset,
) -> io::Result<Scanned> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut scanner = BatchScanner::new(&file, 0, size, SEQUENTIAL_WINDOW);
    let (mut valid_bytes, mut forced_bytes, mut next_offset) = (0, 0, base_offset);
    let reason = loop {
        if next_offset >= end_offset {
            break String::new();
        }
        match next_valid(&mut scanner, base_offset, next_offset) {
            Ok(Some((batch, _))) if batch.last_offset >= end_offset => break String::new(),
            Ok(Some((batch, _))) => {
                valid_bytes = batch.end_position();
                next_offset = batch.next_offset();
                if next_offset <= forced {
                    forced_bytes = valid_bytes;
                }
            }
            Ok(None) if valid_bytes == size => break String::new(),
            Ok(None) => break "the last batch is not whole".to_owned(),
            Err(Invalid::Io(error)) => return Err(error),
            Err(Invalid::Batch(reason)) => break reason,
        }
    };
    Ok(Scanned {
        is_followed: !reason.is_empty() && has_batch(&file, base_offset, valid_bytes, size)?,
        valid_bytes,
        forced_bytes,
        next_offset,
        reason,
    })
}

/// Whether a whole, valid batch starts in `[from, end)`.
fn has_batch(file: &File, base_offset: Offset, from: u64, end: u64) -> io::Result<bool> {
    // Bytes that imitate the headers of long batches must not keep a start busy for long; that many
    // of them are not a torn end.
    let mut may_check = end.saturating_mul(4);
    let mut window = vec![0; SEQUENTIAL_WINDOW];
    let mut start = from;
    while start + BatchHeader::SIZE as u64 <= end {
        let len = (end - start).min(window.len() as u64) as usize;
        file.read_exact_at(&mut window[..len], start)?;
        let places = len - BatchPrefix::SIZE + 1;
        for at in 0..places {
            if window[at + MAGIC_AT] != BatchHeader::MAGIC as u8 {
                continue;
            }
            let Ok(prefix) = BatchPrefix::parse(&window[at..len]) else {
                continue;
            };
            let position = start + at as u64;
            // The base offset is not covered by the checksum. A flipped bit in it is considered
            // only where a batch is expected.
            let is_plausible =
                prefix.base_offset >= base_offset && fits_relative(prefix.base_offset, base_offset);
            if position != from && !is_plausible {
                continue;
            }
            let size = prefix.size_in_bytes() as u64;
            if size > end - position || size < BatchHeader::SIZE as u64 {
                continue;
            }
            if size > may_check {
                return Ok(true);
            }
            may_check -= size;
            let mut scanner = BatchScanner::new(file, position, end, size as usize);
            match next_valid(&mut scanner, prefix.base_offset, prefix.base_offset) {
                Ok(Some(_)) => return Ok(true),
                Err(Invalid::Io(error)) => return Err(error),
                Ok(None) | Err(Invalid::Batch(_)) => {}
            }
        }
        start += places as u64;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_types::{Offset, Timestamp};

    use super::{DamagedLog, whole_segments};

    fn batch(offset: i64) -> Vec<u8> {
        let mut builder = RecordBatchBuilder::new(Compression::None).base_offset(Offset(offset));
        builder.append(Timestamp(1), None, Some(&[b'v'; 300]), &[]);
        builder.build().to_bytes().to_vec()
    }

    fn batches(offsets: std::ops::Range<i64>) -> Vec<u8> {
        offsets.flat_map(batch).collect()
    }

    fn valid(dir: &Path) -> Result<Vec<u64>, u64> {
        match whole_segments(dir, Offset(i64::MAX)) {
            Ok(found) => Ok(found.iter().map(|segment| segment.valid_bytes).collect()),
            Err(DamagedLog::InTheMiddle { position, .. }) => Err(position),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_torn_end_is_distinguished_from_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000000000000000000.log");
        let whole = batches(0..5);
        let size = whole.len() / 5;
        let last = 4 * size;
        fs::write(&path, &whole).unwrap();
        assert_eq!(valid(dir.path()), Ok(vec![whole.len() as u64]));
        for cut in last..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(valid(dir.path()), Ok(vec![last as u64]), "{cut}");
        }
        fs::write(&path, [whole.clone(), vec![0; 100_000]].concat()).unwrap();
        assert_eq!(valid(dir.path()), Ok(vec![whole.len() as u64]));
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&path, &flipped).unwrap();
            // The leader epoch, which no checksum covers, is believed, as is an offset that leaves a gap.
            let in_batch = at % size;
            let expected = match at / size {
                _ if (12..16).contains(&in_batch) => Ok(vec![whole.len() as u64]),
                4 if in_batch >= 8 => Ok(vec![last as u64]),
                n => Err((n * size) as u64),
            };
            let found = valid(dir.path());
            if in_batch < 8 {
                // It leaves the segment, or a gap, or does not follow; the next may not follow then.
                assert_ne!(found, Ok(vec![(at / size * size) as u64]), "{at}");
            } else {
                assert_eq!(found, expected, "{at}");
            }
        }
    }

    #[test]
    fn unsynced_data_may_have_holes() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = batches(0..5);
        let size = bytes.len() / 5;
        bytes[2 * size + 100] ^= 1;
        fs::write(dir.path().join("00000000000000000000.log"), bytes).unwrap();
        fs::write(dir.path().join("00000000000000000005.log"), batch(5)).unwrap();
        let valid =
            |forced| whole_segments(dir.path(), Offset(forced)).map(|found| found[0].valid_bytes);
        assert_eq!(valid(2).unwrap(), 2 * size as u64);
        assert!(valid(3).is_err());
    }

    #[test]
    fn a_torn_segment_before_another_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let first = batches(0..3);
        let path = dir.path().join("00000000000000000000.log");
        fs::write(&path, &first[..first.len() - 1]).unwrap();
        let next = dir.path().join("00000000000000000003.log");
        fs::write(&next, []).unwrap();
        let end = (first.len() / 3 * 2) as u64;
        assert_eq!(valid(dir.path()), Ok(vec![end, 0]));
        fs::write(&next, batch(3)).unwrap();
        assert_eq!(valid(dir.path()), Err(end));
    }

    #[test]
    fn data_replaced_by_a_truncation_is_no_damage() {
        let dir = tempfile::tempdir().unwrap();
        let first = batches(0..5);
        let path = dir.path().join("00000000000000000000.log");
        let size = first.len() / 5;
        fs::write(dir.path().join("00000000000000000003.log"), batch(3)).unwrap();
        for len in [3 * size, 3 * size + 10, 4 * size, 5 * size - 1, 5 * size] {
            fs::write(&path, &first[..len]).unwrap();
            let expected = vec![3 * size as u64, size as u64];
            assert_eq!(valid(dir.path()), Ok(expected), "{len}");
        }
    }

    #[test]
    fn bytes_that_look_like_headers_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000000000000000000.log");
        // Each says that the whole rest of the file is its batch.
        let mut bytes = vec![0; 2_000_000];
        for at in (0..1_900_000).step_by(20) {
            bytes[at + 9] = 1;
            bytes[at + 16] = 2;
        }
        fs::write(&path, bytes).unwrap();
        let _ = whole_segments(dir.path(), Offset(i64::MAX));
    }
}
