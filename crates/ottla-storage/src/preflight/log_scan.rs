//! Reads the batches of a log in use by another process: no lock, no recovery, no writes.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use ottla_log::WholeSegment;
use ottla_log::file_names::{LOG_SUFFIX, SWAP_SUFFIX, offset_from_file_name};
use ottla_records::{BatchError, RecordBatch};
use ottla_sync::fs::{self, File};
use ottla_types::Offset;

const CHUNK_BYTES: usize = 1024 * 1024;

/// The file of one segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SegmentFile {
    pub(super) base_offset: Offset,
    pub(super) path: PathBuf,
    pub(super) size: u64,
}

impl From<WholeSegment> for SegmentFile {
    fn from(segment: WholeSegment) -> SegmentFile {
        SegmentFile {
            base_offset: segment.base_offset,
            path: segment.path,
            size: segment.valid_bytes,
        }
    }
}

/// The segments of a log, ascending, including `.swap` files of the cleaner.
pub(super) fn segments(dir: &Path) -> io::Result<Vec<SegmentFile>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let log_name = name.strip_suffix(SWAP_SUFFIX).unwrap_or(name);
        if !log_name.ends_with(LOG_SUFFIX) {
            continue;
        }
        let Some(base_offset) = offset_from_file_name(log_name) else {
            continue;
        };
        // A file that was deleted during the scan is skipped.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        found.push(SegmentFile {
            base_offset,
            path: entry.path(),
            size: metadata.len(),
        });
    }
    found.sort_by(|left, right| {
        (left.base_offset, &left.path).cmp(&(right.base_offset, &right.path))
    });
    Ok(found)
}

/// Passes every whole batch of a segment to `each` and returns their total size. Bytes after the
/// last whole batch are ignored: a torn end, or a write in progress.
pub(super) fn scan(
    segment: &SegmentFile,
    each: &mut dyn FnMut(&RecordBatch) -> Result<(), String>,
) -> Result<u64, String> {
    let unreadable =
        |error: io::Error| format!("{} cannot be read: {error}", segment.path.display());
    let mut file = File::open(&segment.path).map_err(unreadable)?;
    let mut unread = segment.size;
    let mut buffer = BytesMut::new();
    let mut scanned = 0;
    loop {
        let mut bytes = Bytes::copy_from_slice(&buffer);
        let batch = match RecordBatch::read(&mut bytes) {
            Ok(batch) => batch,
            Err(BatchError::TruncatedHeader { .. }) if unread > 0 => {
                fill(&mut file, &mut buffer, &mut unread, CHUNK_BYTES).map_err(unreadable)?;
                continue;
            }
            Err(BatchError::TruncatedBatch { size, available })
                if unread >= (size - available) as u64 =>
            {
                let missing = (size - available).max(CHUNK_BYTES);
                fill(&mut file, &mut buffer, &mut unread, missing).map_err(unreadable)?;
                continue;
            }
            // Older message formats do not occur in coordinator topics; anything else is a torn
            // end.
            Err(_) => return Ok(scanned),
        };
        scan_buffer(batch, bytes, &mut buffer, &mut scanned, each)?;
    }
}

/// Processes the whole batches in a buffer and keeps the rest.
fn scan_buffer(
    first: RecordBatch,
    mut rest: Bytes,
    buffer: &mut BytesMut,
    scanned: &mut u64,
    each: &mut dyn FnMut(&RecordBatch) -> Result<(), String>,
) -> Result<(), String> {
    let mut next = Some(first);
    while let Some(batch) = next {
        each(&batch)?;
        *scanned += batch.size_in_bytes() as u64;
        let mut after = rest.clone();
        next = RecordBatch::read(&mut after).ok();
        if next.is_some() {
            rest = after;
        }
    }
    *buffer = BytesMut::from(&rest[..]);
    Ok(())
}

/// Reads more of a file, up to its size when it was listed.
fn fill(file: &mut File, buffer: &mut BytesMut, unread: &mut u64, bytes: usize) -> io::Result<()> {
    let wanted = (bytes as u64).min(*unread);
    let before = buffer.len();
    buffer.resize(before + wanted as usize, 0);
    let read = read_up_to(file, &mut buffer[before..])?;
    buffer.truncate(before + read);
    // A file that was truncated during the scan has ended.
    *unread = if read as u64 == wanted {
        *unread - wanted
    } else {
        0
    };
    Ok(())
}

fn read_up_to(file: &mut File, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match file.read(&mut into[done..]) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_types::{LeaderEpoch, Timestamp};

    use super::*;

    fn batch(offset: i64, bytes: usize) -> Vec<u8> {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        builder.append(Timestamp(1), None, Some(&vec![7; bytes]), &[]);
        let mut batch = builder.build();
        batch.assign_offset(Offset(offset), LeaderEpoch(0));
        batch.to_bytes().to_vec()
    }

    fn offsets(dir: &Path) -> (Vec<i64>, u64) {
        let mut offsets = Vec::new();
        let mut scanned = 0;
        for segment in segments(dir).unwrap() {
            scanned += scan(&segment, &mut |batch| {
                offsets.push(batch.header.base_offset.value());
                Ok(())
            })
            .unwrap();
        }
        (offsets, scanned)
    }

    #[test]
    fn all_complete_batches_are_found_up_to_a_torn_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = Vec::new();
        for (offset, size) in [
            (0, 10),
            (1, 3 * CHUNK_BYTES),
            (2, 0),
            (3, CHUNK_BYTES - 50),
            (4, 100),
        ] {
            bytes.extend(batch(offset, size));
        }
        let whole = bytes.len() as u64;
        bytes.extend(&batch(5, 5_000)[..4_000]);
        std::fs::write(dir.path().join("00000000000000000000.log"), &bytes).unwrap();
        std::fs::write(dir.path().join("00000000000000000006.log"), batch(6, 10)).unwrap();
        std::fs::write(
            dir.path().join("00000000000000000006.log.deleted"),
            batch(6, 10),
        )
        .unwrap();
        let (found, scanned) = offsets(dir.path());
        assert_eq!(found, [0, 1, 2, 3, 4, 6]);
        assert_eq!(scanned, whole + batch(6, 10).len() as u64);
    }

    #[test]
    fn bytes_that_are_no_batches_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        for bytes in [vec![], vec![0; 500_000], vec![255; 500_000], vec![1; 7]] {
            std::fs::write(dir.path().join("00000000000000000000.log"), &bytes).unwrap();
            assert_eq!(offsets(dir.path()), (Vec::new(), 0));
        }
    }
}
