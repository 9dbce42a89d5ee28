//! Snapshots from the leader, and crashes in between.

use std::path::Path;

use ottla_config::{BrokerConfig, Properties};
use ottla_metadata::MetadataVersion;
use ottla_protocol::metadata_records::{FeatureLevelRecord, MetadataRecord, NoOpRecord};
use ottla_raft::KRaftVersion;
use ottla_sync::fs::{Disk, Faults, PowerLoss};
use ottla_sync::simulation::{self, Config, Host};
use ottla_types::LeaderEpoch;

use super::super::LoadedMetadata;
use super::*;
use crate::metadata::forced_mark::{FORCED_OFFSET_FILE, forced_offset};
use crate::metadata::metadata_log::METADATA_DIR;
use crate::metadata::record_batches::records_batch;

const NOW: Timestamp = Timestamp(1000);

fn open(dir: &Path) -> (MetadataLog, LoadedMetadata) {
    let mut properties = Properties::new("the test");
    for (key, value) in [
        ("process.roles", "broker"),
        ("node.id", "2"),
        ("listeners", "PLAINTEXT://127.0.0.1:0"),
        ("controller.listener.names", "CONTROLLER"),
        ("controller.quorum.bootstrap.servers", "127.0.0.1:9093"),
        ("log.dirs", dir.to_str().expect("characters")),
    ] {
        properties.set(key, value);
    }
    let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
    MetadataLog::open(&config, NOW).expect("opens")
}

/// A log with one record per batch and one epoch.
fn filled(dir: &Path, records: i64, epoch: i32) -> MetadataLog {
    let (mut log, _) = open(dir);
    log.append_fetched(&batches(0..records, epoch), NOW)
        .expect("appends");
    log
}

fn batches(offsets: std::ops::Range<i64>, epoch: i32) -> Vec<RecordBatch> {
    offsets
        .map(|offset| {
            records_batch(
                Offset(offset),
                LeaderEpoch(epoch),
                NOW,
                &[MetadataRecord::NoOp(NoOpRecord::default())],
                MetadataVersion::LATEST_PRODUCTION,
            )
            .expect("a batch")
        })
        .collect()
}

fn id(end_offset: i64, epoch: i32) -> SnapshotId {
    SnapshotId {
        end_offset: Offset(end_offset),
        epoch: LeaderEpoch(epoch),
    }
}

/// The bytes of a snapshot written by another node.
fn bytes_of(id: SnapshotId) -> Bytes {
    let snapshot = Snapshot {
        last_contained_log_time: NOW,
        kraft_version: KRaftVersion::V0,
        voters: None,
        records: vec![MetadataRecord::FeatureLevel(FeatureLevelRecord {
            name: MetadataVersion::FEATURE_NAME.into(),
            feature_level: MetadataVersion::LATEST_PRODUCTION.feature_level(),
            ..Default::default()
        })],
    };
    let dir = tempfile::tempdir().expect("a directory");
    snapshot.write(dir.path(), id, NOW).expect("is written");
    Bytes::from(fs::read(dir.path().join(id.file_name())).expect("is read"))
}

fn fetch(log: &mut MetadataLog, id: SnapshotId, bytes: &Bytes) {
    log.begin_snapshot(id).expect("begins");
    let half = bytes.len() / 2;
    let (first, second) = (bytes.slice(..half), bytes.slice(half..));
    log.append_to_snapshot(id, 0, &first).expect("is appended");
    log.append_to_snapshot(id, half as i64, &second)
        .expect("is appended");
}

fn files(dir: &Path, suffix: &str) -> usize {
    let entries = fs::read_dir(dir.join(METADATA_DIR)).expect("is there");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(suffix))
        .count()
}

#[test]
fn a_snapshot_replaces_the_log_before_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut log = filled(dir.path(), 5, 1);
    for snapshot in [id(40, 3), id(60, 4)] {
        fetch(&mut log, snapshot, &bytes_of(snapshot));
        log.install_snapshot(snapshot, NOW).expect("is installed");
        assert_eq!(log.log_start_offset(), snapshot.end_offset);
        assert_eq!(log.log_end_offset(), snapshot.end_offset);
        assert_eq!(log.snapshot_ids(), [snapshot]);
    }
    assert_eq!(
        (files(dir.path(), ".checkpoint"), files(dir.path(), ".part")),
        (1, 0)
    );
    log.close().expect("closes");
    let (log, loaded) = open(dir.path());
    assert_eq!(log.log_end_offset(), Offset(60));
    let provenance = loaded.loader.image().provenance;
    assert_eq!(provenance.last_contained_offset, Offset(59));
    assert!(loaded.tail.is_empty());
}

