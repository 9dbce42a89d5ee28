//! A directory as Kafka 4.4 formats it: no `bootstrap.checkpoint`, and the initial records in the
//! first snapshot of the metadata log.

use ottla_metadata::MetadataVersion;
use ottla_raft::SnapshotId;
use ottla_storage::format::{FormatOptions, InitialQuorum, format};
use ottla_storage::metadata::metadata_log::METADATA_DIR;
use ottla_storage::metadata::snapshot_file::{BOOTSTRAP_FILE, read_snapshot};

use super::*;

/// Formats at the level of Kafka 4.4, and moves the records to where Kafka 4.4 puts them.
fn formatted_by_kafka_4_4(data: &Path, quorum: InitialQuorum) -> BrokerConfig {
    let mut properties = properties_of(data, &[]);
    if quorum == InitialQuorum::Static {
        properties.set("controller.quorum.voters", "1@127.0.0.1:9093");
        properties.set("controller.quorum.bootstrap.servers", "");
    }
    let config = config_of(&properties);
    let options = FormatOptions {
        cluster_id: "AAAAAAAAAAAAAAAAAAAAZA".to_owned(),
        quorum,
        metadata_version: MetadataVersion::LATEST_PRODUCTION,
        feature_levels: [("share.version".to_owned(), 2)].into(),
        scram_records: Vec::new(),
        ignore_formatted: false,
    };
    format(&config, &options).expect("formats");
    let bootstrap = data.join(BOOTSTRAP_FILE);
    let log = data.join(METADATA_DIR);
    let mut snapshot = read_snapshot(&bootstrap).expect("the initial records");
    let first = log.join(SnapshotId::BOOTSTRAP.file_name());
    if let Ok(of_quorum) = read_snapshot(&first) {
        (snapshot.kraft_version, snapshot.voters) = (of_quorum.kraft_version, of_quorum.voters);
    }
    std::fs::remove_file(bootstrap).expect("removes");
    std::fs::create_dir_all(&log).expect("creates");
    let written = snapshot.write(&log, SnapshotId::BOOTSTRAP, ottla_types::Timestamp(1000));
    written.expect("is written");
    config
}

fn lead(config: &BrokerConfig) -> Controller {
    let identity = read_identity(config).expect("reads").expect("is formatted");
    let mut controller = crate::open::open(config, &identity).expect("leads");
    controller.settle().expect("commits");
    controller
}

#[test]
fn the_initial_records_come_from_the_first_snapshot() {
    for quorum in [InitialQuorum::Standalone, InitialQuorum::Static] {
        let data = tempfile::tempdir().expect("a directory");
        let config = formatted_by_kafka_4_4(data.path(), quorum.clone());
        let mut records_before = None;
        for start in ["the first start", "the second start"] {
            let controller = lead(&config);
            let features = &controller.image.features;
            assert_eq!(
                features.metadata_version(),
                Some(MetadataVersion::LATEST_PRODUCTION),
                "{quorum:?}, {start}"
            );
            assert_eq!(features.level("share.version"), 2, "{quorum:?}, {start}");
            assert_eq!(features.level("group.version"), 1, "{quorum:?}, {start}");
            let committed = controller.image_end_offset;
            drop(controller);
            // They are written to the log once: only the change of leader is added.
            if let Some(before) = records_before.replace(committed.value()) {
                assert!(committed.value() - before <= 1, "{quorum:?}: {committed}");
            }
        }
    }
}
