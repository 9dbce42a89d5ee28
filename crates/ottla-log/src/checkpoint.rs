//! Kafka's checkpoint files: a version line, a count line, and one line for each entry.
//!
//! A file is replaced as a whole: written under a `.tmp` name, fsynced, renamed, and the directory
//! fsynced. Kafka: `CheckpointFile`.

use ottla_sync::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::disk::{self, OpenDir};
use crate::error::{CheckpointError, StorageError};

mod clean_shutdown;
mod failed_fsync;
mod marks;
mod meta_properties;
mod offset_checkpoint;
mod partition_metadata;

pub use clean_shutdown::{CLEAN_SHUTDOWN_FILE, CleanShutdown};
pub use failed_fsync::{FAILED_FSYNC_FILE, FailedFsync};
pub use marks::{CheckpointMarks, CheckpointedOffset};
pub use meta_properties::{META_PROPERTIES, MetaProperties, MetaPropertiesError};
pub use offset_checkpoint::{
    CLEANER_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint,
    RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT,
};
pub use partition_metadata::{PARTITION_METADATA, PartitionMetadata};

const VERSION: &str = "0";

/// Larger than any file this module reads: a million partitions with names of full length. A larger
/// file is not read into memory.
const MAX_FILE_BYTES: u64 = 512 * 1024 * 1024;

/// A start reads a file or two of each log, nearly all shorter than this: they take one read, and
/// one that finds the end.
const USUAL_FILE_BYTES: usize = 512;

/// Replaces `path` by `bytes`. A crash leaves the old or the new file, whole. After a temporary error,
/// the old file is there.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
    let dir = path.parent().map(open_dir).transpose()?;
    replace(path, bytes)?;
    dir.map_or(Ok(()), |dir| force_dir(&dir))
}

/// The same, but until the directory is fsynced a power loss may bring the old file back.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let replaced = replace_by(&temporary, path, bytes);
    if replaced.as_ref().is_err_and(StorageError::is_disk_full) {
        // The part that was written takes the space that smaller files need. The error is the
        // same if the removal fails.
        let _ = disk::remove_file_if_there(&temporary);
    }
    replaced
}

fn replace_by(temporary: &Path, path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
    let file = disk::write(temporary, bytes)
        .map_err(|error| StorageError::new("write", temporary, error))?;
    disk::sync_all(&file).map_err(|error| StorageError::fsync(temporary, error))?;
    disk::rename(temporary, path).map_err(|error| StorageError::new("rename to", path, error))
}

/// Fsyncs a directory: files created, renamed and removed in it survive a power loss.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), StorageError> {
    force_dir(&open_dir(dir)?)
}

/// Opens a directory before a change whose fsync must not lack a handle.
fn open_dir(dir: &Path) -> Result<OpenDir, StorageError> {
    disk::open_dir(dir).map_err(|error| StorageError::new("open", dir, error))
}

fn force_dir(dir: &OpenDir) -> Result<(), StorageError> {
    let synced = dir.sync();
    synced.map_err(|error| StorageError::fsync(dir.path(), error))
}

/// Reads a small file as a whole; `None` if it does not exist.
pub(crate) fn read_file(path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
    let read = File::open(path).and_then(|file| {
        let mut bytes = Vec::with_capacity(USUAL_FILE_BYTES);
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match read {
        Ok(bytes) if bytes.len() as u64 > MAX_FILE_BYTES => {
            let error = io::Error::new(io::ErrorKind::InvalidData, "the file is too large");
            Err(StorageError::new("read", path, error))
        }
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StorageError::new("read", path, error)),
    }
}

/// Reads a small text file as a whole; `None` if it does not exist.
fn read_text(path: &Path) -> Result<Option<String>, CheckpointError> {
    let Some(bytes) = read_file(path)? else {
        return Ok(None);
    };
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let text = String::from_utf8_lossy(error.as_bytes());
        malformed(path, 1, &text, "not UTF-8")
    })
}

/// The error for a line that cannot be right.
fn malformed(path: &Path, line: usize, text: &str, reason: &'static str) -> CheckpointError {
    CheckpointError::Malformed {
        path: path.to_owned(),
        line,
        text: text.chars().take(200).collect(),
        reason,
    }
}

