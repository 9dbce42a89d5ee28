//! Future logs: copies that will replace logs in other directories (KIP-113).
//!
//! A future log is in `<topic>-<partition>.<id>-future`. The task that moves the replica fills it
//! and owns the [`Log`]; this is the register, for checkpoints and DescribeLogDirs. If its log is
//! no longer registered, the task ends: the move was cancelled, the topic deleted, or the directory
//! failed.
//!
//! Kafka: `LogManager.futureLogs`, `LogManager.replaceCurrentWithFutureLog`,
//! `recoverAbandonedFutureLogs`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ottla_log::checkpoint::{
    LOG_START_OFFSET_CHECKPOINT, PartitionMetadata, RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
};
use ottla_log::file_names::{DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, LOG_SUFFIX};
use ottla_log::{
    Handles, Log, LogError, LogReader, MayLack, OpenParams, StorageError, retry_lacking,
};
use ottla_types::{DirectoryId, ErrorCode, Offset, TopicId, TopicPartition};

use super::hosted_logs::Hosted;
use super::known_logs::{Future, LoadedLog};
use super::load::LoadSettings;
use super::log_dir::{LogDir, delete_delay};
use super::read_dir::read_checkpoint;
use super::{LogDirs, OpenLogError, OpenSettings, dir_names};

/// The directory name must fit: Kafka does not shorten that of a future log.
const MAX_NAME_BYTES: usize = 255;

/// Maximum number of remembered directories for logs that do not exist yet.
const MAX_PREFERRED: usize = 100_000;

impl LogDirs {
    /// The directory named by AlterReplicaLogDirs, which must accept replicas.
    pub fn destination(&self, path: &str) -> Result<DirectoryId, ErrorCode> {
        // Kafka compares with `getAbsolutePath`, which has no trailing separator; a path with one
        // does not match.
        let shown = |dir: &LogDir| dir.path.components().as_path().as_os_str() == path;
        let dir = self.dirs.iter().find(|dir| shown(dir));
        match dir {
            None => Err(ErrorCode::LogDirNotFound),
            Some(dir) if !dir.is_online() => Err(ErrorCode::KafkaStorageError),
            Some(dir) if dir.is_cordoned() => Err(ErrorCode::InvalidReplicaAssignment),
            Some(dir) => Ok(dir.directory_id),
        }
    }

    /// Whether the name of a future log's directory fits.
    pub fn may_have_future(topic_partition: &TopicPartition) -> bool {
        let id_bytes = 32;
        topic_partition.dir_name().len() + 1 + id_bytes + FUTURE_DIR_SUFFIX.len() <= MAX_NAME_BYTES
    }

    /// Remembers the directory for a log until it is created.
    pub fn prefer(&self, topic_partition: &TopicPartition, directory: DirectoryId) {
        let is_there = self.directory_of(topic_partition) == Some(directory)
            || self.future_directory_of(topic_partition) == Some(directory);
        if !is_there {
            let mut preferred = self.preferred.lock();
            if preferred.len() < MAX_PREFERRED || preferred.contains_key(topic_partition) {
                preferred.insert(topic_partition.clone(), directory);
            }
        }
    }

    /// The directory of a log's copy.
    pub fn future_directory_of(&self, topic_partition: &TopicPartition) -> Option<DirectoryId> {
        let futures = self.futures.read();
        Some(futures.get(topic_partition)?.dir.directory_id)
    }

    /// Whether a log is registered as a copy.
    pub fn is_future(&self, log: &LogReader) -> bool {
        let futures = self.futures.read();
        let of_name = futures.get(log.topic_partition());
        of_name.is_some_and(|future| future.reader.is_of_same_log(log))
    }

