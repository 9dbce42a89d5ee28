//! The log directories: which there are, whether they are fit for use, and what lies in them.
//!
//! Owns the locks and the checkpoint files of all directories, the loading of logs at start,
//! the placement of new ones, and the decision that a directory
//! has failed. Never owns the log of a partition beyond handing it out: the partition steps it, and
//! only readers of it are kept here.
//!
//! Invariants:
//! - Nothing is written into a directory before all are locked and have been found to belong to this node.
//! - The marker of a clean stop is deleted before the first log is opened, and written only when every log
//!   of the directory has been brought to rest.
//! - A directory that has failed stays failed until a restart; the first reason is the one that is told.
//!
//! Kafka: `LogManager`, `LogDirFailureChannel`.

mod checkpoints;
mod describe;
mod dir_names;
mod load;
mod lock;
mod log_dir;
mod maintenance;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ottla_config::{BrokerConfig, TopicConfig};
use ottla_log::checkpoint::PartitionMetadata;
use ottla_log::file_names::{DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX};
use ottla_log::{Log, LogError, LogReader, OpenParams, StorageError};
use ottla_types::{BrokerEpoch, DirectoryId, Offset, Timestamp, TopicId, TopicPartition};
use parking_lot::{Mutex, RwLock};

use lock::DirLock;
use log_dir::LogDir;

use crate::controller::format::NodeIdentity;

pub(crate) use describe::LogDirDescription;
pub(crate) use load::LoadSettings;

/// All log directories of a broker.
pub(crate) struct LogDirs {
    /// In the order of `log.dirs`, failed ones too.
    dirs: Vec<Arc<LogDir>>,
    /// The logs that are in use.
    hosted: RwLock<HashMap<TopicPartition, Hosted>>,
    /// Logs that were loaded at start and not claimed by a partition yet.
    loaded: Mutex<HashMap<TopicPartition, LoadedLog>>,
    /// Logs that are there and could not be loaded, though their directories are online.
    failed: Mutex<HashMap<TopicPartition, FailedLog>>,
    /// New logs that could not be created, and are still new when that is tried again.
    uncreated: Mutex<HashMap<TopicPartition, TopicId>>,
    on_failure: OnceLock<FailureListener>,
    /// Of the metadata directory, where it is none of the log directories.
    other_locks: Mutex<Vec<DirLock>>,
}

impl std::fmt::Debug for LogDirs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.dirs.iter().map(|dir| &dir.path))
            .finish()
    }
}

/// Told once for each directory that fails.
type FailureListener = Box<dyn Fn(&DirFailure) + Send + Sync>;

/// A directory that went offline, and with it the logs in it.
pub(crate) struct DirFailure {
    pub(crate) partitions: Vec<TopicPartition>,
    /// No directory is left: the broker cannot go on.
    pub(crate) is_last: bool,
}

struct Hosted {
    reader: LogReader,
    dir: Arc<LogDir>,
}

impl std::fmt::Debug for Hosted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hosted({})", self.reader.topic_partition())
    }
}

struct LoadedLog {
    log: Log,
    dir: Arc<LogDir>,
    topic_id: Option<TopicId>,
}

/// A log that could not be loaded, with what the checkpoints say of it: they go on saying so.
#[derive(Debug)]
struct FailedLog {
    dir: Arc<LogDir>,
    recovery_point: Option<Offset>,
    log_start_offset: Option<Offset>,
    high_watermark: Option<Offset>,
}

impl std::fmt::Debug for LoadedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LoadedLog({})", self.log.topic_partition())
    }
}

/// A log that could not be opened or created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenLogError {
    #[error("all log directories are offline")]
    NoDirectory,
    #[error("log directory {path} is offline")]
    DirectoryOffline { path: String },
    #[error("log directory {path} is offline and may hold the log")]
    MayBeOffline { path: String },
    #[error("the log is in log directory {path}, but could not be loaded at start; start again")]
    NotLoaded { path: String },
    #[error(transparent)]
    Log(#[from] LogError),
}

/// What a log needs to be opened that is not in its directory.
pub(crate) struct OpenSettings {
    pub(crate) config: Arc<TopicConfig>,
    pub(crate) producer_id_expiration_ms: i64,
    pub(crate) now: Timestamp,
    /// The partition has come to this broker while it ran: there can be no log of it yet.
    pub(crate) is_new: bool,
}

impl LogDirs {
    /// Takes locked directories into use, whose identity is known.
    pub(crate) fn new(locks: DirLocks, identity: &NodeIdentity) -> LogDirs {
        let mut dirs = Vec::new();
        let mut others = Vec::new();
        for LockedDir {
            configured,
            path,
            lock,
            ..
        } in locks.0
        {
            match identity.directory_ids.get(&configured) {
                Some(id) => dirs.push(Arc::new(LogDir::new(path, *id, lock))),
                // The metadata directory, where it is none of the log directories.
                None => others.push(lock),
            }
        }
        LogDirs {
            dirs,
            other_locks: Mutex::new(others),
            hosted: RwLock::default(),
            loaded: Mutex::default(),
            failed: Mutex::default(),
            uncreated: Mutex::default(),
            on_failure: OnceLock::new(),
        }
    }

