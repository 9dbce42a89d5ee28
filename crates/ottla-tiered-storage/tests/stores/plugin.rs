//! Objects that Aiven's plugin 1.0.0 wrote, on Kafka 4.3.1's classes, with its `FileSystemStorage`:
//! the segment of [`segment`] with 2,500 bytes and chunks of 1,000, below the prefix `p/`. The key
//! pair was made for them and protects nothing else.

use std::path::PathBuf;

use bytes::Bytes;
use ottla_tiered::CustomMetadata;
use ottla_tiered_storage::{CustomMetadataFields, IndexType, RemoteStorageErrorKind, read_all};

use crate::segments::{SEGMENT_ID, TOPIC_ID, copied, encryption, in_directory, open, segment};

fn objects() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/stores/plugin-objects")
}

/// The plugin's custom metadata for objects of this size.
fn custom_metadata(remote_size: &[u8]) -> Vec<u8> {
    let path = format!("orders-{TOPIC_ID}/7/00000000000000000100-{SEGMENT_ID}");
    let mut bytes = vec![3, 0, remote_size.len() as u8];
    bytes.extend_from_slice(remote_size);
    bytes.extend_from_slice(b"\x01\x03\x03p/\x02\x4c\x4c");
    bytes.extend_from_slice(path.as_bytes());
    bytes
}

#[tokio::test]
async fn segments_of_the_plugin_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 2_500);
    for (folder, remote_size, is_encrypted, has_transactions) in [
        ("plain", [0xa6, 0x34], false, false),
        ("zstd", [0x9e, 0x10], false, false),
        ("encrypted", [0xd2, 0x3d], true, false),
        ("both", [0xd0, 0x1b], true, true),
    ] {
        let mut all = in_directory(&objects().join(folder), &[("rsm.config.key.prefix", "p/")]);
        if is_encrypted {
            all.extend(encryption());
        }
        let store = open(&all);
        let custom = Bytes::from(custom_metadata(&remote_size));
        let fields = CustomMetadataFields::decode(&custom).unwrap();
        assert_eq!(fields.encode(), custom);
        let metadata = copied(&segment.metadata, Some(CustomMetadata(custom)));

        let mut stored = 0;
        for object in store.stored_objects(&metadata).await {
            let size = object.size_bytes.unwrap();
            assert!(
                object
                    .expected_size_bytes
                    .is_none_or(|expected| expected == size),
                "{folder}"
            );
            stored += size;
        }
        assert_eq!(fields.remote_size, Some(stored as i64));
        let read = async |start, end| {
            let stream = store.fetch_log_segment(&metadata, start, end).await;
            read_all(stream.unwrap()).await.unwrap()
        };
        assert_eq!(read(0, None).await, segment.log, "{folder}");
        assert_eq!(
            read(999, Some(1_500)).await,
            segment.log[999..=1_500],
            "{folder}"
        );
        let index = async |index| store.fetch_index(&metadata, index).await;
        assert_eq!(index(IndexType::Offset).await.unwrap(), [7; 80].as_slice());
        assert_eq!(
            index(IndexType::Timestamp).await.unwrap(),
            [8; 24].as_slice()
        );
        assert_eq!(index(IndexType::ProducerSnapshot).await.unwrap(), "");
        let epochs = index(IndexType::LeaderEpoch).await.unwrap();
        assert_eq!(epochs, segment.data.leader_epoch_index);
        match index(IndexType::Transaction).await {
            Ok(bytes) => assert!(has_transactions && bytes == [7; 80].as_slice()),
            Err(error) => {
                assert!(!has_transactions);
                assert_eq!(error.kind, RemoteStorageErrorKind::NoIndex);
            }
        }
    }
}