    /// Creates a copy in another directory. Blocks.
    pub fn create_future(
        &self,
        topic_partition: &TopicPartition,
        topic_id: TopicId,
        directory: DirectoryId,
        settings: OpenSettings,
    ) -> Result<Log, OpenLogError> {
        self.preferred.lock().remove(topic_partition);
        // It might contain an earlier copy.
        if let Some(offline) = self.dirs.iter().find(|dir| !dir.is_online()) {
            let path = offline.path.display().to_string();
            return Err(OpenLogError::MayBeOffline { path });
        }
        let dir = self.dirs.iter().find(|dir| dir.directory_id == directory);
        let dir = dir.ok_or(OpenLogError::NoDirectory)?;
        let name = dir_names::suffixed(
            topic_partition,
            ottla_sync::random::random("directory names"),
            FUTURE_DIR_SUFFIX,
        );
        let path = dir.path.join(name);
        let opened = self
            .forget_predecessor(dir, topic_partition)
            .map_err(LogError::from)
            .and_then(|()| {
                Log::open(settings.without_checkpoints(
                    path.clone(),
                    topic_partition,
                    dir,
                    &self.handles,
                ))
            });
        let written = opened.and_then(|(log, _)| {
            // At once, because Kafka does not start with a future log without a topic ID.
            PartitionMetadata { topic_id }.write(&path)?;
            Ok(log)
        });
        let log = written.inspect_err(|error| self.on_log_error(dir, error))?;
        let future = Future {
            reader: log.reader(),
            dir: Arc::clone(dir),
            topic_id,
            waiting: None,
            is_claimed: false,
        };
        self.futures.write().insert(topic_partition.clone(), future);
        Ok(log)
    }

    /// Cancels a copy and deletes it: renames its directory, starts to fsync the new name, and deletes
    /// the files after a delay. Blocks.
    pub fn remove_future(self: &Arc<Self>, topic_partition: &TopicPartition) {
        let ending = self.moves_end.lock();
        self.begin_remove_future(topic_partition);
        drop(ending);
        self.force_deletions();
    }

    /// The same without the fsync: [`Self::force_deletions`] is to follow. The caller holds `moves_end`
    /// if there may be a copy.
    pub(super) fn begin_remove_future(&self, topic_partition: &TopicPartition) {
        let removed = self.futures.write().remove(topic_partition);
        if let Some(Future { reader, dir, .. }) = removed {
            self.begin_delete_dir(&reader, &dir);
        }
    }

    /// Renames the directory of a log, so that its name is free, and deletes it after a delay. Waits
    /// for an fsync.
    pub(super) fn delete_dir(&self, log: &LogReader, dir: &Arc<LogDir>) {
        self.begin_delete_dir(log, dir);
        if let Err(error) = dir.force_deletions() {
            self.on_storage_error(dir, &error);
        }
    }

    /// The same without the fsync: [`LogDir::force_deletions`] is to follow.
    pub(super) fn begin_delete_dir(&self, log: &LogReader, dir: &Arc<LogDir>) {
        let path = dir.path.join(new_name(log, DELETE_DIR_SUFFIX));
        let unrenamed = match log.rename_dir(&path) {
            Ok(()) => None,
            Err(error) => {
                self.on_storage_error(dir, &error);
                if !error.is_temporary() {
                    return;
                }
                // It is tried again when the deletion is forced.
                Some(log.clone())
            }
        };
        dir.note_deleted(log.topic_partition(), path, delete_delay(log), unrenamed);
    }

    /// Starts to fsync the names of deleted logs, on the threads that delete files: the disk may take
    /// long, and a caller need not wait for it.
    pub fn force_deletions(self: &Arc<Self>) {
        for dir in self.online().filter(|dir| dir.may_return(None)) {
            let (dirs, of_dir) = (Arc::downgrade(self), Arc::downgrade(dir));
            dir.files.submit(Duration::ZERO, move || {
                if let (Some(dirs), Some(dir)) = (dirs.upgrade(), of_dir.upgrade())
                    && let Err(error) = dir.force_deletions()
                {
                    dirs.on_storage_error(&dir, &error);
                }
            });
        }
    }

    /// Renames a copy so that a start deletes it instead of promoting it, also after a power loss.
    /// Blocks.
    ///
    /// No effect if the directory of the log has failed: nothing is appended to the log any more, and
    /// if the move has failed in the middle, its name is one that a start deletes as well.
    pub fn hide_future(&self, future: &LogReader) -> Result<(), StorageError> {
        let hosted = self.hosted.read();
        let log = hosted.get(future.topic_partition());
        let is_lost = log.is_some_and(|log| !log.dir.is_online());
        drop(hosted);
        match is_lost {
            true => Ok(()),
            false => self.rename_future(future, DELETE_DIR_SUFFIX),
        }
    }

    /// Reverts [`Self::hide_future`]. Blocks.
    pub fn show_future(&self, future: &LogReader) -> Result<(), StorageError> {
        self.rename_future(future, FUTURE_DIR_SUFFIX)
    }

