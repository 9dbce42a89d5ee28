//! The calls of a simulated disk, which fail, delay and lose data as the seed decides.

use std::fmt;
use std::io::{self, IoSlice, SeekFrom};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::io::Errno;

use super::metadata::{FileType, Metadata};
use crate::kernel::{ChangeTime, LockHolder, Space, Status};
use crate::simulation::random::Random;
use crate::simulation::state::disk::tree::{FileChange, Inode, NameChange, Node};
use crate::simulation::state::disk::{Disk, DiskState, Faults};
use crate::simulation::trace::Op;
use crate::simulation::world::{self, Wait};

/// Whether opening creates the file, and its length.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Creation {
    pub(super) truncate: bool,
    pub(super) create: bool,
    pub(super) create_new: bool,
}

/// Number of removed names after which unreachable files are collected.
const SWEPT_AFTER: u32 = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Read,
    Write,
    Sync,
    Open,
    Name,
}

impl Disk {
    /// Sets the faults of `dir` and everything below it, replacing the previous ones.
    pub fn set_faults(&self, dir: impl AsRef<Path>, faults: Faults) {
        let dir = dir.as_ref().to_owned();
        let hanging = {
            let mut state = self.0.lock();
            state.faults.insert(dir, faults);
            let mut all = state.faults.values();
            state.is_calm = all.all(|faults| *faults == Faults::default());
            state.hanging
        };
        if world::is_simulated() {
            world::wake_all(hanging);
        }
    }

    fn faults(&self, dir: &Path) -> Faults {
        let state = self.0.lock();
        if state.is_calm {
            return Faults::default();
        }
        // Few directories have faults, and a directory follows its parents.
        let mut deepest_first = state.faults.iter().rev();
        let nearest = deepest_first.find(|(above, _)| dir.starts_with(above));
        nearest.map_or_else(Faults::default, |(_, faults)| faults.clone())
    }

    fn is_drawn(&self, one_in: u64) -> bool {
        one_in > 0 && self.0.lock().random.one_in(one_in)
    }

    /// Draws whether a non-blocking read would have to wait.
    pub(super) fn is_uncached(&self) -> bool {
        self.is_drawn(self.faults(Path::new("/")).uncached_one_in)
    }

    /// The start of every call: a switch point, a delay, or a failure.
    #[track_caller]
    fn call(&self, dir: &Path, call: Call) -> io::Result<Faults> {
        let at = Location::caller();
        world::switch_point_at(Op::Disk, at);
        // The kernel does nothing for a dead process.
        if !world::is_simulated() || world::is_dying() {
            return Err(Errno::IO.into());
        }
        let mut faults = self.faults(dir);
        while faults.hangs {
            let token = world::prepare_wait();
            world::wait_for(self.0.lock().hanging, token);
            world::block(token, Wait::Disk, at, None);
            faults = self.faults(dir);
        }
        if let Some(delay) = &faults.delay {
            let span = delay.end.saturating_sub(delay.start).as_nanos() as u64;
            let more = self.0.lock().random.below(span + 1);
            let deadline = world::world().now() + delay.start.as_nanos() as u64 + more;
            let token = world::prepare_wait();
            world::block(token, Wait::Disk, at, Some(deadline));
        }
        let (one_in, error) = match call {
            Call::Read => (faults.reads_fail_one_in, Errno::IO),
            Call::Write => (faults.writes_fail_one_in, Errno::IO),
            Call::Open => (faults.opens_fail_one_in, Errno::MFILE),
            Call::Name if faults.is_full => (1, Errno::NOSPC),
            // A failed fsync has its own effects.
            Call::Sync | Call::Name => (0, Errno::IO),
        };
        match self.is_drawn(one_in) {
            true => Err(error.into()),
            false => Ok(faults),
        }
    }