#[test]
fn an_unreadable_snapshot_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut log = filled(dir.path(), 5, 1);
    let snapshot = id(40, 3);
    let whole = bytes_of(snapshot);
    fetch(&mut log, snapshot, &whole.slice(..whole.len() - 7));
    let error = log.install_snapshot(snapshot, NOW).expect_err("is refused");
    assert!(
        error.to_string().contains("the leader's snapshot"),
        "{error}"
    );
    assert_eq!(log.log_end_offset(), Offset(5));
    assert_eq!(
        (files(dir.path(), ".checkpoint"), files(dir.path(), ".part")),
        (0, 0)
    );
}

#[test]
fn a_start_completes_a_snapshot_installation_after_a_crash() {
    // After the log end, and within the log but of a later epoch: those records were never
    // committed.
    for snapshot in [id(40, 1), id(3, 2)] {
        let dir = tempfile::tempdir().expect("a directory");
        filled(dir.path(), 5, 1).close().expect("closes");
        let path = dir.path().join(METADATA_DIR).join(snapshot.file_name());
        std::fs::write(path, bytes_of(snapshot)).expect("is written");
        let (log, loaded) = open(dir.path());
        assert_eq!(log.log_end_offset(), snapshot.end_offset, "{snapshot}");
        assert!(loaded.tail.is_empty(), "{snapshot}");
    }
}

#[test]
fn a_partially_fetched_snapshot_is_discarded_after_a_crash() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut log = filled(dir.path(), 5, 1);
    fetch(&mut log, id(40, 3), &bytes_of(id(40, 3)));
    assert_eq!(files(dir.path(), ".part"), 1);
    drop(log);
    let (log, loaded) = open(dir.path());
    assert_eq!(files(dir.path(), ".part"), 0);
    assert_eq!(log.log_end_offset(), Offset(5));
    assert_eq!(
        loaded.tail.len(),
        5,
        "nothing of the log is known as committed"
    );
    assert_eq!(
        loaded.loader.image().provenance.last_contained_offset,
        Offset(-1)
    );
}

#[test]
fn an_unforced_gap_between_segments_is_cut_off() {
    // Below the mark, it is not from a power loss.
    for (forced, end) in [(3, 3), (5, 5)] {
        let dir = tempfile::tempdir().expect("a directory");
        filled(dir.path(), 5, 1).close().expect("closes");
        let path = dir.path().join(METADATA_DIR);
        let segment = |base_offset: i64| path.join(format!("{base_offset:020}.log"));
        let whole = std::fs::read(segment(0)).expect("is read");
        let batch = whole.len() / 5;
        // Without the batch at offset 3.
        std::fs::write(segment(0), &whole[..3 * batch]).expect("is written");
        std::fs::write(segment(4), &whole[4 * batch..]).expect("is written");
        std::fs::write(path.join(FORCED_OFFSET_FILE), format!("{forced:020}\n"))
            .expect("is written");
        let (log, _) = open(dir.path());
        assert_eq!(log.log_end_offset(), Offset(end));
    }
}

/// Otherwise records that are appended in place of others would count as forced at once.
#[test]
fn the_mark_is_lowered_if_a_snapshot_replaces_forced_records_at_a_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut log = filled(dir.path(), 5, 1);
    assert_eq!(log.flush().expect("is forced"), Offset(5));
    log.close().expect("closes");
    let path = dir.path().join(METADATA_DIR);
    assert_eq!(forced_offset(&path).expect("is read"), Offset(5));
    let snapshot = id(3, 2);
    std::fs::write(path.join(snapshot.file_name()), bytes_of(snapshot)).expect("is written");
    let (log, _) = open(dir.path());
    assert_eq!(log.log_end_offset(), Offset(3));
    assert_eq!(forced_offset(&path).expect("is read"), Offset(3));
}