    /// The ids of the directories that are online.
    pub(crate) fn online_directory_ids(&self) -> Vec<DirectoryId> {
        self.online().map(|dir| dir.directory_id).collect()
    }

    /// The ids of the directories that have failed, for the broker's heartbeats.
    pub(crate) fn offline_directory_ids(&self) -> Vec<DirectoryId> {
        let offline = self.dirs.iter().filter(|dir| !dir.is_online());
        offline.map(|dir| dir.directory_id).collect()
    }

    /// The broker epoch that the last clean stop left, which is sent as the previous one at registration;
    /// -1 where any directory was not stopped cleanly. After [`LogDirs::load`].
    pub(crate) fn previous_broker_epoch(&self) -> BrokerEpoch {
        let mut epochs = self.dirs.iter().map(|dir| dir.previous_broker_epoch());
        let first = epochs.next().flatten();
        match first.filter(|first| epochs.all(|epoch| epoch == Some(*first))) {
            Some(epoch) => epoch,
            None => BrokerEpoch::UNKNOWN,
        }
    }

    /// In which directory a log lies.
    #[cfg(test)]
    pub(crate) fn directory_of(&self, topic_partition: &TopicPartition) -> Option<DirectoryId> {
        let hosted = self.hosted.read();
        Some(hosted.get(topic_partition)?.dir.directory_id)
    }

    fn online(&self) -> impl Iterator<Item = &Arc<LogDir>> {
        self.dirs.iter().filter(|dir| dir.is_online())
    }

    /// Sets who is told when a directory fails.
    pub(crate) fn set_failure_listener(
        &self,
        listener: impl Fn(&DirFailure) + Send + Sync + 'static,
    ) {
        let is_first = self.on_failure.set(Box::new(listener)).is_ok();
        assert!(is_first, "one listener hears of failed directories");
    }

    /// The log of a partition: the one that was loaded, or a new one, in the directory that the metadata
    /// names or the one with the fewest. Blocks.
    pub(crate) fn open_log(
        &self,
        topic_partition: &TopicPartition,
        topic_id: TopicId,
        directory: Option<DirectoryId>,
        settings: OpenSettings,
    ) -> Result<Log, OpenLogError> {
        let loaded = self.loaded.lock().remove(topic_partition);
        let (log, dir) = match loaded {
            Some(loaded) if loaded.topic_id.is_none_or(|id| id == topic_id) => {
                if loaded.topic_id.is_none() {
                    write_topic_id_later(&loaded.dir, loaded.log.dir(), topic_id);
                }
                let mut log = loaded.log;
                log.set_config(settings.config);
                (log, loaded.dir)
            }
            Some(other) => {
                self.set_aside(other);
                self.create_log(topic_partition, topic_id, directory, settings)?
            }
            None => self.create_log(topic_partition, topic_id, directory, settings)?,
        };
        let hosted = Hosted {
            reader: log.reader(),
            dir,
        };
        self.hosted.write().insert(topic_partition.clone(), hosted);
        Ok(log)
    }

