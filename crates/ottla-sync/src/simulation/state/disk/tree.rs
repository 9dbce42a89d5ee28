//! Directories and files of a simulated disk: the process's view, and the possible states after a
//! power loss.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path};
use std::time::SystemTime;

use rustix::io::Errno;

/// The target of a name, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Node {
    File(u64),
    Dir(u64),
}

pub(crate) type Names = BTreeMap<OsString, Node>;

#[derive(Default, Debug)]
pub(crate) struct Dir {
    pub(crate) names: Names,
    /// The entries that survive a power loss.
    pub(crate) forced: Names,
    /// Changes since the last fsync.
    pub(crate) changes: Vec<NameChange>,
    /// All changes, also those that a power loss undoes.
    pub(crate) change_count: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NameChange {
    Add(OsString, Node),
    Remove(OsString),
    /// Atomic, within one directory.
    Rename(OsString, OsString, Node),
}

impl NameChange {
    pub(crate) fn apply(&self, names: &mut Names) {
        match self {
            NameChange::Add(name, node) => drop(names.insert(name.clone(), *node)),
            NameChange::Remove(name) => drop(names.remove(name)),
            NameChange::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) bytes: Vec<u8>,
    /// The content that survives a power loss.
    pub(crate) forced: Vec<u8>,
    /// Changes since the last fsync.
    pub(crate) changes: Vec<FileChange>,
    /// All changes, also those that a power loss undoes.
    pub(crate) change_count: u64,
    pub(crate) modified: SystemTime,
    pub(crate) handles: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum FileChange {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

impl FileChange {
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            FileChange::SetLen(len) => bytes.resize(*len as usize, 0),
            FileChange::Write(position, written) => {
                let (start, end) = (*position as usize, *position as usize + written.len());
                if start == bytes.len() {
                    return bytes.extend_from_slice(written);
                }
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[start..end].copy_from_slice(written);
            }
        }
    }
}

impl Inode {
    pub(crate) fn new(modified: SystemTime) -> Inode {
        Inode {
            bytes: Vec::new(),
            forced: Vec::new(),
            changes: Vec::new(),
            change_count: 0,
            modified,
            handles: 0,
        }
    }

    pub(crate) fn change(&mut self, change: FileChange, now: SystemTime) {
        change.apply(&mut self.bytes);
        self.changes.push(change);
        self.change_count += 1;
        self.modified = now;
    }

    pub(crate) fn force(&mut self) {
        for change in self.changes.drain(..) {
            change.apply(&mut self.forced);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) dirs: BTreeMap<u64, Dir>,
    pub(crate) files: BTreeMap<u64, Inode>,
    /// Names removed since the last [`Tree::sweep`].
    pub(crate) removals: u32,
    next: u64,
}

const ROOT: u64 = 0;

impl Tree {
    pub(crate) fn new() -> Tree {
        Tree {
            dirs: BTreeMap::from([(ROOT, Dir::default())]),
            files: BTreeMap::new(),
            removals: 0,
            next: ROOT + 1,
        }
    }

    pub(crate) fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    pub(crate) fn dir(&self, path: &Path) -> io::Result<u64> {
        let mut dir = ROOT;
        for component in path.components() {
            let name = match component {
                Component::RootDir | Component::CurDir => continue,
                Component::Normal(name) => name,
                Component::ParentDir | Component::Prefix(_) => return Err(Errno::INVAL.into()),
            };
            match self.dirs[&dir].names.get(name) {
                Some(Node::Dir(number)) => dir = *number,
                Some(Node::File(_)) => return Err(Errno::NOTDIR.into()),
                None => return Err(Errno::NOENT.into()),
            }
        }
        Ok(dir)
    }

    /// The parent directory of a path, and the name in it.
    pub(crate) fn place<'p>(&self, path: &'p Path) -> io::Result<(u64, &'p OsStr)> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let dir = self.dir(path.parent().unwrap_or(Path::new("")))?;
        Ok((dir, name))
    }

    pub(crate) fn node(&self, path: &Path) -> io::Result<Node> {
        if path.file_name().is_none() {
            return Ok(Node::Dir(ROOT));
        }
        let (dir, name) = self.place(path)?;
        let node = self.dirs[&dir].names.get(name);
        Ok(*node.ok_or(Errno::NOENT)?)
    }

    pub(crate) fn change_names(&mut self, dir: u64, change: NameChange) {
        let dir = self.dirs.get_mut(&dir).expect("the directory was found");
        if !matches!(change, NameChange::Add(..)) {
            self.removals += 1;
        }
        change.apply(&mut dir.names);
        dir.changes.push(change);
        dir.change_count += 1;
    }

    pub(crate) fn force_names(&mut self, dir: u64) {
        let dir = self.dirs.get_mut(&dir).expect("the directory was found");
        for change in dir.changes.drain(..) {
            change.apply(&mut dir.forced);
        }
    }

    pub(crate) fn file(&mut self, number: u64) -> io::Result<&mut Inode> {
        Ok(self.files.get_mut(&number).ok_or(Errno::IO)?)
    }

    /// Drops files and directories that no name or handle refers to, not even after a power loss.
    pub(crate) fn sweep(&mut self) {
        self.removals = 0;
        let mut reached = Vec::new();
        let mut dirs = vec![ROOT];
        let mut seen = std::collections::BTreeSet::from([ROOT]);
        while let Some(number) = dirs.pop() {
            let Some(dir) = self.dirs.get(&number) else {
                continue;
            };
            let added = dir.changes.iter().filter_map(|change| match change {
                NameChange::Add(_, node) | NameChange::Rename(_, _, node) => Some(node),
                NameChange::Remove(_) => None,
            });
            for node in dir.names.values().chain(dir.forced.values()).chain(added) {
                match node {
                    Node::File(number) => reached.push(*number),
                    Node::Dir(number) if seen.insert(*number) => dirs.push(*number),
                    Node::Dir(_) => {}
                }
            }
        }
        reached.sort_unstable();
        self.files
            .retain(|number, file| file.handles > 0 || reached.binary_search(number).is_ok());
        self.dirs.retain(|number, _| seen.contains(number));
    }
}
