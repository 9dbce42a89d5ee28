//! Fixed-size entries; the older are in a file, the newest in memory.
//!
//! One thread pushes (the holder of the partition's run token), any number search. The lock is held
//! only for work in memory: a search that needs the file copies the number of entries in it, which
//! are immutable, and reads without the lock. Writing the tail is serialised by a lock of its own,
//! because the pusher and the flush job may both do it.

use std::cmp::Ordering;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use once_cell::race::OnceBox;
use ottla_sync::Mutex;

use crate::disk;
use crate::disk_read::{self, DiskWait};
use crate::handles::LogFile;

/// The pusher writes the tail out when it holds twice this many entries, so that memory stays
/// bounded without flushes.
const SPILL_ENTRIES: usize = 512;

/// A binary search in the file reads the last this many entries at once, and [`Entries::block`] at
/// most as many.
const BLOCK_ENTRIES: u32 = 256;

pub(crate) struct Entries<const SIZE: usize> {
    /// Allocated by the first entry: most logs are idle, and their last segments have none.
    stored: OnceBox<Stored<SIZE>>,
}

struct Stored<const SIZE: usize> {
    state: Mutex<State<SIZE>>,
    writing: Mutex<()>,
}

struct State<const SIZE: usize> {
    /// Number of entries in the file.
    in_file: u32,
    /// The entries after those in the file.
    tail: Vec<[u8; SIZE]>,
    /// The file has unsynced changes.
    is_unforced: bool,
}

/// Opens the file on demand: its path changes with a rename.
pub(crate) trait OpenFile {
    fn open(&self, wait: DiskWait) -> io::Result<Arc<LogFile>>;
}

#[cfg(test)]
impl<F: Fn() -> io::Result<ottla_sync::fs::File>> OpenFile for F {
    fn open(&self, _: DiskWait) -> io::Result<Arc<LogFile>> {
        self().map(|file| Arc::new(LogFile::alone(file)))
    }
}

impl<const SIZE: usize> Stored<SIZE> {
    fn boxed(in_file: u32) -> Box<Self> {
        Box::new(Self {
            state: Mutex::new(State {
                in_file,
                tail: Vec::new(),
                is_unforced: false,
            }),
            writing: Mutex::new(()),
        })
    }

    fn write_tail_locked(&self, open: impl OpenFile) -> io::Result<()> {
        let (bytes, in_file, count) = {
            let state = self.state.lock();
            if state.tail.is_empty() {
                return Ok(());
            }
            (state.tail.concat(), state.in_file, state.tail.len())
        };
        let file = open.open(DiskWait::Allowed)?;
        disk::write_all_at(&file, &bytes, u64::from(in_file) * SIZE as u64)?;
        let mut state = self.state.lock();
        state.tail.drain(..count);
        if state.tail.is_empty() {
            state.tail = Vec::new();
        }
        state.in_file += count as u32;
        state.is_unforced = true;
        Ok(())
    }
}

impl<const SIZE: usize> Entries<SIZE> {
    /// The entries of a file that holds `in_file` entries.
    pub(crate) fn new(in_file: u32) -> Self {
        let stored = match in_file {
            0 => OnceBox::new(),
            _ => OnceBox::with_value(Stored::boxed(in_file)),
        };
        Self { stored }
    }

    pub(crate) fn len(&self) -> u32 {
        let Some(stored) = self.stored.get() else {
            return 0;
        };
        let state = stored.state.lock();
        state.in_file + state.tail.len() as u32
    }

    pub(crate) fn push(&self, entry: [u8; SIZE]) {
        let stored = self.stored.get_or_init(|| Stored::boxed(0));
        stored.state.lock().tail.push(entry);
    }

    /// Whether the tail is long enough for [`Entries::write_tail`].
    pub(crate) fn is_tail_long(&self) -> bool {
        let stored = self.stored.get();
        stored.is_some_and(|stored| stored.state.lock().tail.len() >= 2 * SPILL_ENTRIES)
    }

    /// Writes the in-memory entries to the file, unless another thread is doing so.
    pub(crate) fn try_write_tail(&self, open: impl OpenFile) -> io::Result<()> {
        let Some(stored) = self.stored.get() else {
            return Ok(());
        };
        match stored.writing.try_lock() {
            Some(_guard) => stored.write_tail_locked(open),
            None => Ok(()),
        }
    }

    /// Writes the in-memory entries to the file.
    pub(crate) fn write_tail(&self, open: impl OpenFile) -> io::Result<()> {
        let Some(stored) = self.stored.get() else {
            return Ok(());
        };
        let _guard = stored.writing.lock();
        stored.write_tail_locked(open)
    }