    fn rename_future(&self, future: &LogReader, suffix: &str) -> Result<(), StorageError> {
        let _ending = self.moves_end.lock();
        match self.dir_of_future(future) {
            Some(dir) => dir.rename_log(future, &new_name(future, suffix)),
            // The copy was cancelled and is being deleted.
            None => match self.dir_of(future).filter(|dir| dir.is_online()) {
                Some(dir) => dir.force_deletions(),
                None => Ok(()),
            },
        }
    }

    fn dir_of_future(&self, future: &LogReader) -> Option<Arc<LogDir>> {
        let futures = self.futures.read();
        let of_name = futures.get(future.topic_partition())?;
        let is_same = of_name.reader.is_of_same_log(future);
        is_same.then(|| Arc::clone(&of_name.dir))
    }

    /// Replaces the log by a complete copy that is on disk. The old files are deleted after a
    /// delay. On an error nothing has changed. Called by the thread that steps the partition.
    /// Blocks.
    ///
    /// A kill may come between the two renames. If the controller is known to have committed the
    /// new directory (`is_written_down`), the log is renamed first: a start then finds a copy in
    /// the assigned directory and no log, and both Ottla and Kafka promote it. Otherwise the copy
    /// is renamed first, as in Kafka: with two logs of one name Kafka does not start, but loses
    /// nothing.
    pub fn promote(&self, future: &LogReader, is_written_down: bool) -> Result<(), PromoteError> {
        let topic_partition = future.topic_partition();
        // Held, so that neither the copy nor the log can be deleted at the same time. The register
        // itself is not locked, because threads that must not wait for the disk use it.
        let ending = self.moves_end.lock();
        let Some(dir) = self.dir_of_future(future) else {
            return Err(PromoteError::GivenUp);
        };
        let hosted = self.hosted.read();
        let old = hosted.get(topic_partition);
        let old = old.map(|log| (log.reader.clone(), Arc::clone(&log.dir)));
        drop(hosted);
        let Some((old, from)) = old else {
            return Err(PromoteError::GivenUp);
        };
        if is_written_down {
            let renamed = from.rename_log(&old, &new_name(&old, DELETE_DIR_SUFFIX));
            renamed.map_err(PromoteError::Log)?;
        }
        let name = topic_partition.dir_name();
        if let Err(error) = dir.rename_log(future, &name) {
            if is_written_down && let Err(second) = from.rename_log(&old, &name) {
                // Also if its disk is full: a log in use must not keep a name that a start deletes.
                // The next start finds the copy.
                self.fail(&from, &second.to_string());
            }
            return Err(PromoteError::Copy(error));
        }
        let promoted = Hosted {
            reader: future.clone(),
            dir: Arc::clone(&dir),
        };
        let is_exchanged = self.hosted.write().exchange(&old, promoted);
        if !is_exchanged {
            // The copy's directory has failed meanwhile, so that the log's deletion did not wait.
            return Err(PromoteError::GivenUp);
        }
        self.move_clean_offset(topic_partition, &from, &dir);
        match is_written_down {
            true => from.remove_later(old.dir(), delete_delay(&old)),
            // Appends go on in the copy: the log must not come back.
            false => self.delete_dir(&old, &from),
        }
        // From here on, a deletion of the log need not wait.
        self.futures.write().remove(topic_partition);
        drop(ending);
        self.on_put_in_use(topic_partition, &dir);
        // The old directory's checkpoint entries must not outlive the log.
        for dir in [&dir, &from] {
            self.checkpoint_recovery_points(dir);
            self.checkpoint_log_start_offsets(dir);
        }
        Ok(())
    }

