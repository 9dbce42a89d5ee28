//! The directories of a node: their identity, whether they are in use, and whether they are usable.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use ottla_config::BrokerConfig;
use ottla_log::CleanLogs;
use ottla_log::checkpoint::{
    CLEANER_OFFSET_CHECKPOINT, CleanShutdown, LOG_START_OFFSET_CHECKPOINT, MetaProperties,
    OffsetCheckpoint, RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT,
};
use ottla_sync::fs;
use ottla_types::TopicPartition;

use super::finding::Severity;
use super::look::{Look, some_of};
use super::metadata;
use super::recovery::{self, DirSize};
use crate::format::{check_empty, directories, not_formatted, read_all, unformatted_metadata_dir};
use crate::log_dirs::{Holder, holder_of};

/// Below this, there is hardly room to start and clean up.
const LITTLE_SPACE: u64 = 1024 * 1024 * 1024;

/// Threads that look at the files of a directory. A larger setting need not be possible here.
const MOST_THREADS: i32 = 16;

/// How empty directories are treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unformatted {
    /// Nothing to take over, and nothing to start.
    Refused,
    /// They will be formatted.
    Formatted,
}

pub(super) fn examine(config: &BrokerConfig, unformatted: Unformatted, look: &mut Look) {
    let all = directories(config);
    look.facts.directories = all.iter().map(|dir| dir.display().to_string()).collect();
    let mut is_running = false;
    if all.iter().filter(|dir| is_too_long(dir, look)).count() > 0 {
        return;
    }
    for dir in &all {
        usable(dir, look);
        is_running |= in_use(dir, look);
    }
    // Such a directory cannot be formatted either.
    let is_unusable = look
        .findings
        .iter()
        .any(|finding| finding.subject == "directories" && finding.severity == Severity::Refuses);
    let found = match read_all(config) {
        Ok(found) => found,
        Err(error) => {
            let sentence = error.to_string();
            let (what, change) = sentence.rsplit_once("; ").unwrap_or((&sentence, ""));
            return look.refuse("directories", "", what.to_owned(), change);
        }
    };
    let metadata_dir = Path::new(&config.metadata_log_dir);
    let own = found
        .iter()
        .find(|(dir, _)| dir == metadata_dir)
        .and_then(|(_, properties)| properties.clone());
    let Some(own) = own else {
        let sentence = match found.iter().find(|(_, properties)| properties.is_some()) {
            Some((formatted, _)) => unformatted_metadata_dir(formatted, metadata_dir),
            None if unformatted == Unformatted::Formatted => match check_empty(config) {
                Ok(()) => return,
                Err(error) => error.to_string(),
            },
            None if is_unusable => return,
            None => not_formatted(config),
        };
        let (what, change) = sentence.rsplit_once("; ").unwrap_or((&sentence, ""));
        return look.refuse("directories", "", what.to_owned(), change);
    };
    look.facts.cluster_id.clone_from(&own.cluster_id);
    directory_ids(&found, look);
    let threads = config
        .num_recovery_threads_per_data_dir
        .clamp(1, MOST_THREADS) as usize;
    // A start waits for both, and the metadata takes one thread.
    let of_metadata = ottla_sync::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut look = Look::default();
            metadata::examine(config, &own, &mut look);
            look
        });
        for dir in log_dirs(config) {
            if list(&dir, threads, look) && !is_running {
                stop(&dir, look);
            }
        }
        let read = reading.join();
        read.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    look.add_metadata(of_metadata);
}

/// Whether the checkpoints of the log directories can be read. A start reads them itself, and warns of
/// those that it goes on without; the cleaner reads its own when it first needs it.
pub(super) fn checkpoints(config: &BrokerConfig, look: &mut Look) {
    let mut dirs = log_dirs(config);
    // A directory that cannot be listed was reported already.
    dirs.retain(|dir| fs::read_dir(dir).is_ok());
    for dir in dirs {
        for name in [
            RECOVERY_POINT_CHECKPOINT,
            LOG_START_OFFSET_CHECKPOINT,
            REPLICATION_OFFSET_CHECKPOINT,
            CLEANER_OFFSET_CHECKPOINT,
        ] {
            if let Err(error) = OffsetCheckpoint::read(&dir.join(name)) {
                look.warn(
                    "directories",
                    "",
                    error.to_string(),
                    "remove it and have the logs recovered",
                );
            }
        }
    }
}

