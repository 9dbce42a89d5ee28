//! The file handle budget of a node's logs.
//!
//! A segment opens its files on first use and keeps them open (`open_files`) until another segment
//! needs the handles or the files have been idle ([`Handles::close_idle`]). Victims are chosen by
//! the clock algorithm: each use sets a mark; the hand visits the segments, clears marks and closes
//! unmarked ones. A use costs an atomic load and no lock.
//!
//! A handle counts until its last owner drops it ([`LogFile`]). A file that is being sent stays in
//! the budget, is not closed under its reader, and is not chosen, because closing it would free
//! nothing.
//!
//! A file with unsynced writes is chosen only if the hand finds no other. The kernel reports a
//! writeback error to a process that has the file open; otherwise it keeps the error for the next
//! open, unless the inode is evicted first. Idle files are therefore written back, and the result
//! checked, before they are closed.
//!
//! See `docs/decisions/0043-file-handles.md`.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ottla_sync::Mutex;
use ottla_sync::atomic::{AtomicUsize, Ordering};
use ottla_sync::fs::File;
use rustix::io::Errno;

use crate::error::{CheckpointError, LogError, ReadError, StorageError, StorageErrorCause};

/// Minimum number of handles to close when one is needed, so that the hand is not started for each.
const CLOSED_AT_ONCE: usize = 32;
const WARN_INTERVAL: Duration = Duration::from_secs(60);
/// How many segments the hand examines to find a synced one before it takes one with unsynced
/// writes.
const LOOKED_AT_FOR_FORCED: usize = 64;

/// A file handle budget shared by the logs of a node.
pub struct Handles {
    limit: AtomicUsize,
    /// Handles that are open or being opened, including those held only by readers.
    open: AtomicUsize,
    /// Segments with open files; the hand examines the front next.
    listed: Mutex<VecDeque<Weak<dyn HoldsHandles>>>,
    counts: Counts,
    /// When a refusal was last logged.
    warned_at: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Counts {
    opened: AtomicU64,
    closed_for_others: AtomicU64,
    closed_unforced: AtomicU64,
    closed_idle: AtomicU64,
    refused: AtomicU64,
}

/// Counters of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HandleStats {
    pub limit: usize,
    /// Handles that are open now.
    pub open: usize,
    /// Segments that have open files.
    pub segments: usize,
    /// Files opened.
    pub opened: u64,
    /// Handles closed because others were needed.
    pub closed_for_others: u64,
    /// The part of `closed_for_others` whose file had unsynced writes.
    pub closed_unforced: u64,
    /// Handles closed because they were idle.
    pub closed_idle: u64,
    /// Opens refused because no handle was left.
    pub refused: u64,
}

impl Handles {
    /// At most `limit` files are open at once.
    pub fn new(limit: usize) -> Arc<Handles> {
        Arc::new(Handles {
            limit: AtomicUsize::new(limit),
            open: AtomicUsize::new(0),
            listed: Mutex::default(),
            counts: Counts::default(),
            warned_at: Mutex::new(None),
        })
    }

    /// No limit except that of the process.
    pub fn unlimited() -> Arc<Handles> {
        Handles::new(usize::MAX)
    }

    pub fn stats(&self) -> HandleStats {
        let counts = &self.counts;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HandleStats {
            limit: self.limit.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Relaxed),
            segments: self.listed.lock().len(),
            opened: count(&counts.opened),
            closed_for_others: count(&counts.closed_for_others),
            closed_unforced: count(&counts.closed_unforced),
            closed_idle: count(&counts.closed_idle),
            refused: count(&counts.refused),
        }
    }

    /// Opens a file within the budget. If the process is out of handles, others are closed first.
    pub(crate) fn open(
        self: &Arc<Self>,
        open: impl Fn() -> io::Result<File>,
    ) -> io::Result<LogFile> {
        let slot = self.take_slot()?;
        let opened = match open() {
            Err(error) if is_no_handle(&error) && self.let_go(CLOSED_AT_ONCE) > 0 => open(),
            opened => opened,
        };
        match opened {
            Ok(file) => {
                self.counts.opened.fetch_add(1, Ordering::Relaxed);
                Ok(LogFile { file, _slot: slot })
            }
            Err(error) => {
                if is_no_handle(&error) {
                    self.on_refused();
                }
                Err(error)
            }
        }
    }

    fn take_slot(self: &Arc<Self>) -> io::Result<HandleSlot> {
        let limit = self.limit.load(Ordering::Relaxed);
        let before = self.open.fetch_add(1, Ordering::AcqRel);
        let slot = HandleSlot(Arc::clone(self));
        if before < limit {
            return Ok(slot);
        }
        self.let_go((before + 1 - limit).max(CLOSED_AT_ONCE.min(limit / 4)));
        match self.open.load(Ordering::Acquire) <= limit {
            true => Ok(slot),
            false => {
                self.on_refused();
                Err(Errno::MFILE.into())
            }
        }
    }

    /// Counts a refused open and logs it at most once a minute.
    fn on_refused(&self) {
        let refused = self.counts.refused.fetch_add(1, Ordering::Relaxed) + 1;
        let now = ottla_sync::time::now();
        let mut warned_at = self.warned_at.lock();
        if warned_at.is_none_or(|warned_at| now.duration_since(warned_at) >= WARN_INTERVAL) {
            *warned_at = Some(now);
            drop(warned_at);
            tracing::warn!(
                limit = self.limit.load(Ordering::Relaxed),
                open = self.open.load(Ordering::Relaxed),
                refused,
                "no file handle is left for a file of a log: reads and writes are refused and can be tried again"
            );
        }
    }

    /// Closes files that are not in use until `wanted` handles are free. Returns the number of
    /// handles closed.
    fn let_go(&self, wanted: usize) -> usize {
        let mut closed = 0;
        let mut listed = self.listed.lock();
        // The first round clears marks, the second may skip unsynced files, the third takes any.
        let mut steps = 3 * listed.len();
        let may_pass = LOOKED_AT_FOR_FORCED.min(listed.len());
        let mut passed_unforced = 0;
        while closed < wanted && steps > 0 {
            steps -= 1;
            let Some(next) = listed.pop_front() else {
                break;
            };
            let Some(files) = next.upgrade() else {
                continue;
            };
            let is_unforced = files.is_unforced();
            if files.take_mark() || files.is_held() {
                listed.push_back(next);
            } else if is_unforced && passed_unforced < may_pass {
                passed_unforced += 1;
                listed.push_back(next);
            } else {
                let handles = files.close();
                closed += handles;
                if is_unforced {
                    let count = &self.counts.closed_unforced;
                    count.fetch_add(handles as u64, Ordering::Relaxed);
                }
            }
        }
        let count = &self.counts.closed_for_others;
        count.fetch_add(closed as u64, Ordering::Relaxed);
        closed
    }

    /// Closes the files that were not used since the last call. Returns an error for each file
    /// whose writeback failed; the log of such a file is lost. Blocks.
    pub fn close_idle(&self) -> Vec<StorageError> {
        let mut errors = Vec::new();
        let mut left = self.listed.lock().len();
        while left > 0 {
            left -= 1;
            let Some(next) = self.listed.lock().pop_front() else {
                break;
            };
            let Some(files) = next.upgrade() else {
                continue;
            };
            let is_idle = !files.take_mark() && !files.is_held();
            let is_closed = is_idle
                && match files.write_back() {
                    Ok(()) => !files.is_marked(),
                    Err(error) => {
                        errors.push(error);
                        false
                    }
                };
            match is_closed {
                true => {
                    let handles = files.close() as u64;
                    let count = &self.counts.closed_idle;
                    count.fetch_add(handles, Ordering::Relaxed);
                }
                false => self.listed.lock().push_back(next),
            }
        }
        let mut listed = self.listed.lock();
        if listed.capacity() > 4 * listed.len() + 64 {
            listed.shrink_to_fit();
        }
        errors
    }

    /// Adds a segment to the clock when it opens its first file.
    pub(crate) fn list(&self, holder: Weak<dyn HoldsHandles>) {
        self.listed.lock().push_back(holder);
    }
}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handles")
            .field("limit", &self.limit)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

