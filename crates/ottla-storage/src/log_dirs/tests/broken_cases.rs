//! Damage in a log directory, the decision about it, and what Kafka does: one table, shown in
//! `docs/recovery.md`, with a test of every row. Damage in a partition's directory is covered in
//! `ottla-log`.

use std::fs;
use std::path::{Path, PathBuf};

use ottla_log::checkpoint::{
    FAILED_FSYNC_FILE, FailedFsync, LOG_START_OFFSET_CHECKPOINT, META_PROPERTIES, MetaProperties,
    PARTITION_METADATA, RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT,
};
use ottla_log::{CLEAN_LOGS_FILE, LEADER_EPOCH_CHECKPOINT, LeaderEpochs};

use super::*;

const SAME: &str = "the same";

/// A row. Every log directory was stopped cleanly.
struct Case {
    found: &'static str,
    decision: &'static str,
    kafka: &'static str,
    /// Causes the damage in the first of two directories, which holds `topic-0`; the other holds
    /// `topic-1`.
    damage: fn(&[PathBuf]),
    check: fn(&Started),
}

struct Started {
    paths: Vec<PathBuf>,
    result: Result<LogDirs, String>,
}

impl Started {
    fn dirs(&self) -> &LogDirs {
        self.result.as_ref().expect("the directories are in use")
    }

    fn online(&self) -> Vec<bool> {
        let described = self.dirs().describe();
        described.iter().map(|dir| dir.is_online).collect()
    }

    /// The log exists with both of its records.
    fn has_log(&self, n: i32) {
        assert_eq!(self.online(), [true, true]);
        let log = open(self.dirs(), n);
        assert_eq!(log.log_end_offset(), Offset(2), "topic-{n}");
        assert_eq!(log.log_start_offset(), Offset(0));
    }

    fn is_refused(&self, words: &[&str]) {
        let sentence = self.result.as_ref().expect_err("the start is refused");
        for word in words {
            assert!(sentence.contains(word), "{word} in {sentence}");
        }
    }

    fn first_is_offline(&self) {
        assert_eq!(self.online(), [false, true]);
        assert_eq!(open(self.dirs(), 1).log_end_offset(), Offset(2));
    }
}

/// Copies of `topic-1`.
const FUTURES: [&str; 3] = [
    "topic-1.0123456789abcdef0123456789abcdef-future",
    "topic-1.fedcba9876543210fedcba9876543210-future",
    "topic-1.00112233445566778899aabbccddeeff-future",
];

