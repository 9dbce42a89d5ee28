//! Objects with other bytes than were uploaded. Whatever they are, a read ends with bytes or with an
//! error; of encrypted chunks, it ends with the bytes of the segment or with an error.

use bytes::Bytes;
use ottla_tiered_storage::{IndexType, RemoteStorageErrorKind, RemoteStorageManager, read_all};

use crate::segments::{Segment, encryption, files_below, in_directory, open, segment};

/// Reads everything that the store has of a segment, and returns the log.
async fn read(store: &dyn RemoteStorageManager, segment: &Segment) -> Option<Bytes> {
    for index in IndexType::ALL {
        let _ = store.fetch_index(&segment.metadata, index).await;
    }
    store.stored_objects(&segment.metadata).await;
    let stream = store.fetch_log_segment(&segment.metadata, 0, None).await;
    read_all(stream.ok()?).await.ok()
}

/// Damages each object at places that are `step` bytes apart in the manifest, and in `others` places of the
/// others.
async fn damage_everywhere(compresses: &str, encrypts: bool, step: usize, others: usize) {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 25_000);
    let root = dir.path().join("store");
    std::fs::create_dir(&root).unwrap();
    let mut settings = in_directory(&root, &[("rsm.config.compression.enabled", compresses)]);
    if encrypts {
        settings.extend(encryption());
    }
    let store = open(&settings);
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    copy.await.unwrap();
    for file in files_below(&root) {
        let path = root.join(&file);
        let whole = std::fs::read(&path).unwrap();
        let is_manifest = file.ends_with(".rsm-manifest");
        let step = if is_manifest {
            step
        } else {
            whole.len() / others + 1
        };
        for at in (0..whole.len()).step_by(step) {
            let with = |byte: u8| {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                damaged
            };
            // Numbers that are larger and negative, no text, and a part that is missing.
            for damaged in [with(b'9'), with(b'-'), with(0xff), whole[..at].to_vec()] {
                std::fs::write(&path, damaged).unwrap();
                // It has nothing cached.
                let log = read(&*open(&settings), &segment).await;
                let is_right = log.is_none_or(|log| log == segment.log);
                assert!(is_right || is_manifest || !encrypts, "{file} at {at}");
            }
        }
        std::fs::write(&path, &whole).unwrap();
    }
    let log = read(&*open(&settings), &segment).await;
    assert!(log.is_some_and(|log| log == segment.log));
}

#[tokio::test]
async fn a_log_that_is_shorter_than_its_segment_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut segment = segment(dir.path(), 25_000);
    let root = dir.path().join("store");
    std::fs::create_dir(&root).unwrap();
    let store = open(&in_directory(&root, &[]));
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    copy.await.unwrap();
    segment.metadata.segment.segment_size_bytes += 1;
    let read = store.fetch_log_segment(&segment.metadata, 0, Some(9)).await;
    let error = read.err().expect("a byte is missing");
    assert_eq!(error.kind, RemoteStorageErrorKind::Damaged);
    let text = error.to_string();
    assert!(text.contains("has 25000 bytes instead of 25001"), "{text}");
}

#[tokio::test]
async fn plain_objects() {
    damage_everywhere("false", false, 3, 40).await;
}

#[tokio::test]
async fn compressed_objects() {
    damage_everywhere("true", false, 3, 40).await;
}

/// Fewer places, because the data key is unwrapped each time.
#[tokio::test]
async fn compressed_and_encrypted_objects() {
    damage_everywhere("true", true, 61, 6).await;
}
