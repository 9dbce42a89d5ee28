//! The client of GCS against the server in memory. GCS uploads in parts with the requests of S3, and
//! fake-gcs-server knows none of them.

use std::collections::BTreeMap;

use ottla_tiered_storage::{RemoteStorageErrorKind, read_all};

use crate::fault_server::{FaultKind, FaultServer};
use crate::segments::{open, segment, settings};

const SIZE: usize = 12_000_000;
const PART: &str = "partNumber=";

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
        ("rsm.config.storage.gcs.bucket.name", "bucket"),
        ("rsm.config.storage.gcs.endpoint.url", &server.endpoint),
        ("rsm.config.storage.gcs.credentials.default", "false"),
        (
            "rsm.config.storage.gcs.resumable.upload.chunk.size",
            "5242880",
        ),
        ("rsm.config.chunk.size", "1000000"),
    ])
}

#[tokio::test]
async fn a_large_segment_is_uploaded_in_parts() {
    let server = FaultServer::start().await;
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
}

/// The client gives this failure no kind.
#[tokio::test]
async fn an_upload_whose_end_is_refused_leaves_nothing() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    let store = open(&gcs(&server));
    server.fail("?uploadId=", 1, FaultKind::Status(403, "AccessDenied"));
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    let error = copy.await.unwrap_err();
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
