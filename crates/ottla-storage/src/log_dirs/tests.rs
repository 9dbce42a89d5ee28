mod broken_cases;
mod checkpoints;
mod clean_logs;
mod deletions;
mod disk_trouble;
mod failed_fsync;
mod lacking_handles;
mod late;
mod loading;
mod made_anew;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_config::{BrokerConfig, TopicConfig, single_node_properties};
use ottla_log::checkpoint::{
    CLEAN_SHUTDOWN_FILE, CLEANER_OFFSET_CHECKPOINT, OffsetCheckpoint, PartitionMetadata,
};
use ottla_log::{Handles, Log, StorageError};
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_sync::fs::Disk;
use ottla_sync::simulation::{self, Config, Host};
use ottla_types::{BrokerEpoch, Offset, Timestamp, TopicId, TopicPartition};
use parking_lot::Mutex;

use super::{DirLocks, LoadSettings, Loading, LogDirs, OpenSettings};
use crate::format::{format_standalone, read_identity};

const NOW: Timestamp = Timestamp(1_000_000);

/// Runs a test in a simulated process, whose disk it gets.
fn on_simulated_disk(test: impl FnOnce(Disk) + 'static) {
    let report = simulation::run(Config::new(1), move || {
        let disk = Disk::new(1, "broker");
        let host = Host::new("broker").with_disk(&disk);
        host.spawn("main", move || test(disk)).join().unwrap();
    });
    report.result.unwrap();
}

struct Dirs {
    temp: tempfile::TempDir,
    count: usize,
}

impl Dirs {
    fn new(count: usize) -> Dirs {
        let dirs = Dirs {
            temp: tempfile::tempdir().unwrap(),
            count,
        };
        format_standalone(&dirs.config()).unwrap();
        dirs
    }

    fn paths(&self) -> Vec<PathBuf> {
        let root = self.temp.path().canonicalize().unwrap();
        (0..self.count)
            .map(|n| root.join(format!("d{n}")))
            .collect()
    }

    fn path(&self) -> PathBuf {
        self.paths()[0].clone()
    }

    fn config(&self) -> BrokerConfig {
        let paths = self.paths();
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let properties = single_node_properties(&paths.join(","), "127.0.0.1:0", "127.0.0.1:0");
        BrokerConfig::from_properties(&properties).unwrap().0
    }

    fn open(&self) -> Result<LogDirs, String> {
        let config = self.config();
        let locks = DirLocks::take(&config)?;
        let identity = read_identity(&config).unwrap().unwrap();
        Ok(LogDirs::new(locks, &identity, Handles::unlimited()))
    }

    fn load(&self) -> Result<LogDirs, String> {
        let dirs = self.open()?;
        dirs.load(&load_settings(&Loading::default()))?;
        Ok(dirs)
    }
}

fn load_settings(loading: &Loading) -> LoadSettings<'_> {
    LoadSettings {
        topic_config: &|_| Arc::new(TopicConfig::default()),
        assigned: &|_| None,
        producer_id_expiration_ms: 86_400_000,
        threads_per_dir: 2,
        loading,
        now: NOW,
    }
}

fn settings() -> OpenSettings {
    OpenSettings {
        config: Arc::new(TopicConfig::default()),
        producer_id_expiration_ms: 86_400_000,
        now: NOW,
        is_new: true,
        may_lead: false,
    }
}

fn partition(n: i32) -> TopicPartition {
    TopicPartition::new("topic", n)
}

const TOPIC_ID: TopicId = TopicId::from_u128(77);

fn open(dirs: &LogDirs, n: i32) -> Log {
    let log = dirs.open_log(&partition(n), TOPIC_ID, None, settings());
    let log = log.unwrap();
    assert!(dirs.write_topic_id(&log.reader(), TOPIC_ID));
    log
}

fn batch(offset: i64) -> RecordBatch {
    let mut builder = RecordBatchBuilder::new(Compression::None).base_offset(Offset(offset));
    builder.append(NOW, None, Some(b"value"), &[]);
    builder.build()
}

fn append(log: &mut Log) {
    let end = log.log_end_offset();
    log.append(&[batch(end.0)], NOW).unwrap();
    log.set_high_watermark(end.plus(1));
}