/// The owner of handles that can be closed, because it can reopen its files.
pub(crate) trait HoldsHandles: Send + Sync {
    /// Clears the mark. Returns whether it was used since the last call.
    fn take_mark(&self) -> bool;
    fn is_marked(&self) -> bool;
    /// Whether another owner holds one of the handles.
    fn is_held(&self) -> bool;
    /// Whether it has writes that were not fsynced.
    fn is_unforced(&self) -> bool;
    /// Starts writeback and waits for it. Does not make the data durable.
    fn write_back(&self) -> Result<(), StorageError>;
    /// Drops all handles; readers keep theirs. Returns the number dropped. The next open adds it to
    /// the clock again.
    fn close(&self) -> usize;
}

/// Whether the open failed because the process or the machine is out of file handles.
fn is_no_handle(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// A handle of the budget, returned on drop.
struct HandleSlot(Arc<Handles>);

impl Drop for HandleSlot {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An open file of a log. Its slot in the budget is returned when it is dropped.
pub struct LogFile {
    file: File,
    _slot: HandleSlot,
}

impl LogFile {
    /// A file outside any budget.
    pub fn alone(file: File) -> LogFile {
        let handles = Handles::unlimited();
        handles.open.fetch_add(1, Ordering::AcqRel);
        LogFile {
            file,
            _slot: HandleSlot(handles),
        }
    }
}

impl Deref for LogFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl fmt::Debug for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl AsFd for LogFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// For code that reads a region.
impl FileExt for LogFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    /// Writes go through `disk`.
    fn write_at(&self, _bytes: &[u8], _position: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// An error that may mean a temporary lack of handles or memory.
pub trait MayLack: fmt::Display {
    fn is_lack_of_resources(&self) -> bool;
}

impl MayLack for StorageError {
    fn is_lack_of_resources(&self) -> bool {
        StorageError::is_lack_of_resources(self)
    }
}

impl MayLack for LogError {
    fn is_lack_of_resources(&self) -> bool {
        self.storage()
            .is_some_and(StorageError::is_lack_of_resources)
    }
}

impl MayLack for CheckpointError {
    fn is_lack_of_resources(&self) -> bool {
        matches!(self, CheckpointError::Storage(error) if error.is_lack_of_resources())
    }
}

impl MayLack for ReadError {
    fn is_lack_of_resources(&self) -> bool {
        matches!(self, ReadError::Storage(error) if error.is_lack_of_resources())
    }
}

impl MayLack for io::Error {
    fn is_lack_of_resources(&self) -> bool {
        StorageErrorCause::of(self) == StorageErrorCause::OutOfResources
    }
}

/// Retries an operation that lacked a handle or memory, every 50 ms for up to a minute. Only for
/// threads that may block.
pub fn retry_lacking<T, E: MayLack>(mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    const PAUSE: Duration = Duration::from_millis(50);
    const ATTEMPTS: u32 = 1_200;
    let mut attempts = 0;
    loop {
        let result = attempt();
        attempts += 1;
        match result {
            Err(error) if error.is_lack_of_resources() && attempts < ATTEMPTS => {
                if attempts == 1 {
                    tracing::warn!("waiting for a file handle or memory: {error}");
                }
                ottla_sync::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests;
