use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ottla_tiered_storage::{IndexType, RemoteStorageErrorKind, RemoteStorageManager, read_all};

use crate::segments::{SEGMENT_ID, TOPIC_ID, copied, files_below, open, segment, settings};

#[tokio::test]
async fn files_are_where_kafkas_test_store_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 3_000_000);
    let root = dir.path().join("store");
    let store = in_files(&root);
    let custom = store
        .copy_log_segment_data(&segment.metadata, &segment.data)
        .await;
    assert_eq!(custom, Ok(None));
    let folder = format!("kafka-tiered-storage/orders-7-{TOPIC_ID}");
    let file = |suffix| format!("{folder}/00000000000000000100-{SEGMENT_ID}.{suffix}");
    assert_eq!(
        files_below(&root),
        [
            "index",
            "leader_epoch_checkpoint",
            "log",
            "snapshot",
            "timeindex"
        ]
        .map(file)
    );

    let read = async |start, end| {
        let stream = store.fetch_log_segment(&segment.metadata, start, end).await;
        read_all(stream.unwrap()).await.unwrap()
    };
    assert_eq!(read(0, None).await, segment.log);
    assert_eq!(read(5, Some(1_999_999)).await, segment.log[5..2_000_000]);
    assert_eq!(read(5, Some(9_999_999)).await, segment.log[5..]);
    let index = async |index| store.fetch_index(&segment.metadata, index).await;
    assert_eq!(index(IndexType::Offset).await.unwrap(), [7; 80].as_slice());
    let error = index(IndexType::Transaction).await.unwrap_err();
    assert_eq!(error.kind, RemoteStorageErrorKind::NoIndex);
    assert!(error.what.ends_with(&file("txnindex")), "{error}");
    assert!(
        store
            .stored_objects(&segment.metadata)
            .await
            .iter()
            .all(|object| object.size_bytes.is_ok())
    );

    // A segment ID is new for every upload, so nothing is replaced, and the first upload goes too.
    let again = store
        .copy_log_segment_data(&segment.metadata, &segment.data)
        .await;
    assert_eq!(again.unwrap_err().kind, RemoteStorageErrorKind::LocalFile);
    store
        .delete_log_segment_data(&segment.metadata)
        .await
        .unwrap();
    assert!(files_below(&root).is_empty());
    store
        .delete_log_segment_data(&segment.metadata)
        .await
        .unwrap();
    // Whether it had the index is not known any more.
    let error = index(IndexType::Transaction).await.unwrap_err();
    assert_eq!(error.kind, RemoteStorageErrorKind::NotFound);
}

#[tokio::test]
async fn the_store_is_emptied_at_the_end_only_if_that_is_set() {
    for (delete_on_close, files) in [("true", 0), ("false", 5)] {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(dir.path(), 3_000);
        let root = dir.path().join("store");
        let store = open(&settings(&[
            (
                "remote.log.storage.manager.class.name",
                "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
            ),
            ("rsm.config.dir", &root.display().to_string()),
            ("rsm.config.delete.on.close", delete_on_close),
        ]));
        let copied = store
            .copy_log_segment_data(&segment.metadata, &segment.data)
            .await;
        assert_eq!(copied, Ok(None));
        store.close().await.unwrap();
        assert_eq!(files_below(&root).len(), files, "{delete_on_close}");
    }
}

fn in_files(root: &Path) -> Arc<dyn RemoteStorageManager> {
    open(&settings_of(root))
}

fn settings_of(root: &Path) -> BTreeMap<String, String> {
    settings(&[
        (
            "remote.log.storage.manager.class.name",
            "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        ),
        ("rsm.config.dir", &root.display().to_string()),
    ])
}

/// The thread that copies cannot be stopped. No caller is left to delete the files that it writes
/// later.
#[test]
fn a_copy_that_is_given_up_leaves_no_files() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 3_000_000);
    let root = dir.path().join("store");
    let store = in_files(&root);
    runtime.block_on(async {
        let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
        tokio::select! {
            biased;
            copied = copy => panic!("{copied:?} at once"),
            () = std::future::ready(()) => {}
        }
    });
    let partition = root.join(format!("kafka-tiered-storage/orders-7-{TOPIC_ID}"));
    while !partition.is_dir() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Waits for the thread.
    drop(runtime);
    assert!(files_below(&root).is_empty());
}

