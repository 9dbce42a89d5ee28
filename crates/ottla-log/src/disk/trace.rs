//! The test's record of disk changes, and the states that a crash after any number of them may
//! leave.
//!
//! The modelled disk is as strict as journaling file systems are in practice. Bytes written since
//! the last fsync may be present, missing or torn, and may be present without earlier writes. A
//! directory has its entries of some moment between its last fsync and the crash.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use ottla_sync::fs::File;

pub(crate) enum Change<'a> {
    Create(&'a Path),
    /// File, position, length.
    Write(&'a File, u64, u64),
    SetLen(&'a File, u64),
    Sync(&'a File),
    SyncDir(&'a Path),
    Rename(&'a Path, &'a Path),
    Remove(&'a Path),
}

/// Identifies a file independently of its name.
type FileId = usize;

#[derive(Clone, Debug)]
enum Op {
    Create(PathBuf, FileId),
    Write(FileId, u64, Vec<u8>),
    SetLen(FileId, u64),
    Sync(FileId),
    SyncDir(PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

/// The files below a directory, by path.
pub(crate) type Image = BTreeMap<PathBuf, Vec<u8>>;

/// What happens to unsynced changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    /// Only the process was killed.
    Nothing,
    /// Everything unsynced is lost.
    Everything,
    /// Directory entries survive, unsynced data does not.
    Data,
    /// Data survives, unsynced directory entries do not.
    Names,
    /// Files keep their length; unsynced data reads as zeros.
    Zeros,
    /// Each directory is at some earlier moment; each file has a prefix of its writes, the last of
    /// them torn.
    Torn(u64),
    /// As `Torn`, but any write may be missing or torn.
    Reordered(u64),
}

impl Loss {
    pub(crate) fn all(seed: u64) -> [Loss; 8] {
        [
            Loss::Nothing,
            Loss::Everything,
            Loss::Data,
            Loss::Names,
            Loss::Zeros,
            Loss::Torn(seed),
            Loss::Reordered(seed),
            Loss::Reordered(seed ^ 0x5555),
        ]
    }
}

#[derive(Default)]
pub(crate) struct Trace {
    /// Files that existed before the trace, all synced.
    before: Image,
    ops: Vec<Op>,
    /// By device and inode number. A reused number gets a new ID.
    ids: HashMap<(u64, u64), FileId>,
    next_id: FileId,
    /// Length of the file that existed at the path being opened.
    opening: Option<u64>,
    /// Countdown to the change that fails.
    fails_in: Option<usize>,
    /// All writes fail for lack of space.
    is_full: bool,
    /// Countdown to the open that fails for lack of a handle.
    lacks_handle_in: Option<usize>,
}

thread_local! {
    static TRACE: RefCell<Option<Trace>> = const { RefCell::new(None) };
    static OBSERVER: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// Calls `observer` before each change of this thread during `work`, as another thread might look.
/// It must not change files on this thread.
pub(crate) fn observed<R>(observer: impl FnMut() + 'static, work: impl FnOnce() -> R) -> R {
    OBSERVER.set(Some(Box::new(observer)));
    let result = work();
    OBSERVER.set(None);
    result
}

/// Starts recording the changes of this thread. From here on fsyncs are recorded, not executed.
pub(crate) fn start(root: &Path) {
    let mut trace = Trace::default();
    for (path, bytes) in read_image(root) {
        let metadata = std::fs::metadata(root.join(&path)).expect("the file is there");
        let key = (metadata.dev(), metadata.ino());
        trace.ids.insert(key, trace.next_id);
        trace.next_id += 1;
        trace.before.insert(root.join(path), bytes);
    }
    TRACE.set(Some(trace));
}

/// Makes the change after the next `changes` fail as on a broken disk.
pub(crate) fn fail_in(changes: usize) {
    TRACE.with_borrow_mut(|trace| {
        trace.as_mut().expect("a trace is written").fails_in = Some(changes);
    });
}

/// Makes all writes fail for lack of space. Files can still be created, renamed and cut.
pub(crate) fn fill() {
    TRACE.with_borrow_mut(|trace| trace.as_mut().expect("a trace is written").is_full = true);
}

/// Makes the open after the next `opened` fail for lack of a handle.
pub(crate) fn lack_handles_in(opened: usize) {
    TRACE.with_borrow_mut(|trace| {
        trace.as_mut().expect("a trace is written").lacks_handle_in = Some(opened);
    });
}

/// Number of changes recorded so far.
pub(crate) fn len() -> usize {
    TRACE.with_borrow(|trace| trace.as_ref().map_or(0, |trace| trace.ops.len()))
}

pub(crate) fn stop() -> Trace {
    TRACE.take().expect("a trace is written")
}

pub(super) fn is_sync_skipped() -> bool {
    TRACE.with_borrow(|trace| trace.is_some())
}

pub(super) fn before_open() -> io::Result<()> {
    TRACE.with_borrow_mut(
        |trace| match trace.as_mut().map(|trace| &mut trace.lacks_handle_in) {
            Some(Some(0)) => Err(rustix::io::Errno::MFILE.into()),
            Some(Some(left)) => {
                *left -= 1;
                Ok(())
            }
            _ => Ok(()),
        },
    )
}

pub(super) fn before(change: Change<'_>) -> io::Result<()> {
    OBSERVER.with_borrow_mut(|observer| {
        if let Some(observer) = observer {
            observer();
        }
    });
    TRACE.with_borrow_mut(|trace| match trace {
        Some(trace) => trace.before(&change),
        None => Ok(()),
    })
}

pub(super) fn after(change: Change<'_>) {
    TRACE.with_borrow_mut(|trace| {
        if let Some(trace) = trace {
            trace.after(change);
        }
    });
}

impl Trace {
    fn before(&mut self, change: &Change<'_>) -> io::Result<()> {
        if let Change::Create(path) = change {
            self.opening = std::fs::metadata(path).ok().map(|metadata| metadata.len());
        }
        if self.is_full && matches!(change, Change::Write(..)) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match &mut self.fails_in {
            Some(0) => Err(io::Error::other("the disk is broken, for a test")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn after(&mut self, change: Change<'_>) {
        let op = match change {
            Change::Create(path) => {
                let metadata = std::fs::metadata(path).expect("the file was opened");
                match self.opening.take() {
                    None => {
                        let id = self.next_id;
                        self.next_id += 1;
                        self.ids.insert((metadata.dev(), metadata.ino()), id);
                        Op::Create(path.to_owned(), id)
                    }
                    Some(len) if len != metadata.len() => {
                        let id = self.ids[&(metadata.dev(), metadata.ino())];
                        Op::SetLen(id, metadata.len())
                    }
                    Some(_) => return,
                }
            }
            Change::Write(file, position, len) => {
                let mut bytes = vec![0; len as usize];
                file.read_exact_at(&mut bytes, position)
                    .expect("written bytes can be read");
                Op::Write(self.id(file), position, bytes)
            }
            Change::SetLen(file, len) => Op::SetLen(self.id(file), len),
            Change::Sync(file) => Op::Sync(self.id(file)),
            Change::SyncDir(dir) => Op::SyncDir(dir.to_owned()),
            Change::Rename(from, to) => Op::Rename(from.to_owned(), to.to_owned()),
            Change::Remove(path) => Op::Remove(path.to_owned()),
        };
        self.ops.push(op);
    }

    fn id(&self, file: &File) -> FileId {
        let status = rustix::fs::fstat(file).expect("the file is open");
        self.ids[&(status.st_dev, status.st_ino)]
    }

    /// Describes the change after which the crash comes, for failure messages.
    pub(crate) fn describe(&self, count: usize) -> String {
        let last = count.checked_sub(1).and_then(|last| self.ops.get(last));
        match last {
            Some(Op::Write(id, position, bytes)) => {
                format!("write of {} bytes at {position} to file {id}", bytes.len())
            }
            last => format!("{last:?}"),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    /// Number of fsyncs of files and directories.
    pub(crate) fn syncs(&self) -> usize {
        let is_sync = |op: &&Op| matches!(op, Op::Sync(_) | Op::SyncDir(_));
        self.ops.iter().filter(is_sync).count()
    }

    /// The disk after the first `count` changes.
    pub(crate) fn disk_after(&self, count: usize) -> Disk {
        let mut disk = Disk::new(&self.before);
        for op in &self.ops[..count] {
            disk.apply(op);
        }
        disk
    }

    /// The files that a crash after the first `count` changes leaves, by path.
    pub(crate) fn image(&self, count: usize, loss: Loss) -> Image {
        self.disk_after(count).crash(loss)
    }
}

/// The files below `root`, by relative path.
pub(crate) fn read_image(root: &Path) -> Image {
    let mut image = Image::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("the directory can be listed") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let bytes = std::fs::read(&path).expect("the file can be read");
                let name = path
                    .strip_prefix(root)
                    .expect("the path is below the root")
                    .to_owned();
                image.insert(name, bytes);
            }
        }
    }
    image
}

type Names = BTreeMap<PathBuf, FileId>;

pub(crate) struct Disk {
    files: BTreeMap<FileId, FileState>,
    /// For each directory, its entries at each moment since the last fsync.
    dirs: BTreeMap<PathBuf, Vec<Names>>,
}

#[derive(Default)]
struct FileState {
    on_disk: Vec<u8>,
    /// Changes since the last fsync.
    unforced: Vec<Op>,
}

impl Disk {
    fn new(before: &Image) -> Disk {
        let mut disk = Disk {
            files: BTreeMap::new(),
            dirs: BTreeMap::new(),
        };
        for (id, (path, bytes)) in before.iter().enumerate() {
            let state = FileState {
                on_disk: bytes.clone(),
                unforced: Vec::new(),
            };
            disk.files.insert(id, state);
            let moments = disk.moments(path);
            moments[0].insert(path.clone(), id);
        }
        disk
    }

    fn moments(&mut self, path: &Path) -> &mut Vec<Names> {
        let dir = path.parent().expect("a file has a directory");
        let moments = self.dirs.entry(dir.to_owned());
        moments.or_insert_with(|| vec![Names::new()])
    }

    /// Changes the entries of `path`'s directory.
    fn change_names(&mut self, path: &Path, change: impl FnOnce(&mut Names)) {
        let moments = self.moments(path);
        let mut names = moments.last().expect("there is a moment").clone();
        change(&mut names);
        moments.push(names);
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Create(path, id) => {
                self.files.insert(*id, FileState::default());
                self.change_names(path, |names| {
                    names.insert(path.clone(), *id);
                });
            }
            Op::Rename(from, to) => {
                assert_eq!(from.parent(), to.parent(), "files stay in their directory");
                self.change_names(from, |names| {
                    let id = names.remove(from).expect("the file was there");
                    names.insert(to.clone(), id);
                });
            }
            Op::Remove(path) => self.change_names(path, |names| {
                names.remove(path);
            }),
            Op::SyncDir(dir) => {
                if let Some(moments) = self.dirs.get_mut(dir) {
                    moments.drain(..moments.len() - 1);
                }
            }
            Op::Write(id, ..) | Op::SetLen(id, _) => {
                let file = self.files.get_mut(id).expect("the file is known");
                file.unforced.push(op.clone());
            }
            Op::Sync(id) => {
                let file = self.files.get_mut(id).expect("the file is known");
                file.on_disk = file.as_written();
                file.unforced.clear();
            }
        }
    }

    /// The files that a crash leaves, by path.
    pub(crate) fn crash(&self, loss: Loss) -> Image {
        let mut random = Random(match loss {
            Loss::Torn(seed) | Loss::Reordered(seed) => seed,
            _ => 0,
        });
        let mut image = Image::new();
        for moments in self.dirs.values() {
            let moment = match loss {
                Loss::Nothing | Loss::Data | Loss::Zeros => moments.len() - 1,
                Loss::Everything | Loss::Names => 0,
                Loss::Torn(_) | Loss::Reordered(_) => random.below(moments.len()),
            };
            for (path, id) in &moments[moment] {
                let bytes = self.files[id].after_crash(loss, &mut random);
                image.insert(path.clone(), bytes);
            }
        }
        image
    }
}

impl FileState {
    fn as_written(&self) -> Vec<u8> {
        let mut bytes = self.on_disk.clone();
        self.unforced.iter().for_each(|op| apply(op, &mut bytes));
        bytes
    }

    fn after_crash(&self, loss: Loss, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.on_disk.clone();
        match loss {
            Loss::Nothing | Loss::Names => return self.as_written(),
            Loss::Everything | Loss::Data => {}
            Loss::Zeros => {
                for op in &self.unforced {
                    match op {
                        Op::Write(_, position, written) => {
                            write(&mut bytes, *position, &vec![0; written.len()])
                        }
                        op => apply(op, &mut bytes),
                    }
                }
            }
            Loss::Torn(_) => {
                let kept = random.below(self.unforced.len() + 1);
                for (number, op) in self.unforced[..kept].iter().enumerate() {
                    match number + 1 == kept {
                        true => apply_torn(op, &mut bytes, random),
                        false => apply(op, &mut bytes),
                    }
                }
            }
            Loss::Reordered(_) => {
                for op in &self.unforced {
                    match random.below(3) {
                        0 => {}
                        1 => apply_torn(op, &mut bytes, random),
                        _ => apply(op, &mut bytes),
                    }
                }
            }
        }
        bytes
    }
}

fn apply(op: &Op, bytes: &mut Vec<u8>) {
    match op {
        Op::Write(_, position, written) => write(bytes, *position, written),
        Op::SetLen(_, len) => bytes.resize(*len as usize, 0),
        _ => {}
    }
}

fn apply_torn(op: &Op, bytes: &mut Vec<u8>, random: &mut Random) {
    match op {
        Op::Write(_, position, written) => {
            let len = random.below(written.len() + 1);
            write(bytes, *position, &written[..len]);
        }
        op => apply(op, bytes),
    }
}

fn write(bytes: &mut Vec<u8>, position: u64, written: &[u8]) {
    let (start, end) = (position as usize, position as usize + written.len());
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[start..end].copy_from_slice(written);
}

/// SplitMix64: the same choices for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}
