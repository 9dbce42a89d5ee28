//! One log directory, and its failure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ottla_log::checkpoint::{
    CheckpointMarks, CleanShutdown, FAILED_FSYNC_FILE, FailedFsync, OffsetCheckpoint,
};
use ottla_log::{
    CLEAN_LOGS_FILE, CleanLog, CleanLogs, LogReader, MayLack, StorageError, force_again,
    retry_lacking,
};
use ottla_sync::Mutex;
use ottla_sync::atomic::{AtomicBool, Ordering};
use ottla_sync::fs::Dir;
use ottla_types::{BrokerEpoch, DirectoryId, Offset, TopicPartition};

use super::dir_threads::DirThreads;
use super::disk_space::DiskSpace;
use super::lock::DirLock;
use super::worker::Worker;

/// After this time, the removal of a directory that lacked a file handle is tried again.
pub(super) const REMOVAL_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct LogDir {
    /// The path in `log.dirs`.
    pub(super) configured: PathBuf,
    pub(super) path: PathBuf,
    pub(super) directory_id: DirectoryId,
    /// It contains the metadata log, without which the node cannot continue.
    pub(super) holds_metadata: bool,
    lock: Mutex<Option<DirLock>>,
    /// Kept open, because there may be no file handle left when it has to be fsynced.
    opened: Dir,
    /// It gets no new logs (`cordoned.log.dirs`).
    is_cordoned: AtomicBool,
    /// Why it is offline; the first reason is kept.
    failure: OnceLock<String>,
    /// An fsync has failed since the start. Locked while the file that says so changes.
    has_failed_fsync: Arc<Mutex<bool>>,
    /// Set if the start has found that file: its logs are forced to disk once more.
    forces_again: OnceLock<()>,
    /// The marker of the last clean stop, once it was read.
    clean_shutdown: OnceLock<Option<CleanShutdown>>,
    /// Unfinished moves into the directory, found at start.
    pub(super) futures_found: Mutex<Vec<(TopicPartition, PathBuf)>>,
    /// Its logs that were closed and need not be read by the next start.
    clean_logs: Mutex<Vec<CleanLog>>,
    /// Some log in it could not be closed.
    is_unclean: AtomicBool,
    /// All logs found at start were loaded.
    is_loaded: AtomicBool,
    /// Until then, no log that could not be loaded at start is loaded again.
    reloads_paused_until: Mutex<Option<Instant>>,
    /// The space left for appends.
    pub(super) space: Arc<DiskSpace>,
    /// The thread limits for blocking work on its logs.
    pub threads: Arc<DirThreads>,
    /// Deletes directories of deleted partitions and writes small files.
    pub(super) files: Worker,
    pub(super) written: Written,
    /// Deleted logs whose new names may not be on disk, by the new path of each.
    unforced: Mutex<BTreeMap<PathBuf, DeletedLog>>,
    /// Set by its logs when they change an offset in a checkpoint.
    pub(super) checkpoint_marks: Arc<CheckpointMarks>,
}

/// A log whose directory was renamed in order to delete it.
#[derive(Clone)]
struct DeletedLog {
    topic_partition: TopicPartition,
    /// How long its files stay for readers.
    delay: Duration,
    /// Its directory could not be renamed yet: the disk was full.
    unrenamed: Option<LogReader>,
}

impl std::fmt::Debug for DeletedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeletedLog({})", self.topic_partition)
    }
}

/// How long the files of a deleted log stay for readers.
pub(super) fn delete_delay(log: &LogReader) -> Duration {
    let delay_ms = log.config().file_delete_delay_ms;
    Duration::from_millis(u64::try_from(delay_ms).unwrap_or_default())
}

/// Called once for each directory that fails.
pub(super) type FailureListener = Box<dyn Fn(&DirFailure) + Send + Sync>;

/// A directory went offline with its logs.
pub struct DirFailure {
    pub partitions: Vec<TopicPartition>,
    /// Why the broker cannot continue, as a sentence: no directory is left, or it contained the
    /// metadata log.
    pub is_fatal: Option<String>,
}

