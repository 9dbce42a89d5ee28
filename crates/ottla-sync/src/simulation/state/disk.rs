//! A disk in memory: files, directories and faults.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::wait::new_object;
use crate::simulation::random::Random;
use power_loss::PowerLoss;
use tree::{Inode, Node, Tree};

pub(crate) mod power_loss;
pub(crate) mod tree;

/// The faults of calls for files in a directory and below. Each `one_in` means that on average one
/// of this many calls is affected; 0 means none.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Faults {
    pub reads_fail_one_in: u64,
    pub writes_fail_one_in: u64,
    /// Unsynced data is lost at the next power loss, even if a later fsync succeeds.
    pub syncs_fail_one_in: u64,
    /// Of files.
    pub opens_fail_one_in: u64,
    /// No handle is left for a directory.
    pub dir_opens_fail: bool,
    pub short_writes_one_in: u64,
    /// Non-blocking reads would have to wait.
    pub uncached_one_in: u64,
    pub is_full: bool,
    /// The duration of calls.
    pub delay: Option<Range<Duration>>,
    /// Calls do not return until this is changed.
    pub hangs: bool,
}

/// The disk of a simulated host. It outlives the process and is given to the next one.
#[derive(Clone)]
pub struct Disk(pub(crate) Arc<Mutex<DiskState>>);

pub(crate) struct DiskState {
    pub(crate) tree: Tree,
    pub(crate) random: Random,
    pub(crate) faults: BTreeMap<PathBuf, Faults>,
    /// No faults are set anywhere.
    pub(crate) is_calm: bool,
    pub(crate) capacity: u64,
    pub(crate) max_handles: u32,
    pub(crate) handles: u32,
    /// The number of the next handle.
    pub(crate) next_handle: u64,
    /// Locked files, with the locking handle and its host.
    pub(crate) locks: BTreeMap<u64, (u64, u32)>,
    /// The object that threads with hanging calls wait for.
    pub(crate) hanging: u64,
    /// The number of power losses; older handles are invalid.
    pub(crate) losses: u32,
}

impl DiskState {
    /// Whether one more file or directory can be open.
    pub(crate) fn check_handle(&self) -> io::Result<()> {
        match self.handles < self.max_handles {
            true => Ok(()),
            false => Err(Errno::MFILE.into()),
        }
    }

    /// Closes a handle that was opened after this number of power losses. Returns whether it was
    /// still open.
    pub(crate) fn close_handle(&mut self, losses: u32) -> bool {
        let is_open = self.losses == losses;
        if is_open {
            self.handles -= 1;
        }
        is_open
    }

    pub(crate) fn room(&self, faults: &Faults) -> u64 {
        let used = |file: &Inode| file.bytes.len() as u64;
        match self.capacity {
            _ if faults.is_full => 0,
            u64::MAX => u64::MAX,
            capacity => capacity.saturating_sub(self.tree.files.values().map(used).sum()),
        }
    }
}

impl Disk {
    /// An empty disk. `name` selects its stream of random numbers.
    pub fn new(seed: u64, name: &str) -> Disk {
        Disk(Arc::new(Mutex::new(DiskState {
            tree: Tree::new(),
            random: Random::named(seed, &format!("disk {name}")),
            faults: BTreeMap::new(),
            is_calm: true,
            capacity: u64::MAX,
            max_handles: u32::MAX,
            handles: 0,
            next_handle: 0,
            locks: BTreeMap::new(),
            hanging: new_object(),
            losses: 0,
        })))
    }

    /// Limits the bytes of all files together.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.lock().capacity = bytes;
    }

    /// Limits the number of open files and directories.
    pub fn set_max_handles(&self, handles: u32) {
        self.0.lock().max_handles = handles;
    }

    /// Loses all or some of the unsynced data. The processes that used the disk must have been
    /// killed.
    pub fn lose_power(&self, kind: PowerLoss) {
        let mut state = self.0.lock();
        let state = &mut *state;
        state.losses += 1;
        state.handles = 0;
        state.locks.clear();
        state.tree.lose_power(kind, &mut state.random);
    }

    /// All files by path, for checks and for comparing runs.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let copy = |path: &Path, bytes: &[u8]| drop(files.insert(path.to_owned(), bytes.to_vec()));
        self.read_files(|_| true, copy);
        files
    }

    /// The bytes of a file, if it is there.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.0.lock();
        match state.tree.node(path) {
            Ok(Node::File(number)) => Some(state.tree.files[&number].bytes.clone()),
            _ => None,
        }
    }

    /// Calls `read` with the requested files and their bytes, in the order of their paths. It must not
    /// use the disk.
    pub fn read_files(
        &self,
        is_wanted: impl Fn(&Path) -> bool,
        mut read: impl FnMut(&Path, &[u8]),
    ) {
        let state = self.0.lock();
        // The last is the next.
        let mut nodes = vec![(PathBuf::from("/"), Node::Dir(0))];
        while let Some((path, node)) = nodes.pop() {
            match node {
                Node::File(number) if is_wanted(&path) => {
                    read(&path, &state.tree.files[&number].bytes);
                }
                Node::File(_) => {}
                Node::Dir(number) => {
                    let names = state.tree.dirs[&number].names.iter().rev();
                    nodes.extend(names.map(|(name, node)| (path.join(name), *node)));
                }
            }
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk { .. }")
    }
}