    /// Opens the copies found at start. An error concerns the directory as it would for a log, except
    /// that a lasting lack of handles or memory refuses the start.
    pub(super) fn load_futures(&self, settings: &LoadSettings<'_>) -> Result<(), String> {
        for dir in self.dirs.iter().filter(|dir| dir.is_online()) {
            for (topic_partition, path) in std::mem::take(&mut *dir.futures_found.lock()) {
                let load = || load_future(dir, &topic_partition, &path, settings, &self.handles);
                match retry_lacking(load) {
                    Ok(Some(future)) => {
                        let second = self.futures.write().insert(topic_partition, future);
                        if let Some(second) = second {
                            tracing::warn!(dir = %second.reader.dir().display(), "a second unfinished move of the same replica is abandoned");
                            self.delete_dir(&second.reader, &second.dir);
                        }
                    }
                    // Killed before the topic ID was written, and before anything was copied.
                    Ok(None) if !has_records(&path) => {
                        tracing::info!(dir = %path.display(), "the empty copy of a move that had just begun is deleted");
                        dir.remove_later(path, Duration::ZERO);
                    }
                    Ok(None) => {
                        tracing::warn!(dir = %path.display(), "an unfinished move does not name its topic, and is ignored");
                    }
                    // It may be the only log of its partition, which would get an empty one.
                    Err(error) if error.is_lack_of_resources() => {
                        let path = path.display();
                        return Err(format!(
                            "cannot continue the unfinished move {path} for now: {error}"
                        ));
                    }
                    Err(error) => {
                        tracing::error!(dir = %path.display(), "cannot continue an unfinished move: {error}");
                        // The next start must not take it for a closed one.
                        dir.set_unclean();
                        self.on_log_error(dir, &error);
                    }
                }
            }
        }
        Ok(())
    }

    /// A copy that the controller knew before the stop and that holds everything the log holds:
    /// only its rename was missing. Returns it under its new name.
    ///
    /// Between the report to the controller and the renames, records may have been acknowledged
    /// that only the log has. Then the log stays in use and the move continues. Kafka 4.3 promotes
    /// the copy regardless of its contents, and loses these records
    /// (`LogManager.recoverAbandonedFutureLogs`).
    ///
    /// If it cannot be renamed, no other log may be created, which would lead without any records.
    pub(super) fn recover_promoted(
        &self,
        topic_partition: &TopicPartition,
        topic_id: TopicId,
        directory: Option<DirectoryId>,
    ) -> Result<Option<LoadedLog>, StorageError> {
        // The content of a log that could not be loaded is unknown.
        let is_unknown = self.failed.lock().contains_key(topic_partition);
        let mut futures = self.futures.write();
        let Some(future) = futures.get(topic_partition).filter(|_| !is_unknown) else {
            return Ok(None);
        };
        let is_all_but_ended = Some(future.dir.directory_id) == directory
            && future.topic_id == topic_id
            && future.waiting.is_some();
        let lacks_records = self.loaded.lock().get(topic_partition).is_some_and(|log| {
            log.topic_id.is_none_or(|id| id == topic_id)
                && log.log.log_end_offset() > future.reader.log_end_offset()
        });
        if !is_all_but_ended || lacks_records {
            return Ok(None);
        }
        let Some(mut future) = futures.remove(topic_partition) else {
            return Ok(None);
        };
        drop(futures);
        if let Some(current) = self.loaded.lock().remove(topic_partition) {
            self.delete_dir(&current.log.reader(), &current.dir);
        }
        let name = topic_partition.dir_name();
        if let Err(error) = future.dir.rename_log(&future.reader, &name) {
            self.on_storage_error(&future.dir, &error);
            if future.dir.is_online() {
                // Tried again when there is space. Until then, a stop does not close it.
                future.dir.set_unclean();
                future.is_claimed = true;
                self.futures.write().insert(topic_partition.clone(), future);
            }
            return Err(error);
        }
        tracing::info!(%topic_partition, "completed a move that was almost complete");
        let Future { waiting, dir, .. } = future;
        Ok(waiting.map(|log| LoadedLog {
            log,
            dir,
            topic_id: Some(topic_id),
        }))
    }

    /// The copies found at start whose logs are in use, with their topic IDs: their moves continue.
    pub fn take_waiting_futures(&self) -> Vec<(TopicPartition, TopicId, Log)> {
        let hosted = self.hosted.read();
        let mut futures = self.futures.write();
        let waiting = futures
            .iter_mut()
            .filter(|(topic_partition, _)| hosted.contains_key(topic_partition));
        waiting
            .filter_map(|(topic_partition, future)| {
                let log = future.waiting.take()?;
                Some((topic_partition.clone(), future.topic_id, log))
            })
            .collect()
    }

