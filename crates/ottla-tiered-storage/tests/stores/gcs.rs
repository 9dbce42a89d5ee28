//! The client of GCS, which uploads through the XML API, against the server in memory, which keeps to
//! what Google documents.

use std::collections::BTreeMap;

use ottla_testkit::fault_server::{Behind, FaultKind, FaultServer};
use ottla_tiered_storage::{RemoteStorageError, RemoteStorageErrorKind, read_all};

use crate::google_rules::rules;
use crate::segments::{Segment, copy_read_and_delete, open, segment, settings};

const SIZE: usize = 12_000_000;
const PART: &str = "partNumber=";
const CREDENTIALS: &str = "rsm.config.storage.gcs.credentials.json";
const BUCKET: &str = "rsm.config.storage.gcs.bucket.name";

async fn google() -> FaultServer {
    FaultServer::in_front_of(Behind::Rules(rules(Some("token")))).await
}

fn gcs(server: &FaultServer) -> BTreeMap<String, String> {
    settings(&[
        (
            "remote.log.storage.manager.class.name",
            "io.aiven.kafka.tieredstorage.RemoteStorageManager",
        ),
        (
            "rsm.config.storage.backend.class",
            "io.aiven.kafka.tieredstorage.storage.gcs.GcsStorage",
        ),
        (BUCKET, "bucket"),
        ("rsm.config.storage.gcs.endpoint.url", &server.endpoint),
        (CREDENTIALS, r#"{"access_token": "token"}"#),
        (
            "rsm.config.storage.gcs.resumable.upload.chunk.size",
            "5242880",
        ),
        ("rsm.config.chunk.size", "1000000"),
    ])
}

async fn upload(
    settings: &BTreeMap<String, String>,
    segment: &Segment,
) -> Result<(), RemoteStorageError> {
    let store = open(settings);
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    copy.await.map(drop)
}

/// Copies, reads and deletes. Each fails.
async fn errors_of_all(
    settings: &BTreeMap<String, String>,
    segment: &Segment,
) -> [RemoteStorageError; 3] {
    let store = open(settings);
    let copied = store.copy_log_segment_data(&segment.metadata, &segment.data);
    let copied = copied.await.unwrap_err();
    let fetched = store.fetch_log_segment(&segment.metadata, 0, None).await;
    let deleted = store.delete_log_segment_data(&segment.metadata).await;
    [copied, fetched.err().unwrap(), deleted.unwrap_err()]
}

#[tokio::test]
async fn a_large_segment_is_uploaded_in_parts() {
    let server = google().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    let store = open(&gcs(&server));
    let busy = FaultKind::Status(503, "SlowDown");
    for request in ["uploads=", "partNumber=2", "?uploadId="] {
        server.fail(request, 1, busy);
    }
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    copy.await.unwrap();
    let requests = server.requests();
    // Three parts, and one that is sent again.
    let parts = requests.iter().filter(|line| line.contains(PART)).count();
    assert_eq!(parts, 4, "{requests:?}");
    assert_eq!((server.open_uploads(), server.keys().len()), (0, 3));
    let stream = store.fetch_log_segment(&segment.metadata, 0, None).await;
    assert!(read_all(stream.unwrap()).await.unwrap() == segment.log);
    // The second time, nothing is there.
    for _ in 0..2 {
        let deleted = store.delete_log_segment_data(&segment.metadata);
        deleted.await.unwrap();
        assert!(server.keys().is_empty());
    }
}

/// The client gives this failure no kind.
#[tokio::test]
async fn an_upload_whose_end_is_refused_leaves_nothing() {
    let server = google().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    server.fail("?uploadId=", 1, FaultKind::Status(403, "AccessDenied"));
    let error = upload(&gcs(&server), &segment).await.unwrap_err();
    assert_eq!(error.kind, RemoteStorageErrorKind::Denied, "{error}");
    assert!(
        error
            .what
            .starts_with("complete the upload of gs://bucket/orders-"),
        "{error}"
    );
    assert!(
        error.cause.contains("check storage.gcs.credentials."),
        "{error}"
    );
    assert_eq!((server.open_uploads(), server.keys().len()), (0, 0));
}

/// The store compares the checksum of the request.
#[tokio::test]
async fn an_upload_that_is_damaged_on_its_way_is_refused() {
    let server = google().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    for request in ["partNumber=2", "indexes", "manifest"] {
        server.fail(request, 1, FaultKind::Damaged);
        let error = upload(&gcs(&server), &segment).await.unwrap_err();
        let expected = "the store answered BadDigest: a rule is broken";
        assert_eq!(error.cause, expected, "{request}: {error}");
        assert!(error.is_retriable(), "{request}: {error}");
        assert_eq!((server.open_uploads(), server.keys().len()), (0, 0));
    }
    upload(&gcs(&server), &segment).await.unwrap();
    assert_eq!(server.keys().len(), 3);
}

#[tokio::test]
async fn a_store_for_everybody_is_used_without_credentials() {
    let server = FaultServer::in_front_of(Behind::Rules(rules(None))).await;
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    let mut settings = gcs(&server);
    settings.remove(CREDENTIALS);
    let key = "rsm.config.storage.gcs.credentials.default".to_owned();
    settings.insert(key, "false".to_owned());
    let store = open(&settings);
    copy_read_and_delete(&*store, &segment).await;
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn wrong_credentials_and_a_missing_bucket_are_told_apart() {
    use RemoteStorageErrorKind::{Denied, Settings};
    let server = google().await;
    let dir = tempfile::tempdir().unwrap();
    // In parts, and in one request.
    for size in [SIZE, 1_000] {
        let segment = segment(dir.path(), size);
        for (setting, value, kind, check) in [
            (
                CREDENTIALS,
                r#"{"access_token": "other"}"#,
                Denied,
                "check storage.gcs.credentials.",
            ),
            (BUCKET, "missing", Settings, "check storage.gcs.bucket.name"),
        ] {
            let mut settings = gcs(&server);
            settings.insert(setting.to_owned(), value.to_owned());
            for error in errors_of_all(&settings, &segment).await {
                assert_eq!(error.kind, kind, "{error}");
                assert!(error.cause.contains(check), "{error}");
            }
        }
    }
}
