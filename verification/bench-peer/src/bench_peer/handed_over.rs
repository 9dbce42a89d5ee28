//! Start and recovery with thousands of partitions. One directory, written by the peer, is handed
//! from broker to broker, so that both find the same contents and the disk holds them once.
//!
//! For recovery every broker is killed as soon as it is ready, and the directory is restored before
//! the next one: the checkpoints are reset to their state when the writer was killed, so that every
//! record is after the recovery point, and the files that recovery created are removed. Recovery
//! does not change segments, and rebuilds their indexes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::broker::stop;
use super::disk::{self, Scratch};
use super::load::Load;
use super::machine::ProcessReading;
use super::setting::Setting;
use super::table::Results;
use ottla_peers::{InstalledPeer, Node, NodeOptions, Served};

/// Partitions per topic; a broker takes seconds to create more.
const TOPIC_PARTITIONS: usize = 500;
/// Size of a partition's files other than its records, in bytes, on a file system with 4 KiB
/// blocks.
const PARTITION_BYTES: u64 = 64 << 10;

/// Start after a clean stop, with a few records per partition.
pub fn start(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    let partitions = setting.options.directory_partitions();
    let name = format!("start-{partitions}");
    let directory = Directory::fill(setting, &name, Contents::FewRecords)?;
    setting.alternate(results, |side, round, results| {
        disk::settle(&directory.data())?;
        let (mut node, took) = directory.measured_start(setting.sides[side])?;
        let began = Instant::now();
        stop(&mut node)?;
        let stopped = began.elapsed();
        took.add_to(&name, side, round, results);
        let measure = format!("{name}: clean stop, ms");
        results.add(side, round, measure, stopped.as_secs_f64() * 1e3);
        Ok(())
    })
}

/// Start after `kill -9`, with all records after the recovery point.
pub fn recovery(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    let gigabytes = setting.options.gigabytes_or(10.0);
    let directory = Directory::fill(setting, "recovery", Contents::Gigabytes(gigabytes))?;
    let crashed = Crashed::remember(directory.data())?;
    setting.alternate(results, |side, round, results| {
        crashed.put_back()?;
        disk::settle(&directory.data())?;
        let (mut node, took) = directory.measured_start(setting.sides[side])?;
        node.kill()?;
        took.add_to("recovery", side, round, results);
        Ok(())
    })
}

#[derive(Clone, Copy)]
enum Contents {
    FewRecords,
    Gigabytes(f64),
}

/// The directory, and the contents that every broker must find in it.
struct Directory {
    scratch: Scratch,
    overrides: Vec<(String, String)>,
    holds: Served,
}

struct Took {
    first_answer_ms: f64,
    ready_ms: f64,
    cpu_seconds: f64,
    resident_mb: f64,
}

impl Directory {
    /// Lets the peer create and fill the partitions, then stops it or, for recovery, kills it.
    fn fill(setting: &Setting<'_>, name: &str, contents: Contents) -> Result<Directory> {
        let partitions = setting.options.directory_partitions();
        ensure!(partitions > 0, "--partitions must be 1 or more");
        let (bytes, batch_bytes) = match contents {
            Contents::FewRecords => (partitions as u64 * 3 * 1024, 1024),
            Contents::Gigabytes(gigabytes) => ((gigabytes * 1e9) as u64, 16 * 1024),
        };
        let scratch = Scratch::new(name, bytes + partitions as u64 * PARTITION_BYTES)?;
        println!(
            "{name}: {} fills {partitions} partitions",
            setting.sides[0].name()
        );
        let mut directory = Directory {
            scratch,
            overrides: setting.options.overrides.clone(),
            holds: Served {
                partitions: 0,
                records: 0,
            },
        };
        let mut node = directory.start(setting.sides[0])?;
        let mut left = partitions;
        while left > 0 {
            let count = left.min(TOPIC_PARTITIONS);
            let share = (bytes as f64 * count as f64 / partitions as f64) as u64;
            Load::on(setting.load_generator()?, &node).run(&format!(
                "produce --connections 2 --topic many-{left} --partitions {count} --batch-bytes {batch_bytes} \
                 --bytes {share}"
            ))?;
            left -= count;
        }
        directory.holds = node.wait_until_served(partitions)?.1;
        match contents {
            Contents::FewRecords => stop(&mut node)?,
            Contents::Gigabytes(_) => node.kill()?,
        }
        Ok(directory)
    }

