//! A replica in two log directories. At the end of a move, Kafka first renames the copy to the
//! log's name and then the old log. A kill between the two leaves both; Kafka then refuses to start
//! and leaves the repair to the operator. This is the operator's repair: the directory renamed last
//! is the one in the metadata, and the other is deleted.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Kafka's message when it refuses to start.
pub const REFUSAL: &str = "Duplicate log directories for";

/// Removes the older of each two directories with the same name; returns the removed paths.
pub fn remove_older(log_dirs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut newest: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    let mut removed = Vec::new();
    for log_dir in log_dirs {
        let entries = std::fs::read_dir(log_dir).with_context(|| log_dir.display().to_string())?;
        for entry in entries {
            let entry = entry?;
            // Every log directory has files with the same names.
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let found = entry.path();
            let Some(other) = newest.insert(entry.file_name(), found.clone()) else {
                continue;
            };
            let older = if named_at(&other)? < named_at(&found)? {
                other
            } else {
                newest.insert(entry.file_name(), other);
                found
            };
            std::fs::remove_dir_all(&older)?;
            removed.push(older);
        }
    }
    Ok(removed)
}

/// The change time of the directory itself, which a rename updates.
fn named_at(dir: &Path) -> Result<(i64, i64)> {
    let metadata = dir.metadata().with_context(|| dir.display().to_string())?;
    Ok((metadata.ctime(), metadata.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_renamed_log_and_unique_logs_are_kept() {
        let root = tempfile::tempdir().unwrap();
        let log_dirs = ["a", "b"].map(|name| root.path().join(name)).to_vec();
        let [a, b] = [&log_dirs[0], &log_dirs[1]];
        for path in [
            a.join("t-0.x-future"),
            b.join("t-0"),
            a.join("u-0"),
            b.join("v-0"),
        ] {
            std::fs::create_dir_all(path).unwrap();
        }
        std::fs::write(a.join("meta.properties"), "").unwrap();
        std::fs::write(b.join("meta.properties"), "").unwrap();
        // The timestamps of a file system have a resolution of several milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(30));
        std::fs::rename(a.join("t-0.x-future"), a.join("t-0")).unwrap();
        assert_eq!(remove_older(&log_dirs).unwrap(), [b.join("t-0")]);
        for path in [a.join("t-0"), a.join("u-0"), b.join("v-0")] {
            assert!(path.exists(), "{}", path.display());
        }
        assert_eq!(remove_older(&log_dirs).unwrap(), [] as [PathBuf; 0]);
    }
}