    #[track_caller]
    pub(super) fn open(&self, path: &Path, options: Creation) -> io::Result<Handle> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        let faults = self.call(dir, Call::Open)?;
        let now = world::world().wall();
        let mut state = self.0.lock();
        let state = &mut *state;
        state.check_handle()?;
        let (dir_number, name) = state.tree.place(path)?;
        let found = state.tree.dirs[&dir_number].names.get(name).copied();
        let number = match found {
            Some(Node::Dir(_)) => return Err(Errno::ISDIR.into()),
            Some(Node::File(_)) if options.create_new => return Err(Errno::EXIST.into()),
            Some(Node::File(number)) => number,
            None if !options.create && !options.create_new => return Err(Errno::NOENT.into()),
            None if faults.is_full => return Err(Errno::NOSPC.into()),
            None => {
                let number = state.tree.number();
                state.tree.files.insert(number, Inode::new(now));
                let add = NameChange::Add(name.to_owned(), Node::File(number));
                state.tree.change_names(dir_number, add);
                number
            }
        };
        let file = state.tree.file(number)?;
        if options.truncate && !file.bytes.is_empty() {
            file.change(FileChange::SetLen(0), now);
        }
        file.handles += 1;
        state.handles += 1;
        state.next_handle += 1;
        Ok(Handle {
            disk: self.clone(),
            id: state.next_handle,
            number,
            dir: dir.into(),
            losses: state.losses,
            cursor: 0,
        })
    }

    #[track_caller]
    pub(super) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.call(path, Call::Read)?;
        let mut state = self.0.lock();
        match state.tree.node(path)? {
            Node::File(number) => Ok(metadata_of(state.tree.file(number)?)),
            Node::Dir(_) => Ok(Metadata {
                len: 4096,
                modified: SystemTime::UNIX_EPOCH,
                file_type: FileType::Dir,
            }),
        }
    }

    #[track_caller]
    pub(super) fn status(&self, path: &Path) -> io::Result<Status> {
        self.call(path, Call::Read)?;
        let mut state = self.0.lock();
        let tree = &mut state.tree;
        let (number, len, changes) = match tree.node(path)? {
            Node::File(number) => {
                let file = tree.file(number)?;
                (number, file.bytes.len() as u64, file.change_count)
            }
            Node::Dir(number) => (number, 4096, tree.dirs[&number].change_count),
        };
        Ok(Status {
            len,
            changed: ChangeTime {
                seconds: number as i64,
                nanoseconds: changes as i64,
            },
        })
    }

    #[track_caller]
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, FileType)>> {
        self.call(path, Call::Read)?;
        let state = self.0.lock();
        // One handle, until it is listed.
        state.check_handle()?;
        let dir = state.tree.dir(path)?;
        let entry = |(name, node): (&_, &Node)| match node {
            Node::File(_) => (path.join(name), FileType::File),
            Node::Dir(_) => (path.join(name), FileType::Dir),
        };
        Ok(state.tree.dirs[&dir].names.iter().map(entry).collect())
    }

    #[track_caller]
    pub(super) fn space(&self, path: &Path) -> io::Result<Space> {
        let faults = self.call(path, Call::Read)?;
        let state = self.0.lock();
        state.tree.node(path)?;
        Ok(Space {
            total_bytes: state.capacity,
            available_bytes: state.room(&faults),
            is_read_only: false,
        })
    }

    #[track_caller]
    pub(super) fn create_dir(&self, path: &Path) -> io::Result<()> {
        let called = self.call(path, Call::Name);
        let mut state = self.0.lock();
        let (dir, name) = state.tree.place(path)?;
        // A kernel looks for the name before it looks for space.
        let is_full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
        let is_there = state.tree.dirs[&dir].names.contains_key(name);
        if is_there && called.as_ref().err().is_none_or(is_full) {
            return Err(Errno::EXIST.into());
        }
        called?;
        let number = state.tree.number();
        state.tree.dirs.insert(number, Default::default());
        let add = NameChange::Add(name.to_owned(), Node::Dir(number));
        state.tree.change_names(dir, add);
        Ok(())
    }

    #[track_caller]
    pub(super) fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut missing: Vec<&Path> = path.ancestors().collect();
        missing.pop();
        for dir in missing
            .into_iter()
            .rev()
            .filter(|dir| !dir.as_os_str().is_empty())
        {
            match self.create_dir(dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        self.0.lock().tree.dir(path).map(drop)
    }

    #[track_caller]
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(from, Call::Name)?;
        let mut state = self.0.lock();
        let tree = &mut state.tree;
        let node = tree.node(from)?;
        let ((from_dir, from_name), (to_dir, to_name)) = (tree.place(from)?, tree.place(to)?);
        match (tree.dirs[&to_dir].names.get(to_name), node) {
            (Some(Node::Dir(number)), Node::Dir(_)) if !tree.dirs[number].names.is_empty() => {
                return Err(Errno::NOTEMPTY.into());
            }
            (Some(Node::Dir(_)), Node::File(_)) => return Err(Errno::ISDIR.into()),
            (Some(Node::File(_)), Node::Dir(_)) => return Err(Errno::NOTDIR.into()),
            _ => {}
        }
        if from_dir == to_dir {
            let rename = NameChange::Rename(from_name.to_owned(), to_name.to_owned(), node);
            tree.change_names(from_dir, rename);
        } else {
            tree.change_names(to_dir, NameChange::Add(to_name.to_owned(), node));
            tree.change_names(from_dir, NameChange::Remove(from_name.to_owned()));
        }
        Ok(())
    }

    #[track_caller]
    pub(super) fn remove(&self, path: &Path, file_type: FileType) -> io::Result<()> {
        // A full disk can remove files.
        self.call(path, Call::Sync)?;
        let mut state = self.0.lock();
        let tree = &mut state.tree;
        match (tree.node(path)?, file_type) {
            (Node::Dir(number), FileType::Dir) if !tree.dirs[&number].names.is_empty() => {
                return Err(Errno::NOTEMPTY.into());
            }
            (Node::Dir(_), FileType::Dir) | (Node::File(_), FileType::File) => {}
            (Node::Dir(_), _) => return Err(Errno::ISDIR.into()),
            (Node::File(_), _) => return Err(Errno::NOTDIR.into()),
        }
        let (dir, name) = tree.place(path)?;
        tree.change_names(dir, NameChange::Remove(name.to_owned()));
        Ok(())
    }

    /// Opening a directory is no switch point, because its fsync is one.
    pub(super) fn open_dir(&self, path: &Path) -> io::Result<DirHandle> {
        if self.faults(path).dir_opens_fail {
            return Err(Errno::MFILE.into());
        }
        let mut state = self.0.lock();
        state.check_handle()?;
        state.handles += 1;
        Ok(DirHandle {
            disk: self.clone(),
            path: path.to_owned(),
            losses: state.losses,
        })
    }

    #[track_caller]
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let faults = self.call(path, Call::Sync)?;
        let fails = self.is_drawn(faults.syncs_fail_one_in);
        let mut state = self.0.lock();
        let dir = state.tree.dir(path)?;
        if fails {
            return Err(Errno::IO.into());
        }
        state.tree.force_names(dir);
        // Collected at once if space is limited; otherwise only for the memory.
        if state.capacity != u64::MAX || state.tree.removals > SWEPT_AFTER {
            state.tree.sweep();
        }
        Ok(())
    }
}

