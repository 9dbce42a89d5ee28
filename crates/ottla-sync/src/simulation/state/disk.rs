//! A disk in memory: its files and directories, and what goes wrong with calls for them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::wait::new_object;
use crate::simulation::random::Random;
use power_loss::PowerLoss;
use tree::{Inode, Node, Tree};

pub(crate) mod power_loss;
pub(crate) mod tree;

/// What goes wrong with the calls for files in a directory and below. Each `one_in` is how many calls there are for
/// one that it happens to, on average; 0: it never does.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Faults {
    pub reads_fail_one_in: u64,
    pub writes_fail_one_in: u64,
    /// What was not forced is lost with the next loss of power, also if a later call to force it succeeds.
    pub syncs_fail_one_in: u64,
    pub opens_fail_one_in: u64,
    pub short_writes_one_in: u64,
    /// Reads that may not wait for the disk would have to.
    pub uncached_one_in: u64,
    pub is_full: bool,
    /// How long calls take.
    pub delay: Option<Range<Duration>>,
    /// Calls do not return until this is changed.
    pub hangs: bool,
}

/// The disk of a simulated host. It outlives the host's process: the next one is given the same.
#[derive(Clone)]
pub struct Disk(pub(crate) Arc<Mutex<DiskState>>);

pub(crate) struct DiskState {
    pub(crate) tree: Tree,
    pub(crate) random: Random,
    pub(crate) faults: BTreeMap<PathBuf, Faults>,
    /// Nothing goes wrong anywhere: nobody has to look where.
    pub(crate) is_calm: bool,
    pub(crate) capacity: u64,
    pub(crate) max_handles: u32,
    pub(crate) handles: u32,
    /// The number of the next handle.
    pub(crate) next_handle: u64,
    /// Locked files by their number: by which handle, of which host.
    pub(crate) locks: BTreeMap<u64, (u64, u32)>,
    /// What the threads wait for whose calls hang.
    pub(crate) hanging: u64,
    /// How often power was lost: handles of before are no good.
    pub(crate) losses: u32,
}

impl DiskState {
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
    /// An empty disk. `name` gives it its own stream of random numbers.
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

    /// How many bytes all files may have together.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.lock().capacity = bytes;
    }

    /// How many files may be open at a time.
    pub fn set_max_handles(&self, handles: u32) {
        self.0.lock().max_handles = handles;
    }

    /// Forgets what was not forced, or some of it. The processes that used the disk must have been killed.
    pub fn lose_power(&self, kind: PowerLoss) {
        let mut state = self.0.lock();
        let state = &mut *state;
        state.losses += 1;
        state.handles = 0;
        state.locks.clear();
        state.tree.lose_power(kind, &mut state.random);
    }

    /// All files with what they hold, by path: for checks, and to compare runs.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.0.lock();
        let mut files = BTreeMap::new();
        let mut dirs = vec![(PathBuf::from("/"), Node::Dir(0))];
        while let Some((path, node)) = dirs.pop() {
            match node {
                Node::File(number) => {
                    files.insert(path, state.tree.files[&number].bytes.clone());
                }
                Node::Dir(number) => {
                    let names = &state.tree.dirs[&number].names;
                    dirs.extend(names.iter().map(|(name, node)| (path.join(name), *node)));
                }
            }
        }
        files
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk { .. }")
    }
}