const CASES: &[Case] = &[
    Case {
        found: "`.kafka_cleanshutdown` missing",
        decision: "all logs of the directory are recovered",
        kafka: SAME,
        damage: |paths| fs::remove_file(paths[0].join(CLEAN_SHUTDOWN_FILE)).unwrap(),
        check: |start| start.has_log(0),
    },
    Case {
        found: "`.kafka_cleanshutdown` is not JSON",
        decision: "treated as a clean stop with an unknown broker epoch",
        kafka: SAME,
        damage: |paths| fs::write(paths[0].join(CLEAN_SHUTDOWN_FILE), [0xff; 9]).unwrap(),
        check: |start| {
            start.has_log(0);
            assert_eq!(start.dirs().previous_broker_epoch(), BrokerEpoch::UNKNOWN);
        },
    },
    Case {
        found: "`ottla-clean-logs` damaged, or of another stop",
        decision: "ignored: the files of every log are read",
        kafka: "always ignored",
        damage: |paths| fs::write(paths[0].join(CLEAN_LOGS_FILE), "garbage").unwrap(),
        check: |start| start.has_log(0),
    },
    Case {
        found: "`ottla-fsync-failed`",
        decision: "all logs of the directory are recovered, even after a clean stop, and first written once more from their recovery points on",
        kafka: "always ignored",
        damage: |paths| FailedFsync::write(&paths[0]).unwrap(),
        check: |start| {
            start.has_log(0);
            assert_eq!(start.dirs().previous_broker_epoch(), BrokerEpoch::UNKNOWN);
            assert!(!start.paths[0].join(FAILED_FSYNC_FILE).exists());
        },
    },
    Case {
        found: "`recovery-point-offset-checkpoint` missing",
        decision: "after a crash, all logs of the directory are recovered from their start",
        kafka: SAME,
        damage: |paths| {
            fs::remove_file(paths[0].join(CLEAN_SHUTDOWN_FILE)).unwrap();
            fs::remove_file(paths[0].join(RECOVERY_POINT_CHECKPOINT)).unwrap();
        },
        check: |start| start.has_log(0),
    },
    Case {
        found: "`recovery-point-offset-checkpoint` malformed",
        decision: "treated as empty, with a warning",
        kafka: SAME,
        damage: |paths| {
            fs::remove_file(paths[0].join(CLEAN_SHUTDOWN_FILE)).unwrap();
            fs::write(paths[0].join(RECOVERY_POINT_CHECKPOINT), b"0\n7\ntopic").unwrap();
        },
        check: |start| start.has_log(0),
    },
    Case {
        found: "`log-start-offset-checkpoint` malformed",
        decision: "treated as empty, with a warning: each log starts at its first segment",
        kafka: SAME,
        damage: |paths| fs::write(paths[0].join(LOG_START_OFFSET_CHECKPOINT), [0; 40]).unwrap(),
        check: |start| start.has_log(0),
    },
    Case {
        found: "`log-start-offset-checkpoint` names an offset after the end of a log",
        decision: "used, with a warning: the segments are deleted, and the log continues from that offset",
        kafka: SAME,
        damage: |paths| {
            let text = "0\n1\ntopic 0 9\n";
            fs::write(paths[0].join(LOG_START_OFFSET_CHECKPOINT), text).unwrap();
        },
        check: |start| {
            let log = open(start.dirs(), 0);
            let ends = (log.log_start_offset(), log.log_end_offset());
            assert_eq!(ends, (Offset(9), Offset(9)));
        },
    },
    Case {
        found: "`cleaner-offset-checkpoint` malformed",
        decision: "treated as empty, with an error: compacted logs are cleaned from their start",
        kafka: "the directory goes offline",
        damage: |paths| fs::write(paths[0].join(CLEANER_OFFSET_CHECKPOINT), b"1\n").unwrap(),
        check: |start| start.has_log(0),
    },
    Case {
        found: "`replication-offset-checkpoint` malformed",
        decision: "treated as empty, with a warning: high watermarks begin at the log start offsets",
        kafka: "the directory goes offline",
        damage: |paths| fs::write(paths[0].join(REPLICATION_OFFSET_CHECKPOINT), b"1\n").unwrap(),
        check: |start| {
            start.has_log(0);
            assert_eq!(open(start.dirs(), 1).high_watermark(), Offset(2));
        },
    },
    Case {
        found: "a checkpoint's `.tmp` file",
        decision: "ignored, and overwritten by the next checkpoint",
        kafka: SAME,
        damage: |paths| {
            let name = format!("{RECOVERY_POINT_CHECKPOINT}.tmp");
            fs::write(paths[0].join(name), b"0\n").unwrap();
        },
        check: |start| start.has_log(0),
    },
    Case {
        found: "a directory with an unexpected name",
        decision: "the start is refused, naming the directory: `log.dirs` may point to the wrong place",
        kafka: SAME,
        damage: |paths| fs::create_dir(paths[0].join("holiday pictures")).unwrap(),
        check: |start| start.is_refused(&["holiday pictures", "move it away"]),
    },
    Case {
        found: "a file with an unexpected name",
        decision: "ignored",
        kafka: SAME,
        damage: |paths| fs::write(paths[0].join("notes.txt"), b"x").unwrap(),
        check: |start| {
            start.has_log(0);
            assert!(start.paths[0].join("notes.txt").exists());
        },
    },
    Case {
        found: "`-delete`: a partition directory whose deletion was not finished",
        decision: "deleted",
        kafka: SAME,
        damage: |paths| {
            copy_dir(
                &paths[0].join("topic-0"),
                &paths[0].join(suffixed("-delete")),
            )
        },
        check: |start| {
            start.has_log(0);
            start.dirs().close(BrokerEpoch(1), &[]);
            assert!(!start.paths[0].join(suffixed("-delete")).exists());
        },
    },
    Case {
        found: "`-stray`: a partition directory that was set aside",
        decision: "ignored",
        kafka: SAME,
        damage: |paths| {
            copy_dir(
                &paths[0].join("topic-0"),
                &paths[0].join(suffixed("-stray")),
            )
        },
        check: |start| {
            start.has_log(0);
            assert!(start.paths[0].join(suffixed("-stray")).exists());
        },
    },
    Case {
        found: "`-future` without a `partition.metadata`: a move between directories that had just begun",
        decision: "deleted if it has no records; otherwise ignored, with a warning",
        kafka: "loaded as the copy of a replica that is moving",
        damage: |paths| {
            let [empty, other, cleaned] = FUTURES.map(|name| paths[0].join(name));
            for copy in [&other, &cleaned] {
                copy_dir(&paths[1].join("topic-1"), copy);
                fs::remove_file(copy.join(PARTITION_METADATA)).unwrap();
            }
            let log = cleaned.join("00000000000000000000.log");
            fs::rename(&log, log.with_extension("log.swap")).unwrap();
            fs::create_dir(&empty).unwrap();
            fs::write(empty.join("00000000000000000000.log"), b"").unwrap();
            fs::write(empty.join("00000000000000000000.index"), [0; 80]).unwrap();
        },
        check: |start| {
            start.has_log(1);
            start.dirs().close(BrokerEpoch(1), &[]);
            let there = FUTURES.map(|name| start.paths[0].join(name).exists());
            assert_eq!(there, [false, true, true]);
        },
    },
    Case {
        found: "one partition in two directories",
        decision: "the copy that the metadata does not name is set aside as `-stray`; if the metadata names neither, the start is refused with both names",
        kafka: "the start is refused",
        damage: |paths| copy_dir(&paths[1].join("topic-1"), &paths[0].join("topic-1")),
        check: |start| start.is_refused(&["lies in both", "d0/topic-1", "d1/topic-1"]),
    },
    Case {
        found: "`partition.metadata` missing",
        decision: "the log is assigned to the topic of this name, and gets the topic's ID",
        kafka: "the log is set aside as `-stray`, and the partition starts empty",
        damage: |paths| {
            fs::remove_file(paths[0].join("topic-0").join(PARTITION_METADATA)).unwrap();
        },
        check: |start| start.has_log(0),
    },
    Case {
        found: "`partition.metadata` malformed",
        decision: "the directory goes offline; the others stay online",
        kafka: SAME,
        damage: |paths| {
            fs::write(
                paths[0].join("topic-0").join(PARTITION_METADATA),
                b"version: 0\n",
            )
            .unwrap();
        },
        check: |start| start.first_is_offline(),
    },
    Case {
        found: "`partition.metadata` with the ID of another topic",
        decision: "the log is set aside as `-stray`, and the partition starts empty",
        kafka: SAME,
        damage: |paths| {
            let other = PartitionMetadata {
                topic_id: TopicId::from_u128(99),
            };
            other.write(&paths[0].join("topic-0")).unwrap();
            let clean = "0\n2\ntopic 0 1\ntopic 1 1\n";
            for path in paths {
                fs::write(path.join(CLEANER_OFFSET_CHECKPOINT), clean).unwrap();
            }
        },
        check: |start| {
            assert_eq!(open(start.dirs(), 0).log_end_offset(), Offset(0));
            // The clean offset of the other log does not apply to this one.
            let clean = start.paths[0].join(CLEANER_OFFSET_CHECKPOINT);
            let offsets = OffsetCheckpoint::read(&clean).unwrap().offsets;
            assert_eq!(offsets.get(&partition(0)), None);
            let strays = names(&start.paths[0]).into_iter();
            assert_eq!(strays.filter(|name| name.ends_with("-stray")).count(), 1);
        },
    },
    Case {
        found: "`leader-epoch-checkpoint` malformed",
        decision: "the directory goes offline; the others stay online",
        kafka: SAME,
        damage: |paths| {
            fs::write(paths[0].join("topic-0/leader-epoch-checkpoint"), b"7\n").unwrap();
        },
        check: |start| start.first_is_offline(),
    },
    Case {
        found: "a log that cannot be opened: a `.log` file whose name is not an offset",
        decision: "the directory goes offline; the others stay online",
        kafka: "the broker stops",
        damage: |paths| fs::write(paths[0].join("topic-0/first.log"), b"x").unwrap(),
        check: |start| start.first_is_offline(),
    },
    Case {
        found: "`meta.properties` missing in a directory without the metadata log",
        decision: "the start is refused: mount the disk, restore the file, or format the directory",
        kafka: SAME,
        damage: |paths| fs::remove_file(paths[1].join(META_PROPERTIES)).unwrap(),
        check: |start| start.is_refused(&["d1", "meta.properties"]),
    },
    Case {
        found: "`meta.properties` missing in the metadata log directory",
        decision: "the start is refused: restore the file, or format the directory",
        kafka: SAME,
        damage: |paths| fs::remove_file(paths[0].join(META_PROPERTIES)).unwrap(),
        check: |start| start.is_refused(&["d0", "meta.properties"]),
    },
    Case {
        found: "`meta.properties` malformed",
        decision: "the start is refused, naming the file",
        kafka: "the directory is treated as failed",
        damage: |paths| fs::write(paths[0].join(META_PROPERTIES), b"version=1\n").unwrap(),
        check: |start| start.is_refused(&["meta.properties"]),
    },
    Case {
        found: "`meta.properties` of another cluster",
        decision: "the start is refused",
        kafka: SAME,
        damage: |paths| replace(&paths[1], "cluster.id=", "cluster.id=x"),
        check: |start| start.is_refused(&["d1", "cluster"]),
    },
    Case {
        found: "`meta.properties` of another node",
        decision: "the start is refused",
        kafka: SAME,
        damage: |paths| replace(&paths[1], "node.id=", "node.id=9"),
        check: |start| start.is_refused(&["d1", "node"]),
    },
    Case {
        found: "a directory that is a copy of another, with its `directory.id`",
        decision: "the start is refused",
        kafka: SAME,
        damage: |paths| {
            fs::copy(
                paths[0].join(META_PROPERTIES),
                paths[1].join(META_PROPERTIES),
            )
            .unwrap();
        },
        check: |start| start.is_refused(&["directory.id"]),
    },
];