/// The last written content of the checkpoints, so that unchanged files are not written; `None`
/// before the first write, and while nothing changes.
#[derive(Default, Debug)]
pub(super) struct Written {
    pub(super) recovery_points: Mutex<Option<OffsetCheckpoint>>,
    pub(super) log_start_offsets: Mutex<Option<OffsetCheckpoint>>,
    pub(super) high_watermarks: Mutex<Option<OffsetCheckpoint>>,
    /// Also the source for reads.
    pub(super) clean_offsets: Mutex<Option<OffsetCheckpoint>>,
    /// For each [`CheckpointedOffset`](ottla_log::checkpoint::CheckpointedOffset): the number of
    /// changes of the hosted logs when the checkpoint was last compared with them. `None` if
    /// an offset was marked then, or other logs were to be compared as well.
    pub(super) compared_at: [Mutex<Option<u64>>; 3],
}

impl LogDir {
    pub(super) fn new(
        configured: PathBuf,
        path: PathBuf,
        directory_id: DirectoryId,
        holds_metadata: bool,
        lock: DirLock,
        opened: Dir,
    ) -> LogDir {
        let checkpoint_marks = Arc::new(CheckpointMarks::of(path.clone()));
        LogDir {
            configured,
            path,
            directory_id,
            holds_metadata,
            lock: Mutex::new(Some(lock)),
            opened,
            is_cordoned: AtomicBool::new(false),
            failure: OnceLock::new(),
            has_failed_fsync: Arc::default(),
            forces_again: OnceLock::new(),
            clean_shutdown: OnceLock::new(),
            futures_found: Mutex::default(),
            clean_logs: Mutex::default(),
            is_unclean: AtomicBool::new(false),
            is_loaded: AtomicBool::new(false),
            reloads_paused_until: Mutex::default(),
            space: Arc::default(),
            threads: Arc::default(),
            files: Worker::start("log-files"),
            written: Written::default(),
            unforced: Mutex::default(),
            checkpoint_marks,
        }
    }

    pub fn is_online(&self) -> bool {
        self.failure.get().is_none()
    }

    pub(super) fn is_cordoned(&self) -> bool {
        self.is_cordoned.load(Ordering::Acquire)
    }

    /// Returns whether it has changed.
    pub(super) fn set_cordoned(&self, is_cordoned: bool) -> bool {
        self.is_cordoned.swap(is_cordoned, Ordering::AcqRel) != is_cordoned
    }

    /// Returns whether it was online before.
    pub(super) fn fail(&self, reason: &str) -> bool {
        self.failure.set(reason.to_owned()).is_ok()
    }

    /// Tells the next start that the page cache may have what the disk does not have. Blocks.
    pub(super) fn note_failed_fsync(&self) {
        note_failed_fsync(&self.path, &self.has_failed_fsync);
    }

    /// The same on the thread for small files: threads that serve requests of all directories hear
    /// of failed fsyncs, and the creation of a file may hang with the disk. Before all that waits
    /// there: the directories of many logs may take long to remove. Blocks only after the stop of
    /// that thread.
    pub(super) fn note_failed_fsync_soon(&self) {
        let (path, has_failed) = (self.path.clone(), Arc::clone(&self.has_failed_fsync));
        let note = move || note_failed_fsync(&path, &has_failed);
        if !self.files.submit_first(note) {
            self.note_failed_fsync();
        }
    }

    /// The start has found that an fsync had failed.
    pub(super) fn set_forces_again(&self) {
        let file = FAILED_FSYNC_FILE;
        tracing::warn!(
            dir = %self.path.display(), file,
            "an fsync failed before the last stop: all logs of the directory are recovered and forced to disk once more"
        );
        let _ = self.forces_again.set(());
    }

    /// Whether an earlier process may have left something in the page cache that is not on disk.
    pub(super) fn forces_again(&self) -> bool {
        self.forces_again.get().is_some()
    }

    /// Forces a log that is not open yet, if [`Self::forces_again`]. Blocks.
    pub(super) fn force_log_again(
        &self,
        log: &Path,
        recovery_point: Offset,
    ) -> Result<(), StorageError> {
        match self.forces_again() {
            true => force_again(log, recovery_point),
            false => Ok(()),
        }
    }

