//! The file handles of the logs of a node: a budget, and which segments hold some of it.
//!
//! A segment opens its files when they are written or read and keeps them open (`open_files`) until somebody else needs
//! the handles, or nobody has used them for a while ([`Handles::close_idle`]). Which go first is decided as by a clock
//! whose hand passes over the segments: each use leaves a mark, the hand takes the mark away, and what it finds without
//! one is closed. A use costs a load and no lock.
//!
//! A handle counts until the last who has it lets go ([`LogFile`]): what is being sent keeps its place in the budget, is
//! not closed under its reader, and is not chosen, since closing it would free nothing.
//!
//! A file that was written and not forced to disk since is chosen only where the hand finds no other. The kernel tells an
//! error of writing back to one who has the file open; with no handle it keeps it for the next, unless the inode leaves
//! memory before. So idle ones are written back, and what becomes of that is looked at, before they are closed.
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

use crate::error::{LogError, StorageError, StorageErrorCause};

/// How many handles are let go at least when one is needed, so that the hand does not start for each.
const CLOSED_AT_ONCE: usize = 32;
const TELL_EVERY: Duration = Duration::from_secs(60);
/// How many segments the hand looks at for one that is on disk, before it takes one that is not.
const LOOKED_AT_FOR_FORCED: usize = 64;

/// A budget of handles that the logs of a node share.
pub struct Handles {
    limit: AtomicUsize,
    /// Handles that are open or about to be, also those that only a reader still has.
    open: AtomicUsize,
    /// Segments with open files, those that the hand comes to next in front.
    listed: Mutex<VecDeque<Weak<dyn HoldsHandles>>>,
    counts: Counts,
    /// When a refusal was told last.
    told: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Counts {
    opened: AtomicU64,
    closed_for_others: AtomicU64,
    closed_unforced: AtomicU64,
    closed_idle: AtomicU64,
    refused: AtomicU64,
}

/// What has become of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HandleStats {
    pub limit: usize,
    /// Handles that are open now.
    pub open: usize,
    /// Segments that have open files.
    pub segments: usize,
    /// Files that were opened.
    pub opened: u64,
    /// Handles that were let go because others were needed.
    pub closed_for_others: u64,
    /// Those of them whose file was not on disk.
    pub closed_unforced: u64,
    /// Handles that were let go because nobody used them.
    pub closed_idle: u64,
    /// Files that could not be opened for want of a handle.
    pub refused: u64,
}

impl Handles {
    /// At most so many files are open at once.
    pub fn new(limit: usize) -> Arc<Handles> {
        Arc::new(Handles {
            limit: AtomicUsize::new(limit),
            open: AtomicUsize::new(0),
            listed: Mutex::default(),
            counts: Counts::default(),
            told: Mutex::new(None),
        })
    }

    /// No bound but the process's.
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

    /// Opens a file within the budget. Where the process has none to give, others are let go first.
    pub(crate) fn open(
        self: &Arc<Self>,
        open: impl Fn() -> io::Result<File>,
    ) -> io::Result<LogFile> {
        let place = self.take_place()?;
        let opened = match open() {
            Err(error) if is_no_handle(&error) && self.let_go(CLOSED_AT_ONCE) > 0 => open(),
            opened => opened,
        };
        match opened {
            Ok(file) => {
                self.counts.opened.fetch_add(1, Ordering::Relaxed);
                Ok(LogFile {
                    file,
                    _place: place,
                })
            }
            Err(error) => {
                if is_no_handle(&error) {
                    self.on_refused();
                }
                Err(error)
            }
        }
    }

    fn take_place(self: &Arc<Self>) -> io::Result<Place> {
        let limit = self.limit.load(Ordering::Relaxed);
        let before = self.open.fetch_add(1, Ordering::AcqRel);
        let place = Place(Arc::clone(self));
        if before < limit {
            return Ok(place);
        }
        self.let_go((before + 1 - limit).max(CLOSED_AT_ONCE.min(limit / 4)));
        match self.open.load(Ordering::Acquire) <= limit {
            true => Ok(place),
            false => {
                self.on_refused();
                Err(Errno::MFILE.into())
            }
        }
    }

    /// Counts a file that could not be opened, and says so once a minute.
    fn on_refused(&self) {
        let refused = self.counts.refused.fetch_add(1, Ordering::Relaxed) + 1;
        let now = ottla_sync::time::now();
        let mut told = self.told.lock();
        if told.is_none_or(|told| now.duration_since(told) >= TELL_EVERY) {
            *told = Some(now);
            drop(told);
            tracing::warn!(
                limit = self.limit.load(Ordering::Relaxed),
                open = self.open.load(Ordering::Relaxed),
                refused,
                "no file handle is left for a file of a log: reads and writes are refused and can be tried again"
            );
        }
    }

    /// Closes files until so many handles are free that were not, as far as there are some that nobody has. Returns how
    /// many that are.
    fn let_go(&self, wanted: usize) -> usize {
        let mut closed = 0;
        let mut listed = self.listed.lock();
        // The first round takes away marks, the second may pass what is not on disk, and the third finds what there is.
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

    /// Closes what nobody has used since the last call. Returns the files that the kernel could not write, of logs that
    /// are lost with them. Blocks.
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

    /// Has the hand come to what has opened its first file.
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

/// What has handles that it can let go of, because it can open its files again.
pub(crate) trait HoldsHandles: Send + Sync {
    /// Whether it was used since the last call.
    fn take_mark(&self) -> bool;
    fn is_marked(&self) -> bool;
    /// Whether somebody has one of the handles beside it.
    fn is_held(&self) -> bool;
    /// Whether it was written to and not forced to disk since.
    fn is_unforced(&self) -> bool;
    /// Has the kernel write what it has not, and waits for that. Does not make it durable.
    fn write_back(&self) -> Result<(), StorageError>;
    /// Lets go of all handles; those who were given one keep theirs. Returns how many that were. It has to be listed
    /// again with the next that it opens.
    fn close(&self) -> usize;
}

/// Whether a file could not be opened because the process or the machine has no handle left.
fn is_no_handle(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// A handle of the budget, given back when it is dropped.
struct Place(Arc<Handles>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An open file of a log. Its place in the budget is given back with it.
pub struct LogFile {
    file: File,
    _place: Place,
}

impl LogFile {
    /// A file of no log's budget.
    pub fn alone(file: File) -> LogFile {
        let handles = Handles::unlimited();
        handles.open.fetch_add(1, Ordering::AcqRel);
        LogFile {
            file,
            _place: Place(handles),
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

/// For those who send or look through a region.
impl FileExt for LogFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    /// What is written goes through `disk`.
    fn write_at(&self, _bytes: &[u8], _position: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// An error that may say that something is lacking which the process may have again soon.
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

impl MayLack for io::Error {
    fn is_lack_of_resources(&self) -> bool {
        StorageErrorCause::of(self) == StorageErrorCause::OutOfResources
    }
}

/// Tries again, with pauses, what lacked a handle, memory or anything else that the process may have again soon. For
/// threads that may wait. Gives up after a minute.
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
