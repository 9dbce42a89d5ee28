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
mod cleaner;
mod describe;
mod dir_locks;
mod dir_names;
mod dir_threads;
mod disk_space;
mod failure;
mod future_logs;
mod known_logs;
mod load;
mod lock;
mod log_dir;
mod placement;
mod recovery_progress;
mod space_watch;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use ottla_config::TopicConfig;
use ottla_log::checkpoint::{PARTITION_METADATA, PartitionMetadata};
use ottla_log::file_names::STRAY_DIR_SUFFIX;
use ottla_log::{Handles, Log, LogError, LogReader, OpenParams, retry_lacking};
use ottla_metrics::complaints::Complaints;
use ottla_sync::{Mutex, RwLock};
use ottla_types::{BrokerEpoch, DirectoryId, Offset, Timestamp, TopicId, TopicPartition};

use dir_locks::LockedDir;
use known_logs::{FailedLog, Future, Hosted, LoadedLog};
use lock::DirLock;
use log_dir::FailureListener;

use crate::format::NodeIdentity;

pub use cleaner::{CleaningPause, LogCleaner, Taken};
pub use describe::LogDirDescription;
pub use dir_locks::DirLocks;
pub use dir_threads::THREADS_PER_DIRECTORY;
pub use dir_threads::{DirThreads, Share};
pub use disk_space::DiskSpace;
pub use future_logs::PromoteError;
pub use load::LoadSettings;
pub use lock::{Holder, holder_of};
pub use log_dir::{DirFailure, LogDir};
pub use recovery_progress::Loading;

