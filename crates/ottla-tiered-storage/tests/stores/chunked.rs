use std::collections::BTreeMap;

use ottla_tiered::RemoteLogSegmentMetadata;
use ottla_tiered_storage::{CustomMetadataFields, IndexType, RemoteStorageErrorKind, read_all};
use ottla_types::{PartitionIndex, Uuid};

use crate::segments::{
    SEGMENT_ID, TOPIC_ID, copied, encryption, files_below, in_directory, open, segment,
};

const SIZE: usize = 95_000;

#[tokio::test]
async fn uploaded_segments_are_read_in_each_form() {
    for compresses in ["false", "true"] {
        for encrypts in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let mut segment = segment(dir.path(), SIZE);
            segment.data.transaction_index = Some(dir.path().join("0.index"));
            let root = dir.path().join("store");
            std::fs::create_dir(&root).unwrap();
            let mut settings = in_directory(
                &root,
                &[
                    ("rsm.config.compression.enabled", compresses),
                    ("rsm.config.key.prefix", "one/two-"),
                    (
                        "rsm.config.custom.metadata.fields.include",
                        "REMOTE_SIZE,OBJECT_KEY",
                    ),
                ],
            );
            if encrypts {
                settings.extend(encryption());
            }
            let store = open(&settings);
            let custom = store
                .copy_log_segment_data(&segment.metadata, &segment.data)
                .await
                .unwrap();
            let key = format!("orders-{TOPIC_ID}/7/00000000000000000100-{SEGMENT_ID}");
            assert_eq!(
                files_below(&root),
                ["indexes", "log", "rsm-manifest"].map(|it| format!("one/two-{key}.{it}"))
            );
            let fields = CustomMetadataFields::decode(&custom.clone().unwrap().0).unwrap();
            let sizes = files_below(&root)
                .iter()
                .map(|file| root.join(file).metadata().unwrap().len() as i64)
                .sum::<i64>();
            assert_eq!(fields.remote_size, Some(sizes));
            assert_eq!(
                (fields.object_prefix, fields.object_key),
                (None, Some(key.clone()))
            );
            let log = std::fs::read(root.join(format!("one/two-{key}.log"))).unwrap();
            assert_eq!(log == segment.log, compresses == "false" && !encrypts);

            // A store of another process, which has nothing cached.
            let store = open(&settings);
            let metadata = copied(&segment.metadata, custom);
            for (start, end) in [
                (0, None),
                (9_999, Some(10_000)),
                (20_000, Some(29_999)),
                (94_999, None),
                (3, Some(700_000)),
            ] {
                let stream = store
                    .fetch_log_segment(&metadata, start, end)
                    .await
                    .unwrap();
                let end = end.map_or(SIZE, |end: u32| SIZE.min(end as usize + 1));
                assert_eq!(
                    read_all(stream).await.unwrap(),
                    segment.log[start as usize..end]
                );
            }
            let beyond = store
                .fetch_log_segment(&metadata, 95_000, None)
                .await
                .unwrap();
            assert!(read_all(beyond).await.unwrap().is_empty());
            let index = async |index| store.fetch_index(&metadata, index).await.unwrap();
            assert_eq!(index(IndexType::Offset).await, [7; 80].as_slice());
            assert_eq!(index(IndexType::Timestamp).await, [8; 24].as_slice());
            assert_eq!(index(IndexType::Transaction).await, [7; 80].as_slice());
            assert!(index(IndexType::ProducerSnapshot).await.is_empty());
            let epochs = index(IndexType::LeaderEpoch).await;
            assert_eq!(epochs, segment.data.leader_epoch_index);
            for object in store.stored_objects(&metadata).await {
                let size = object.size_bytes.unwrap();
                assert!(
                    object
                        .expected_size_bytes
                        .is_none_or(|expected| expected == size)
                );
            }
            store.delete_log_segment_data(&metadata).await.unwrap();
            assert!(files_below(&root).is_empty());
        }
    }
}

#[tokio::test]
async fn the_heuristic_leaves_compressed_batches_alone() {
    for (codec, is_stored_as_it_is) in [(0, false), (4, true)] {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(dir.path(), SIZE);
        let mut log = segment.log.clone();
        log[22] = codec;
        std::fs::write(&segment.data.log_segment, &log).unwrap();
        let root = dir.path().join("store");
        std::fs::create_dir(&root).unwrap();
        let store = open(&in_directory(
            &root,
            &[
                ("rsm.config.compression.enabled", "true"),
                ("rsm.config.compression.heuristic.enabled", "true"),
            ],
        ));
        let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
        assert_eq!(copy.await, Ok(None));
        let object = files_below(&root)
            .into_iter()
            .find(|file| file.ends_with(".log"))
            .unwrap();
        assert_eq!(
            std::fs::read(root.join(object)).unwrap() == log,
            is_stored_as_it_is
        );
        let stream = store.fetch_log_segment(&segment.metadata, 0, None).await;
        assert_eq!(read_all(stream.unwrap()).await.unwrap(), log);
    }
}