fn names(path: &PathBuf) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_directory_of_another_broker_is_refused() {
    let dirs = Dirs::new(1);
    let first = dirs.open().unwrap();
    let refused = dirs.open().unwrap_err();
    assert!(refused.contains("is in use by another"), "{refused}");
    drop(first);
    dirs.open().unwrap();
}

#[test]
fn a_directory_named_twice_is_refused() {
    let test = Dirs::new(1);
    let mut config = test.config();
    config
        .log_dirs
        .push(format!("{}/../d0", config.log_dirs[0]));
    assert!(DirLocks::take(&config).unwrap_err().contains("twice"));
}

#[test]
fn a_clean_stop_is_valid_for_one_start() {
    let test = Dirs::new(1);
    let dirs = test.load().unwrap();
    assert_eq!(dirs.previous_broker_epoch(), BrokerEpoch::UNKNOWN);
    let mut log = open(&dirs, 0);
    append(&mut log);
    append(&mut log);
    log.increment_log_start_offset(Offset(1)).unwrap();
    log.close_job().run().unwrap();
    dirs.close(BrokerEpoch(42), &[]);
    drop((dirs, log));
    let text = fs::read_to_string(test.path().join(CLEAN_SHUTDOWN_FILE)).unwrap();
    assert_eq!(text, r#"{"version":0,"brokerEpoch":42}"#);
    for (file, offset) in [
        ("recovery-point-offset-checkpoint", 2),
        ("log-start-offset-checkpoint", 1),
        ("replication-offset-checkpoint", 2),
    ] {
        let read = OffsetCheckpoint::read(&test.path().join(file)).unwrap();
        assert_eq!(
            read.offsets.get(&partition(0)),
            Some(&Offset(offset)),
            "{file}"
        );
    }

    let dirs = test.load().unwrap();
    assert_eq!(dirs.previous_broker_epoch(), BrokerEpoch(42));
    assert!(!test.path().join(CLEAN_SHUTDOWN_FILE).exists());
    let log = open(&dirs, 0);
    assert_eq!(log.log_end_offset(), Offset(2));
    assert_eq!(log.log_start_offset(), Offset(1));
    assert_eq!(log.high_watermark(), Offset(2));
    drop((dirs, log));
    assert_eq!(
        test.load().unwrap().previous_broker_epoch(),
        BrokerEpoch::UNKNOWN
    );
}

#[test]
fn a_log_that_could_not_be_closed_keeps_its_directory_unclean() {
    let test = Dirs::new(2);
    let dirs = test.load().unwrap();
    let logs = [open(&dirs, 0), open(&dirs, 1)];
    dirs.close(BrokerEpoch(1), &[partition(1)]);
    let paths = test.paths();
    let is_clean = paths
        .iter()
        .map(|path| path.join(CLEAN_SHUTDOWN_FILE).exists());
    assert_eq!(is_clean.collect::<Vec<_>>(), [true, false]);
    drop(logs);
}

#[test]
fn new_logs_are_created_in_the_directory_with_the_fewest() {
    let test = Dirs::new(3);
    let dirs = test.load().unwrap();
    let ids = dirs.online_directory_ids();
    let wanted = dirs
        .open_log(&partition(100), TOPIC_ID, Some(ids[1]), settings())
        .unwrap();
    let logs: Vec<Log> = (0..5).map(|n| open(&dirs, n)).collect();
    let counts: Vec<usize> = dirs
        .describe()
        .iter()
        .map(|dir| dir.partitions.len())
        .collect();
    assert_eq!(counts, [2, 2, 2]);
    assert_eq!(dirs.directory_of(&partition(100)), Some(ids[1]));
    drop((logs, wanted));
}

#[test]
fn cordoned_directories_get_no_new_logs() {
    let test = Dirs::new(2);
    let dirs = test.load().unwrap();
    let ids = dirs.online_directory_ids();
    let cordon = |entry: &str| {
        let mut config = test.config();
        config.cordoned_log_dirs = vec![entry.to_owned()];
        dirs.set_cordoned(&config)
    };
    let second = test.paths()[1].display().to_string();
    assert!(cordon(&second));
    assert!(!cordon(&second), "it was before");
    assert_eq!(dirs.cordoned_directory_ids(), ids[1..]);
    let described: Vec<bool> = dirs.describe().iter().map(|dir| dir.is_cordoned).collect();
    assert_eq!(described, [false, true]);
    let logs = [open(&dirs, 0), open(&dirs, 1)];
    for n in 0..2 {
        assert_eq!(dirs.directory_of(&partition(n)), Some(ids[0]));
    }
    // The controller assigned this broker before it learned of it.
    assert!(cordon("*"));
    let third = open(&dirs, 2);
    assert_eq!(dirs.directory_of(&partition(2)), Some(ids[0]));
    drop((logs, third));
}

#[test]
fn the_directory_of_the_metadata_log_is_required() {
    let test = Dirs::new(2);
    let dirs = test.load().unwrap();
    let told = Arc::new(Mutex::new(None));
    let theirs = Arc::clone(&told);
    dirs.set_failure_listener(move |failure| *theirs.lock() = failure.is_fatal.clone());
    let log = open(&dirs, 0);
    let error = StorageError::new("write", Path::new("x"), std::io::ErrorKind::Other.into());
    dirs.on_partition_error(&log.reader(), &error);
    let said = told.lock().clone().unwrap();
    assert!(said.contains("the directory of the metadata log"), "{said}");
}

#[test]
fn a_log_of_another_topic_id_is_replaced() {
    let test = Dirs::new(1);
    let dirs = test.load().unwrap();
    let log = dirs.open_log(&partition(0), TOPIC_ID, None, settings());
    let mut log = log.unwrap();
    assert!(!log.had_topic_id());
    assert!(dirs.write_topic_id(&log.reader(), TOPIC_ID));
    append(&mut log);
    dirs.close(BrokerEpoch(1), &[partition(0)]);
    drop((log, dirs));
    let metadata = test.path().join("topic-0/partition.metadata");
    assert!(
        fs::read_to_string(metadata)
            .unwrap()
            .ends_with(&TOPIC_ID.to_string())
    );

    let dirs = test.load().unwrap();
    let is_known = dirs.loaded.lock()[&partition(0)].log.had_topic_id();
    assert!(is_known);
    let other = TopicId::from_u128(78);
    let log = dirs
        .open_log(&partition(0), other, None, settings())
        .unwrap();
    assert_eq!(log.log_end_offset(), Offset(0));
    let strays = names(&test.path())
        .into_iter()
        .filter(|name| name.ends_with("-stray"));
    assert_eq!(strays.count(), 1);
}

#[test]
fn unclaimed_logs_are_set_aside() {
    let test = Dirs::new(1);
    let dirs = test.load().unwrap();
    let logs = [open(&dirs, 0), open(&dirs, 1)];
    drop((logs, dirs));
    let dirs = test.load().unwrap();
    let log = open(&dirs, 1);
    dirs.set_strays_aside();
    let found: Vec<_> = names(&test.path())
        .into_iter()
        .filter(|name| name.starts_with("topic"))
        .collect();
    assert_eq!(found.len(), 2);
    assert!(found[0].starts_with("topic-0.") && found[0].ends_with("-stray"));
    assert_eq!(found[1], "topic-1");
    drop((log, dirs));
    // Strays stay in place.
    test.load().unwrap();
    assert!(names(&test.path()).contains(&found[0]));
}

#[test]
fn a_deleted_log_frees_its_name_at_once() {
    let test = Dirs::new(1);
    let dirs = test.load().unwrap();
    let mut log = open(&dirs, 0);
    append(&mut log);
    dirs.delete_log(&partition(0));
    assert_eq!(dirs.directory_of(&partition(0)), None);
    let again = open(&dirs, 0);
    assert_eq!(again.log_end_offset(), Offset(0));
    let renamed = |test: &Dirs| {
        names(&test.path())
            .into_iter()
            .filter(|name| name.ends_with("-delete"))
            .count()
    };
    assert_eq!(renamed(&test), 1);
    drop((log, again, dirs));
    // A start deletes the leftovers of a stop.
    let dirs = test.load().unwrap();
    dirs.close(BrokerEpoch(1), &[]);
    assert_eq!(renamed(&test), 0);
}

#[test]
fn an_unknown_directory_name_refuses_the_start() {
    let test = Dirs::new(1);
    fs::create_dir(test.path().join("holiday pictures")).unwrap();
    let refused = test.load().unwrap_err();
    assert!(
        refused.contains("holiday pictures is in a log directory"),
        "{refused}"
    );
    fs::remove_dir(test.path().join("holiday pictures")).unwrap();
    fs::create_dir_all(test.path().join("__cluster_metadata-0")).unwrap();
    test.load().unwrap();
}

#[test]
fn a_partition_in_two_directories_refuses_the_start() {
    let test = Dirs::new(2);
    for path in test.paths() {
        fs::create_dir(path.join("topic-0")).unwrap();
    }
    assert!(test.load().unwrap_err().contains("lies in both"));
}

#[test]
fn a_log_replaced_by_a_moved_copy_is_set_aside() {
    for assigned_to in 0..2 {
        let test = Dirs::new(2);
        let kept = tempfile::tempdir().unwrap();
        let mut ids = Vec::new();
        for records in 1..=2 {
            let dirs = test.load().unwrap();
            ids = dirs.describe().iter().map(|dir| dir.directory_id).collect();
            let mut log = open(&dirs, 0);
            (0..records).for_each(|_| append(&mut log));
            log.close().unwrap();
            dirs.close(BrokerEpoch(1), &[]);
            let from = log_dir_of(&test, "topic-0");
            fs::rename(from, kept.path().join(records.to_string())).unwrap();
        }
        for (path, records) in test.paths().iter().zip(1..) {
            let from = kept.path().join(records.to_string());
            fs::rename(from, path.join("topic-0")).unwrap();
        }
        let load = |topic_id: u128| {
            let dirs = test.open()?;
            let loading = Loading::default();
            let assigned =
                |_: &TopicPartition| Some((TopicId::from_u128(topic_id), ids[assigned_to]));
            let settings = LoadSettings {
                assigned: &assigned,
                ..load_settings(&loading)
            };
            dirs.load(&settings).map(|()| dirs)
        };
        assert!(
            load(78).unwrap_err().contains("lies in both"),
            "of another topic"
        );
        let dirs = load(77).unwrap();
        let log = open(&dirs, 0);
        assert_eq!(log.dir(), test.paths()[assigned_to].join("topic-0"));
        assert_eq!(log.log_end_offset(), Offset([1, 2][assigned_to]));
        let other = &test.paths()[1 - assigned_to];
        let entries = fs::read_dir(other)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let stray: Vec<_> = entries
            .filter(|path| path.display().to_string().contains("/topic-0"))
            .collect();
        let [stray] = &stray[..] else {
            panic!("{stray:?}");
        };
        assert!(stray.display().to_string().ends_with("-stray"));
        assert!(
            stray
                .join("00000000000000000000.log")
                .metadata()
                .unwrap()
                .len()
                > 0
        );
    }
}

/// The path of the only directory of a name.
fn log_dir_of(test: &Dirs, name: &str) -> PathBuf {
    let mut paths = test.paths().into_iter().map(|path| path.join(name));
    paths.find(|path| path.exists()).unwrap()
}

#[test]
fn a_failed_directory_is_reported_once_with_the_first_reason() {
    let test = Dirs::new(2);
    let dirs = test.load().unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&told);
    dirs.set_failure_listener(move |failure| {
        theirs
            .lock()
            .push((failure.partitions.clone(), failure.is_fatal.clone()));
    });
    let logs = [open(&dirs, 0), open(&dirs, 1)];
    let error = |kind: std::io::ErrorKind| {
        StorageError::new("write", std::path::Path::new("x"), kind.into())
    };
    dirs.on_partition_error(&logs[1].reader(), &error(std::io::ErrorKind::StorageFull));
    assert!(told.lock().is_empty());
    for _ in 0..2 {
        dirs.on_partition_error(&logs[1].reader(), &error(std::io::ErrorKind::Other));
    }
    assert_eq!(*told.lock(), [(vec![partition(1)], None)]);
    assert_eq!(dirs.offline_directory_ids().len(), 1);
    // New logs go elsewhere.
    let third = open(&dirs, 2);
    assert_eq!(
        dirs.directory_of(&partition(2)),
        Some(dirs.online_directory_ids()[0])
    );
    dirs.on_partition_error(&logs[0].reader(), &error(std::io::ErrorKind::Other));
    let said = told.lock()[1].1.clone().unwrap();
    assert!(said.contains("all log directories have failed"), "{said}");
    let refused = dirs.open_log(&partition(9), TOPIC_ID, None, settings());
    assert!(refused.is_err());
    drop((logs, third));
}

