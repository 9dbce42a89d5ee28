//! Logs that are opened by what a clean stop knows of them: as if by their files, or not at all.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ottla_config::TopicConfig;
use ottla_types::{LeaderEpoch, Offset, Timestamp, TopicId, TopicPartition};

use super::{batch, build, idempotent, read_all};
use crate::checkpoint::PartitionMetadata;
use crate::disk::trace;
use crate::{CleanLog, Handles, JobOutcome, Log, OpenParams, RecoveryReport, TimestampTarget};

const NOW: Timestamp = Timestamp(1_000_000);
const TOPIC_ID: TopicId = TopicId::from_u128(77);

struct Site {
    root: tempfile::TempDir,
    /// As in its checkpoint.
    log_start_offset: Offset,
}

impl Site {
    fn new() -> Site {
        let site = Site {
            root: tempfile::tempdir().unwrap(),
            log_start_offset: Offset(0),
        };
        fs::create_dir(site.dir()).unwrap();
        let metadata = PartitionMetadata { topic_id: TOPIC_ID };
        metadata.write(&site.dir()).unwrap();
        site
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("topic-0")
    }

    fn params(&self) -> OpenParams {
        let config = TopicConfig {
            segment_bytes: 4_000,
            index_interval_bytes: 200,
            file_delete_delay_ms: 0,
            ..TopicConfig::default()
        };
        OpenParams {
            dir: self.dir(),
            topic_partition: TopicPartition::new("topic", 0),
            config: Arc::new(config),
            recovery_point: Offset(0),
            log_start_offset: self.log_start_offset,
            clean_shutdown: true,
            now: NOW,
            producer_id_expiration_ms: 86_400_000,
            random_seed: 7,
            handles: Handles::unlimited(),
            checkpoint_marks: Arc::default(),
        }
    }

    fn open(&self) -> Log {
        let (log, report) = Log::open(self.params()).unwrap();
        assert_eq!(report, RecoveryReport::default());
        log
    }

    fn open_clean(&self, clean: &CleanLog) -> Log {
        assert!(clean.is_unchanged(&self.dir()));
        let (log, report) = Log::open_clean(self.params(), clean).unwrap();
        assert_eq!(report, RecoveryReport::default());
        log
    }
}

fn append(log: &mut Log, count: i32) {
    let end = log.log_end_offset();
    log.append(&[batch(end.0, count)], NOW).unwrap();
    log.set_high_watermark(log.log_end_offset());
}

fn close(mut log: Log) -> Option<CleanLog> {
    let job = log.close_job();
    job.run().unwrap();
    job.clean_log(TOPIC_ID)
}

fn run_jobs(log: &mut Log) {
    for job in log.take_jobs() {
        if let JobOutcome::Unlink(job) = job.run().unwrap() {
            job.run().unwrap();
        }
    }
}

/// A way to a log with one segment.
struct Way {
    name: &'static str,
    go: fn(&mut Site, &mut Log),
}

const WAYS: &[Way] = &[
    Way {
        name: "no record",
        go: |_, _| {},
    },
    Way {
        name: "one record",
        go: |_, log| append(log, 1),
    },
    Way {
        name: "entries in the indexes",
        go: |_, log| (0..9).for_each(|_| append(log, 3)),
    },
    Way {
        name: "several leader epochs",
        go: |_, log| {
            for epoch in 0..4 {
                let end = log.log_end_offset();
                let batch = build(end.0, 2, NOW.0 + end.0, |builder| {
                    builder.partition_leader_epoch(LeaderEpoch(epoch))
                });
                log.append(&[batch], NOW).unwrap();
                log.set_high_watermark(log.log_end_offset());
            }
            assert_eq!(log.leader_epochs().entries().len(), 4);
        },
    },
    Way {
        name: "an epoch without records",
        go: |_, log| log.assign_leader_epoch(LeaderEpoch(5), Offset(0)),
    },
    Way {
        name: "a start offset within the segment",
        go: |site, log| {
            append(log, 1);
            append(log, 3);
            site.log_start_offset = Offset(2);
            log.increment_log_start_offset(Offset(2)).unwrap();
        },
    },
    Way {
        name: "segments that were deleted",
        go: |site, log| {
            while log.segments().segments.len() == 1 {
                append(log, 10);
            }
            site.log_start_offset = log.segments().active().base_offset;
            let start = site.log_start_offset;
            log.increment_log_start_offset(start).unwrap();
            log.delete_old_segments(NOW).unwrap();
            run_jobs(log);
            assert_eq!(log.segments().segments.len(), 1);
        },
    },
];