    /// All logs were forced to disk once more.
    fn on_forced_again(&self) {
        let has_failed = self.has_failed_fsync.lock();
        if *has_failed || !self.is_online() || self.is_unclean.load(Ordering::Acquire) {
            return;
        }
        if let Err(error) = FailedFsync::delete(&self.path) {
            tracing::warn!("the next start forces all logs of the directory once more: {error}");
        }
    }

    /// Gives the directory of a log another name, durably. After an error it has the old one. Blocks.
    pub(super) fn rename_log(&self, log: &LogReader, name: &str) -> Result<(), StorageError> {
        let before = log.dir();
        log.rename_dir(&self.path.join(name))?;
        self.sync_names().inspect_err(|_| {
            // A log that stays in use must not keep a name that a start deletes. If this fails, too,
            // no more can be done in a directory that has failed.
            let _ = log.rename_dir(&before);
        })
    }

    /// A log was renamed to `path`, or is to be if it is `unrenamed`, and is deleted after the delay once
    /// that name is on disk.
    pub(super) fn note_deleted(
        &self,
        topic_partition: &TopicPartition,
        path: PathBuf,
        delay: Duration,
        unrenamed: Option<LogReader>,
    ) {
        let deleted = DeletedLog {
            topic_partition: topic_partition.clone(),
            delay,
            unrenamed,
        };
        self.unforced.lock().insert(path, deleted);
    }

    /// Whether a power loss may bring back a deleted log, of this name if there is one.
    pub(super) fn may_return(&self, name: Option<&TopicPartition>) -> bool {
        let unforced = self.unforced.lock();
        let mut names = unforced.values().map(|deleted| &deleted.topic_partition);
        names.any(|deleted| name.is_none_or(|name| name == deleted))
    }

    /// Fsyncs the new names of deleted logs. After a temporary error, some still have their old
    /// names. Blocks.
    pub(super) fn force_deletions(&self) -> Result<(), StorageError> {
        let mut unforced = self.unforced.lock();
        for (path, deleted) in unforced.iter_mut() {
            if let Some(log) = &deleted.unrenamed {
                log.rename_dir(path)?;
                deleted.unrenamed = None;
            }
        }
        let renamed = unforced.clone();
        drop(unforced);
        if renamed.is_empty() {
            return Ok(());
        }
        self.sync_names()?;
        for (path, DeletedLog { delay, .. }) in renamed {
            // Another thread may have done the same.
            if self.unforced.lock().remove(&path).is_some() {
                self.remove_later(path, delay);
            }
        }
        Ok(())
    }

    /// Fsyncs the names in the directory. An error is never temporary: no file handle is needed, and
    /// a failed fsync is not tried again. Blocks.
    pub(super) fn sync_names(&self) -> Result<(), StorageError> {
        let synced = self.opened.sync();
        synced.map_err(|error| StorageError::fsync(&self.path, error))
    }

    /// Removes a directory, whose new name is on disk, after the delay for readers. If a file handle is
    /// missing, it is tried again later: the forced deletions of other logs run on the same thread,
    /// and a stop waits for it. After a stop, the next start removes the directory.
    pub(super) fn remove_later(&self, path: PathBuf, delay: Duration) {
        let remove = move || remove_dir(&path);
        self.files.submit_until_done(delay, REMOVAL_PAUSE, remove);
    }

    /// What the last clean stop has written of the logs; empty without a marker.
    pub(super) fn clean_logs(&self) -> CleanLogs {
        retry_lacking(|| CleanLogs::read(&self.path)).unwrap_or_else(|why| {
            let file = CLEAN_LOGS_FILE;
            tracing::info!(dir = %self.path.display(), file, "every log is opened by its files: {why}");
            CleanLogs::default()
        })
    }