#[test]
fn a_missing_file_of_a_deleted_log_is_no_directory_failure() {
    let test = Dirs::new(1);
    let dirs = test.load().unwrap();
    let told = Arc::new(Mutex::new(0));
    let theirs = Arc::clone(&told);
    dirs.set_failure_listener(move |_| *theirs.lock() += 1);
    let error = |kind: std::io::ErrorKind| {
        StorageError::new("rename", std::path::Path::new("x"), kind.into())
    };
    let deleted = open(&dirs, 0);
    dirs.delete_log(&partition(0));
    let of_same_name = open(&dirs, 0);
    dirs.on_partition_error(&deleted.reader(), &error(std::io::ErrorKind::NotFound));
    assert_eq!(*told.lock(), 0);
    assert!(dirs.is_online(&of_same_name.reader()));
    dirs.on_partition_error(&of_same_name.reader(), &error(std::io::ErrorKind::NotFound));
    assert_eq!(*told.lock(), 1);
    assert!(!dirs.is_online(&of_same_name.reader()));
}

#[test]
fn a_log_that_cannot_be_read_takes_only_its_directory_offline() {
    let test = Dirs::new(2);
    {
        let dirs = test.load().unwrap();
        let logs = [open(&dirs, 0), open(&dirs, 1)];
        dirs.close(BrokerEpoch(1), &[]);
        drop(logs);
    }
    fs::write(
        test.paths()[0].join("topic-0/leader-epoch-checkpoint"),
        "garbage",
    )
    .unwrap();
    let dirs = test.load().unwrap();
    let online: Vec<bool> = dirs.describe().iter().map(|dir| dir.is_online).collect();
    assert_eq!(online, [false, true]);
    assert_eq!(open(&dirs, 1).log_end_offset(), Offset(0));
    // A log that exists, or may exist, in a failed directory is not created elsewhere.
    for (n, id) in [
        (0, None),
        (2, None),
        (2, Some(dirs.offline_directory_ids()[0])),
    ] {
        let known = OpenSettings {
            is_new: false,
            ..settings()
        };
        let refused = dirs.open_log(&partition(n), TOPIC_ID, id, known);
        assert!(refused.is_err(), "{n} {id:?}");
    }
    assert!(
        dirs.open_log(&partition(0), TOPIC_ID, None, settings())
            .is_err()
    );
    assert!(!test.paths()[1].join("topic-0").exists());
    let online = Some(dirs.online_directory_ids()[0]);
    let known = OpenSettings {
        is_new: false,
        ..settings()
    };
    drop(
        dirs.open_log(&partition(2), TOPIC_ID, online, known)
            .unwrap(),
    );
    drop(open(&dirs, 3));
    fs::write(
        test.paths()[1].join("topic-1/leader-epoch-checkpoint"),
        "garbage",
    )
    .unwrap();
    drop(dirs);
    assert!(
        test.load()
            .unwrap_err()
            .contains("all log directories have failed")
    );
}