fn suffixed(suffix: &str) -> String {
    format!("topic-0.0123456789abcdef0123456789abcdef{suffix}")
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

fn replace(dir: &Path, what: &str, by: &str) {
    let path = dir.join(META_PROPERTIES);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(what));
    fs::write(path, text.replace(what, by)).unwrap();
}

/// Two directories with a log of two records each, stopped cleanly.
fn stopped() -> Dirs {
    let test = Dirs::new(2);
    let dirs = test.load().unwrap();
    let mut logs = [open(&dirs, 0), open(&dirs, 1)];
    for log in &mut logs {
        append(log);
        append(log);
        log.close_job().run().unwrap();
    }
    dirs.close(BrokerEpoch(42), &[]);
    test
}

fn start(test: &Dirs) -> Result<LogDirs, String> {
    let config = test.config();
    let locks = DirLocks::take(&config)?;
    let identity = read_identity(&config).map_err(|error| error.to_string())?;
    let identity = identity.ok_or("not formatted")?;
    let dirs = LogDirs::new(locks, &identity, ottla_log::Handles::unlimited());
    dirs.load(&load_settings(&Loading::default()))?;
    Ok(dirs)
}

#[test]
fn every_row_of_the_table_holds() {
    for case in CASES {
        eprintln!("{}", case.found);
        let test = stopped();
        let paths = test.paths();
        (case.damage)(&paths);
        let result = start(&test);
        (case.check)(&Started { paths, result });
    }
}

