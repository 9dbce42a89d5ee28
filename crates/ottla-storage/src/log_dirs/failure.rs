//! The decision that a log directory has failed, and the notification.
//!
//! A full disk, a lack of handles or memory ([`StorageError::cause`]), and a missing file of a
//! concurrently deleted log are no failures. Any other error of a file operation takes the
//! directory offline for good: its page cache may differ from the disk. The first reason is kept. A
//! failed fsync is told to the next start ([`FailedFsync`](ottla_log::checkpoint::FailedFsync)).
//!
//! Kafka: `LogDirFailureChannel`, `LogManager.handleLogDirFailure`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ottla_log::{LogError, LogReader, StorageError, StorageErrorCause};
use ottla_types::TopicPartition;

use super::log_dir::{DirFailure, LogDir};
use super::{DirThreads, LogDirs};

impl LogDirs {
    /// Sets the listener for directory failures.
    pub fn set_failure_listener(&self, listener: impl Fn(&DirFailure) + Send + Sync + 'static) {
        let is_first = self.on_failure.set(Box::new(listener)).is_ok();
        assert!(is_first, "one listener hears of failed directories");
    }

    /// Whether a partition still uses this very log, and not another one of the same name.
    pub fn is_hosted(&self, log: &LogReader) -> bool {
        let hosted = self.hosted.read();
        let of_name = hosted.get(log.topic_partition());
        of_name.is_some_and(|hosted| hosted.reader.is_of_same_log(log))
    }

    /// Whether the directory of a log is online.
    pub fn is_online(&self, log: &LogReader) -> bool {
        self.dir_of(log).is_some_and(|dir| dir.is_online())
    }

    /// The directory of a log, even if the log was deleted.
    pub fn dir_of(&self, log: &LogReader) -> Option<&Arc<LogDir>> {
        self.dirs.iter().find(|dir| log.is_in(&dir.path))
    }

    /// Runs file work on the directory of a log after a delay. No effect if no directory has the
    /// log.
    pub fn submit_file_work(
        &self,
        log: &LogReader,
        delay: Duration,
        work: impl FnOnce() + Send + 'static,
    ) {
        if let Some(dir) = self.dir_of(log) {
            dir.files.submit(delay, work);
        }
    }

    /// The thread limits of a log's directory.
    pub fn threads_of(&self, log: &LogReader) -> Arc<DirThreads> {
        let dir = self.dir_of(log);
        dir.map(|dir| Arc::clone(&dir.threads)).unwrap_or_default()
    }

    /// Handles a failed operation on a log: its directory goes offline unless the error is
    /// temporary. A missing file of a deleted log is ignored.
    pub fn on_partition_error(&self, log: &LogReader, error: &StorageError) {
        if error.error.kind() == std::io::ErrorKind::NotFound && !self.is_hosted(log) {
            return;
        }
        if let Some(dir) = self.dir_of(log) {
            self.on_storage_error(dir, error);
        }
    }

    pub fn on_partition_log_error(&self, log: &LogReader, error: &LogError) {
        match error.storage() {
            Some(error) => self.on_partition_error(log, error),
            None => {
                if let Some(dir) = self.dir_of(log) {
                    self.on_log_error(dir, error);
                }
            }
        }
    }

    pub(super) fn on_log_error(&self, dir: &Arc<LogDir>, error: &LogError) {
        match error.storage() {
            Some(error) => self.on_storage_error(dir, error),
            None => self.fail(dir, &error.to_string()),
        }
    }

    pub(super) fn on_storage_error(&self, dir: &Arc<LogDir>, error: &StorageError) {
        match error.cause() {
            StorageErrorCause::DiskFull => tracing::warn!(dir = %dir.path.display(), "{error}"),
            StorageErrorCause::OutOfResources => self.on_lack(error),
            StorageErrorCause::Failed => {
                let reason = error.to_string();
                // Another file handle does not get the error, and a flush with it would raise the
                // recovery point over what is lost.
                let is_first = dir.fail(&reason);
                // Before the listener, which may end the process. A stop waits for the note.
                if error.is_failed_fsync {
                    dir.note_failed_fsync_soon();
                }
                if is_first {
                    self.on_failed(dir, &reason);
                }
            }
        }
    }

    /// Tells the next start of an fsync that failed while a log was closed. Blocks.
    pub fn note_failed_fsync(&self, error: &StorageError) {
        if error.is_failed_fsync
            && let Some(dir) = self.dir_of_file(&error.path)
        {
            dir.note_failed_fsync();
        }
    }

    fn dir_of_file(&self, path: &Path) -> Option<&Arc<LogDir>> {
        self.dirs.iter().find(|dir| path.starts_with(&dir.path))
    }

    /// Handles writeback errors found when idle files were closed: their directories go offline.
    pub fn on_write_back_failed(&self, errors: Vec<StorageError>) {
        for error in errors {
            if let Some(dir) = self.dir_of_file(&error.path) {
                self.on_storage_error(dir, &error);
            }
        }
    }

    /// Counts an operation that lacked a handle or memory, and logs it at most once a minute.
    pub fn on_lack(&self, error: &StorageError) {
        let before = self.lacks.fetch_add(1, Ordering::Relaxed);
        self.complaints.say(|| {
            tracing::error!(
                handles = ?self.handles.stats(), since_start = before + 1,
                "no file handle or memory is left for an operation, which is refused or tried again: {error}; raise \
                 the limit of open files (ulimit -n, LimitNOFILE)"
            );
        });
    }

    /// Number of operations that lacked a handle, memory or another process resource.
    pub fn lacks(&self) -> u64 {
        self.lacks.load(Ordering::Relaxed)
    }

    /// Takes a directory offline.
    pub(super) fn fail(&self, dir: &Arc<LogDir>, reason: &str) {
        if dir.fail(reason) {
            self.on_failed(dir, reason);
        }
    }

    fn on_failed(&self, dir: &Arc<LogDir>, reason: &str) {
        tracing::error!(dir = %dir.path.display(), reason, "the log directory goes offline");
        let is_in = |log: &Arc<LogDir>| Arc::ptr_eq(log, dir);
        let partitions = {
            let hosted = self.hosted.read();
            let lost = hosted.iter().filter(|(_, log)| is_in(&log.dir));
            lost.map(|(partition, _)| partition.clone()).collect()
        };
        self.loaded.lock().retain(|_, log| !is_in(&log.dir));
        self.forget_futures_in(dir);
        let failure = DirFailure {
            partitions,
            is_fatal: self.why_fatal(dir, reason),
        };
        if let Some(listener) = self.on_failure.get() {
            listener(&failure);
        }
    }

    /// A log was put into use in a directory. If the directory failed just before, the log was not
    /// reported with those that were lost.
    pub(super) fn on_put_in_use(&self, topic_partition: &TopicPartition, dir: &LogDir) {
        if !dir.is_online()
            && let Some(listener) = self.on_failure.get()
        {
            listener(&DirFailure {
                partitions: vec![topic_partition.clone()],
                is_fatal: None,
            });
        }
    }

    fn why_fatal(&self, dir: &LogDir, reason: &str) -> Option<String> {
        if self.online().next().is_none() {
            Some(format!(
                "all log directories have failed, the last one with: {reason}"
            ))
        } else if dir.holds_metadata {
            let path = dir.path.display();
            Some(format!(
                "the directory of the metadata log, {path}, has failed: {reason}"
            ))
        } else {
            None
        }
    }
}