#[test]
fn directories_are_described() {
    let test = Dirs::new(1);
    let dirs = test.load().unwrap();
    let mut log = open(&dirs, 0);
    append(&mut log);
    let described = dirs.describe();
    assert_eq!(described[0].path, test.path());
    assert!(described[0].total_bytes >= described[0].usable_bytes && described[0].usable_bytes > 0);
    assert_eq!(
        described[0].partitions[0].size_bytes,
        batch(0).size_in_bytes() as i64
    );
    assert_eq!(described[0].partitions[0].offset_lag, 0);
}

#[test]
fn a_refused_or_aborted_start_keeps_the_clean_stop() {
    let test = Dirs::new(2);
    {
        let dirs = test.load().unwrap();
        let mut logs = [open(&dirs, 0), open(&dirs, 1)];
        for log in &mut logs {
            append(log);
            log.close_job().run().unwrap();
        }
        dirs.close(BrokerEpoch(42), &[]);
    }
    let is_clean = || {
        let paths = test.paths().into_iter();
        let mut markers = paths.map(|path| path.join(CLEAN_SHUTDOWN_FILE));
        markers.all(|marker| fs::read_to_string(marker).is_ok_and(|text| text.contains(":42")))
    };
    fs::create_dir(test.paths()[1].join("holiday pictures")).unwrap();
    assert!(test.load().is_err());
    assert!(is_clean());
    fs::remove_dir(test.paths()[1].join("holiday pictures")).unwrap();
    let dirs = test.load().unwrap();
    assert!(!is_clean());
    dirs.abandon();
    assert!(is_clean());
    drop(dirs);
    // A directory that was not clean does not become clean.
    fs::remove_file(test.paths()[0].join(CLEAN_SHUTDOWN_FILE)).unwrap();
    test.load().unwrap().abandon();
    assert!(!test.paths()[0].join(CLEAN_SHUTDOWN_FILE).exists());
    assert!(test.paths()[1].join(CLEAN_SHUTDOWN_FILE).exists());
}