    fn create_log(
        &self,
        topic_partition: &TopicPartition,
        topic_id: TopicId,
        directory: Option<DirectoryId>,
        settings: OpenSettings,
    ) -> Result<(Log, Arc<LogDir>), OpenLogError> {
        let dir = self.place(directory)?;
        let is_new =
            settings.is_new || self.uncreated.lock().get(topic_partition) == Some(&topic_id);
        self.refuse_second(topic_partition, &dir, directory, is_new)?;
        let path = dir.path.join(topic_partition.dir_name());
        let opened = Log::open(OpenParams {
            dir: path.clone(),
            topic_partition: topic_partition.clone(),
            config: settings.config,
            recovery_point: Offset::ZERO,
            log_start_offset: Offset::ZERO,
            clean_shutdown: false,
            now: settings.now,
            producer_id_expiration_ms: settings.producer_id_expiration_ms,
            random_seed: rand::random(),
        });
        match opened {
            Ok((log, _)) => {
                self.uncreated.lock().remove(topic_partition);
                write_topic_id_later(&dir, path, topic_id);
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

    /// Refuses to begin a log anew that may well exist: an empty one that led would take its records from
    /// the other replicas too.
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

    /// The directory for a new log.
    fn place(&self, directory: Option<DirectoryId>) -> Result<Arc<LogDir>, OpenLogError> {
        let reserved = [
            DirectoryId::DIRECTORY_UNASSIGNED,
            DirectoryId::DIRECTORY_LOST,
            DirectoryId::DIRECTORY_MIGRATING,
        ];
        let wanted = directory.filter(|id| !reserved.contains(id));
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
        let fewest = self.online().min_by_key(|dir| count(dir));
        fewest.map(Arc::clone).ok_or(OpenLogError::NoDirectory)
    }

    /// Renames what belongs to no partition of this broker, and keeps it: called when the metadata is known
    /// and the partitions have claimed their logs.
    pub(crate) fn set_strays_aside(&self) {
        let strays: Vec<_> = self.loaded.lock().drain().collect();
        for (_, stray) in strays {
            self.set_aside(stray);
        }
    }

    fn set_aside(&self, stray: LoadedLog) {
        let topic_partition = stray.log.topic_partition().clone();
        let name = dir_names::suffixed(&topic_partition, rand::random(), STRAY_DIR_SUFFIX);
        let renamed = stray
            .log
            .reader()
            .rename_dir_job(stray.dir.path.join(&name))
            .run();
        match renamed {
            Ok(()) => tracing::warn!(
                %topic_partition, dir = %stray.dir.path.display(), renamed_to = name,
                "the log belongs to no partition of this broker and was set aside"
            ),
            Err(error) => self.on_storage_error(&stray.dir, &error),
        }
    }

    /// Deletes the log of a partition that this broker no longer has: renames its directory at once, so
    /// that the name is free, and deletes the files after `file.delete.delay.ms`. Blocks.
    pub(crate) fn delete_log(&self, topic_partition: &TopicPartition) {
        let Some(Hosted { reader, dir }) = self.hosted.write().remove(topic_partition) else {
            return;
        };
        let name = dir_names::suffixed(topic_partition, rand::random(), DELETE_DIR_SUFFIX);
        let to = dir.path.join(name);
        if let Err(error) = reader.rename_dir_job(to.clone()).run() {
            return self.on_storage_error(&dir, &error);
        }
        let delay_ms = reader.config().file_delete_delay_ms;
        let delay = Duration::from_millis(u64::try_from(delay_ms).unwrap_or_default());
        dir.files.submit(delay, move || remove_dir(&to));
    }

    /// In which directory a log lies, whether it is in use or deleted.
    fn dir_of(&self, log: &LogReader) -> Option<&Arc<LogDir>> {
        let path = log.dir();
        self.dirs
            .iter()
            .find(|dir| path.parent() == Some(&dir.path))
    }

    /// Whether a partition still has this log: another of the same name does not count.
    fn is_hosted(&self, log: &LogReader) -> bool {
        let hosted = self.hosted.read();
        let of_name = hosted.get(log.topic_partition());
        of_name.is_some_and(|hosted| hosted.reader.is_of_same_log(log))
    }

    /// Whether the directory in which a log lies is in use.
    pub(crate) fn is_online(&self, log: &LogReader) -> bool {
        self.dir_of(log).is_some_and(|dir| dir.is_online())
    }

    /// An operation on a log failed: its directory goes offline, unless the disk is only full. That a
    /// file of a deleted log is not there says nothing about the directory.
    pub(crate) fn on_partition_error(&self, log: &LogReader, error: &StorageError) {
        if error.error.kind() == std::io::ErrorKind::NotFound && !self.is_hosted(log) {
            return;
        }
        if let Some(dir) = self.dir_of(log) {
            self.on_storage_error(dir, error);
        }
    }

    fn on_partition_log_error(&self, log: &LogReader, error: &LogError) {
        match error {
            LogError::Storage(error) => self.on_partition_error(log, error),
            LogError::Checkpoint(_) => {
                if let Some(dir) = self.dir_of(log) {
                    self.on_log_error(dir, error);
                }
            }
        }
    }

    fn on_log_error(&self, dir: &Arc<LogDir>, error: &LogError) {
        match error {
            LogError::Storage(error) => self.on_storage_error(dir, error),
            LogError::Checkpoint(error) => self.fail(dir, &error.to_string()),
        }
    }

    fn on_storage_error(&self, dir: &Arc<LogDir>, error: &StorageError) {
        if error.is_disk_full() {
            tracing::warn!(dir = %dir.path.display(), "{error}");
        } else {
            self.fail(dir, &error.to_string());
        }
    }

    /// Takes a directory offline.
    fn fail(&self, dir: &Arc<LogDir>, reason: &str) {
        if !dir.fail(reason) {
            return;
        }
        tracing::error!(dir = %dir.path.display(), reason, "the log directory goes offline");
        let is_in = |log: &Arc<LogDir>| Arc::ptr_eq(log, dir);
        let partitions = {
            let hosted = self.hosted.read();
            let lost = hosted.iter().filter(|(_, log)| is_in(&log.dir));
            lost.map(|(partition, _)| partition.clone()).collect()
        };
        self.loaded.lock().retain(|_, log| !is_in(&log.dir));
        let failure = DirFailure {
            partitions,
            is_last: self.online().next().is_none(),
        };
        if let Some(listener) = self.on_failure.get() {
            listener(&failure);
        }
    }

    /// Ends the use of the directories when a start is broken off before a partition has claimed its log:
    /// what had been stopped cleanly is so again, and says so with the epoch that it had. Blocks.
    pub(crate) fn abandon(&self) {
        let epoch = self.previous_broker_epoch();
        let is_untouched = self.hosted.read().is_empty();
        let loaded: Vec<_> = self.loaded.lock().drain().collect();
        let mut unclean: Vec<Arc<LogDir>> = Vec::new();
        for (topic_partition, LoadedLog { mut log, dir, .. }) in loaded {
            if let Err(error) = log.close_job().run() {
                tracing::error!(%topic_partition, "the log could not be closed: {error}");
                unclean.push(dir);
            }
        }
        for dir in &self.dirs {
            dir.files.stop();
        }
        let is_unclean = |dir: &Arc<LogDir>| unclean.iter().any(|other| Arc::ptr_eq(dir, other));
        for dir in self.online().filter(|dir| !is_unclean(dir)) {
            if is_untouched
                && dir.was_clean()
                && let Err(error) = dir.mark_clean(dir.previous_broker_epoch().unwrap_or(epoch))
            {
                tracing::warn!("the next start will recover all logs of the directory: {error}");
            }
        }
        for dir in &self.dirs {
            dir.unlock();
        }
        self.other_locks.lock().clear();
    }

    /// Ends the use of the directories after all logs have been brought to rest with their `close_job`:
    /// writes the checkpoints and, last, the markers of a clean stop. `unclosed` names logs that could not
    /// be; their directories are recovered at the next start. Blocks.
    pub(crate) fn close(&self, broker_epoch: BrokerEpoch, unclosed: &[TopicPartition]) {
        for dir in &self.dirs {
            dir.files.stop();
        }
        self.checkpoint_recovery_points();
        self.checkpoint_log_start_offsets();
        self.checkpoint_high_watermarks();
        let hosted = self.hosted.read();
        let is_dirty = |dir: &Arc<LogDir>| {
            let mut logs = unclosed
                .iter()
                .filter_map(|partition| hosted.get(partition));
            logs.any(|log| Arc::ptr_eq(&log.dir, dir))
        };
        for dir in self.online().filter(|dir| !is_dirty(dir)) {
            if let Err(error) = dir.mark_clean(broker_epoch) {
                tracing::warn!("the next start will recover all logs of the directory: {error}");
            }
        }
        drop(hosted);
        for dir in &self.dirs {
            dir.unlock();
        }
        self.other_locks.lock().clear();
    }
}

/// The directories of a node, locked. Taken before anything in them is read or formatted, so that a
/// directory in use is never touched but for its lock file.
#[derive(Debug)]
pub(crate) struct DirLocks(Vec<LockedDir>);

#[derive(Debug)]
struct LockedDir {
    /// As `log.dirs` or `metadata.log.dir` names it.
    configured: PathBuf,
    path: PathBuf,
    /// Without links, to find a directory that is named twice.
    real: PathBuf,
    lock: DirLock,
}

impl DirLocks {
    /// Creates directories that are missing and locks all. The error is one sentence for people.
    pub(crate) fn take(config: &BrokerConfig) -> Result<DirLocks, String> {
        let mut locked: Vec<LockedDir> = Vec::new();
        let log_dirs = config.log_dirs.iter().map(|dir| (dir, true));
        for (configured, is_log_dir) in log_dirs.chain([(&config.metadata_log_dir, false)]) {
            let configured = PathBuf::from(configured);
            let path = prepare(&configured)?;
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            match locked.iter().any(|other| other.real == real) {
                true if is_log_dir => {
                    return Err(format!(
                        "log directory {} stands in log.dirs twice",
                        path.display()
                    ));
                }
                true => continue,
                false => {}
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
    std::fs::create_dir_all(path).map_err(refused)?;
    std::fs::read_dir(path).map_err(refused)?;
    std::path::absolute(path).map_err(refused)
}

/// Writes the topic's id beside a log without keeping anybody waiting: a log without it gets it when it
/// is opened again.
fn write_topic_id_later(dir: &Arc<LogDir>, partition_dir: PathBuf, topic_id: TopicId) {
    dir.files.submit(Duration::ZERO, move || {
        if let Err(error) = (PartitionMetadata { topic_id }).write(&partition_dir)
            && partition_dir.exists()
        {
            tracing::warn!("{error}");
        }
    });
}

fn remove_dir(path: &Path) {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(dir = %path.display(), %error, "a deleted log could not be removed");
        }
        _ => {}
    }
}
