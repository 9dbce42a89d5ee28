//! `forced-offset`: the offset below which the metadata log was fsynced, in a file beside the log.
//!
//! After a power loss, unsynced data may have holes: a torn batch followed by a whole one. That is
//! cut off, as in any log. Below the mark, a torn batch is damage, and no other node may have the
//! decisions after it. The mark is written after the log was fsynced and is not fsynced itself, so
//! it may be too low but never too high; before a truncation it is lowered and fsynced.
//!
//! Kafka has no such file and ignores it.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ottla_log::MayLack;
use ottla_sync::fs::{Dir, File, OpenOptions, read};
use ottla_types::Offset;

pub const FORCED_OFFSET_FILE: &str = "forced-offset";
/// Everything counts as fsynced: there is no mark.
pub(super) const UNMARKED: Offset = Offset(i64::MAX);

pub(super) struct ForcedMark {
    file: File,
    offset: Offset,
}

impl ForcedMark {
    pub fn open(dir: &Path) -> io::Result<ForcedMark> {
        let path = dir.join(FORCED_OFFSET_FILE);
        let file = OpenOptions::new().write(true).create(true).open(path)?;
        // It must not vanish and leave later records without a mark.
        Dir::open(dir)?.sync()?;
        let offset = forced_offset(dir)?;
        Ok(ForcedMark { file, offset })
    }

    /// The log was fsynced up to `end`.
    pub fn raise(&mut self, end: Offset) {
        if end > self.offset {
            self.offset = end;
            if let Err(error) = self.write(end) {
                // Then the mark covers less.
                tracing::debug!("{FORCED_OFFSET_FILE} cannot be written: {error}");
            }
        }
    }

    /// The log is about to be truncated to `end`. After an error, another attempt writes the mark
    /// again: a failed fsync leaves it in the page cache as if it were on disk.
    pub fn lower(&mut self, end: Offset) -> io::Result<()> {
        if end < self.offset {
            self.write(end)?;
            self.file.sync_data()?;
            self.offset = end;
        }
        Ok(())
    }

    /// In one sector, so that it is written as a whole.
    fn write(&self, offset: Offset) -> io::Result<()> {
        let line = format!("{:020}\n", offset.0);
        self.file.write_all_at(line.as_bytes(), 0)
    }
}

/// The mark of a metadata log. Without one, another program has written the log, and all of it
/// counts as fsynced; an unreadable mark covers nothing. The error is a lack of file handles or
/// memory: taken for such a mark, it would have a start cut off damage and everything after it.
pub fn forced_offset(dir: &Path) -> io::Result<Offset> {
    let bytes = match read(dir.join(FORCED_OFFSET_FILE)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(UNMARKED),
        Err(error) if error.is_lack_of_resources() => return Err(error),
        Err(_) => Vec::new(),
    };
    let line = str::from_utf8(&bytes).ok();
    let offset = line.and_then(|line| line.strip_suffix('\n')?.parse().ok());
    Ok(Offset(
        offset.filter(|offset| *offset >= 0).unwrap_or_default(),
    ))
}

#[cfg(test)]
mod tests {
    use ottla_sync::fs::{Disk, Faults, PowerLoss};
    use ottla_sync::simulation::{self, Config, Host};

    use super::*;

    #[test]
    fn a_mark_that_could_not_be_forced_is_written_again() {
        for seed in 1..=16 {
            let run = simulation::run(Config::new(seed), move || {
                let disk = Disk::new(seed, "controller");
                let host = Host::new("controller").with_disk(&disk);
                let faulty = disk.clone();
                let lowered = host.spawn("main", move || {
                    let mut mark = ForcedMark::open(Path::new("/")).unwrap();
                    mark.raise(Offset(9));
                    mark.file.sync_data().unwrap();
                    let failing = Faults {
                        syncs_fail_one_in: 1,
                        ..Faults::default()
                    };
                    faulty.set_faults("/", failing);
                    mark.lower(Offset(5)).unwrap_err();
                    faulty.set_faults("/", Faults::default());
                    mark.lower(Offset(5)).unwrap();
                });
                lowered.join().unwrap();
                host.kill();
                disk.lose_power(PowerLoss::Unordered);
                let host = Host::new("controller").with_disk(&disk);
                let read = host.spawn("main", || forced_offset(Path::new("/")).unwrap());
                assert_eq!(read.join().unwrap(), Offset(5), "seed {seed}");
            });
            run.result.unwrap();
        }
    }

    /// Damage below the mark would be cut off.
    #[test]
    fn a_mark_that_cannot_be_opened_for_now_is_an_error() {
        let run = simulation::run(Config::new(1), || {
            let disk = Disk::new(1, "controller");
            let host = Host::new("controller").with_disk(&disk);
            let main = host.spawn("main", move || {
                let dir = Path::new("/");
                let mut mark = ForcedMark::open(dir).unwrap();
                mark.raise(Offset(9));
                disk.set_max_handles(0);
                assert!(forced_offset(dir).unwrap_err().is_lack_of_resources());
                disk.set_max_handles(u32::MAX);
                assert_eq!(forced_offset(dir).unwrap(), Offset(9));
            });
            main.join().unwrap();
        });
        run.result.unwrap();
    }

    #[test]
    fn the_mark_is_the_last_value_set() {
        let dir = tempfile::tempdir().unwrap();
        let found = || forced_offset(dir.path()).unwrap();
        assert_eq!(found(), Offset(i64::MAX));
        let mut mark = ForcedMark::open(dir.path()).unwrap();
        for (end, expected) in [(7, 7), (5, 7), (1_000, 1_000)] {
            mark.raise(Offset(end));
            assert_eq!(found(), Offset(expected));
        }
        mark.lower(Offset(2_000)).unwrap();
        mark.lower(Offset(12)).unwrap();
        assert_eq!(found(), Offset(12));
        for text in ["", "12", "x\n", "-1\n"] {
            std::fs::write(dir.path().join(FORCED_OFFSET_FILE), text).unwrap();
            assert_eq!(found(), Offset(0), "{text:?}");
        }
    }
}