#[test]
fn a_copy_in_the_assigned_directory_replaces_its_log_only_if_complete() {
    for lacks_a_record in [false, true] {
        let test = Dirs::new(2);
        let dirs = test.load().unwrap();
        let mut log = open(&dirs, 0);
        append(&mut log);
        let from = dirs.directory_of(&partition(0)).unwrap();
        let to = dirs.dirs.iter().map(|dir| dir.directory_id);
        let to = to.into_iter().find(|id| *id != from).unwrap();
        let mut copy = dirs
            .create_future(&partition(0), TOPIC_ID, to, settings())
            .unwrap();
        append(&mut copy);
        if lacks_a_record {
            append(&mut log);
        }
        let end = log.log_end_offset();
        // The process is killed after the controller has committed the new directory.
        drop((log, copy, dirs));

        let dirs = test.load().unwrap();
        let log = dirs
            .open_log(&partition(0), TOPIC_ID, Some(to), settings())
            .unwrap();
        assert_eq!(
            log.log_end_offset(),
            end,
            "lacks a record: {lacks_a_record}"
        );
        let expected = if lacks_a_record { from } else { to };
        assert_eq!(dirs.directory_of(&partition(0)), Some(expected));
        let going_on = dirs.take_waiting_futures().len();
        assert_eq!(going_on, usize::from(lacks_a_record), "the move continues");
    }
}

