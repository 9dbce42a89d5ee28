//! Damaged files of the metadata log: what Ottla does and what Kafka does. The table is printed in
//! `docs/recovery.md`. Each row is tested here with the preflight and with a start.

use std::fs;
use std::path::{Path, PathBuf};

use ottla_protocol::metadata_records::{FeatureLevelRecord, MetadataRecord};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{LeaderEpoch, Offset};

use super::*;
use ottla_context::time_of_day;
use ottla_storage::metadata::metadata_log::{METADATA_DIR, QUORUM_STATE_FILE};
use ottla_storage::metadata::snapshot_file::BOOTSTRAP_FILE;
use ottla_storage::preflight::{Preflight, Severity, Unformatted};

const SAME: &str = "the same";

/// One row. The node created the topics `a` and `b`, wrote a snapshot after each, created `c`, and
/// was killed.
struct Case {
    found: &'static str,
    decision: &'static str,
    kafka: &'static str,
    damage: fn(&Files),
    expected: Expected,
}

enum Expected {
    /// The node starts with these topics.
    Topics(&'static [&'static str]),
    /// Both the preflight and the server refuse, with a message that contains these words.
    Refused(&'static [&'static str]),
}

use Expected::{Refused, Topics};

/// The files of the node.
struct Files(PathBuf);

impl Files {
    fn metadata(&self, name: &str) -> PathBuf {
        self.0.join(METADATA_DIR).join(name)
    }

    fn log(&self) -> PathBuf {
        self.metadata("00000000000000000000.log")
    }

    /// The snapshots, oldest first, without the snapshot that formatting wrote.
    fn snapshots(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join(METADATA_DIR)).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|it| it == "checkpoint"));
        paths.sort();
        paths.split_off(1)
    }

    fn edit(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    }

    /// Appends a batch of one record to the log, in the epoch of the last batch.
    fn append(&self, value: &[u8]) {
        self.edit(&self.log(), |bytes| {
            let number = |at: usize| i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
            let mut last = 0;
            while last + 12 + (number(last + 8) as usize) < bytes.len() {
                last += 12 + number(last + 8) as usize;
            }
            let base_offset = i64::from_be_bytes(bytes[last..last + 8].try_into().unwrap());
            let mut batch = RecordBatchBuilder::new(Compression::None)
                .base_offset(Offset(base_offset).plus(i64::from(number(last + 23)) + 1))
                .partition_leader_epoch(LeaderEpoch(number(last + 12)));
            batch.append(time_of_day(), None, Some(value), &[]);
            bytes.extend_from_slice(&batch.build_in_place());
        });
    }
}

