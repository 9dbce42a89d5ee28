//! The log directories: their state and the logs in them.
//!
//! Owns the locks and checkpoint files of all directories, the loading of logs at start, the
//! placement of new logs, and the decision that a directory has failed. The partition owns its log;
//! only readers are kept here.
//!
//! Invariants:
//! - Nothing is written into a directory before all directories are locked and were found to belong
//!   to this node.
//! - The clean shutdown marker is deleted before the first log is opened, and written only when
//!   every log of the directory is closed. What a stop writes of the logs (`ottla-clean-logs`) is
//!   deleted before the marker, and written before it.
//! - A failed directory stays failed until a restart; the first reason is kept.
//! - What a failed fsync left in the page cache is forced to disk before a start opens the log.
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
mod hosted_logs;
mod known_logs;
mod load;
mod lock;
mod log_dir;
mod placement;
mod read_dir;
mod recovery_progress;
mod space_watch;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use ottla_config::TopicConfig;
use ottla_log::checkpoint::PartitionMetadata;
use ottla_log::file_names::STRAY_DIR_SUFFIX;
use ottla_log::{
    CloseJob, Handles, Log, LogError, LogReader, OpenParams, StorageError, retry_lacking,
};
use ottla_metrics::complaints::Complaints;
use ottla_sync::{Mutex, RwLock};
use ottla_types::{BrokerEpoch, DirectoryId, Offset, Timestamp, TopicId, TopicPartition};

use dir_locks::LockedDir;
use hosted_logs::{Hosted, HostedLogs};
use known_logs::{FailedLog, Future, LoadedLog};
use lock::DirLock;
use log_dir::FailureListener;
use read_dir::{ReadDir, ReadDirError};

use crate::format::NodeIdentity;

pub use cleaner::{CleaningClaim, CleaningPause, LogCleaner};
pub use describe::LogDirDescription;
pub use dir_locks::DirLocks;
pub use dir_threads::THREADS_PER_DIRECTORY;
pub use dir_threads::{DirThreads, ThreadLimit};
pub use disk_space::DiskSpace;
pub use future_logs::PromoteError;
pub use load::LoadSettings;
pub use lock::{Holder, holder_of};
pub use log_dir::{DirFailure, LogDir};
pub use recovery_progress::Loading;

/// All log directories of a broker.
pub struct LogDirs {
    /// In the order of `log.dirs`, including failed ones.
    dirs: Vec<Arc<LogDir>>,
    /// The logs in use.
    hosted: RwLock<HostedLogs>,
    /// Read at start before the logs are loaded.
    read: Mutex<Option<Vec<Result<ReadDir, ReadDirError>>>>,
    /// Logs loaded at start that no partition has claimed yet.
    loaded: Mutex<BTreeMap<TopicPartition, LoadedLog>>,
    /// Logs that could not be loaded although their directories are online.
    failed: Mutex<BTreeMap<TopicPartition, FailedLog>>,
    /// New logs that could not be created; they are still new at the next attempt.
    uncreated: Mutex<BTreeMap<TopicPartition, TopicId>>,
    /// Copies that will replace logs in other directories.
    futures: RwLock<BTreeMap<TopicPartition, Future>>,
    /// Held during the renames that promote or remove a copy; a copy that is promoted stays
    /// registered until they are over. Taken before all other locks.
    moves_end: Mutex<()>,
    /// The requested directories of logs that do not exist yet.
    preferred: Mutex<BTreeMap<TopicPartition, DirectoryId>>,
    on_failure: OnceLock<FailureListener>,
    cleaner: Arc<LogCleaner>,
    /// The file handle budget of all logs.
    handles: Arc<Handles>,
    /// Number of operations that lacked a handle, memory or another process resource.
    lacks: AtomicU64,
    complaints: Complaints,
    /// The lock of the metadata directory, if it is not a log directory.
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
    #[error(
        "the log is in log directory {path}, but could not be loaded at start; if space or file handles were missing, \
         it is loaded when they are available, otherwise at the next start"
    )]
    NotLoaded { path: String },
    #[error(
        "the log is in a directory with ID {id}, which this broker does not have: its disk is not mounted, was \
         replaced, or was removed from log.dirs. Bring it back, or elect another replica uncleanly; an empty log \
         here would make the other replicas delete their records"
    )]
    DirectoryGone { id: DirectoryId },
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Parameters of opening a log that are not in its directory.
#[derive(Clone)]
pub struct OpenSettings {
    pub config: Arc<TopicConfig>,
    pub producer_id_expiration_ms: i64,
    pub now: Timestamp,
    /// The partition was assigned to this broker while it was running, so no log of it can exist.
    pub is_new: bool,
    /// The controller may elect this replica for the records that its log had.
    pub may_lead: bool,
}

impl OpenSettings {
    /// For a log without checkpoints: everything in its directory is recovered.
    fn without_checkpoints(
        self,
        dir: PathBuf,
        topic_partition: &TopicPartition,
        log_dir: &LogDir,
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
            checkpoint_marks: Arc::clone(&log_dir.checkpoint_marks),
        }
    }
}

