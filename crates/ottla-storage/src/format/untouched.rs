//! The files that a directory may contain when it is formatted implicitly: none of value.
//!
//! If only `meta.properties` was lost, a new one would start a new cluster on the old one's data,
//! whose logs would become strays.

use std::io;
use std::path::Path;

use ottla_config::BrokerConfig;
use ottla_log::checkpoint::META_PROPERTIES;
use ottla_log::retry_lacking;
use ottla_sync::fs::{self, Dir};

use super::identity::{FormatError, directories};
use crate::metadata::metadata_log::METADATA_DIR;
use crate::metadata::snapshot_file::BOOTSTRAP_FILE;

/// Created by the file system, by the lock, or by an interrupted formatting.
const OF_NO_VALUE: [&str; 3] = ["lost+found", ".lock", BOOTSTRAP_FILE];
/// Suffixes of the first files of formatting and of the snapshot of the first voters.
const PARTS: [&str; 2] = [".tmp", ".part"];
const FIRST_SNAPSHOT: &str = "00000000000000000000-0000000000";

/// Refuses directories with more than an interrupted formatting leaves.
pub fn check_empty(config: &BrokerConfig) -> Result<(), FormatError> {
    for dir in directories(config) {
        let found = first_of_value(&dir)
            .map_err(|error| FormatError(format!("cannot read {}: {error}", dir.display())))?;
        if let Some(name) = found {
            return Err(FormatError(format!(
                "{} has no {META_PROPERTIES}, but it is not empty: it holds {name}; restore {META_PROPERTIES} \
                 with the cluster.id, node.id and directory.id that it had, or give an empty directory",
                dir.display()
            )));
        }
    }
    Ok(())
}

/// Removes the snapshot at offset 0, or a part of it, that an interrupted formatting left in a
/// metadata directory: the next formatting may have other voters, or none. Kafka from 4.4 on writes
/// it also without voters, with the records of `bootstrap.checkpoint`. With other files beside it,
/// it belongs to a log, and stays.
pub(super) fn remove_interrupted(dir: &Path) -> io::Result<()> {
    let log = dir.join(METADATA_DIR);
    let inside = names(&log)?;
    if inside.is_empty() || inside.iter().any(|name| !name.starts_with(FIRST_SNAPSHOT)) {
        return Ok(());
    }
    for name in inside {
        fs::remove_file(log.join(name))?;
    }
    retry_lacking(|| Dir::open(&log))?.sync()
}

fn first_of_value(dir: &Path) -> io::Result<Option<String>> {
    let of_value = |name: &str| {
        let is_part = PARTS.iter().any(|part| name.ends_with(part));
        !is_part && !OF_NO_VALUE.contains(&name)
    };
    for name in names(dir)? {
        if name == METADATA_DIR {
            let log = dir.join(&name);
            let inside = names(&log)?;
            let other = inside
                .into_iter()
                .find(|inside| !inside.starts_with(FIRST_SNAPSHOT));
            if other.is_some() {
                return Ok(Some(name));
            }
        } else if of_value(&name) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Sorted, so that the message is deterministic.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match retry_lacking(|| fs::read_dir(dir)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}