const CASES: &[Case] = &[
    Case {
        found: "`quorum-state` missing",
        decision: "the epoch of the log is used",
        kafka: SAME,
        damage: |files| fs::remove_file(files.metadata(QUORUM_STATE_FILE)).unwrap(),
        expected: Topics(&["a", "b", "c"]),
    },
    Case {
        found: "`quorum-state` is not JSON, or lacks a field",
        decision: "the start is refused, naming the file",
        kafka: SAME,
        damage: |files| fs::write(files.metadata(QUORUM_STATE_FILE), "{").unwrap(),
        expected: Refused(&[QUORUM_STATE_FILE]),
    },
    Case {
        found: "`quorum-state` with an older epoch than the log",
        decision: "the epoch of the log is used",
        kafka: SAME,
        damage: |files| {
            let path = files.metadata(QUORUM_STATE_FILE);
            let text = fs::read_to_string(&path).unwrap();
            fs::write(path, text.replace("\"leaderEpoch\":2", "\"leaderEpoch\":0")).unwrap();
        },
        expected: Topics(&["a", "b", "c"]),
    },
    Case {
        found: "`quorum-state` with an epoch that is negative or the largest possible",
        decision: "the start is refused, naming the file",
        kafka: "starts, and the next epoch overflows",
        damage: |files| {
            let path = files.metadata(QUORUM_STATE_FILE);
            let text = fs::read_to_string(&path).unwrap();
            let last = text.replace("\"leaderEpoch\":2", "\"leaderEpoch\":2147483647");
            assert_ne!(text, last);
            fs::write(path, last).unwrap();
        },
        expected: Refused(&[QUORUM_STATE_FILE]),
    },
    Case {
        found: "the metadata log ends with a torn batch",
        decision: "truncated",
        kafka: SAME,
        damage: |files| files.edit(&files.log(), |bytes| bytes.truncate(bytes.len() - 5)),
        expected: Topics(&["a", "b"]),
    },
    Case {
        found: "the metadata log ends with a batch whose checksum is wrong",
        decision: "truncated: an incomplete write looks the same",
        kafka: SAME,
        damage: |files| files.edit(&files.log(), |bytes| *bytes.last_mut().unwrap() ^= 1),
        expected: Topics(&["a", "b"]),
    },
    Case {
        found: "the metadata log is damaged, and valid batches follow the damage",
        decision: "the start is refused with file and position: recovery would lose the decisions after that position",
        kafka: "truncates the log there, with a warning",
        damage: |files| {
            files.edit(&files.log(), |bytes| {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x40;
            });
        },
        expected: Refused(&["00000000000000000000.log", "damaged at byte"]),
    },
    Case {
        found: "the metadata log contains a record type or version newer than 4.4.0",
        decision: "the start is refused with the record's type and version, because its meaning is unknown",
        kafka: SAME,
        damage: |files| files.append(b"\x01\x63\x00"),
        expected: Refused(&["99"]),
    },
    Case {
        found: "the metadata log raises `metadata.version` to a level newer than 4.4.0",
        decision: "the start is refused with the level",
        kafka: SAME,
        damage: |files| {
            let record = MetadataRecord::from(FeatureLevelRecord {
                name: "metadata.version".into(),
                feature_level: 99,
                ..Default::default()
            });
            files.append(&record.encode().unwrap());
        },
        expected: Refused(&["99"]),
    },
    Case {
        found: "the metadata log ends before its newest snapshot",
        decision: "the log continues after the snapshot, with a warning",
        kafka: SAME,
        damage: |files| files.edit(&files.log(), |bytes| bytes.truncate(100)),
        expected: Topics(&["a", "b"]),
    },
    Case {
        found: "the metadata log has no segment, and there is a snapshot",
        decision: "the log continues after the snapshot, with a warning",
        kafka: SAME,
        damage: |files| fs::remove_file(files.log()).unwrap(),
        expected: Topics(&["a", "b"]),
    },
    Case {
        found: "the newest metadata snapshot is damaged or torn",
        decision: "the start is refused, naming the file",
        kafka: SAME,
        damage: |files| {
            let newest = files.snapshots().pop().unwrap();
            files.edit(&newest, |bytes| bytes.truncate(bytes.len() / 2));
        },
        expected: Refused(&[".checkpoint"]),
    },
    Case {
        found: "the newest metadata snapshot ends before its footer",
        decision: "the start is refused, naming the file",
        kafka: "loads what is there",
        damage: |files| {
            let newest = files.snapshots().pop().unwrap();
            files.edit(&newest, |bytes| {
                let size = |bytes: &[u8]| {
                    12 + i32::from_be_bytes(bytes[8..12].try_into().unwrap()) as usize
                };
                let mut end = 0;
                while end + size(&bytes[end..]) < bytes.len() {
                    end += size(&bytes[end..]);
                }
                bytes.truncate(end);
            });
        },
        expected: Refused(&[".checkpoint", "footer"]),
    },
    Case {
        found: "an older metadata snapshot is damaged",
        decision: "ignored, with a warning: a newer snapshot contains its records",
        kafka: "ignored",
        damage: |files| {
            let older = files.snapshots().remove(0);
            fs::write(older, [7; 80]).unwrap();
        },
        expected: Topics(&["a", "b", "c"]),
    },
    Case {
        found: "a `.checkpoint.part` file: an unfinished snapshot",
        decision: "deleted",
        kafka: SAME,
        damage: |files| {
            let name = "00000000000000000009-0000000001-0000000000000001.checkpoint.part";
            fs::write(files.metadata(name), [7; 80]).unwrap();
        },
        expected: Topics(&["a", "b", "c"]),
    },
    Case {
        found: "`bootstrap.checkpoint` missing or damaged, on a node that has been started before",
        decision: "not read",
        kafka: "if damaged, the start fails",
        damage: |files| fs::write(files.0.join(BOOTSTRAP_FILE), [7; 80]).unwrap(),
        expected: Topics(&["a", "b", "c"]),
    },
    Case {
        found: "`bootstrap.checkpoint` damaged, on a node that has never been started",
        decision: "the start is refused, naming the file",
        kafka: SAME,
        damage: |files| {
            fs::remove_dir_all(files.0.join(METADATA_DIR)).unwrap();
            fs::create_dir(files.0.join(METADATA_DIR)).unwrap();
            files.edit(&files.0.join(BOOTSTRAP_FILE), |bytes| {
                *bytes.last_mut().unwrap() ^= 1;
            });
        },
        expected: Refused(&[BOOTSTRAP_FILE]),
    },
];

/// The directory of a killed node that wrote a snapshot after every commit except the last.
fn killed() -> (tempfile::TempDir, Vec<u8>) {
    let mut story = Story::begin_with(SNAPSHOTS_ALWAYS);
    story.serve(&["a"]);
    story.serve(&["b"]);
    let Story {
        controller, data, ..
    } = story;
    drop(controller);
    let mut story = Story {
        controller: lead(data.path(), &[]).expect("leads"),
        answers: Arc::default(),
        published: Vec::new(),
        data,
    };
    story.serve(&["c"]);
    let log = fs::read(Files(story.data.path().to_owned()).log()).unwrap();
    (story.data, log)
}