    /// Fsyncs the file, also one without entries. Entries in memory are not part of it.
    pub(crate) fn sync(&self, file: &LogFile) -> io::Result<()> {
        let Some(stored) = self.stored.get() else {
            return disk::sync_data(file);
        };
        // Cleared first: a concurrent write may not be covered by this fsync.
        stored.state.lock().is_unforced = false;
        let synced = disk::sync_data(file);
        if synced.is_err() {
            stored.state.lock().is_unforced = true;
        }
        synced
    }

    /// Whether the file has entries, and therefore exists.
    pub(crate) fn is_in_file(&self) -> bool {
        let stored = self.stored.get();
        stored.is_some_and(|stored| stored.state.lock().in_file > 0)
    }

    /// Whether it never had entries since it was created or loaded.
    pub(crate) fn is_untouched(&self) -> bool {
        self.stored.get().is_none()
    }

    /// Whether entries or truncations are not on disk yet.
    pub(crate) fn is_unforced(&self) -> bool {
        let Some(stored) = self.stored.get() else {
            return false;
        };
        let state = stored.state.lock();
        state.is_unforced || !state.tail.is_empty()
    }

    /// The opened file if it has entries, so that [`Entries::truncate`] need not open it.
    pub(crate) fn for_truncation(&self, open: impl OpenFile) -> io::Result<Option<Arc<LogFile>>> {
        match self.is_in_file() {
            true => open.open(DiskWait::Allowed).map(Some),
            false => Ok(None),
        }
    }

    /// Removes the entries from number `keep` on. A concurrent search that counted on them finds
    /// the file too short.
    pub(crate) fn truncate(&self, keep: u32, open: impl OpenFile) -> io::Result<()> {
        let Some(stored) = self.stored.get() else {
            return Ok(());
        };
        let _guard = stored.writing.lock();
        {
            let mut state = stored.state.lock();
            if keep >= state.in_file {
                let kept = keep - state.in_file;
                state.tail.truncate(kept as usize);
                return Ok(());
            }
            state.tail = Vec::new();
            state.in_file = keep;
        }
        let file = open.open(DiskWait::Allowed)?;
        disk::set_len(&file, u64::from(keep) * SIZE as u64)?;
        stored.state.lock().is_unforced = true;
        Ok(())
    }

    /// Entry `n`, or `None` if there are fewer.
    pub(crate) fn get(&self, n: u32, open: impl OpenFile) -> io::Result<Option<[u8; SIZE]>> {
        let Some(stored) = self.stored.get() else {
            return Ok(None);
        };
        {
            let state = stored.state.lock();
            if n >= state.in_file {
                return Ok(state.tail.get((n - state.in_file) as usize).copied());
            }
        }
        let mut entry = [0; SIZE];
        let file = open.open(DiskWait::Allowed)?;
        file.read_exact_at(&mut entry, u64::from(n) * SIZE as u64)?;
        Ok(Some(entry))
    }

    /// The last entry that `order` does not find greater than the target, and its number. The
    /// entries must be sorted by `order`.
    pub(crate) fn floor(
        &self,
        order: impl Fn(&[u8; SIZE]) -> Ordering,
        open: impl OpenFile,
        wait: DiskWait,
    ) -> io::Result<Option<(u32, [u8; SIZE])>> {
        let Some(stored) = self.stored.get() else {
            return Ok(None);
        };
        let in_file = {
            let state = stored.state.lock();
            let after = state
                .tail
                .partition_point(|entry| order(entry) != Ordering::Greater);
            if after > 0 {
                let number = state.in_file + after as u32 - 1;
                return Ok(Some((number, state.tail[after - 1])));
            }
            state.in_file
        };
        if in_file == 0 {
            return Ok(None);
        }
        let file = open.open(wait)?;
        let (mut low, mut high) = (0, in_file);
        while high - low > BLOCK_ENTRIES {
            let middle = low + (high - low) / 2;
            let mut entry = [0; SIZE];
            disk_read::read_exact_at(&file, &mut entry, u64::from(middle) * SIZE as u64, wait)?;
            match order(&entry) {
                Ordering::Greater => high = middle,
                _ => low = middle,
            }
        }
        let mut block = vec![0; (high - low) as usize * SIZE];
        disk_read::read_exact_at(&file, &mut block, u64::from(low) * SIZE as u64, wait)?;
        let (entries, _) = block.as_chunks::<SIZE>();
        let after = entries.partition_point(|entry| order(entry) != Ordering::Greater);
        Ok(after
            .checked_sub(1)
            .map(|last| (low + last as u32, entries[last])))
    }