    fn start(&self, broker: &InstalledPeer) -> Result<Node> {
        broker.start(NodeOptions {
            dir: self.scratch.path().to_path_buf(),
            overrides: self.overrides.clone(),
            ..NodeOptions::default()
        })
    }

    fn data(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    /// Starts the broker and takes a process reading when all partitions, with every record, are
    /// served.
    fn measured_start(&self, broker: &InstalledPeer) -> Result<(Node, Took)> {
        let mut node = self.start(broker)?;
        let (ready, served) = node.wait_until_served(self.holds.partitions)?;
        let used = ProcessReading::of(node.pid())?;
        ensure!(
            served == self.holds,
            "{} serves {served:?}, and the directory holds {:?}:\n{}",
            broker.name(),
            self.holds,
            node.output_tail()
        );
        let took = Took {
            first_answer_ms: node.time_to_first_answer().as_secs_f64() * 1e3,
            ready_ms: ready.as_secs_f64() * 1e3,
            cpu_seconds: used.cpu_seconds,
            resident_mb: used.resident_mb(),
        };
        Ok((node, took))
    }
}

impl Took {
    fn add_to(&self, name: &str, side: usize, round: usize, results: &mut Results) {
        for (measure, value) in [
            ("exec to first answer, ms", self.first_answer_ms),
            ("exec to all partitions served, ms", self.ready_ms),
            ("broker CPU s until then", self.cpu_seconds),
            ("memory then, MB", self.resident_mb),
        ] {
            results.add(side, round, format!("{name}: {measure}"), value);
        }
    }
}

/// The contents of a directory when its broker was killed, except segments and indexes.
struct Crashed {
    data: PathBuf,
    /// The files directly in `data`: checkpoints and metadata.
    files: Vec<(PathBuf, Vec<u8>)>,
    /// All paths in the partitions' folders.
    present: BTreeSet<PathBuf>,
}

impl Crashed {
    fn remember(data: PathBuf) -> Result<Crashed> {
        let mut files = Vec::new();
        for path in files_of(&data)? {
            let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
            files.push((path, bytes));
        }
        let present = files_of_partitions(&data)?;
        Ok(Crashed {
            data,
            files,
            present,
        })
    }

    fn put_back(&self) -> Result<()> {
        for path in files_of(&self.data)? {
            std::fs::remove_file(path)?;
        }
        for (path, bytes) in &self.files {
            std::fs::write(path, bytes)?;
        }
        for path in files_of_partitions(&self.data)? {
            if !self.present.contains(&path) {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

fn files_of_partitions(data: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    for entry in std::fs::read_dir(data)? {
        let entry = entry?;
        // The metadata log is not restored: each broker continues it.
        let is_metadata = entry.file_name() == "__cluster_metadata-0";
        if entry.path().is_dir() && !is_metadata {
            files.extend(files_of(&entry.path())?);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::Crashed;

    #[test]
    fn files_of_recovery_are_removed_and_checkpoints_restored() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().to_path_buf();
        let partition = data.join("t-0");
        std::fs::create_dir(&partition).unwrap();
        std::fs::write(partition.join("0.log"), "records").unwrap();
        std::fs::write(data.join("recovery-point-offset-checkpoint"), "then").unwrap();
        let crashed = Crashed::remember(data.clone()).unwrap();
        std::fs::write(partition.join("9.snapshot"), "").unwrap();
        std::fs::write(data.join("recovery-point-offset-checkpoint"), "now").unwrap();
        std::fs::write(data.join(".kafka_cleanshutdown"), "").unwrap();
        crashed.put_back().unwrap();
        let checkpoint = std::fs::read(data.join("recovery-point-offset-checkpoint")).unwrap();
        assert_eq!(checkpoint, b"then");
        assert!(!data.join(".kafka_cleanshutdown").exists());
        assert!(!partition.join("9.snapshot").exists() && partition.join("0.log").exists());
    }
}