/// A log on a simulated disk with three forced records, and three unforced ones of an epoch.
fn with_unforced_records(epoch: i32) -> MetadataLog {
    fs::create_dir_all(Path::new("/data").join(METADATA_DIR)).expect("is created");
    for dir in ["/data", "/"] {
        let dir = Dir::open(Path::new(dir)).expect("opens");
        dir.sync().expect("is forced");
    }
    let mut log = filled(Path::new("/data"), 3, 1);
    log.flush().expect("is forced");
    log.append_fetched(&batches(3..6, epoch), NOW)
        .expect("appends");
    log
}

/// Each step of it opens files.
#[test]
fn a_start_waits_for_file_handles() {
    for seed in 1..=16 {
        let run = simulation::run(Config::new(seed), move || {
            let disk = Disk::new(seed, "controller");
            let host = Host::new("controller").with_disk(&disk);
            let short = disk.clone();
            let started = host.spawn("main", move || {
                drop(with_unforced_records(2));
                let lacking = Faults {
                    opens_fail_one_in: 3,
                    ..Faults::default()
                };
                short.set_faults("/", lacking);
                let (log, _) = open(Path::new("/data"));
                short.set_faults("/", Faults::default());
                log.log_end_offset()
            });
            assert_eq!(started.join().expect("opens"), Offset(6), "seed {seed}");
        });
        run.result.expect("the start waits");
    }
}

/// The quorum counts them as forced, also before the next append. A flush would need space for the
/// file of the epochs, and a full disk must not prevent a start.
#[test]
fn a_start_on_a_full_disk_forces_the_records_of_a_killed_process() {
    for seed in 1..=16 {
        let run = simulation::run(Config::new(seed), move || {
            let disk = Disk::new(seed, "controller");
            let host = Host::new("controller").with_disk(&disk);
            let killed = host.spawn("main", || drop(with_unforced_records(2)));
            killed.join().expect("appends");
            host.kill();
            let host = Host::new("controller").with_disk(&disk);
            let full = disk.clone();
            let started = host.spawn("main", move || {
                let is_full = Faults {
                    is_full: true,
                    ..Faults::default()
                };
                full.set_faults("/", is_full);
                let (log, _) = open(Path::new("/data"));
                full.set_faults("/", Faults::default());
                log.log_end_offset()
            });
            assert_eq!(started.join().expect("opens"), Offset(6));
            host.kill();
            disk.lose_power(PowerLoss::Unordered);
            let host = Host::new("controller").with_disk(&disk);
            let read = host.spawn("main", || open(Path::new("/data")).0.log_end_offset());
            assert_eq!(read.join().expect("opens"), Offset(6), "seed {seed}");
        });
        run.result.expect("nothing is lost");
    }
}

/// The kernel marks the pages of a failed fsync as written, and reads them until they are evicted.
#[test]
fn records_of_a_failed_fsync_are_on_disk_after_the_next_start() {
    for seed in 1..=16 {
        let run = simulation::run(Config::new(seed), move || {
            let disk = Disk::new(seed, "controller");
            let host = Host::new("controller").with_disk(&disk);
            let faulty = disk.clone();
            let stopped = host.spawn("main", move || {
                let mut log = with_unforced_records(1);
                let failing = Faults {
                    syncs_fail_one_in: 1,
                    ..Faults::default()
                };
                faulty.set_faults("/", failing);
                log.flush().expect_err("a failed fsync");
                faulty.set_faults("/", Faults::default());
            });
            stopped.join().expect("stops");
            host.kill();
            let host = Host::new("controller").with_disk(&disk);
            let ended = host.spawn("main", || {
                let (mut log, _) = open(Path::new("/data"));
                log.append_fetched(&batches(6..8, 1), NOW).expect("appends");
                log.flush().expect("is forced")
            });
            assert_eq!(ended.join().expect("appends"), Offset(8));
            host.kill();
            disk.lose_power(PowerLoss::Unordered);
            let host = Host::new("controller").with_disk(&disk);
            let read = host.spawn("main", || open(Path::new("/data")).0.log_end_offset());
            assert_eq!(read.join().expect("opens"), Offset(8), "seed {seed}");
        });
        run.result.expect("no hole");
    }
}