/// The handle that has locked a file. A dead process holds no lock, even if its handles were not
/// dropped.
fn lock_on(state: &DiskState, file: u64) -> Option<u64> {
    let (handle, host) = state.locks.get(&file)?;
    world::is_alive(*host).then_some(*handle)
}

fn metadata_of(file: &Inode) -> Metadata {
    Metadata {
        len: file.bytes.len() as u64,
        modified: file.modified,
        file_type: FileType::File,
    }
}

/// An open directory.
#[derive(Debug)]
pub(super) struct DirHandle {
    disk: Disk,
    path: PathBuf,
    losses: u32,
}

impl DirHandle {
    #[track_caller]
    pub(super) fn sync(&self) -> io::Result<()> {
        self.disk.sync_dir(&self.path)
    }
}

impl Drop for DirHandle {
    fn drop(&mut self) {
        self.disk.0.lock().close_handle(self.losses);
    }
}

/// An open file.
pub(super) struct Handle {
    disk: Disk,
    id: u64,
    number: u64,
    /// The path at opening, which determines the faults.
    dir: Arc<Path>,
    losses: u32,
    /// The position of calls without an explicit position.
    cursor: u64,
}

impl Handle {
    #[track_caller]
    fn call<R>(
        &self,
        call: Call,
        work: impl FnOnce(&mut DiskState, &Faults) -> io::Result<R>,
    ) -> io::Result<R> {
        let faults = self.disk.call(&self.dir, call)?;
        let mut state = self.disk.0.lock();
        match state.losses == self.losses {
            true => work(&mut state, &faults),
            false => Err(Errno::IO.into()),
        }
    }

