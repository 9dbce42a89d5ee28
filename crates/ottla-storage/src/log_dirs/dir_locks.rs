//! The directories of a node, made sure of and locked before anything in them is read.
//!
//! Kafka: `LogManager.lockLogDirs`, `LogManager.createAndValidateLogDirs`.

use std::path::{Path, PathBuf};

use ottla_config::BrokerConfig;

use super::lock::DirLock;

/// The directories of a node, locked. Taken before anything in them is read or formatted, so that a
/// directory in use is never touched but for its lock file.
#[derive(Debug)]
pub struct DirLocks(pub(super) Vec<LockedDir>);

#[derive(Debug)]
pub(super) struct LockedDir {
    /// As `log.dirs` or `metadata.log.dir` names it.
    pub(super) configured: PathBuf,
    pub(super) path: PathBuf,
    /// Without links, to find a directory that is named twice.
    real: PathBuf,
    /// The metadata log lies here.
    pub(super) holds_metadata: bool,
    pub(super) lock: DirLock,
}

impl DirLocks {
    /// Creates directories that are missing and locks all. The error is one sentence for people.
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
            let lock = DirLock::take(&path).map_err(|error| {
                format!("cannot lock log directory {}: {error}", path.display())
            })?;
            let lock = lock.ok_or_else(|| {
                format!(
                    "log directory {} is in use by another Ottla or Kafka process; stop it, or set other log.dirs",
                    path.display()
                )
            })?;
            locked.push(LockedDir {
                configured,
                path,
                real,
                holds_metadata: !is_log_dir,
                lock,
            });
        }
        Ok(DirLocks(locked))
    }
}

/// Makes sure that a directory is there and can be listed. Returns its absolute path.
fn prepare(path: &Path) -> Result<PathBuf, String> {
    let refused = |error: std::io::Error| {
        format!(
            "log directory {} cannot be used: {error}; create it and make it readable and writable, or set other log.dirs",
            path.display()
        )
    };
    ottla_sync::fs::create_dir_all(path).map_err(refused)?;
    ottla_sync::fs::read_dir(path).map_err(refused)?;
    std::path::absolute(path).map_err(refused)
}