/// All log directories of a broker.
pub struct LogDirs {
    /// In the order of `log.dirs`, failed ones too.
    dirs: Vec<Arc<LogDir>>,
    /// The logs that are in use.
    hosted: RwLock<BTreeMap<TopicPartition, Hosted>>,
    /// Logs that were loaded at start and not claimed by a partition yet.
    loaded: Mutex<BTreeMap<TopicPartition, LoadedLog>>,
    /// Logs that are there and could not be loaded, though their directories are online.
    failed: Mutex<BTreeMap<TopicPartition, FailedLog>>,
    /// New logs that could not be created, and are still new when that is tried again.
    uncreated: Mutex<BTreeMap<TopicPartition, TopicId>>,
    /// Copies that are to take the place of logs in other directories.
    futures: RwLock<BTreeMap<TopicPartition, Future>>,
    /// Held over the renames by which a copy takes the place of its log, or is given up. Whoever holds more
    /// takes it before all other locks.
    moves_end: Mutex<()>,
    /// Where logs are to go that do not exist yet.
    preferred: Mutex<BTreeMap<TopicPartition, DirectoryId>>,
    on_failure: OnceLock<FailureListener>,
    cleaner: Arc<LogCleaner>,
    /// Of all logs.
    handles: Arc<Handles>,
    /// Operations that lacked a handle, memory or anything else that a process runs out of.
    lacks: AtomicU64,
    complaints: Complaints,
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

/// A log that could not be opened or created.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
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
pub struct OpenSettings {
    pub config: Arc<TopicConfig>,
    pub producer_id_expiration_ms: i64,
    pub now: Timestamp,
    /// The partition has come to this broker while it ran: there can be no log of it yet.
    pub is_new: bool,
}

impl OpenSettings {
    /// For a log of which no checkpoint knows anything: all that its directory holds is to be recovered.
    fn without_checkpoints(
        self,
        dir: PathBuf,
        topic_partition: &TopicPartition,
        handles: &Arc<Handles>,
    ) -> OpenParams {
        OpenParams {
            dir,
            topic_partition: topic_partition.clone(),
            config: self.config,
            recovery_point: Offset::ZERO,
            log_start_offset: Offset::ZERO,
            clean_shutdown: false,
            now: self.now,
            producer_id_expiration_ms: self.producer_id_expiration_ms,
            random_seed: ottla_sync::random::random("log"),
            handles: Arc::clone(handles),
        }
    }
}

impl LogDirs {
    /// Takes locked directories into use, whose identity is known. Their logs have so many handles.
    pub fn new(locks: DirLocks, identity: &NodeIdentity, handles: Arc<Handles>) -> LogDirs {
        let mut dirs = Vec::new();
        let mut others = Vec::new();
        for LockedDir {
            configured,
            path,
            lock,
            holds_metadata,
            ..
        } in locks.0
        {
            match identity.directory_ids.get(&configured) {
                Some(id) => dirs.push(Arc::new(LogDir::new(
                    configured,
                    path,
                    *id,
                    holds_metadata,
                    lock,
                ))),
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
            futures: RwLock::default(),
            moves_end: Mutex::default(),
            preferred: Mutex::default(),
            on_failure: OnceLock::new(),
            cleaner: Arc::default(),
            handles,
            lacks: AtomicU64::new(0),
            complaints: Complaints::default(),
        }
    }

    /// The ids of the directories that are online.
    pub fn online_directory_ids(&self) -> Vec<DirectoryId> {
        self.online().map(|dir| dir.directory_id).collect()
    }

    /// The ids of the directories that have failed, for the broker's heartbeats.
    pub fn offline_directory_ids(&self) -> Vec<DirectoryId> {
        let offline = self.dirs.iter().filter(|dir| !dir.is_online());
        offline.map(|dir| dir.directory_id).collect()
    }

    /// The broker epoch that the last clean stop left, which is sent as the previous one at registration;
    /// -1 where any directory was not stopped cleanly. After [`LogDirs::load`].
    pub fn previous_broker_epoch(&self) -> BrokerEpoch {
        let mut epochs = self.dirs.iter().map(|dir| dir.previous_broker_epoch());
        let first = epochs.next().flatten();
        match first.filter(|first| epochs.all(|epoch| epoch == Some(*first))) {
            Some(epoch) => epoch,
            None => BrokerEpoch::UNKNOWN,
        }
    }

    /// The same before [`LogDirs::load`], which takes the markers: looks at them and leaves them. Blocks.
    pub fn epoch_of_clean_stop(&self) -> BrokerEpoch {
        let mut epochs = self.online().map(|dir| dir.epoch_of_clean_stop());
        let first = epochs.next().flatten();
        match first.filter(|first| epochs.all(|epoch| epoch == Some(*first))) {
            Some(epoch) => epoch,
            None => BrokerEpoch::UNKNOWN,
        }
    }

    /// In which directory a log lies.
    pub fn directory_of(&self, topic_partition: &TopicPartition) -> Option<DirectoryId> {
        let hosted = self.hosted.read();
        Some(hosted.get(topic_partition)?.dir.directory_id)
    }

    /// In the order of `log.dirs`, failed ones too.
    pub fn dirs(&self) -> &[Arc<LogDir>] {
        &self.dirs
    }

    /// The file handles of the logs.
    pub fn handles(&self) -> &Arc<Handles> {
        &self.handles
    }

    /// Which logs may be cleaned.
    pub fn cleaner(&self) -> &Arc<LogCleaner> {
        &self.cleaner
    }

    fn online(&self) -> impl Iterator<Item = &Arc<LogDir>> {
        self.dirs.iter().filter(|dir| dir.is_online())
    }

    /// The log of a partition: the one that was loaded, or a new one, in the directory that the metadata
    /// names or the one with the fewest. Blocks.
    pub fn open_log(
        &self,
        topic_partition: &TopicPartition,
        topic_id: TopicId,
        directory: Option<DirectoryId>,
        settings: OpenSettings,
    ) -> Result<Log, OpenLogError> {
        let recovered = self.recover_promoted(topic_partition, topic_id, directory);
        let loaded = recovered.or_else(|| self.loaded.lock().remove(topic_partition));
        let (log, dir) = match loaded {
            Some(loaded) if loaded.topic_id.is_none_or(|id| id == topic_id) => {
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

    /// Whether the id of its topic does not stand beside a log. Blocks.
    pub fn lacks_topic_id(&self, log: &LogReader) -> bool {
        ottla_sync::fs::metadata(log.dir().join(PARTITION_METADATA)).is_err()
    }

    /// Writes the topic's id beside a log, so that it survives a crash. False where that has to be tried again: the
    /// disk is full, or the directory is not there. Any other failure takes the directory offline. Blocks.
    pub fn write_topic_id(&self, log: &LogReader, topic_id: TopicId) -> bool {
        let error = loop {
            let dir = log.dir();
            let Err(error) = (PartitionMetadata { topic_id }).write(&dir) else {
                return true;
            };
            // It has another name by now.
            if error.error.kind() != std::io::ErrorKind::NotFound || log.dir() == dir {
                break error;
            }
        };
        let hosted = self.hosted.read();
        let of_name = hosted.get(log.topic_partition());
        let dir = of_name.filter(|hosted| hosted.reader.is_of_same_log(log));
        let dir = dir.map(|hosted| Arc::clone(&hosted.dir));
        drop(hosted);
        // One that is not there any more was deleted meanwhile, or has been moved and needs nothing.
        let Some(dir) = dir else {
            return true;
        };
        if error.error.kind() == std::io::ErrorKind::NotFound {
            return false;
        }
        self.on_storage_error(&dir, &error);
        !error.is_temporary()
    }

    /// Renames what belongs to no partition of this broker, and keeps it: called when the metadata is known
    /// and the partitions have claimed their logs.
    pub fn set_strays_aside(&self) {
        let strays = std::mem::take(&mut *self.loaded.lock());
        let strays = strays.into_values();
        for stray in strays.chain(self.take_stray_futures()) {
            self.set_aside(stray);
        }
    }

    fn set_aside(&self, stray: LoadedLog) {
        let topic_partition = stray.log.topic_partition().clone();
        let name = dir_names::suffixed(
            &topic_partition,
            ottla_sync::random::random("directory names"),
            STRAY_DIR_SUFFIX,
        );
        let renamed = stray
            .log
            .reader()
            .rename_dir_job(stray.dir.path.join(&name))
            .run();
        match renamed {
            Ok(()) => {
                // It must not be taken for that of a log of the same name that is made anew.
                self.change_clean_offset(&stray.dir, &topic_partition, None);
                tracing::warn!(
                    %topic_partition, dir = %stray.dir.path.display(), renamed_to = name,
                    "the log belongs to no partition of this broker and was set aside"
                );
            }
            Err(error) => self.on_storage_error(&stray.dir, &error),
        }
    }

    /// Deletes the log of a partition that this broker no longer has: renames its directory at once, so
    /// that the name is free, and deletes the files after `file.delete.delay.ms`. Blocks.
    pub fn delete_log(&self, topic_partition: &TopicPartition) {
        let Some(Hosted { reader, dir }) = self.hosted.write().remove(topic_partition) else {
            return;
        };
        self.cleaner.abort_and_pause(topic_partition);
        self.cleaner.resume(topic_partition);
        self.cleaner.forget(topic_partition);
        self.change_clean_offset(&dir, topic_partition, None);
        self.delete_dir(&reader, &dir);
        self.remove_future(topic_partition);
    }

    /// Ends the use of the directories when a start is broken off before a partition has claimed its log:
    /// what had been stopped cleanly is so again, and says so with the epoch that it had. Blocks.
    pub fn abandon(&self) {
        let epoch = self.previous_broker_epoch();
        let is_untouched = self.hosted.read().is_empty();
        let loaded = std::mem::take(&mut *self.loaded.lock());
        let mut unclean: Vec<Arc<LogDir>> = Vec::new();
        for (topic_partition, LoadedLog { mut log, dir, .. }) in loaded {
            let job = log.close_job();
            if let Err(error) = retry_lacking(|| job.run()) {
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
                && let Err(error) =
                    retry_lacking(|| dir.mark_clean(dir.previous_broker_epoch().unwrap_or(epoch)))
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
    pub fn close(&self, broker_epoch: BrokerEpoch, unclosed: &[TopicPartition]) {
        for dir in &self.dirs {
            dir.files.stop();
        }
        for dir in &self.dirs {
            self.checkpoint_recovery_points(dir);
            self.checkpoint_high_watermarks(dir);
        }
        let hosted = self.hosted.read();
        let is_dirty = |dir: &Arc<LogDir>| {
            let mut logs = unclosed
                .iter()
                .filter_map(|partition| hosted.get(partition));
            logs.any(|log| Arc::ptr_eq(&log.dir, dir))
        };
        for dir in self.online().filter(|dir| !is_dirty(dir)) {
            if let Err(error) = retry_lacking(|| dir.mark_clean(broker_epoch)) {
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

fn remove_dir(path: &Path) {
    match ottla_sync::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(dir = %path.display(), %error, "a deleted log could not be removed");
        }
        _ => {}
    }
}
