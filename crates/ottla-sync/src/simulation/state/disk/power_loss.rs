//! What a loss of power leaves of a simulated disk.
//!
//! Of a file, what was forced is there. What was written since may be there or not, in units of a sector of 512 bytes:
//! each sector has what it held at some moment since the file was last forced, whatever the others have. The length
//! is one that the file had; what it has grown by and was not written reads as zeros. A file that was shortened and
//! written again has nothing of what was written after if the shortening is lost, because file systems write the
//! map of a file in order.
//!
//! Of a directory, the names are those of some moment since it was last forced ([`PowerLoss::Journalled`], as ext4 and
//! XFS do it), or any of the changes may be missing ([`PowerLoss::Unordered`], all that POSIX promises).

use super::tree::{Dir, FileChange, Inode, Names, Node, Tree};
use crate::simulation::Random;

const SECTOR: usize = 512;

/// What file systems may do to the names in directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PowerLoss {
    /// Changes of one directory are there up to one of them.
    Journalled,
    /// Any of the changes may be missing, but for those that need one that is.
    Unordered,
}

impl Tree {
    /// What was not forced is there or not, as drawn.
    pub(crate) fn lose_power(&mut self, kind: PowerLoss, random: &mut Random) {
        for dir in self.dirs.values_mut() {
            dir.names = dir.after_loss(kind, random);
            dir.forced = dir.names.clone();
            dir.changes.clear();
        }
        for file in self.files.values_mut() {
            file.lose_unforced(random);
            file.bytes = file.forced.clone();
            file.handles = 0;
        }
        self.sweep();
    }
}

impl Dir {
    fn after_loss(&self, kind: PowerLoss, random: &mut Random) -> Names {
        let mut names = self.forced.clone();
        match kind {
            PowerLoss::Journalled => {
                let kept = random.index(self.changes.len() + 1);
                self.changes[..kept]
                    .iter()
                    .for_each(|change| change.apply(&mut names));
            }
            PowerLoss::Unordered => {
                for change in &self.changes {
                    if random.one_in(2) && self.is_possible(change, &names) {
                        change.apply(&mut names);
                    }
                }
            }
        }
        names
    }

    /// What is renamed or removed must be there under its old name.
    fn is_possible(&self, change: &super::tree::NameChange, names: &Names) -> bool {
        use super::tree::NameChange::{Add, Remove, Rename};
        let is = |name, node: &Node| names.get(name) == Some(node);
        match change {
            Add(..) => true,
            Remove(name) => names.contains_key(name),
            Rename(from, _, node) => is(from, node),
        }
    }
}

impl Inode {
    /// Leaves, as forced, some of what was written since, as drawn. The process still sees all of it.
    pub(crate) fn lose_unforced(&mut self, random: &mut Random) {
        let changes = std::mem::take(&mut self.changes);
        match random.below(4) {
            0 => {}
            1 => changes
                .iter()
                .for_each(|change| change.apply(&mut self.forced)),
            _ => self.forced = tear(&self.forced, &changes, random),
        }
    }
}

/// A file of which each sector has one of its versions.
fn tear(forced: &[u8], changes: &[FileChange], random: &mut Random) -> Vec<u8> {
    // The versions of the file, up to the shortening before the first that is lost.
    let mut versions = vec![forced.to_vec()];
    let mut epoch = 0;
    for change in changes {
        let mut next = versions[versions.len() - 1].clone();
        change.apply(&mut next);
        let is_shorter = next.len() < versions[versions.len() - 1].len();
        if is_shorter && random.one_in(2) {
            break;
        }
        versions.push(next);
        if is_shorter {
            epoch = versions.len() - 1;
        }
    }
    let lengths = &versions[epoch..];
    let len = lengths[random.index(lengths.len())].len();
    let mut torn = vec![0; len];
    for start in (0..len).step_by(SECTOR) {
        let end = len.min(start + SECTOR);
        let version = &versions[epoch + random.index(versions.len() - epoch)];
        if start < version.len() {
            let there = end.min(version.len());
            torn[start..there].copy_from_slice(&version[start..there]);
        }
    }
    torn
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(position: u64, byte: u8, len: usize) -> FileChange {
        FileChange::Write(position, vec![byte; len])
    }

    #[test]
    fn each_sector_is_as_it_was_at_some_moment() {
        let forced = vec![b'a'; 1024];
        let changes = [
            write(0, b'b', 700),
            write(600, b'c', 1000),
            FileChange::SetLen(4096),
        ];
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..2_000 {
            let torn = tear(&forced, &changes, &mut Random::new(seed));
            assert!([1024, 1600, 4096].contains(&torn.len()), "{}", torn.len());
            assert!(torn[..512] == [b'a'; 512] || torn[..512] == [b'b'; 512]);
            let second = (&torn[512..600], &torn[600..700], &torn[700..1024]);
            let is = |slice: &[u8], byte: u8| slice.iter().all(|b| *b == byte);
            let first = is(second.0, b'a') && is(second.1, b'a') && is(second.2, b'a');
            let middle = is(second.0, b'b') && is(second.1, b'b') && is(second.2, b'a');
            let last = is(second.0, b'b') && is(second.1, b'c') && is(second.2, b'c');
            assert!(first || middle || last, "torn within a sector");
            seen.insert((torn.len(), torn[0], torn[600], torn.get(1100).copied()));
        }
        assert!(seen.len() > 20, "{}", seen.len());
    }

    #[test]
    fn what_was_cut_off_is_not_mixed_with_what_came_in_its_place() {
        let forced = vec![b'a'; 2048];
        let changes = [FileChange::SetLen(512), write(512, b'b', 2048)];
        for seed in 0..1_000 {
            let torn = tear(&forced, &changes, &mut Random::new(seed));
            let has = |byte| torn[512..].contains(&byte);
            assert!(!(has(b'a') && has(b'b')), "seed {seed}");
        }
    }
}