    /// Some of the entries from number `first` on; none only if there are no more.
    pub(crate) fn block(&self, first: u32, open: impl OpenFile) -> io::Result<Vec<[u8; SIZE]>> {
        let Some(stored) = self.stored.get() else {
            return Ok(Vec::new());
        };
        let in_file = {
            let state = stored.state.lock();
            if first >= state.in_file {
                let after = state.tail.iter().skip((first - state.in_file) as usize);
                return Ok(after.take(BLOCK_ENTRIES as usize).copied().collect());
            }
            state.in_file
        };
        let count = (in_file - first).min(BLOCK_ENTRIES);
        let mut bytes = vec![0; count as usize * SIZE];
        let file = open.open(DiskWait::Allowed)?;
        file.read_exact_at(&mut bytes, u64::from(first) * SIZE as u64)?;
        let (entries, _) = bytes.as_chunks::<SIZE>();
        Ok(entries.to_vec())
    }

    /// All entries, for indexes that are read sequentially.
    pub(crate) fn all(&self, open: impl OpenFile) -> io::Result<Vec<[u8; SIZE]>> {
        let Some(stored) = self.stored.get() else {
            return Ok(Vec::new());
        };
        let (in_file, tail) = {
            let state = stored.state.lock();
            (state.in_file, state.tail.clone())
        };
        if in_file == 0 {
            return Ok(tail);
        }
        let mut bytes = vec![0; in_file as usize * SIZE];
        let file = open.open(DiskWait::Allowed)?;
        file.read_exact_at(&mut bytes, 0)?;
        let (entries, _) = bytes.as_chunks::<SIZE>();
        Ok([entries, &tail].concat())
    }
}

#[cfg(test)]
mod tests {
    use ottla_sync::fs::File;

    use super::{DiskWait, Entries, SPILL_ENTRIES};

    /// An index without entries has no file to be opened.
    #[test]
    fn without_entries_nothing_is_opened() {
        let entries = Entries::<4>::new(0);
        let open = || -> std::io::Result<File> { panic!("there is nothing in the file") };
        entries.write_tail(open).unwrap();
        entries.try_write_tail(open).unwrap();
        entries.truncate(0, open).unwrap();
        assert!(entries.for_truncation(open).unwrap().is_none());
        assert_eq!(entries.get(0, open).unwrap(), None);
        let order = |_: &[u8; 4]| std::cmp::Ordering::Less;
        let found = entries.floor(order, open, DiskWait::Allowed);
        assert_eq!(found.unwrap(), None);
        assert!(entries.block(0, open).unwrap().is_empty());
        assert!(entries.all(open).unwrap().is_empty());
        assert!(!entries.is_in_file() && !entries.is_unforced() && !entries.is_tail_long());
        assert_eq!(entries.len(), 0);
    }

    fn number(entry: &[u8; 4]) -> u32 {
        u32::from_be_bytes(*entry)
    }

    #[test]
    fn entries_are_found_in_file_and_memory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path());
        let entries = Entries::<4>::new(0);
        assert_eq!(
            entries
                .floor(|e| number(e).cmp(&5), open, DiskWait::Allowed)
                .unwrap(),
            None
        );
        for n in 0..2000u32 {
            entries.push((n * 10).to_be_bytes());
            if n == 1499 {
                assert!(entries.is_tail_long());
                entries.write_tail(open).unwrap();
                assert!(!entries.is_tail_long());
            }
        }
        assert_eq!(entries.len(), 2000);
        const { assert!(1500 > 2 * SPILL_ENTRIES) };
        for n in 0..2000u32 {
            for target in [n * 10, n * 10 + 9] {
                let found = entries.floor(|e| number(e).cmp(&target), open, DiskWait::Allowed);
                let found = found.unwrap();
                assert_eq!(found, Some((n, (n * 10).to_be_bytes())), "{target}");
            }
            assert_eq!(entries.get(n, open).unwrap(), Some((n * 10).to_be_bytes()));
        }
        assert_eq!(entries.get(2000, open).unwrap(), None);
        let mut blocks = Vec::new();
        loop {
            let block = entries.block(blocks.len() as u32, open).unwrap();
            if block.is_empty() {
                break;
            }
            blocks.extend(block);
        }
        assert_eq!(blocks, entries.all(open).unwrap());
        entries.write_tail(open).unwrap();
        let again = Entries::<4>::new(2000);
        assert_eq!(again.all(open).unwrap(), entries.all(open).unwrap());
        assert_eq!(std::fs::metadata(file.path()).unwrap().len(), 8000);
    }
}