#[test]
fn the_documented_table_is_up_to_date() {
    let mut table = String::from("| found | decision | Kafka |\n| --- | --- | --- |\n");
    for case in CASES {
        table += &format!("| {} | {} | {} |\n", case.found, case.decision, case.kafka);
    }
    ottla_testkit::assert_documented("directory", &table);
}

/// The decision about a damaged small file, according to the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decision {
    /// All records are there, in an online directory.
    GoesOn,
    /// The file is readable, and its start offset is trusted.
    StartsAt(Offset),
    Refused,
    Offline,
    /// The log belongs to another topic.
    Stray,
}

/// The expected decision about a directory whose file `name` was changed.
fn decision(name: &str, dir: &Path) -> Decision {
    let log_dir = dir.join("topic-0");
    match name {
        META_PROPERTIES => {
            // The other directory of the node has the cluster ID and the node ID.
            let other = MetaProperties::read(&dir.with_file_name("d1"))
                .unwrap()
                .unwrap();
            match MetaProperties::read(dir) {
                Ok(Some(read)) => {
                    let is_of_node = read.node_id.is_none() || read.node_id == other.node_id;
                    let has_cluster = read.cluster_id == other.cluster_id;
                    let is_copy = read.directory_id == other.directory_id;
                    match is_of_node && has_cluster && !is_copy {
                        true => Decision::GoesOn,
                        false => Decision::Refused,
                    }
                }
                _ => Decision::Refused,
            }
        }
        PARTITION_METADATA => match PartitionMetadata::read(&log_dir) {
            Ok(Some(read)) if read.topic_id == TOPIC_ID => Decision::GoesOn,
            Ok(Some(_)) => Decision::Stray,
            Ok(None) => Decision::GoesOn,
            Err(_) => Decision::Offline,
        },
        LEADER_EPOCH_CHECKPOINT => match LeaderEpochs::read(&log_dir) {
            Ok(_) => Decision::GoesOn,
            Err(_) => Decision::Offline,
        },
        LOG_START_OFFSET_CHECKPOINT => {
            let read = OffsetCheckpoint::read(&dir.join(name)).unwrap_or_default();
            match read.offsets.get(&partition(0)) {
                Some(offset) if *offset > Offset(0) => Decision::StartsAt(*offset),
                _ => Decision::GoesOn,
            }
        }
        _ => Decision::GoesOn,
    }
}