    /// Reads and deletes the marker of the last clean stop, and deletes what that stop has written
    /// of the logs: from here on a crash leads to recovery. Returns whether there was a marker. After
    /// a failed fsync, it is not believed. Each step waits for file handles by itself: another attempt
    /// at all of them could find no marker.
    pub(super) fn take_clean_shutdown(&self) -> Result<bool, StorageError> {
        let found = retry_lacking(|| CleanShutdown::read(&self.path))?;
        let found = found.filter(|_| !self.forces_again());
        retry_lacking(|| CleanLogs::delete(&self.path))?;
        retry_lacking(|| CleanShutdown::delete(&self.path))?;
        Ok(self.clean_shutdown.get_or_init(|| found).is_some())
    }

    /// Keeps what the next start can know of a closed log.
    pub(super) fn keep_clean_log(&self, log: CleanLog) {
        self.clean_logs.lock().push(log);
    }

    pub(super) fn previous_broker_epoch(&self) -> Option<BrokerEpoch> {
        self.clean_shutdown.get().copied().flatten()?.broker_epoch
    }

    /// The broker epoch in the marker of the last clean stop, without removing the marker. `None`
    /// if the marker will not be believed.
    pub(super) fn epoch_of_clean_stop(&self) -> Option<BrokerEpoch> {
        if FailedFsync::is_noted(&self.path) {
            return None;
        }
        // An unreadable marker is reported when it is removed.
        let found = retry_lacking(|| CleanShutdown::read(&self.path));
        found.ok().flatten()?.broker_epoch
    }

    /// Whether there was a marker of a clean stop at start.
    pub(super) fn was_clean(&self) -> bool {
        self.clean_shutdown.get().copied().flatten().is_some()
    }

    /// Prevents the marker of a clean stop.
    pub(super) fn set_unclean(&self) {
        self.is_unclean.store(true, Ordering::Release);
    }

    pub(super) fn pause_reloads(&self, pause: Duration) {
        *self.reloads_paused_until.lock() = Some(ottla_sync::time::now() + pause);
    }

    pub(super) fn pauses_reloads(&self) -> bool {
        let until = *self.reloads_paused_until.lock();
        until.is_some_and(|until| ottla_sync::time::now() < until)
    }

    /// All logs found at start were loaded, or deleted since.
    pub(super) fn set_loaded(&self) {
        self.is_loaded.store(true, Ordering::Release);
        if self.forces_again() {
            self.on_forced_again();
        }
    }

    /// Writes the marker of a clean stop, after what is known of the closed logs, unless the start
    /// was aborted before all logs were loaded and the directory had not been stopped cleanly.
    pub(super) fn mark_clean(&self, broker_epoch: BrokerEpoch) -> Result<(), StorageError> {
        let is_unclean = self.is_unclean.load(Ordering::Acquire);
        if is_unclean || !(self.was_clean() || self.is_loaded.load(Ordering::Acquire)) {
            return Ok(());
        }
        let mut clean_logs = self.clean_logs.lock();
        // Without an epoch, another stop could not be told from this one.
        if broker_epoch != BrokerEpoch::UNKNOWN && !clean_logs.is_empty() {
            match CleanLogs::write(&self.path, broker_epoch, &mut clean_logs) {
                Err(error) if error.is_disk_full() => {
                    tracing::warn!("the next start opens every log by its files: {error}");
                }
                written => written?,
            }
        }
        CleanShutdown::write(&self.path, broker_epoch)
    }

    pub(super) fn unlock(&self) {
        *self.lock.lock() = None;
    }
}

fn note_failed_fsync(log_dir: &Path, has_failed: &Mutex<bool>) {
    let mut has_failed = has_failed.lock();
    if std::mem::replace(&mut *has_failed, true) {
        return;
    }
    if let Err(error) = retry_lacking(|| FailedFsync::write(log_dir)) {
        tracing::error!(
            dir = %log_dir.display(),
            "an fsync has failed, and the next start cannot be told: {error}; restart the machine and not only \
             the process, or create an empty file {FAILED_FSYNC_FILE} in the directory before"
        );
    }
}

/// Returns false if it is to be tried again.
fn remove_dir(path: &Path) -> bool {
    match ottla_sync::fs::remove_dir_all(path) {
        Err(error) if error.is_lack_of_resources() => return false,
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(dir = %path.display(), %error, "a deleted log could not be removed");
        }
        _ => {}
    }
    true
}