impl LogDirs {
    /// Takes over locked directories with a known identity. `handles` is the budget of their logs.
    pub fn new(locks: DirLocks, identity: &NodeIdentity, handles: Arc<Handles>) -> LogDirs {
        let mut dirs = Vec::new();
        let mut others = Vec::new();
        for LockedDir {
            configured,
            path,
            lock,
            opened,
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
                    opened,
                ))),
                // The metadata directory, if it is not a log directory.
                None => others.push(lock),
            }
        }
        LogDirs {
            dirs,
            other_locks: Mutex::new(others),
            hosted: RwLock::default(),
            read: Mutex::default(),
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

    /// The IDs of the online directories.
    pub fn online_directory_ids(&self) -> Vec<DirectoryId> {
        self.online().map(|dir| dir.directory_id).collect()
    }

    /// The IDs of the failed directories, for heartbeats.
    pub fn offline_directory_ids(&self) -> Vec<DirectoryId> {
        let offline = self.dirs.iter().filter(|dir| !dir.is_online());
        offline.map(|dir| dir.directory_id).collect()
    }

    /// The broker epoch in the clean shutdown markers, sent as the previous one at registration; -1
    /// if any directory was not stopped cleanly. To be called after [`LogDirs::load`].
    pub fn previous_broker_epoch(&self) -> BrokerEpoch {
        let mut epochs = self.dirs.iter().map(|dir| dir.previous_broker_epoch());
        let first = epochs.next().flatten();
        match first.filter(|first| epochs.all(|epoch| epoch == Some(*first))) {
            Some(epoch) => epoch,
            None => BrokerEpoch::UNKNOWN,
        }
    }

    /// The same before [`LogDirs::load`], which removes the markers. Does not remove them. Blocks.
    pub fn epoch_of_clean_stop(&self) -> BrokerEpoch {
        let mut epochs = self.online().map(|dir| dir.epoch_of_clean_stop());
        let first = epochs.next().flatten();
        match first.filter(|first| epochs.all(|epoch| epoch == Some(*first))) {
            Some(epoch) => epoch,
            None => BrokerEpoch::UNKNOWN,
        }
    }

    /// The directory of a log.
    pub fn directory_of(&self, topic_partition: &TopicPartition) -> Option<DirectoryId> {
        let hosted = self.hosted.read();
        Some(hosted.get(topic_partition)?.dir.directory_id)
    }

    /// The directory of all logs, if there is only one.
    pub fn only_directory(&self) -> Option<DirectoryId> {
        match self.dirs.as_slice() {
            [only] => Some(only.directory_id),
            _ => None,
        }
    }

    /// In the order of `log.dirs`, including failed ones.
    pub fn dirs(&self) -> &[Arc<LogDir>] {
        &self.dirs
    }

    /// The file handle budget of the logs.
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

    /// Opens the log of a partition: the loaded log, or a new one in the directory assigned by the
    /// metadata or else in the directory with the fewest logs. Blocks.
    pub fn open_log(
        &self,
        topic_partition: &TopicPartition,
        topic_id: TopicId,
        directory: Option<DirectoryId>,
        settings: OpenSettings,
    ) -> Result<Log, OpenLogError> {
        let recovered = self.recover_promoted(topic_partition, topic_id, directory);
        let recovered = recovered.map_err(LogError::from)?;
        let loaded = recovered
            .or_else(|| self.loaded.lock().remove(topic_partition))
            .or_else(|| self.reload(topic_partition, &settings));
        let (log, dir) = match loaded {
            Some(loaded) if loaded.topic_id.is_none_or(|id| id == topic_id) => {
                let mut log = loaded.log;
                log.set_config(settings.config);
                (log, loaded.dir)
            }
            Some(other) => {
                self.set_loaded_aside(other).map_err(LogError::from)?;
                self.create_log(topic_partition, topic_id, directory, settings)?
            }
            None => self.create_log(topic_partition, topic_id, directory, settings)?,
        };
        let reader = log.reader();
        let hosted = Hosted {
            reader: reader.clone(),
            dir: Arc::clone(&dir),
        };
        self.hosted.write().insert(hosted);
        // A truncation behind records that were cleaned away leaves a log that ends earlier after a
        // restart. The records that the leader sends again for the rest are not clean.
        let end = log.log_end_offset();
        if self.clean_offset(&reader).is_some_and(|clean| clean > end) {
            self.change_clean_offset(&dir, topic_partition, Some(end));
        }
        Ok(log)
    }

    /// Writes `partition.metadata` durably. Returns false if that must be retried: the disk is
    /// full, or the directory is gone. Any other failure takes the directory offline. Blocks.
    pub fn write_topic_id(&self, log: &LogReader, topic_id: TopicId) -> bool {
        let written = log.in_dir(|dir| PartitionMetadata { topic_id }.write(dir));
        let Err(error) = written else {
            return true;
        };
        let hosted = self.hosted.read();
        let of_name = hosted.get(log.topic_partition());
        let dir = of_name.filter(|hosted| hosted.reader.is_of_same_log(log));
        let dir = dir.map(|hosted| Arc::clone(&hosted.dir));
        drop(hosted);
        // A missing log was deleted, or was moved and needs no file.
        let Some(dir) = dir else {
            return true;
        };
        if error.error.kind() == std::io::ErrorKind::NotFound {
            return false;
        }
        self.on_storage_error(&dir, &error);
        !error.is_temporary()
    }

    /// Renames logs that belong to no partition of this broker to `-stray` names. Called when the
    /// metadata is known and the partitions have claimed their logs.
    pub fn set_strays_aside(&self) {
        let strays = std::mem::take(&mut *self.loaded.lock());
        for stray in strays.into_values() {
            // An error is handled there.
            let _ = self.set_loaded_aside(stray);
        }
        for stray in self.take_stray_futures() {
            let _ = self.set_aside(&stray);
        }
    }

    /// Renames a loaded log to a `-stray` name. If its disk is full, it keeps its name and stays loaded:
    /// a new log of the name would contain its records.
    fn set_loaded_aside(&self, stray: LoadedLog) -> Result<(), StorageError> {
        let set_aside = self.set_aside(&stray);
        if set_aside.is_err() && stray.dir.is_online() {
            // A stop does not close it.
            stray.dir.set_unclean();
            let topic_partition = stray.log.topic_partition().clone();
            self.loaded.lock().insert(topic_partition, stray);
        }
        set_aside
    }

    fn set_aside(&self, stray: &LoadedLog) -> Result<(), StorageError> {
        let topic_partition = stray.log.topic_partition();
        let name = dir_names::suffixed(
            topic_partition,
            ottla_sync::random::random("directory names"),
            STRAY_DIR_SUFFIX,
        );
        let renamed = stray.dir.rename_log(&stray.log.reader(), &name);
        renamed.inspect_err(|error| self.on_storage_error(&stray.dir, error))?;
        // It must not apply to a new log of the same name.
        self.change_clean_offset(&stray.dir, topic_partition, None);
        tracing::warn!(
            %topic_partition, dir = %stray.dir.path.display(), renamed_to = name,
            "the log belongs to no partition of this broker and was set aside"
        );
        Ok(())
    }

    /// Deletes the log of a removed partition: renames its directory at once, so that the name is
    /// free, and deletes the files after `file.delete.delay.ms`. [`Self::force_deletions`] is to
    /// follow: until its fsync a power loss may bring the log back, as one that belongs to no
    /// partition. A new log of the same name waits for that. A copy of the log is deleted in the
    /// same way; none may be created at the same time. Blocks.
    pub fn delete_log(&self, topic_partition: &TopicPartition) {
        // The end of a move renames the log and its copy, too. The ends of other moves, which wait
        // for the disk, do not matter to a log without a copy.
        let has_copy = self.future_directory_of(topic_partition).is_some();
        let _ending = has_copy.then(|| self.moves_end.lock());
        let hosted = self.hosted.write().remove(topic_partition);
        match hosted {
            Some(Hosted { reader, dir }) => {
                self.cleaner.abort_and_pause(topic_partition);
                self.cleaner.resume(topic_partition);
                self.cleaner.forget(topic_partition);
                self.change_clean_offset(&dir, topic_partition, None);
                self.begin_delete_dir(&reader, &dir);
            }
            None => self.delete_failed(topic_partition),
        }
        self.begin_remove_future(topic_partition);
    }

    /// Closes the directories when a start is aborted before any partition has claimed its log.
    /// Directories that had been stopped cleanly get their markers back, with the same broker
    /// epoch. Blocks.
    pub fn abandon(&self) {
        let epoch = self.previous_broker_epoch();
        let is_untouched = self.hosted.read().is_empty();
        let loaded = std::mem::take(&mut *self.loaded.lock());
        let mut unclean: Vec<Arc<LogDir>> = Vec::new();
        for (topic_partition, LoadedLog { mut log, dir, .. }) in loaded {
            let job = log.close_job();
            if let Err(error) = retry_lacking(|| job.run()) {
                tracing::error!(%topic_partition, "the log could not be closed: {error}");
                self.note_failed_fsync(&error);
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

    /// Closes a log in use with its job, and keeps what the next start can know of it. Waits for
    /// handles and memory. Blocks.
    pub fn close_log(&self, job: &CloseJob, topic_id: TopicId) -> Result<(), StorageError> {
        let closed = retry_lacking(|| job.run());
        closed.inspect_err(|error| self.note_failed_fsync(error))?;
        if let Some(log) = job.clean_log(topic_id)
            && let Some(hosted) = self.hosted.read().get(log.topic_partition())
        {
            hosted.dir.keep_clean_log(log);
        }
        Ok(())
    }

    /// Closes the directories after all logs were closed with their `close_job`: writes the
    /// checkpoints and finally the clean shutdown markers. `unclosed` names the logs that could not
    /// be closed; their directories are recovered at the next start. Blocks.
    pub fn close(&self, broker_epoch: BrokerEpoch, unclosed: &[TopicPartition]) {
        for dir in &self.dirs {
            dir.files.stop();
        }
        for dir in &self.dirs {
            // Nothing follows that would write what another round would find.
            dir.checkpoint_marks.set_all();
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