pub(super) const SNAPSHOTS_ALWAYS: &[(&str, &str)] =
    &[("metadata.log.max.record.bytes.between.snapshots", "1")];
/// A quorum of voters in the properties file, named by no snapshot.
const STATIC: &[(&str, &str)] = &[("controller.quorum.voters", "1@127.0.0.1:9093")];

fn lead(data: &Path, settings: &[(&str, &str)]) -> Result<Controller, String> {
    let config = config_of(&properties_of(data, settings));
    let identity = read_identity(&config).map_err(|error| error.to_string())?;
    crate::open::open(&config, &identity.ok_or("is not formatted")?)
}

/// The topics that a start finds, or why it is refused. The preflight must come to the same result.
fn start(data: &Path, settings: &[(&str, &str)]) -> Result<Vec<String>, String> {
    let before = Preflight::of(&properties_of(data, settings), Unformatted::Refused);
    let refusals = before.findings.iter();
    let refusals: Vec<String> = refusals
        .filter(|finding| finding.severity == Severity::Refuses)
        .map(ToString::to_string)
        .collect();
    match lead(data, settings) {
        Ok(controller) => {
            assert_eq!(refusals, [""; 0]);
            Ok(topics(controller.image()))
        }
        Err(sentence) => {
            assert!(
                !refusals.is_empty(),
                "the preflight sees nothing of {sentence}"
            );
            Err(format!("{sentence}\n{}", refusals.join("\n")))
        }
    }
}

#[test]
fn every_row_of_the_table_holds() {
    for case in CASES {
        eprintln!("{}", case.found);
        let (data, _) = killed();
        let settings = match case.found.contains("not been started") {
            true => STATIC,
            false => &[],
        };
        (case.damage)(&Files(data.path().to_owned()));
        match (start(data.path(), settings), &case.expected) {
            (Ok(found), Topics(expected)) => assert_eq!(found, *expected, "{}", case.found),
            (Err(sentence), Refused(words)) => {
                for word in *words {
                    assert_eq!(
                        sentence.lines().filter(|line| line.contains(word)).count(),
                        2,
                        "{word} in {sentence}"
                    );
                }
            }
            (result, _) => panic!("{}: {result:?}", case.found),
        }
    }
}

#[test]
fn the_documented_table_is_up_to_date() {
    let mut table = String::from("| found | decision | Kafka |\n| --- | --- | --- |\n");
    for case in CASES {
        table += &format!("| {} | {} | {} |\n", case.found, case.decision, case.kafka);
    }
    ottla_testkit::assert_documented("metadata", &table);
}

/// For each damaged byte of the metadata log, a start either has all topics, or truncates the last
/// batch of the log, or names the damaged file.
#[test]
fn no_byte_of_the_metadata_log_loses_a_topic_silently() {
    let (data, log) = killed();
    let template = tempfile::tempdir().unwrap();
    let copy = |from: &Path, to: &Path| {
        fs::create_dir_all(to.join(METADATA_DIR)).unwrap();
        for dir in [PathBuf::new(), METADATA_DIR.into()] {
            for entry in fs::read_dir(from.join(&dir)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    fs::copy(&path, to.join(&dir).join(path.file_name().unwrap())).unwrap();
                }
            }
        }
    };
    copy(data.path(), template.path());
    let files = Files(template.path().to_owned());
    let mut names = vec![
        files.log(),
        files.metadata(QUORUM_STATE_FILE),
        files.0.join(BOOTSTRAP_FILE),
    ];
    names.extend(files.snapshots());
    let mut seed = 1u64;
    let mut random = || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as usize
    };
    // The last batch created the topic `c`.
    let last = log.len() - 120;
    for name in names {
        let whole = fs::read(&name).unwrap();
        for round in 0..60 {
            let at = random() % whole.len();
            let mut bytes = whole.clone();
            match round % 3 {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= 1 << (round % 8),
                _ => bytes[at..]
                    .iter_mut()
                    .take(40)
                    .for_each(|byte| *byte = random() as u8),
            }
            fs::remove_dir_all(data.path()).unwrap();
            copy(template.path(), data.path());
            let path = data
                .path()
                .join(name.strip_prefix(template.path()).unwrap());
            fs::write(&path, &bytes).unwrap();
            let context = format!("{} at {at}, round {round}", path.display());
            match start(data.path(), &[]) {
                Ok(found) if found == ["a", "b", "c"] => {}
                Ok(found) => {
                    assert_eq!(found, ["a", "b"], "{context}");
                    // The file is truncated, or the last batch is incomplete.
                    assert!(path == Files(data.path().to_owned()).log(), "{context}");
                    assert!(round % 3 == 0 || at >= last, "{context}");
                }
                Err(sentence) => {
                    let file = path.file_name().unwrap().to_string_lossy().into_owned();
                    assert!(sentence.contains(&file), "{context}: {sentence}");
                }
            }
        }
    }
}