/// The size of the logs, and how much of them the start must recover.
pub(super) fn measure(config: &BrokerConfig, look: &mut Look) {
    let mut all = DirSize::default();
    for dir in log_dirs(config) {
        // A directory that cannot be listed was reported already.
        let Ok(partitions) = partitions(&dir) else {
            continue;
        };
        let is_running = holder_of(&dir).is_ok_and(|holder| holder.is_some());
        let is_clean = is_running || CleanShutdown::read(&dir).is_ok_and(|it| it.is_some());
        let size = recovery::size_of(&dir, &partitions, is_clean);
        if !is_clean && size.bytes > 0 {
            let what = format!(
                "was not stopped cleanly: the start reads about {} to recover {} of {} logs",
                size_text(size.to_recover),
                size.logs_to_recover,
                partitions.len()
            );
            look.note("stop", &dir.display().to_string(), what, "");
        }
        all += size;
    }
    look.facts.size_bytes = all.bytes;
    look.facts.recovery_bytes = all.to_recover;
}

/// The directories with logs: all but one that has only the metadata log.
fn log_dirs(config: &BrokerConfig) -> Vec<PathBuf> {
    let mut all = directories(config);
    all.retain(|dir| config.log_dirs.iter().any(|it| Path::new(it) == dir));
    all
}

/// A path that the kernel refuses. Every other check would report it again.
fn is_too_long(dir: &Path, look: &mut Look) -> bool {
    const SHOWN: usize = 60;
    let error = fs::metadata(dir).err();
    if error.is_none_or(|error| error.kind() != ErrorKind::InvalidFilename) {
        return false;
    }
    let names = dir.components().map(|it| it.as_os_str().len());
    let what = format!(
        "the path is too long: it has {} bytes, and its longest name {}; Linux takes at most 4095, and most file \
         systems names of at most 255",
        dir.as_os_str().len(),
        names.max().unwrap_or(0)
    );
    let begin: String = dir.display().to_string().chars().take(SHOWN).collect();
    let change = "give a shorter path in log.dirs or metadata.log.dir";
    look.refuse("directories", &format!("{begin}…"), what, change);
    true
}

/// Whether a directory can be read and written.
fn usable(dir: &Path, look: &mut Look) {
    let place = dir.display().to_string();
    let nearest = dir
        .ancestors()
        .find(|dir| fs::metadata(dir).is_ok())
        .unwrap_or(dir);
    if nearest != dir {
        look.note(
            "directories",
            &place,
            "is not there and is created at the start".into(),
            "",
        );
    }
    if let Err(error) = fs::check_dir_access(nearest) {
        let what = format!("cannot be read and written: {error}");
        let change =
            "run as the user that Kafka ran as, or change its owner to the user that Ottla runs as";
        return look.refuse("directories", &place, what, change);
    }
    let Ok(space) = fs::space(nearest) else {
        return;
    };
    if space.is_read_only {
        return look.refuse(
            "directories",
            &place,
            "is on a file system that can only be read".into(),
            "mount it for writing",
        );
    }
    if nearest != dir && space.total_bytes == 0 {
        let what = format!(
            "cannot be created: {} is a file system of the kernel, and not a disk",
            nearest.display()
        );
        return look.refuse("directories", &place, what, "give a directory on a disk");
    }
    let free = space.available_bytes;
    if free < LITTLE_SPACE {
        let what = format!("has only {} free", size_text(free));
        look.warn(
            "directories",
            &place,
            what,
            "make room, or lower the retention",
        );
    }
}

/// Whether a process is using the directory.
fn in_use(dir: &Path, look: &mut Look) -> bool {
    match holder_of(dir) {
        Ok(None) => return false,
        Ok(Some(holder)) => {
            let place = dir.display().to_string();
            look.refuse("directories", &place, holder.to_string(), Holder::WAY_OUT);
            return true;
        }
        Err(error) => {
            let what = format!("cannot query its lock: {error}");
            look.warn("directories", &dir.display().to_string(), what, "");
        }
    }
    false
}

