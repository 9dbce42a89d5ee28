//! Writing once more what the page cache has and the disk may not have.
//!
//! After a failed fsync, the kernel takes the pages for written. They are read until they are
//! evicted, and no later fsync writes them, not even that of another process.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ottla_sync::fs::File;
use ottla_types::Offset;

use crate::batch_scan::SEQUENTIAL_WINDOW;
use crate::checkpoint::sync_dir;
use crate::disk;
use crate::error::StorageError;
use crate::file_names::{
    LOG_SUFFIX, OFFSET_INDEX_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX, TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX, offset_from_file_name,
};
use crate::index::TimeIndex;
use crate::listing::list;

/// Forces what an earlier process wrote to the files of a log: the segments from the one that holds
/// the recovery point on, the indexes that recovery does not make anew, and all producer snapshots.
/// The other files were forced before they got their names.
///
/// To be called before the log is opened: recovery then reads what is on disk. Blocks.
pub fn force_again(dir: &Path, recovery_point: Offset) -> Result<(), StorageError> {
    let files = list(dir)?.files;
    let is_log = |name: &str| name.ends_with(LOG_SUFFIX);
    let bases = files.iter().filter(|name| is_log(name));
    let bases = bases.filter_map(|name| offset_from_file_name(name));
    let holder = bases.filter(|base| *base <= recovery_point).max();
    for name in &files {
        let path = dir.join(name);
        let is_recovered = offset_from_file_name(name) >= holder;
        let is_unforced = if is_log(name) {
            is_recovered
        } else if is_index(name) {
            !is_recovered || may_stay(&path)?
        } else {
            name.ends_with(PRODUCER_SNAPSHOT_SUFFIX)
        };
        if is_unforced {
            force_file(&path)?;
        }
    }
    sync_dir(dir)
}

fn is_index(name: &str) -> bool {
    [
        OFFSET_INDEX_SUFFIX,
        TIME_INDEX_SUFFIX,
        TRANSACTION_INDEX_SUFFIX,
    ]
    .iter()
    .any(|suffix| name.ends_with(suffix))
}

/// Whether recovery may leave the index of a segment that it scans as it is: with at most one entry
/// of the time index. Kafka preallocates 10 MiB for each index of an active segment, all holes after
/// a crash, which would become blocks if they were written.
fn may_stay(index: &Path) -> Result<bool, StorageError> {
    let found = ottla_sync::fs::metadata(index);
    let found = found.map_err(|error| StorageError::new("look at", index, error))?;
    Ok(found.len() <= TimeIndex::ENTRY_SIZE as u64)
}

fn force_file(path: &Path) -> Result<(), StorageError> {
    let failed = |error| StorageError::new("write", path, error);
    let file = disk::open_existing(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    rewrite(&file, 0..len).map_err(failed)?;
    // The disk may not have a truncation either.
    disk::set_len(&file, len).map_err(failed)?;
    disk::sync_data(&file).map_err(|error| StorageError::fsync(path, error))
}

/// Writes a range of a file once more, with the bytes that it has. The next fsync forces them.
pub(crate) fn rewrite(file: &File, range: Range<u64>) -> io::Result<()> {
    let size = (range.end - range.start).min(SEQUENTIAL_WINDOW as u64);
    let mut window = vec![0; size as usize];
    let mut position = range.start;
    while position < range.end {
        let len = (range.end - position).min(window.len() as u64) as usize;
        let bytes = &mut window[..len];
        file.read_exact_at(bytes, position)?;
        disk::write_all_at(file, bytes, position)?;
        position += len as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use ottla_sync::fs::{Dir, Disk, Faults, PowerLoss, create_dir};
    use ottla_sync::simulation::{self, Config, Host};

    use super::*;

    const FILES: [&str; 6] = [
        "00000000000000000003.index",
        "00000000000000000003.txnindex",
        "00000000000000000007.log",
        "00000000000000000003.timeindex",
        "00000000000000000009.log",
        "00000000000000000009.snapshot",
    ];

    fn sync_to_root(dir: &Path) {
        for dir in dir.ancestors() {
            Dir::open(dir).unwrap().sync().unwrap();
        }
    }

    /// Leaves files of 600 bytes, of which 300 or 900 may be on disk.
    fn lose(disk: &Disk, dir: &Path) {
        create_dir(dir).unwrap();
        for (number, name) in FILES.iter().enumerate() {
            let file = disk::create(&dir.join(name)).unwrap();
            let forced = if number % 2 == 0 { 300 } else { 900 };
            disk::write_all_at(&file, &vec![1; forced], 0).unwrap();
            disk::sync_data(&file).unwrap();
            sync_to_root(dir);
            match forced {
                300 => disk::write_all_at(&file, &[2; 300], 300).unwrap(),
                _ => disk::set_len(&file, 600).unwrap(),
            }
            let failing = Faults {
                syncs_fail_one_in: 1,
                ..Faults::default()
            };
            disk.set_faults("/", failing);
            disk::sync_data(&file).unwrap_err();
            disk.set_faults("/", Faults::default());
        }
    }

    #[test]
    fn what_a_failed_fsync_has_lost_is_on_disk_again() {
        let mut were_lost = 0;
        for seed in 0..32 {
            let is_forced = seed % 2 == 0;
            let run = simulation::run(Config::new(seed), move || {
                let disk = Disk::new(seed, "disk");
                let host = Host::new("broker").with_disk(&disk);
                let theirs = disk.clone();
                let main = host.spawn("main", move || {
                    let dir = Path::new("/topic-0");
                    lose(&theirs, dir);
                    if is_forced {
                        force_again(dir, Offset(8)).unwrap();
                    }
                });
                main.join().unwrap();
                host.kill();
                let before = disk.files();
                disk.lose_power(PowerLoss::Unordered);
                before != disk.files()
            });
            let is_lost = run.result.unwrap();
            assert!(!(is_forced && is_lost), "seed {seed}");
            were_lost += u32::from(is_lost);
        }
        assert!(were_lost > 0, "the disk has lost nothing");
    }

    #[test]
    fn the_holes_of_an_index_that_is_made_anew_stay_holes() {
        const PREALLOCATED: u64 = 10 << 20;
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        std::fs::write(dir.join("00000000000000000007.log"), [1; 100]).unwrap();
        let index = dir.join("00000000000000000007.index");
        let file = std::fs::File::create(&index).unwrap();
        file.set_len(PREALLOCATED).unwrap();
        force_again(dir, Offset(8)).unwrap();
        let found = std::fs::metadata(&index).unwrap();
        assert_eq!(found.len(), PREALLOCATED);
        assert!(found.blocks() * 512 < PREALLOCATED, "{}", found.blocks());
    }
}