    #[track_caller]
    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        self.call(Call::Read, |state, _| {
            Ok(metadata_of(state.tree.file(self.number)?))
        })
    }

    #[track_caller]
    pub(super) fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.call(Call::Read, |state, _| {
            let bytes = &state.tree.file(self.number)?.bytes;
            let there = bytes.get(position as usize..).unwrap_or_default();
            let count = there.len().min(buffer.len());
            buffer[..count].copy_from_slice(&there[..count]);
            Ok(count)
        })
    }

    #[track_caller]
    pub(super) fn read_cached_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let one_in = self.disk.faults(&self.dir).uncached_one_in;
        match self.disk.is_drawn(one_in) {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => self.read_at(buffer, position),
        }
    }

    #[track_caller]
    pub(super) fn write_at(&self, slices: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
        self.call(Call::Write, |state, faults| {
            let now = world::world().wall();
            let len = slices.iter().map(|slice| slice.len()).sum();
            let mut bytes: Vec<u8> = Vec::with_capacity(len);
            for slice in slices {
                bytes.extend_from_slice(slice);
            }
            let short = faults.short_writes_one_in;
            if bytes.len() > 1 && short > 0 && state.random.one_in(short) {
                let len = 1 + state.random.index(bytes.len() - 1);
                bytes.truncate(len);
            }
            let room = state.room(faults);
            let file = state.tree.file(self.number)?;
            let may_end = (file.bytes.len() as u64).saturating_add(room);
            let may_write = may_end.saturating_sub(position).min(bytes.len() as u64);
            if may_write == 0 && !bytes.is_empty() {
                return Err(Errno::NOSPC.into());
            }
            bytes.truncate(may_write as usize);
            let count = bytes.len();
            if count > 0 {
                file.change(FileChange::Write(position, bytes), now);
            }
            Ok(count)
        })
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(buffer, self.cursor)?;
        self.cursor += count as u64;
        Ok(count)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.write_at(&[IoSlice::new(bytes)], self.cursor)?;
        self.cursor += count as u64;
        Ok(count)
    }

    pub(super) fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, by) = match to {
            SeekFrom::Start(position) => (position, 0),
            SeekFrom::Current(by) => (self.cursor, by),
            SeekFrom::End(by) => (self.metadata()?.len(), by),
        };
        self.cursor = from.checked_add_signed(by).ok_or(Errno::INVAL)?;
        Ok(self.cursor)
    }

    #[track_caller]
    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        self.call(Call::Write, |state, _| {
            let now = world::world().wall();
            state
                .tree
                .file(self.number)?
                .change(FileChange::SetLen(len), now);
            Ok(())
        })
    }

    #[track_caller]
    pub(super) fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.call(Call::Write, |state, _| {
            let file = state.tree.file(self.number)?;
            file.modified = time;
            file.change_count += 1;
            Ok(())
        })
    }

    #[track_caller]
    pub(super) fn sync(&self) -> io::Result<()> {
        self.call(Call::Sync, |state, faults| {
            let one_in = faults.syncs_fail_one_in;
            let fails = one_in > 0 && state.random.one_in(one_in);
            let mut random = Random::new(state.random.u64());
            let file = state.tree.file(self.number)?;
            if fails {
                // After a failed fsync the kernel marks the pages clean and does not retry.
                file.lose_unforced(&mut random);
                return Err(Errno::IO.into());
            }
            file.force();
            Ok(())
        })
    }

    #[track_caller]
    pub(super) fn try_lock(&self) -> io::Result<bool> {
        let host = world::world().host();
        self.call(Call::Sync, |state, _| {
            let is_free = lock_on(state, self.number).is_none_or(|id| id == self.id);
            if is_free {
                state.locks.insert(self.number, (self.id, host));
            }
            Ok(is_free)
        })
    }

    #[track_caller]
    pub(super) fn lock_holder(&self) -> io::Result<Option<LockHolder>> {
        self.call(Call::Sync, |state, _| {
            let other = lock_on(state, self.number).filter(|id| *id != self.id);
            Ok(other.map(|_| LockHolder { process_id: None }))
        })
    }

    /// A call without a visible effect.
    #[track_caller]
    pub(super) fn pass(&self) -> io::Result<()> {
        self.call(Call::Sync, |_, _| Ok(()))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.disk.0.lock();
        let state = &mut *state;
        if state.close_handle(self.losses) {
            if state
                .locks
                .get(&self.number)
                .is_some_and(|(id, _)| *id == self.id)
            {
                state.locks.remove(&self.number);
            }
            if let Some(file) = state.tree.files.get_mut(&self.number) {
                file.handles -= 1;
            }
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {} in {}", self.number, self.dir.display())
    }
}
