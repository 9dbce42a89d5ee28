//! The small files of a log directory. The first byte says which of them the rest is. What was read is written and
//! read again, and must be the same.
#![no_main]

use std::fs;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use ottla_log::checkpoint::{
    CLEAN_SHUTDOWN_FILE, CleanShutdown, META_PROPERTIES, MetaProperties, OffsetCheckpoint,
    PARTITION_METADATA, PartitionMetadata, RECOVERY_POINT_CHECKPOINT,
};
use ottla_log::{LEADER_EPOCH_CHECKPOINT, LeaderEpochs};
use ottla_raft::{ElectionState, KRaftVersion};

fuzz_target!(|input: &[u8]| {
    let Some((which, bytes)) = input.split_first() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    check(*which, dir.path(), bytes);
});

fn check(which: u8, dir: &Path, bytes: &[u8]) {
    let write = |name: &str| {
        let path = dir.join(name);
        fs::write(&path, bytes).expect("a file");
        path
    };
    match which % 6 {
        0 => {
            let path = write(RECOVERY_POINT_CHECKPOINT);
            if let Ok(read) = OffsetCheckpoint::read(&path) {
                read.write(&path).expect("what was read can be written");
                assert_eq!(OffsetCheckpoint::read(&path).expect("what was written"), read);
            }
        }
        1 => {
            write(META_PROPERTIES);
            if let Ok(Some(read)) = MetaProperties::read(dir) {
                // Version 0 is never written.
                if read.version == 1 {
                    read.write(dir).expect("what was read can be written");
                    let again = MetaProperties::read(dir).expect("what was written");
                    assert_eq!(again.expect("a file"), read);
                }
            }
        }
        2 => {
            write(PARTITION_METADATA);
            if let Ok(Some(read)) = PartitionMetadata::read(dir) {
                read.write(dir).expect("what was read can be written");
                assert_eq!(PartitionMetadata::read(dir).expect("what was written"), Some(read));
            }
        }
        3 => {
            write(LEADER_EPOCH_CHECKPOINT);
            if let Ok(read) = LeaderEpochs::read(dir) {
                read.write(dir).expect("what was read can be written");
                let again = LeaderEpochs::read(dir).expect("what was written");
                assert_eq!(again.entries(), read.entries());
            }
        }
        4 => {
            write(CLEAN_SHUTDOWN_FILE);
            CleanShutdown::read(dir).expect("it says nothing where it cannot be understood");
        }
        _ => {
            let text = String::from_utf8_lossy(bytes);
            if let Ok(read) = ElectionState::from_json(&text) {
                for version in [KRaftVersion::V0, KRaftVersion::V1] {
                    let written = read.to_json(version);
                    let again = ElectionState::from_json(&written).expect("what was written");
                    assert_eq!(again.epoch, read.epoch);
                    assert_eq!(again.leader, read.leader);
                }
            }
        }
    }
}
