//! The store against a real S3 server, which `cargo xtask tiered` starts and describes in the
//! environment: `OTTLA_S3_ENDPOINT`, bucket `segments`, keys `test` and `testsecret`. Compiled only with the
//! feature `real-s3`.

use std::collections::BTreeMap;

use ottla_tiered_storage::{RemoteStorageErrorKind, read_all};

use crate::segments::{encryption, open, segment, settings};

fn server(secret: &str, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let endpoint = std::env::var("OTTLA_S3_ENDPOINT").expect("the suite `tiered` sets it");
    let mut all = settings(&[
        (
            "remote.log.storage.manager.class.name",
            "io.aiven.kafka.tieredstorage.RemoteStorageManager",
        ),
        (
            "rsm.config.storage.backend.class",
            "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        ),
        ("rsm.config.storage.s3.bucket.name", "segments"),
        ("rsm.config.storage.s3.region", "us-east-1"),
        ("rsm.config.storage.s3.endpoint.url", &endpoint),
        ("rsm.config.storage.aws.access.key.id", "test"),
        ("rsm.config.storage.aws.secret.access.key", secret),
        (
            "rsm.config.storage.s3.multipart.upload.part.size",
            "5242880",
        ),
        ("rsm.config.key.prefix", "one/"),
        ("rsm.config.chunk.size", "1000000"),
    ]);
    all.extend(settings(more));
    all
}

#[tokio::test]
async fn a_real_server_takes_segments_and_gives_them_back() {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 12_000_000);
    let mut encrypted = server("testsecret", &[("rsm.config.compression.enabled", "true")]);
    encrypted.extend(encryption());
    for settings in [
        // Three parts.
        server("testsecret", &[]),
        server(
            "testsecret",
            &[("rsm.config.storage.aws.checksum.check.enabled", "true")],
        ),
        encrypted,
    ] {
        let store = open(&settings);
        let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
        copy.await.unwrap();
        for object in store.stored_objects(&segment.metadata).await {
            let size = object.size_bytes.unwrap();
            assert!(
                object
                    .expected_size_bytes
                    .is_none_or(|expected| expected == size)
            );
        }
        let stream = store
            .fetch_log_segment(&segment.metadata, 1_234, None)
            .await;
        assert!(read_all(stream.unwrap()).await.unwrap() == segment.log[1_234..]);
        store
            .delete_log_segment_data(&segment.metadata)
            .await
            .unwrap();
        let gone = store.fetch_log_segment(&segment.metadata, 0, None).await;
        // The manifest is no longer cached.
        let error = gone.err().unwrap();
        assert_eq!(error.kind, RemoteStorageErrorKind::NotFound, "{error}");
    }
}

#[tokio::test]
async fn a_real_server_refuses_wrong_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 1_000);
    let store = open(&server("wrong", &[]));
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    let error = copy.await.unwrap_err();
    assert_eq!(error.kind, RemoteStorageErrorKind::Denied, "{error}");
    assert!(
        error.what.starts_with("upload s3://segments/one/orders-"),
        "{error}"
    );
    assert!(error.cause.contains("SignatureDoesNotMatch"), "{error}");
}