fn directory_ids(found: &[(PathBuf, Option<MetaProperties>)], look: &mut Look) {
    for (index, (dir, properties)) in found.iter().enumerate() {
        let place = dir.display().to_string();
        let Some(properties) = properties else {
            let what = "is not formatted and becomes a directory of this node at the start";
            look.note("directories", &place, what.into(), "");
            continue;
        };
        let Some(id) = properties.directory_id else {
            let what = "has no directory.id (the Kafka release is older than 3.7), and gets one at the start";
            look.note("directories", &place, what.into(), "");
            continue;
        };
        let twin = found[..index]
            .iter()
            .find(|(_, other)| other.as_ref().and_then(|it| it.directory_id) == Some(id));
        if let Some((twin, _)) = twin {
            let what = format!("has the same directory.id as {}: {id}", twin.display());
            look.refuse(
                "directories",
                &place,
                what,
                "a directory must not be a copy of another",
            );
        }
    }
}

/// The partitions of a log directory, sorted.
fn partitions(dir: &Path) -> io::Result<Vec<TopicPartition>> {
    let mut partitions = Vec::new();
    for entry in fs::read_dir(dir)?.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if let Ok(partition) = TopicPartition::from_dir_name(name)
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
        {
            partitions.push(partition);
        }
    }
    partitions.sort();
    Ok(partitions)
}

/// Whether the partitions of a log directory are writable. Returns whether the directory is there and
/// can be listed.
fn list(dir: &Path, threads: usize, look: &mut Look) -> bool {
    let place = dir.display().to_string();
    let partitions = match partitions(dir) {
        Ok(partitions) => partitions,
        // A new directory is created at start.
        Err(error) if error.kind() == ErrorKind::NotFound => return false,
        Err(error) => {
            let what = format!("cannot be listed: {error}");
            look.refuse("directories", &place, what, "make it readable");
            return false;
        }
    };
    let closed = closed_of(dir, &partitions, threads);
    if !closed.is_empty() {
        let what = format!(
            "the user that runs this cannot write to {}",
            some_of(&closed)
        );
        let change = "run as the user that Kafka ran as, or change their owner to the user that Ottla runs as";
        look.refuse("directories", &place, what, change);
    }
    true
}

/// The paths of partitions that the current user cannot write, one for each partition. A directory
/// may have very many files, and each takes a system call. A log that has not changed since this
/// user stopped a broker cleanly counts as writable: its directory and its `.log` file have the
/// rights that they had then.
fn closed_of(dir: &Path, partitions: &[TopicPartition], threads: usize) -> Vec<String> {
    // A start says why the file is not trusted.
    let clean_logs = CleanLogs::read(dir).unwrap_or_default();
    let of_one = |partition: &TopicPartition| {
        let name = partition.dir_name();
        let path = dir.join(&name);
        let clean = clean_logs.get(partition);
        match clean.is_some_and(|clean| clean.is_unchanged(&path)) {
            true => None,
            false => closed_in(&path, &name),
        }
    };
    let at_once = partitions.len().div_ceil(threads).max(1);
    ottla_sync::thread::scope(|scope| {
        let parts = partitions.chunks(at_once);
        let of_part = |part: &[TopicPartition]| part.iter().filter_map(of_one).collect::<Vec<_>>();
        let threads: Vec<_> = parts
            .map(|part| scope.spawn(move || of_part(part)))
            .collect();
        let found = threads.into_iter().map(|thread| thread.join());
        found
            .flat_map(|closed| closed.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// The first path of a partition that the current user cannot write: its directory or a file in it,
/// for example from a broker that once ran as another user.
fn closed_in(dir: &Path, name: &str) -> Option<String> {
    if fs::check_dir_access(dir).is_err() {
        return Some(name.to_owned());
    }
    // A running broker may delete files, and the directory, at any moment.
    let closed = fs::closed_file_in(dir).ok().flatten()?;
    Some(format!("{name}/{}", closed.display()))
}

/// How the directory was stopped.
fn stop(dir: &Path, look: &mut Look) {
    let is_clean = match CleanShutdown::read(dir) {
        Ok(marker) => marker.is_some(),
        Err(error) => {
            look.warn("stop", "", error.to_string(), "");
            false
        }
    };
    let was_clean = look.facts.stopped_cleanly.unwrap_or(true);
    look.facts.stopped_cleanly = Some(was_clean && is_clean);
}

fn size_text(bytes: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..MIB => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / MIB),
    }
}