/// Two directories: a log of one record in one of them and its complete copy in the other.
struct Moved {
    test: Dirs,
    dirs: LogDirs,
    from: PathBuf,
    to: PathBuf,
    to_id: ottla_types::DirectoryId,
    log: Log,
    copy: Log,
}

fn moved() -> Moved {
    let test = Dirs::new(2);
    let dirs = test.load().unwrap();
    let mut log = open(&dirs, 0);
    append(&mut log);
    let from = dirs.directory_of(&partition(0)).unwrap();
    let to = dirs.dirs.iter().find(|dir| dir.directory_id != from);
    let (to_id, to) = to.map(|dir| (dir.directory_id, dir.path.clone())).unwrap();
    let mut copy = dirs
        .create_future(&partition(0), TOPIC_ID, to_id, settings())
        .unwrap();
    append(&mut copy);
    copy.flush_job().unwrap().run().unwrap();
    Moved {
        from: log.dir().parent().unwrap().to_owned(),
        test,
        dirs,
        to,
        to_id,
        log,
        copy,
    }
}

impl Moved {
    /// The directory names of the partition without their unique IDs.
    fn names(&self) -> [Vec<String>; 2] {
        [&self.from, &self.to].map(|path| {
            let names = names(path).into_iter();
            let of_partition = names.filter(|name| name.starts_with("topic-0"));
            of_partition
                .map(|name| match name.rsplit_once('-') {
                    Some((_, suffix)) if name.contains('.') => suffix.to_owned(),
                    _ => name,
                })
                .collect()
        })
    }

