//! Preparing and locking a node's directories before anything in them is read.
//!
//! Kafka: `LogManager.lockLogDirs`, `LogManager.createAndValidateLogDirs`.

use std::path::{Path, PathBuf};

use ottla_config::BrokerConfig;
use ottla_log::retry_lacking;
use ottla_sync::fs::Dir;

use super::lock::DirLock;

/// The locked directories of a node. They are locked before anything in them is read or formatted,
/// so that nothing but the lock file of a directory in use is ever touched.
#[derive(Debug)]
pub struct DirLocks(pub(super) Vec<LockedDir>);

#[derive(Debug)]
pub(super) struct LockedDir {
    /// The path in `log.dirs` or `metadata.log.dir`.
    pub(super) configured: PathBuf,
    pub(super) path: PathBuf,
    /// The canonical path, to detect a directory that is named twice.
    real: PathBuf,
    /// It contains the metadata log.
    pub(super) holds_metadata: bool,
    pub(super) lock: DirLock,
    pub(super) opened: Dir,
}

impl DirLocks {
    /// Creates missing directories and locks all. Waits for file handles. The error is one
    /// sentence.
    pub fn take(config: &BrokerConfig) -> Result<DirLocks, String> {
        let mut locked: Vec<LockedDir> = Vec::new();
        let log_dirs = config.log_dirs.iter().map(|dir| (dir, true));
        for (configured, is_log_dir) in log_dirs.chain([(&config.metadata_log_dir, false)]) {
            let configured = PathBuf::from(configured);
            let path = prepare(&configured)?;
            let real = ottla_sync::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            match locked.iter_mut().find(|other| other.real == real) {
                Some(_) if is_log_dir => {
                    return Err(format!(
                        "log directory {} is in log.dirs twice",
                        path.display()
                    ));
                }
                Some(of_logs) => {
                    of_logs.holds_metadata = true;
                    continue;
                }
                None => {}
            }
            let lock = retry_lacking(|| DirLock::take(&path)).map_err(|error| {
                format!("cannot lock log directory {}: {error}", path.display())
            })?;
            let lock = lock.ok_or_else(|| {
                format!(
                    "log directory {} is in use by another Ottla or Kafka process; stop it, or set other log.dirs",
                    path.display()
                )
            })?;
            let opened = retry_lacking(|| Dir::open(&path)).map_err(|error| {
                format!("cannot open log directory {}: {error}", path.display())
            })?;
            locked.push(LockedDir {
                configured,
                path,
                real,
                holds_metadata: !is_log_dir,
                lock,
                opened,
            });
        }
        Ok(DirLocks(locked))
    }
}

/// Checks that a directory exists and can be listed, creating it if necessary. Returns its absolute
/// path.
fn prepare(path: &Path) -> Result<PathBuf, String> {
    let refused = |error: std::io::Error| {
        format!(
            "log directory {} cannot be used: {error}; create it and make it readable and writable, or set other log.dirs",
            path.display()
        )
    };
    ottla_sync::fs::create_dir_all(path).map_err(refused)?;
    retry_lacking(|| ottla_sync::fs::read_dir(path)).map_err(refused)?;
    std::path::absolute(path).map_err(refused)
}
