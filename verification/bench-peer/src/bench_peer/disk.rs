//! Disk management of the measurements: space is checked before it is used, files are deleted when
//! their measure ends, even on an error, and files that two brokers should find equally cached are
//! read before each run.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use ottla_workspace::workspace;

/// Space that must remain, for logs and for other processes.
const RESERVE_BYTES: u64 = 1 << 30;
/// Both brokers delete a topic's files some time after the topic.
const DELETION_PATIENCE: Duration = Duration::from_secs(180);

/// A folder below the target directory, deleted on drop.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    /// An empty folder with this name. Fails unless the disk has room for `bytes` more.
    pub fn new(name: &str, bytes: u64) -> Result<Scratch> {
        let dir = workspace::target_dir().join("bench-peer").join(name);
        workspace::make_empty(&dir)?;
        let free = free_bytes(&dir)?;
        if free < bytes + RESERVE_BYTES {
            bail!(
                "{name} needs {:.1} GB of disk and {:.1} GB are free: make room, or give a smaller --gigabytes",
                (bytes + RESERVE_BYTES) as f64 / 1e9,
                free as f64 / 1e9
            );
        }
        Ok(Scratch { dir })
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn free_bytes(dir: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(dir)?;
    Ok(found.f_bavail * found.f_frsize)
}

/// Flushes all writes, and reads every file below the folder, so that the page cache holds as much
/// of it as fits, regardless of the previous user.
pub fn settle(dir: &Path) -> Result<()> {
    rustix::fs::sync();
    let mut buffer = vec![0; 1 << 20];
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let mut file = std::fs::File::open(&path)?;
                while file.read(&mut buffer)? > 0 {}
            }
        }
    }
    Ok(())
}

/// Waits until no folder of the topic's partitions is left, including those renamed for deletion.
pub fn wait_until_deleted(data: &Path, topic: &str) -> Result<()> {
    let began = Instant::now();
    loop {
        let mut is_left = false;
        for entry in std::fs::read_dir(data).context("the broker's data directory")? {
            is_left |= is_of_topic(&entry?.file_name().to_string_lossy(), topic);
        }
        if !is_left {
            return Ok(());
        }
        if began.elapsed() > DELETION_PATIENCE {
            bail!(
                "the files of the deleted topic {topic} are still there after {DELETION_PATIENCE:?}"
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the folder is `topic-N`, `topic-N.ID-delete` or similar.
fn is_of_topic(folder: &str, topic: &str) -> bool {
    let rest = folder
        .strip_prefix(topic)
        .and_then(|rest| rest.strip_prefix('-'));
    let rest = rest.map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    matches!(rest, Some(rest) if rest.is_empty() || rest.starts_with('.') || rest.starts_with('-'))
        || folder.starts_with(&format!("{topic}.")) && folder.ends_with("-delete")
}

#[cfg(test)]
mod tests {
    use super::is_of_topic;

    #[test]
    fn folders_of_a_topic_are_distinguished_from_other_topics() {
        for folder in ["large-0", "large-12.0af-delete", "large-3-delete"] {
            assert!(is_of_topic(folder, "large"), "{folder}");
        }
        for folder in ["larger-0", "large-x-0", "other-0", "large"] {
            assert!(!is_of_topic(folder, "large"), "{folder}");
        }
    }
}