    /// The copies found at start that belong to no partition of this broker.
    pub(super) fn take_stray_futures(&self) -> Vec<LoadedLog> {
        // The log of a replica being moved may be in an offline directory.
        if self.dirs.iter().any(|dir| !dir.is_online()) {
            return Vec::new();
        }
        let hosted = self.hosted.read();
        let mut futures = self.futures.write();
        let strays: Vec<_> = futures
            .extract_if(.., |topic_partition, future| {
                future.waiting.is_some()
                    && !future.is_claimed
                    && !hosted.contains_key(topic_partition)
            })
            .collect();
        drop((hosted, futures));
        strays
            .into_iter()
            .filter_map(|(_, future)| {
                Some(LoadedLog {
                    log: future.waiting?,
                    dir: future.dir,
                    topic_id: Some(future.topic_id),
                })
            })
            .collect()
    }

    /// Removes a copy from the register; its files stay.
    pub fn forget_future(&self, topic_partition: &TopicPartition) {
        self.futures.write().remove(topic_partition);
    }

    /// Removes the copies in a failed directory from the register; their files stay.
    pub(super) fn forget_futures_in(&self, dir: &Arc<LogDir>) {
        let mut futures = self.futures.write();
        futures.retain(|_, future| !Arc::ptr_eq(&future.dir, dir));
    }

    /// A copy could not be closed at a stop: its directory is recovered at the next start.
    pub fn on_future_unclosed(&self, log: &LogReader) {
        if let Some(dir) = self.dir_of(log) {
            dir.set_unclean();
        }
    }
}

/// Why a copy was not promoted.
#[derive(Debug)]
pub enum PromoteError {
    /// It is no longer registered.
    GivenUp,
    /// An error in the log's directory.
    Log(StorageError),
    /// An error in the copy's directory.
    Copy(StorageError),
}

/// A unique name for the directory of a log with this suffix.
fn new_name(log: &LogReader, suffix: &str) -> String {
    dir_names::suffixed(
        log.topic_partition(),
        ottla_sync::random::random("directory names"),
        suffix,
    )
}

/// Whether a segment in this directory is not empty, as far as that can be found out. The result of a
/// cleaning that has not ended is one too (`.log.swap`).
fn has_records(dir: &Path) -> bool {
    let is_empty_log = |entry: std::io::Result<ottla_sync::fs::DirEntry>| {
        let entry = entry?;
        let is_log = entry.file_name().to_string_lossy().contains(LOG_SUFFIX);
        Ok::<_, std::io::Error>(!is_log || entry.metadata()?.len() == 0)
    };
    let mut entries = match ottla_sync::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(_) => return true,
    };
    !entries.all(|entry| is_empty_log(entry).unwrap_or(false))
}

/// `None` if the files have no topic ID.
fn load_future(
    dir: &Arc<LogDir>,
    topic_partition: &TopicPartition,
    path: &Path,
    settings: &LoadSettings<'_>,
    handles: &Arc<Handles>,
) -> Result<Option<Future>, LogError> {
    let Some(metadata) = PartitionMetadata::read(path)? else {
        return Ok(None);
    };
    let offset = |checkpoint: &str| {
        let read = read_checkpoint(&dir.path.join(checkpoint))?;
        let offset = read.offsets.get(topic_partition).copied();
        Ok::<_, StorageError>(offset.unwrap_or_default().max(Offset::ZERO))
    };
    let recovery_point = offset(RECOVERY_POINT_CHECKPOINT)?;
    dir.force_log_again(path, recovery_point)?;
    let (mut log, _) = Log::open(OpenParams {
        dir: path.to_path_buf(),
        topic_partition: topic_partition.clone(),
        config: (settings.topic_config)(&topic_partition.topic),
        recovery_point,
        log_start_offset: offset(LOG_START_OFFSET_CHECKPOINT)?,
        clean_shutdown: dir.was_clean(),
        now: settings.now,
        producer_id_expiration_ms: settings.producer_id_expiration_ms,
        random_seed: ottla_sync::random::random("log"),
        handles: Arc::clone(handles),
        checkpoint_marks: Arc::clone(&dir.checkpoint_marks),
    })?;
    log.set_high_watermark(offset(REPLICATION_OFFSET_CHECKPOINT)?);
    Ok(Some(Future {
        reader: log.reader(),
        dir: Arc::clone(dir),
        topic_id: metadata.topic_id,
        waiting: Some(log),
        is_claimed: false,
    }))
}