    /// Kills the process and checks in which directory the next start finds both records.
    fn starts_in(self, directory: &Path) {
        let Moved {
            test,
            dirs,
            log,
            copy,
            from,
            to,
            to_id,
        } = self;
        drop((log, copy, dirs));
        let dirs = test.open().unwrap();
        let loading = Loading::default();
        let assigned = |_: &TopicPartition| Some((TOPIC_ID, to_id));
        dirs.load(&LoadSettings {
            assigned: &assigned,
            ..load_settings(&loading)
        })
        .unwrap();
        let log = dirs.open_log(&partition(0), TOPIC_ID, Some(to_id), settings());
        let log = log.unwrap();
        assert_eq!(log.log_end_offset(), Offset(1));
        assert_eq!(log.dir(), directory.join("topic-0"));
        let logs = [from, to].map(|path| path.join("topic-0").exists());
        assert_ne!(logs[0], logs[1], "the old log keeps its name");
    }
}

#[test]
fn a_start_completes_an_exchange_that_a_kill_interrupted() {
    // The controller has committed the new directory.
    let moved = moved();
    let to = moved.to.clone();
    assert_eq!(moved.names(), [vec!["topic-0"], vec!["future"]]);
    moved.starts_in(&to);

    // Killed between the two renames: no log of the name, and Kafka promotes the copy
    // (`LogManager.recoverAbandonedFutureLogs`).
    let moved = self::moved();
    let to = moved.to.clone();
    let name = format!("topic-0.{:032x}-delete", 1);
    fs::rename(moved.from.join("topic-0"), moved.from.join(name)).unwrap();
    assert_eq!(moved.names(), [vec!["delete"], vec!["future"]]);
    moved.starts_in(&to);

    // The same if the copy is renamed first: two logs of the name, of which the old one is set aside.
    let moved = self::moved();
    let to = moved.to.clone();
    fs::rename(moved.copy.dir(), to.join("topic-0")).unwrap();
    assert_eq!(moved.names(), [vec!["topic-0"], vec!["topic-0"]]);
    moved.starts_in(&to);

    let moved = self::moved();
    let to = moved.to.clone();
    moved.dirs.promote(&moved.copy.reader(), true).unwrap();
    assert_eq!(moved.names(), [vec!["delete"], vec!["topic-0"]]);
    moved.starts_in(&to);
}

#[test]
fn the_log_is_renamed_before_its_copy() {
    let moved = moved();
    // The log cannot be renamed, and the copy is not.
    fs::rename(moved.from.join("topic-0"), moved.from.join("away-0")).unwrap();
    assert!(moved.dirs.promote(&moved.copy.reader(), true).is_err());
    assert_eq!(moved.names(), [vec![], vec!["future".to_owned()]]);

    // Not known to be committed: the copy must exist before the log is renamed.
    let moved = self::moved();
    fs::rename(moved.from.join("topic-0"), moved.from.join("away-0")).unwrap();
    moved.dirs.promote(&moved.copy.reader(), false).unwrap();
    assert_eq!(moved.names(), [vec![], vec!["topic-0".to_owned()]]);
}

#[test]
fn a_log_keeps_its_name_if_the_rename_of_its_copy_fails() {
    for is_written_down in [false, true] {
        let moved = moved();
        fs::create_dir_all(moved.to.join("topic-0/in the way")).unwrap();
        let promoted = moved.dirs.promote(&moved.copy.reader(), is_written_down);
        assert!(promoted.is_err());
        let [from, to] = moved.names();
        assert_eq!((from, to.len()), (vec!["topic-0".to_owned()], 2));
        assert!(moved.log.dir().is_dir());
        assert_eq!(
            moved
                .dirs
                .describe()
                .iter()
                .filter(|dir| dir.is_online)
                .count(),
            2
        );
    }
}