/// What can be seen of a log.
fn seen(log: &Log) -> String {
    let reader = log.reader();
    let segment = Arc::clone(log.segments().active());
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let times = [0, NOW.0 + 1, NOW.0 + 5, NOW.0 + 20].map(|time| {
        let target = TimestampTarget::At(Timestamp(time));
        let found = reader.offset_for_timestamp(target).unwrap();
        found.map(|found| (found.offset, found.timestamp))
    });
    let seen = (
        (start, end, reader.recovery_point(), reader.size()),
        log.leader_epochs().clone(),
        (read_all(&reader, start.0), times),
        (segment.base_offset, segment.max_timestamp()),
        (
            segment.offset_index.entries().len(),
            segment.time_index.entries().len(),
            segment.time_index.last_entry(),
        ),
        (log.active.first_batch_timestamp, log.had_topic_id()),
    );
    format!("{seen:?}")
}

#[test]
fn a_log_opens_as_by_its_files() {
    for Way { name, go } in WAYS {
        eprintln!("{name}");
        let mut site = Site::new();
        let mut log = site.open();
        go(&mut site, &mut log);
        let clean = close(log).expect("it is simple");
        let by_clean = site.open_clean(&clean);
        let by_files = site.open();
        assert_eq!(seen(&by_clean), seen(&by_files), "{name}");
        drop(by_files);
        // An idle log stays as it is, and goes on.
        let mut again = site.open_clean(&close(by_clean).expect("it is simple"));
        append(&mut again, 4);
        let end = again.log_end_offset();
        let clean = close(again).expect("it is simple");
        let by_clean = site.open_clean(&clean);
        assert_eq!(by_clean.log_end_offset(), end);
        assert_eq!(seen(&by_clean), seen(&site.open()), "{name}");
    }
}

/// The open and the next stop of an idle log change nothing on disk.
#[test]
fn an_idle_log_is_left_alone() {
    for Way { name, go } in WAYS {
        let mut site = Site::new();
        let mut log = site.open();
        go(&mut site, &mut log);
        // Files that a start by files would make or remove are as the second stop leaves them.
        let clean = close(log).expect("it is simple");
        let clean = close(site.open_clean(&clean)).expect("it is simple");
        trace::start(&site.dir());
        let log = site.open_clean(&clean);
        close(log).expect("it is simple");
        assert_eq!(trace::stop().len(), 0, "{name}");
        assert!(clean.is_unchanged(&site.dir()), "{name}");
    }
}

#[test]
fn a_changed_log_is_noticed() {
    let changes: [fn(&Site); 6] = [
        |site| fs::write(site.dir().join("x"), "").unwrap(),
        |site| fs::remove_file(site.dir().join("00000000000000000000.index")).unwrap(),
        |site| {
            let other = site.root.path().join("moved");
            fs::rename(site.dir(), &other).unwrap();
            fs::create_dir(site.dir()).unwrap();
        },
        |site| {
            let path = site.dir().join("00000000000000000000.log");
            let file = fs::File::options().append(true).open(path).unwrap();
            file.set_len(10).unwrap();
        },
        // With other bytes, and the earlier time of modification.
        |site| {
            let path = site.dir().join("00000000000000000000.log");
            let modified = fs::metadata(&path).unwrap().modified().unwrap();
            let mut bytes = fs::read(&path).unwrap();
            bytes[70] ^= 1;
            fs::write(&path, bytes).unwrap();
            let file = fs::File::options().append(true).open(&path).unwrap();
            file.set_modified(modified).unwrap();
        },
        |site| {
            use std::os::unix::fs::PermissionsExt;
            let rights = fs::Permissions::from_mode(0o700);
            fs::set_permissions(site.dir(), rights).unwrap();
        },
    ];
    for (number, change) in changes.iter().enumerate() {
        let site = Site::new();
        let mut log = site.open();
        append(&mut log, 3);
        let clean = close(log).expect("it is simple");
        // The kernel's clock of files has ticks of up to 10 ms.
        std::thread::sleep(Duration::from_millis(30));
        assert!(clean.is_unchanged(&site.dir()));
        change(&site);
        assert!(!clean.is_unchanged(&site.dir()), "{number}");
    }
}

#[test]
fn logs_that_are_not_simple_are_opened_by_their_files() {
    let not_simple: [fn(&Site, &mut Log); 5] = [
        |_, log| {
            while log.segments().segments.len() == 1 {
                append(log, 10);
            }
        },
        |_, log| {
            log.append(&[idempotent(0, 2, 9, 0, 0)], NOW).unwrap();
        },
        |site, _| fs::write(site.dir().join("unknown"), "").unwrap(),
        |site, _| fs::create_dir(site.dir().join("unknown")).unwrap(),
        |site, _| fs::remove_file(site.dir().join("partition.metadata")).unwrap(),
    ];
    for (number, make) in not_simple.iter().enumerate() {
        let site = Site::new();
        let mut log = site.open();
        make(&site, &mut log);
        assert!(close(log).is_none(), "{number}");
    }
}