/// Writes a checkpoint with one line per entry, formatted by `format`.
pub(crate) fn write<T>(
    path: &Path,
    entries: &[T],
    format: impl Fn(&T, &mut String),
) -> Result<(), StorageError> {
    write_atomically(path, text_of(entries, format).as_bytes())
}

pub(crate) fn text_of<T>(entries: &[T], format: impl Fn(&T, &mut String)) -> String {
    let mut text = format!("{VERSION}\n{}\n", entries.len());
    for entry in entries {
        format(entry, &mut text);
        text.push('\n');
    }
    text
}

/// Reads a checkpoint whose lines have `fields` fields. A missing file, or one that ends before its
/// count line, has no entries, as in Kafka.
pub(crate) fn read<T>(
    path: &Path,
    fields: usize,
    parse: impl Fn(&[&str]) -> Option<T>,
) -> Result<Vec<T>, CheckpointError> {
    let Some(text) = read_text(path)? else {
        return Ok(Vec::new());
    };
    let malformed = |line, text: &str, reason| malformed(path, line, text, reason);
    let mut lines = text.lines();
    let Some(version) = lines.next() else {
        return Ok(Vec::new());
    };
    if version.parse() != Ok(0) {
        return Err(malformed(1, version, "unrecognised version, expected 0"));
    }
    let Some(count) = lines.next() else {
        return Ok(Vec::new());
    };
    let expected: usize = count
        .parse()
        .map_err(|_| malformed(2, count, "expected the number of entries"))?;
    let mut entries = Vec::new();
    let mut parts: Vec<&str> = Vec::new();
    for (index, line) in lines.enumerate() {
        parts.clear();
        parts.extend(line.split_whitespace());
        let entry = (parts.len() == fields)
            .then(|| parse(&parts))
            .flatten()
            .ok_or_else(|| malformed(index + 3, line, "malformed entry"))?;
        entries.push(entry);
    }
    if entries.len() != expected {
        let reason = "the number of entries is not the number of lines that follow";
        return Err(malformed(2, count, reason));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::{read, write_atomically};
    use crate::disk::trace;
    use crate::error::CheckpointError;

    fn numbers(text: &str) -> Result<Vec<i32>, CheckpointError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        write_atomically(&path, text.as_bytes()).unwrap();
        read(&path, 1, |fields| fields[0].parse().ok())
    }

    #[test]
    fn whole_files_are_read() {
        assert_eq!(numbers("0\n2\n5\n-7\n").unwrap(), [5, -7]);
        assert!(numbers("0\n0\n").unwrap().is_empty());
        assert!(numbers("").unwrap().is_empty());
        assert!(numbers("0\n").unwrap().is_empty());
    }

    #[test]
    fn errors_of_broken_files_name_the_line() {
        for (text, line) in [
            ("1\n0\n", 1),
            ("x\n0\n", 1),
            ("0\nmany\n", 2),
            ("0\n1\n", 2),
            ("0\n1\n5\n6\n", 2),
            ("0\n1\nfive\n", 3),
            ("0\n1\n5 6\n", 3),
        ] {
            match numbers(text) {
                Err(CheckpointError::Malformed { line: found, .. }) => {
                    assert_eq!(found, line, "{text:?}");
                }
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn nothing_is_left_beside_the_file() {
        let dir = tempfile::tempdir().unwrap();
        write_atomically(&dir.path().join("a"), b"one").unwrap();
        write_atomically(&dir.path().join("a"), b"two").unwrap();
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 1);
        assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"two");
    }

    /// The caller may keep what it has read or written before, and compare with it.
    #[test]
    fn a_file_is_not_replaced_if_a_handle_is_missing() {
        for opened in 0..2 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a");
            write_atomically(&path, b"one").unwrap();
            trace::start(dir.path());
            trace::lack_handles_in(opened);
            let refused = write_atomically(&path, b"two").unwrap_err();
            trace::stop();
            assert!(refused.is_lack_of_resources(), "{refused}");
            assert_eq!(std::fs::read(&path).unwrap(), b"one");
        }
    }

    #[test]
    fn a_file_that_does_not_fit_takes_no_space() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write_atomically(&path, b"one").unwrap();
        trace::start(dir.path());
        trace::fill();
        let refused = write_atomically(&path, b"two").unwrap_err();
        trace::stop();
        assert!(refused.is_disk_full(), "{refused}");
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 1);
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
    }
}
