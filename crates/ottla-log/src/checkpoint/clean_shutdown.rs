//! `.kafka_cleanshutdown`: written last by a clean stop, read and deleted at start.
//!
//! A directory without it is recovered. Its broker epoch is sent as the previous broker epoch at
//! registration; without it, the controller treats the stop as unclean (KIP-966). Kafka:
//! `CleanShutdownFileHandler`.

use std::path::Path;

use ottla_types::BrokerEpoch;

use super::{force_dir, open_dir, read_file};
use crate::disk;
use crate::error::StorageError;

pub const CLEAN_SHUTDOWN_FILE: &str = ".kafka_cleanshutdown";

/// The marker of a clean stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CleanShutdown {
    /// `None` if the file has none: Kafka before 3.8 writes an empty file.
    pub broker_epoch: Option<BrokerEpoch>,
}

impl CleanShutdown {
    /// Reads the marker of a log directory; `None` if there is none.
    pub fn read(log_dir: &Path) -> Result<Option<CleanShutdown>, StorageError> {
        let Some(bytes) = read_file(&log_dir.join(CLEAN_SHUTDOWN_FILE))? else {
            return Ok(None);
        };
        let broker_epoch = std::str::from_utf8(&bytes).ok().and_then(broker_epoch);
        Ok(Some(CleanShutdown { broker_epoch }))
    }

    /// Writes the marker durably.
    pub fn write(log_dir: &Path, broker_epoch: BrokerEpoch) -> Result<(), StorageError> {
        let path = log_dir.join(CLEAN_SHUTDOWN_FILE);
        let json = format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}");
        super::write_atomically(&path, json.as_bytes())
    }

    /// Removes the marker durably: from here on, a crash leads to recovery.
    pub fn delete(log_dir: &Path) -> Result<(), StorageError> {
        let path = log_dir.join(CLEAN_SHUTDOWN_FILE);
        // Before the removal: another attempt would find no marker, and would force nothing.
        let opened = open_dir(log_dir)?;
        match disk::remove_file(&path) {
            Ok(()) => force_dir(&opened),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StorageError::new("delete", &path, error)),
        }
    }
}

/// The number after `"brokerEpoch":` in a JSON object; the rest is ignored.
fn broker_epoch(json: &str) -> Option<BrokerEpoch> {
    let (_, rest) = json.split_once("\"brokerEpoch\"")?;
    let number = rest.trim_start().strip_prefix(':')?.trim_start();
    let end = number
        .find(|c: char| c != '-' && !c.is_ascii_digit())
        .unwrap_or(number.len());
    number[..end].parse().ok().map(BrokerEpoch)
}

#[cfg(test)]
mod tests {
    use ottla_types::BrokerEpoch;

    use super::{CLEAN_SHUTDOWN_FILE, CleanShutdown};

    #[test]
    fn the_file_is_kafkas() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(CleanShutdown::read(dir.path()).unwrap(), None);
        CleanShutdown::write(dir.path(), BrokerEpoch(27)).unwrap();
        let path = dir.path().join(CLEAN_SHUTDOWN_FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, r#"{"version":0,"brokerEpoch":27}"#);
        let found = CleanShutdown::read(dir.path()).unwrap().unwrap();
        assert_eq!(found.broker_epoch, Some(BrokerEpoch(27)));
        for text in ["", "{}", "{\"brokerEpoch\":null}", "\u{0}"] {
            std::fs::write(&path, text).unwrap();
            let found = CleanShutdown::read(dir.path()).unwrap().unwrap();
            assert_eq!(found.broker_epoch, None, "{text:?}");
        }
        CleanShutdown::delete(dir.path()).unwrap();
        CleanShutdown::delete(dir.path()).unwrap();
        assert_eq!(CleanShutdown::read(dir.path()).unwrap(), None);
    }
}