#[tokio::test]
async fn nothing_counts_as_deleted_while_the_directory_is_not_mounted() {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 3_000);
    let root = dir.path().join("store");
    let store = in_files(&root);
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    assert_eq!(copy.await, Ok(None));
    let whole = copied(&segment.metadata, None);
    let (mounted, unmounted) = (root.join("kafka-tiered-storage"), root.join("away"));
    std::fs::rename(&mounted, &unmounted).unwrap();
    for metadata in [&segment.metadata, &whole] {
        let error = store.delete_log_segment_data(metadata).await.unwrap_err();
        assert_eq!(error.kind, RemoteStorageErrorKind::LocalFile);
        assert!(error.cause.contains("rsm.config.dir"), "{error}");
    }
    // A broker that starts now makes a directory.
    let store = in_files(&root);
    let error = store.delete_log_segment_data(&whole).await.unwrap_err();
    assert_eq!(error.kind, RemoteStorageErrorKind::LocalFile);
    // This one may not have been copied at all.
    let begun = store.delete_log_segment_data(&segment.metadata).await;
    assert_eq!(begun, Ok(()));
    std::fs::remove_dir(&mounted).unwrap();
    std::fs::rename(&unmounted, &mounted).unwrap();
    assert_eq!(store.delete_log_segment_data(&whole).await, Ok(()));
    assert!(files_below(&root).is_empty());
}

/// The local segment would go, and its copy be hidden once the file system is mounted again.
#[tokio::test]
async fn nothing_is_copied_while_the_directory_is_not_mounted() {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 3_000);
    let root = dir.path().join("store");
    let store = in_files(&root);
    let (mounted, unmounted) = (root.join("kafka-tiered-storage"), root.join("away"));
    std::fs::rename(&mounted, &unmounted).unwrap();
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    let error = copy.await.unwrap_err();
    assert_eq!(error.kind, RemoteStorageErrorKind::LocalFile);
    assert!(error.cause.contains("rsm.config.dir"), "{error}");
    assert!(!mounted.exists());
    std::fs::rename(&unmounted, &mounted).unwrap();
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    assert_eq!(copy.await, Ok(None));
}

#[test]
fn a_reader_makes_no_directory_and_names_the_setting() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("wrong");
    let settings = settings_of(&root);
    let refused = ottla_tiered_storage::open_to_read(&settings, &|_| None).err();
    let refused = refused.expect("there is nothing to read").to_string();
    let begin = format!("rsm.config.dir={}: read ", root.display());
    assert!(refused.starts_with(&begin), "{refused}");
    assert!(!root.exists());
    drop(open(&settings));
    assert!(ottla_tiered_storage::open_to_read(&settings, &|_| None).is_ok());
}

#[tokio::test]
async fn a_reader_deletes_nothing_when_it_closes() {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 3_000);
    let root = dir.path().join("store");
    let mut settings = settings_of(&root);
    settings.insert("rsm.config.delete.on.close".to_owned(), "true".to_owned());
    let store = open(&settings);
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    assert_eq!(copy.await, Ok(None));
    let reader = ottla_tiered_storage::open_to_read(&settings, &|_| None).unwrap();
    reader.close().await.unwrap();
    assert_eq!(files_below(&root).len(), 5);
}

#[test]
fn a_directory_that_cannot_be_made_is_named_with_its_setting() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let settings = settings_of(&file);
    let refused = ottla_tiered_storage::open(&settings, &|_| None).err();
    let refused = refused.expect("a file holds no directory").to_string();
    let begin = format!("rsm.config.dir={}: create ", file.display());
    assert!(refused.starts_with(&begin), "{refused}");
    assert!(refused.contains("; give a directory"), "{refused}");
}
