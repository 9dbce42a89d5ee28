//! The placement of new logs.
//!
//! The directory assigned by the metadata, if it is online; otherwise, of the directories that are
//! not cordoned (KIP-1066), the directory with the fewest logs. A log that may exist in an offline
//! directory is never created elsewhere: an empty leader would make the other replicas truncate
//! their records.
//!
//! Kafka: `LogManager.getOrCreateLog`, `LogManager.nextLogDirs`.

use std::path::Path;
use std::sync::Arc;

use ottla_config::BrokerConfig;
use ottla_log::{Log, LogError};
use ottla_types::{DirectoryId, TopicId, TopicPartition};

use super::log_dir::LogDir;
use super::{LogDirs, OpenLogError, OpenSettings};

/// IDs that name no directory.
const RESERVED: [DirectoryId; 3] = [
    DirectoryId::DIRECTORY_UNASSIGNED,
    DirectoryId::DIRECTORY_LOST,
    DirectoryId::DIRECTORY_MIGRATING,
];

impl LogDirs {
    /// Applies `cordoned.log.dirs`; `*` means all. Returns whether anything has changed.
    pub fn set_cordoned(&self, config: &BrokerConfig) -> bool {
        let is_named = |dir: &LogDir| {
            let mut entries = config.cordoned_log_dirs.iter();
            entries.any(|entry| entry == "*" || Path::new(entry) == dir.configured)
        };
        let changed = self
            .dirs
            .iter()
            .filter(|dir| dir.set_cordoned(is_named(dir)));
        changed.count() > 0
    }

    /// The IDs of the cordoned directories.
    pub fn cordoned_directory_ids(&self) -> Vec<DirectoryId> {
        let cordoned = self.dirs.iter().filter(|dir| dir.is_cordoned());
        cordoned.map(|dir| dir.directory_id).collect()
    }

    pub(super) fn create_log(
        &self,
        topic_partition: &TopicPartition,
        topic_id: TopicId,
        directory: Option<DirectoryId>,
        settings: OpenSettings,
    ) -> Result<(Log, Arc<LogDir>), OpenLogError> {
        let preferred = self.preferred.lock().get(topic_partition).copied();
        let is_new =
            settings.is_new || self.uncreated.lock().get(topic_partition) == Some(&topic_id);
        if settings.may_lead && !is_new {
            self.refuse_without_directory(directory)?;
        }
        let dir = self.place(preferred.or(directory))?;
        self.refuse_second(topic_partition, &dir, preferred.or(directory), is_new)?;
        let path = dir.path.join(topic_partition.dir_name());
        let opened = self
            .forget_predecessor(&dir, topic_partition)
            .map_err(LogError::from)
            .and_then(|()| {
                Log::open(settings.without_checkpoints(path, topic_partition, &dir, &self.handles))
            });
        match opened {
            Ok((log, _)) => {
                self.uncreated.lock().remove(topic_partition);
                self.preferred.lock().remove(topic_partition);
                Ok((log, dir))
            }
            Err(error) => {
                if is_new {
                    let mut uncreated = self.uncreated.lock();
                    uncreated.insert(topic_partition.clone(), topic_id);
                }
                self.on_log_error(&dir, &error);
                Err(error.into())
            }
        }
    }

    /// Refuses to create a log that may exist: an empty leader would make the other replicas
    /// truncate their records.
    fn refuse_second(
        &self,
        topic_partition: &TopicPartition,
        dir: &LogDir,
        directory: Option<DirectoryId>,
        is_new: bool,
    ) -> Result<(), OpenLogError> {
        if let Some(failed) = self.failed.lock().get(topic_partition) {
            let path = failed.dir.path.display().to_string();
            return Err(OpenLogError::NotLoaded { path });
        }
        let is_assigned = directory == Some(dir.directory_id);
        match self.dirs.iter().find(|dir| !dir.is_online()) {
            Some(offline) if !is_new && !is_assigned => Err(OpenLogError::MayBeOffline {
                path: offline.path.display().to_string(),
            }),
            _ => Ok(()),
        }
    }

    /// Refuses to create the log of a replica that may be elected, if the directory that held it is
    /// gone. Kafka creates an empty log, and the other replicas delete their records once it leads.
    fn refuse_without_directory(&self, directory: Option<DirectoryId>) -> Result<(), OpenLogError> {
        match directory.filter(|id| !RESERVED.contains(id)) {
            Some(id) if self.dirs.iter().all(|dir| dir.directory_id != id) => {
                Err(OpenLogError::DirectoryGone { id })
            }
            _ => Ok(()),
        }
    }

    /// The directory for a new log.
    fn place(&self, directory: Option<DirectoryId>) -> Result<Arc<LogDir>, OpenLogError> {
        let wanted = directory.filter(|id| !RESERVED.contains(id));
        if let Some(wanted) = wanted.and_then(|id| self.dirs.iter().find(|d| d.directory_id == id))
        {
            return match wanted.is_online() {
                true => Ok(Arc::clone(wanted)),
                false => Err(OpenLogError::DirectoryOffline {
                    path: wanted.path.display().to_string(),
                }),
            };
        }
        let hosted = self.hosted.read();
        let loaded = self.loaded.lock();
        let count = |dir: &Arc<LogDir>| {
            let hosted = hosted.values().filter(|log| Arc::ptr_eq(&log.dir, dir));
            let loaded = loaded.values().filter(|log| Arc::ptr_eq(&log.dir, dir));
            hosted.count() + loaded.count()
        };
        let open = self.online().filter(|dir| !dir.is_cordoned());
        let open: Vec<_> = open.collect();
        // The controller may have assigned a replica just before all directories were cordoned.
        let fewest = match open.as_slice() {
            // No counting needed; there may be very many logs.
            [only] => Some(*only),
            all => all.iter().copied().min_by_key(|dir| count(dir)),
        };
        let chosen = fewest.or_else(|| self.online().next());
        chosen.map(Arc::clone).ok_or(OpenLogError::NoDirectory)
    }
}