/// For any contents of the small files of a log directory, a start takes the decision of the
/// tables.
#[test]
fn no_byte_of_a_small_file_loses_records_silently() {
    let names = [
        CLEAN_SHUTDOWN_FILE,
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
        REPLICATION_OFFSET_CHECKPOINT,
        CLEANER_OFFSET_CHECKPOINT,
        META_PROPERTIES,
        PARTITION_METADATA,
        LEADER_EPOCH_CHECKPOINT,
    ];
    let path_of = |dir: &Path, name: &str| match name {
        PARTITION_METADATA | LEADER_EPOCH_CHECKPOINT => dir.join("topic-0").join(name),
        _ => dir.join(name),
    };
    let test = stopped();
    let template = tempfile::tempdir().unwrap();
    let kept = template.path().join("d0");
    let copy = |from: &Path, to: &Path| {
        fs::create_dir_all(to.join("topic-0")).unwrap();
        for dir in [from.to_owned(), from.join("topic-0")] {
            for entry in fs::read_dir(&dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    fs::copy(&path, to.join(path.strip_prefix(from).unwrap())).unwrap();
                }
            }
        }
    };
    copy(&test.path(), &kept);
    for (name, whole) in [
        (CLEANER_OFFSET_CHECKPOINT, "0\n1\ntopic 0 1\n"),
        (LOG_START_OFFSET_CHECKPOINT, "0\n1\ntopic 0 0\n"),
        (LEADER_EPOCH_CHECKPOINT, "0\n1\n0 0\n"),
    ] {
        fs::write(path_of(&kept, name), whole).unwrap();
    }
    let mut taken = std::collections::BTreeMap::<_, std::collections::BTreeSet<String>>::new();
    for name in names {
        let whole = fs::read(path_of(&kept, name)).unwrap();
        for at in (0..whole.len()).step_by(1 + whole.len() / 24) {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 5);
            let mut torn = whole.clone();
            torn[at..].fill(0);
            let random = whole
                .iter()
                .map(|byte| byte.wrapping_mul(at as u8 | 1))
                .collect();
            for bytes in [whole[..at].to_vec(), flipped, torn, random] {
                fs::remove_dir_all(test.path()).unwrap();
                copy(&kept, &test.path());
                fs::write(path_of(&test.path(), name), &bytes).unwrap();
                let context = || format!("{name}: {:?}", String::from_utf8_lossy(&bytes));
                let expected = decision(name, &test.path());
                let found = match start(&test) {
                    Err(sentence) => {
                        // It names the directory, which is all that some errors can name.
                        assert!(sentence.contains("d0"), "{name}: {sentence}");
                        Decision::Refused
                    }
                    Ok(dirs) if !dirs.describe()[0].is_online => Decision::Offline,
                    Ok(dirs) => {
                        let log = dirs.open_log(&partition(0), TOPIC_ID, None, settings());
                        let log = log.unwrap_or_else(|error| panic!("{}: {error}", context()));
                        // Its writes beside the log must not reach the next round.
                        dirs.dirs.iter().for_each(|dir| dir.files.stop());
                        if names_in(&test).any(|name| name.ends_with("-stray")) {
                            Decision::Stray
                        } else if log.log_start_offset() > Offset(0) {
                            Decision::StartsAt(log.log_start_offset())
                        } else {
                            assert_eq!(log.log_end_offset(), Offset(2), "{}", context());
                            Decision::GoesOn
                        }
                    }
                };
                assert_eq!(found, expected, "{}", context());
                taken.entry(name).or_default().insert(format!("{found:?}"));
            }
        }
    }
    // Each kind of file must lead to each of its decisions; otherwise the damage is too mild.
    assert!(taken[META_PROPERTIES].contains("Refused"));
    assert!(taken[PARTITION_METADATA].is_superset(&["Offline".into(), "Stray".into()].into()));
    assert!(taken[LEADER_EPOCH_CHECKPOINT].contains("Offline"));
    assert!(taken[LOG_START_OFFSET_CHECKPOINT].len() > 1);
}

fn names_in(test: &Dirs) -> impl Iterator<Item = String> {
    names(&test.path()).into_iter()
}
