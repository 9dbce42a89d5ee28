//! Segments to upload, and settings of stores.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use ottla_tiered::{
    CustomMetadata, LeaderEpochs, RemoteLogSegmentMetadata, RemoteLogSegmentState, RemotePartition,
    RemoteSegment,
};
use ottla_tiered_storage::{LogSegmentData, RemoteStorageManager};
use ottla_types::{BrokerId, Offset, PartitionIndex, Timestamp, TopicName, Uuid};

pub struct Segment {
    pub metadata: RemoteLogSegmentMetadata,
    pub data: LogSegmentData,
    pub log: Vec<u8>,
}

/// A segment of `size` bytes that compress well, with its files in `dir`.
pub fn segment(dir: &Path, size: usize) -> Segment {
    let log: Vec<u8> = (0..size).map(|at| (at / 37 % 251) as u8).collect();
    let file = |name: &str, content: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let epochs = LeaderEpochs::from([(0, 0), (3, 150)]);
    Segment {
        data: LogSegmentData {
            log_segment: file("0.log", &log),
            offset_index: file("0.index", &[7; 80]),
            time_index: file("0.timeindex", &[8; 24]),
            transaction_index: None,
            producer_snapshot_index: file("0.snapshot", &[]),
            leader_epoch_index: Bytes::from(epochs.to_checkpoint()),
        },
        metadata: RemoteLogSegmentMetadata {
            partition: RemotePartition {
                topic_id: Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def0),
                topic: TopicName::from("orders"),
                partition: PartitionIndex(7),
            },
            segment: RemoteSegment {
                id: Uuid::from_u128(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100),
                start_offset: Offset(100),
                end_offset: Offset(199),
                max_timestamp: Timestamp(1_700_000_000_000),
                broker_id: BrokerId(1),
                event_timestamp: Timestamp(1_700_000_000_001),
                segment_size_bytes: size as i32,
                custom_metadata: None,
                state: RemoteLogSegmentState::CopySegmentStarted,
                segment_leader_epochs: LeaderEpochs::from([(0, 100), (3, 150)]),
                is_txn_index_empty: true,
            },
        },
        log,
    }
}

pub const TOPIC_ID: &str = "EjRWeJq83vASNFZ4mrze8A";
pub const SEGMENT_ID: &str = "Dw4NDAsKCQgHBgUEAwIBAA";

pub fn settings(values: &[(&str, &str)]) -> BTreeMap<String, String> {
    let all = values.iter();
    all.map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

/// Settings of the chunked store in a directory.
pub fn in_directory(root: &Path, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let root = root.display().to_string();
    let mut all = settings(&[
        (
            "remote.log.storage.manager.class.name",
            "io.aiven.kafka.tieredstorage.RemoteStorageManager",
        ),
        (
            "rsm.config.storage.backend.class",
            "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
        ),
        ("rsm.config.storage.root", &root),
        ("rsm.config.chunk.size", "10000"),
    ]);
    all.extend(settings(more));
    all
}

pub fn open(settings: &BTreeMap<String, String>) -> std::sync::Arc<dyn RemoteStorageManager> {
    ottla_tiered_storage::open(settings, &|_| None).unwrap_or_else(|error| panic!("{error}"))
}

/// Copies a segment, reads its log back, and deletes it.
#[cfg(any(feature = "gcs", feature = "real-stores"))]
pub async fn copy_read_and_delete(store: &dyn RemoteStorageManager, segment: &Segment) {
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    copy.await.unwrap();
    let stream = store.fetch_log_segment(&segment.metadata, 0, None).await;
    let read = ottla_tiered_storage::read_all(stream.unwrap());
    assert!(read.await.unwrap() == segment.log);
    let deleted = store.delete_log_segment_data(&segment.metadata);
    deleted.await.unwrap();
}

/// Settings that encrypt, with the key pair of the plugin's objects.
pub fn encryption() -> BTreeMap<String, String> {
    let key = |kind| {
        let objects = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stores/plugin-objects");
        format!("{objects}/keys/{kind}.pem")
    };
    let name = |name: &str| format!("rsm.config.encryption.{name}");
    [
        (name("enabled"), "true".to_owned()),
        (name("key.pair.id"), "k1".to_owned()),
        (name("key.pairs"), "k1".to_owned()),
        (name("key.pairs.k1.public.key.file"), key("public")),
        (name("key.pairs.k1.private.key.file"), key("private")),
    ]
    .into()
}

/// The segment as the broker knows it after the upload.
pub fn copied(
    metadata: &RemoteLogSegmentMetadata,
    custom_metadata: Option<CustomMetadata>,
) -> RemoteLogSegmentMetadata {
    let mut copied = metadata.clone();
    copied.segment.custom_metadata = custom_metadata;
    copied.segment.state = RemoteLogSegmentState::CopySegmentFinished;
    copied
}

/// All files below a directory, relative to it.
pub fn files_below(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let relative = path.strip_prefix(root).unwrap();
                files.push(relative.display().to_string());
            }
        }
    }
    files.sort();
    files
}