#[tokio::test]
async fn a_damaged_or_missing_object_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    let root = dir.path().join("store");
    std::fs::create_dir(&root).unwrap();
    let mut settings = in_directory(&root, &[("rsm.config.compression.enabled", "true")]);
    settings.extend(encryption());
    let store = open(&settings);
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    copy.await.unwrap();
    let key = format!("orders-{TOPIC_ID}/7/00000000000000000100-{SEGMENT_ID}");
    let change = |suffix: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let path = root.join(format!("{key}.{suffix}"));
        let before = std::fs::read(&path).unwrap();
        let mut bytes = before.clone();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        move || std::fs::write(&path, &before).unwrap()
    };
    let read_with = async |settings: &BTreeMap<String, String>| {
        let store = open(settings);
        let stream = store.fetch_log_segment(&segment.metadata, 0, None).await?;
        read_all(stream).await
    };
    let read = async || read_with(&settings).await;
    let named = format!("read file://{}/{key}.", root.display());

    let undo = change("log", &|log| *log.last_mut().unwrap() ^= 1);
    let error = read().await.unwrap_err();
    assert_eq!(error.kind, RemoteStorageErrorKind::Damaged);
    assert!(
        error
            .to_string()
            .starts_with(&format!("{named}log: chunk 9 at byte ")),
        "{error}"
    );
    undo();
    let undo = change("log", &|log| log.truncate(log.len() - 10));
    let error = read().await.unwrap_err();
    assert!(error.to_string().contains(&format!("{key}.log")), "{error}");
    undo();
    let undo = change("rsm-manifest", &|json| json.truncate(30));
    let error = read().await.unwrap_err();
    assert_eq!(error.kind, RemoteStorageErrorKind::Damaged);
    assert!(
        error
            .to_string()
            .starts_with(&format!("{named}rsm-manifest: ")),
        "{error}"
    );
    undo();
    let undo = change("indexes", &|bytes| bytes[0] ^= 1);
    let index = open(&settings);
    let error = index
        .fetch_index(&segment.metadata, IndexType::Offset)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{named}indexes: offset index at byte 0: its authentication tag does not match its bytes"
        )
    );
    undo();
    assert_eq!(read().await.unwrap(), segment.log);
    // An index that was not uploaded is another answer than one that is lost.
    let index_error = async |index| {
        let store = open(&settings);
        let fetched = store.fetch_index(&segment.metadata, index).await;
        fetched.unwrap_err()
    };
    let error = index_error(IndexType::Transaction).await;
    assert_eq!(error.kind, RemoteStorageErrorKind::NoIndex);
    std::fs::remove_file(root.join(format!("{key}.indexes"))).unwrap();
    let error = index_error(IndexType::Offset).await;
    assert_eq!(error.kind, RemoteStorageErrorKind::NotFound);
    assert!(error.what.ends_with(&format!("{key}.indexes")), "{error}");
    std::fs::remove_file(root.join(format!("{key}.log"))).unwrap();
    let error = read().await.unwrap_err();
    assert_eq!(error.kind, RemoteStorageErrorKind::NotFound);
    assert!(error.what.ends_with(&format!("{key}.log")), "{error}");

    // Without the key pair, the manifest says why.
    let mut without = settings.clone();
    without.retain(|key, _| !key.contains("encryption"));
    let error = read_with(&without).await.unwrap_err();
    assert!(
        error.cause.contains("encryption.enabled is not set"),
        "{error}"
    );
}

#[tokio::test]
async fn an_upload_that_fails_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    std::fs::remove_file(&segment.data.time_index).unwrap();
    let root = dir.path().join("store");
    std::fs::create_dir(&root).unwrap();
    let store = open(&in_directory(&root, &[]));
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    let error = copy.await.unwrap_err();
    assert_eq!(error.kind, RemoteStorageErrorKind::LocalFile);
    assert!(error.what.ends_with("0.timeindex"), "{error}");
    assert!(files_below(&root).is_empty());
}

