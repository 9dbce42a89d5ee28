//! The state of a simulated disk after a power loss.
//!
//! Synced file data survives. Each sector of 512 bytes written since has, independently, the
//! content of some moment since the last fsync. The length is one that the file had; unwritten
//! growth reads as zeros. If a shortening is lost, so is everything written after it, because file
//! systems write the map of a file in order.
//!
//! A directory has its names of some moment since its last fsync ([`PowerLoss::Journalled`], as
//! with ext4 and XFS), or any subset of the changes ([`PowerLoss::Unordered`], all that POSIX
//! guarantees).

use super::tree::{Dir, FileChange, Inode, Names, Node, Tree};
use crate::simulation::Random;

const SECTOR: usize = 512;

/// The effects of a power loss on directory entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PowerLoss {
    /// A prefix of a directory's changes survives.
    Journalled,
    /// Any changes may be missing, except those that depend on a missing one.
    Unordered,
}

impl Tree {
    /// Keeps or loses unsynced data at random.
    pub(crate) fn lose_power(&mut self, kind: PowerLoss, random: &mut Random) {
        for dir in self.dirs.values_mut() {
            dir.names = dir.after_loss(kind, random);
            dir.forced = dir.names.clone();
            dir.change_count += u64::from(!dir.changes.is_empty());
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

    /// A rename or removal needs the old name.
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
    /// Syncs a random part of the writes since the last fsync. The process still sees all of them.
    pub(crate) fn lose_unforced(&mut self, random: &mut Random) {
        let changes = std::mem::take(&mut self.changes);
        self.change_count += u64::from(!changes.is_empty());
        match random.below(4) {
            0 => {}
            1 => changes
                .iter()
                .for_each(|change| change.apply(&mut self.forced)),
            _ => self.forced = tear(&self.forced, &changes, random),
        }
    }
}

/// A file with one version of each sector.
fn tear(forced: &[u8], changes: &[FileChange], random: &mut Random) -> Vec<u8> {
    // The versions of the file up to the first lost shortening.
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
    fn truncated_bytes_do_not_mix_with_their_replacement() {
        let forced = vec![b'a'; 2048];
        let changes = [FileChange::SetLen(512), write(512, b'b', 2048)];
        for seed in 0..1_000 {
            let torn = tear(&forced, &changes, &mut Random::new(seed));
            let has = |byte| torn[512..].contains(&byte);
            assert!(!(has(b'a') && has(b'b')), "seed {seed}");
        }
    }
}
