//! How a turn ends: stopped or killed, with or without active writers, at a random moment or when a
//! certain file change occurs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::seeded::Seeded;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    StopIdle,
    StopLoaded,
    KillIdle,
    KillLoaded,
    /// When a partition has rolled a segment.
    KillAtRoll,
    /// When the cleaner has written or swapped a file.
    KillAtCompaction,
    /// While topics are created, changed and deleted.
    KillAtMetadata,
    /// While replicas move between log directories.
    KillAtMove,
}

impl Ending {
    pub const ALL: [Ending; 8] = [
        Ending::StopIdle,
        Ending::KillLoaded,
        Ending::StopLoaded,
        Ending::KillAtRoll,
        Ending::KillAtCompaction,
        Ending::KillAtMetadata,
        Ending::KillAtMove,
        Ending::KillIdle,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Ending::StopIdle => "stopped, idle",
            Ending::StopLoaded => "stopped under load",
            Ending::KillIdle => "killed, idle",
            Ending::KillLoaded => "killed under load",
            Ending::KillAtRoll => "killed at a segment roll",
            Ending::KillAtCompaction => "killed at compaction",
            Ending::KillAtMetadata => "killed in metadata writes",
            Ending::KillAtMove => "killed in a move",
        }
    }

    pub fn is_kill(self) -> bool {
        !matches!(self, Ending::StopIdle | Ending::StopLoaded)
    }

    pub fn is_idle(self) -> bool {
        matches!(self, Ending::StopIdle | Ending::KillIdle)
    }
}

/// Endings in random order, each equally often.
#[derive(Debug)]
pub struct Deck {
    cards: Vec<Ending>,
}

impl Deck {
    pub fn new() -> Deck {
        Deck { cards: Vec::new() }
    }

    pub fn draw(&mut self, random: &mut Seeded) -> Ending {
        if self.cards.is_empty() {
            self.cards = Ending::ALL.to_vec();
            for at in (1..self.cards.len()).rev() {
                self.cards.swap(at, random.below(at as u64 + 1) as usize);
            }
        }
        self.cards.pop().unwrap_or(Ending::StopIdle)
    }
}

/// Waits until a new file matches; returns whether one appeared in time.
pub fn wait_for_file(log_dirs: &[PathBuf], fits: fn(&str) -> bool, patience: Duration) -> bool {
    let before = files(log_dirs, fits);
    let began = Instant::now();
    while began.elapsed() < patience {
        if files(log_dirs, fits).difference(&before).next().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

pub fn is_segment(name: &str) -> bool {
    name.ends_with(".log")
}

pub fn is_of_compaction(name: &str) -> bool {
    name.ends_with(".cleaned") || name.ends_with(".swap")
}

/// The matching files of user partitions.
fn files(log_dirs: &[PathBuf], fits: fn(&str) -> bool) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for folder in log_dirs.iter().flat_map(|dir| entries(dir)) {
        let is_metadata = folder.ends_with("__cluster_metadata-0");
        if !is_metadata && folder.is_dir() {
            found.extend(entries(&folder).into_iter().filter(|file| {
                let name = file.file_name().unwrap_or_default();
                fits(&name.to_string_lossy())
            }));
        }
    }
    found
}

/// The entries of a folder; empty if the folder is removed during the read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_occurs_before_one_repeats() {
        let mut random = Seeded::new(3);
        let mut deck = Deck::new();
        let drawn: Vec<&str> = (0..Ending::ALL.len())
            .map(|_| deck.draw(&mut random).name())
            .collect();
        let distinct: BTreeSet<&&str> = drawn.iter().collect();
        assert_eq!(distinct.len(), Ending::ALL.len());
    }

    #[test]
    fn a_new_file_is_seen_and_an_old_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let partition = dir.path().join("t-0");
        std::fs::create_dir(&partition).unwrap();
        std::fs::write(partition.join("0.log"), "").unwrap();
        let dirs = [dir.path().to_path_buf()];
        assert!(!wait_for_file(&dirs, is_segment, Duration::from_millis(20)));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| wait_for_file(&dirs, is_segment, Duration::from_secs(20)));
            std::thread::sleep(Duration::from_millis(50));
            std::fs::write(partition.join("1.log"), "").unwrap();
            assert!(waiter.join().unwrap());
        });
    }
}