/// Its size would be the size of the memory that it is read into.
#[tokio::test]
async fn an_object_that_is_too_large_for_a_manifest_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    let root = dir.path().join("store");
    std::fs::create_dir(&root).unwrap();
    let settings = in_directory(&root, &[]);
    let store = open(&settings);
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    copy.await.unwrap();
    let mut files = files_below(&root).into_iter();
    let manifest = files.find(|file| file.ends_with(".rsm-manifest")).unwrap();
    let opened = std::fs::OpenOptions::new()
        .write(true)
        .open(root.join(&manifest));
    opened.unwrap().set_len((16 << 20) + 1).unwrap();
    let store = open(&settings);
    let fetched = store.fetch_log_segment(&segment.metadata, 0, None).await;
    let error = fetched.err().unwrap();
    assert_eq!(error.kind, RemoteStorageErrorKind::Damaged);
    assert!(error.what.ends_with(&manifest), "{error}");
    assert_eq!(error.cause, "it has 16777217 bytes, more than 16777216");
}

/// The first uploads of two partitions, while the only segment of a third one is deleted, and its
/// topic's directory with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_and_deletions_in_one_directory_do_not_fail_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    let root = dir.path().join("store");
    std::fs::create_dir(&root).unwrap();
    let store = open(&in_directory(&root, &[]));
    let of = |partition: i32| {
        let mut metadata = segment.metadata.clone();
        metadata.partition.partition = PartitionIndex(partition);
        metadata
    };
    let (first, second, third) = (of(0), of(1), of(2));
    for _ in 0..50 {
        let copy = store.copy_log_segment_data(&third, &segment.data);
        copy.await.unwrap();
        let upload = |metadata: &RemoteLogSegmentMetadata| {
            let (store, metadata, data) = (store.clone(), metadata.clone(), segment.data.clone());
            tokio::spawn(async move { store.copy_log_segment_data(&metadata, &data).await })
        };
        let uploads = [upload(&first), upload(&second)];
        store.delete_log_segment_data(&third).await.unwrap();
        for upload in uploads {
            upload.await.unwrap().unwrap();
        }
        assert_eq!(files_below(&root).len(), 6);
        for metadata in [&first, &second] {
            store.delete_log_segment_data(metadata).await.unwrap();
        }
        assert!(files_below(&root).is_empty());
    }
}

#[tokio::test]
async fn cached_manifests_are_limited_in_number_and_in_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    std::fs::create_dir(&root).unwrap();
    let mut segment = segment(dir.path(), 10);
    let store = open(&in_directory(&root, &[]));
    let mut segments = Vec::new();
    for id in 1..=3 {
        segment.metadata.segment.id = Uuid::from_u128(id);
        let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
        copy.await.unwrap();
        segments.push(segment.metadata.clone());
    }
    let mut files = files_below(&root);
    files.retain(|file| file.ends_with(".rsm-manifest"));
    let manifests = files.iter().map(|file| {
        let path = root.join(file);
        let json = std::fs::read_to_string(&path).unwrap();
        (path, json)
    });
    let manifests: Vec<_> = manifests.collect();
    assert_eq!(manifests.len(), 3);
    let small = r#""originalChunkSize":10000,"originalFileSize":10,"#;
    // The places of two million chunks take 16 MB.
    let large = r#""originalChunkSize":1000,"originalFileSize":2000000000,"#;
    for (size, sizes, remain) in [
        ("1000", small, [true, true, true]),
        ("2", small, [false, true, true]),
        ("0", small, [false, false, false]),
        ("-1", small, [true, true, true]),
        ("1000", large, [false, true, true]),
        ("-1", large, [false, true, true]),
    ] {
        for (path, json) in &manifests {
            assert!(json.contains(small), "{json}");
            std::fs::write(path, json.replace(small, sizes)).unwrap();
        }
        let size = [("rsm.config.fetch.manifest.cache.size", size)];
        let store = open(&in_directory(&root, &size));
        let read = async |metadata: &RemoteLogSegmentMetadata| {
            let read = store.fetch_log_segment(metadata, 0, Some(0)).await;
            read.map(drop).map_err(|error| error.kind)
        };
        for metadata in &segments {
            assert_eq!(read(metadata).await, Ok(()));
        }
        for (path, _) in &manifests {
            std::fs::remove_file(path).unwrap();
        }
        for (metadata, remains) in segments.iter().zip(remain) {
            let expected = match remains {
                true => Ok(()),
                false => Err(RemoteStorageErrorKind::NotFound),
            };
            assert_eq!(read(metadata).await, expected, "{size:?} {sizes}");
        }
    }
}
