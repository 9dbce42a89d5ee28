use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ottla_testkit::fault_server::{FaultKind, FaultServer, SECRET};
use ottla_tiered_storage::{RemoteStorageError, RemoteStorageErrorKind, read_all};

use crate::reading::MEMORY;
use crate::segments::{SEGMENT_ID, Segment, TOPIC_ID, open, segment, settings};

pub fn s3(server: &FaultServer, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut all = settings(&server.s3_settings());
    all.extend(settings(more));
    all
}

async fn upload(server: &FaultServer, segment: &Segment) -> Result<(), RemoteStorageError> {
    let store = open(&s3(server, &[(PART, "5242880")]));
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    copy.await.map(drop)
}

async fn read(
    server: &FaultServer,
    segment: &Segment,
    more: &[(&str, &str)],
) -> Result<(), RemoteStorageError> {
    let store = open(&s3(server, more));
    let stream = store.fetch_log_segment(&segment.metadata, 0, None).await?;
    assert!(read_all(stream).await? == segment.log);
    Ok(())
}

const PART: &str = "rsm.config.storage.s3.multipart.upload.part.size";
const ATTEMPT: &str = "rsm.config.storage.s3.api.call.attempt.timeout";
const CALL: &str = "rsm.config.storage.s3.api.call.timeout";
const SIZE: usize = 12_000_000;

#[tokio::test]
async fn a_store_that_stumbles_is_tried_again() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    for (request, kind) in [
        ("?uploads", FaultKind::Status(503, "SlowDown")),
        ("partNumber=2", FaultKind::Status(500, "InternalError")),
        (".rsm-manifest", FaultKind::Status(503, "SlowDown")),
    ] {
        server.fail(request, 2, kind);
    }
    upload(&server, &segment).await.unwrap();
    let puts: Vec<String> = server.requests();
    let parts = puts
        .iter()
        .filter(|line| line.contains("partNumber="))
        .count();
    // Three parts, and two failures of one of them.
    assert_eq!(parts, 5, "{puts:?}");
    assert_eq!(server.open_uploads(), 0);
    server.fail(".log bytes=1000000-", 2, FaultKind::Status(503, "SlowDown"));
    server.fail(".log bytes=2000000-", 1, FaultKind::Cut);
    server.fail(".log bytes=3000000-", 1, FaultKind::Close);
    read(&server, &segment, &[]).await.unwrap();
}

#[tokio::test]
async fn a_store_that_keeps_failing_gives_an_error_that_names_the_object() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    let key = format!("s3://bucket/orders-{TOPIC_ID}/7/00000000000000000100-{SEGMENT_ID}");

    server.fail("partNumber=2", 100, FaultKind::Status(503, "SlowDown"));
    let error = upload(&server, &segment).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("upload {key}.log: the store answered SlowDown: asked for by the test")
    );
    assert!(error.is_retriable());
    assert_eq!((server.open_uploads(), server.keys().len()), (0, 0));

    let server = FaultServer::start().await;
    upload(&server, &segment).await.unwrap();
    server.fail(
        ".rsm-manifest",
        1,
        FaultKind::Status(403, "SignatureDoesNotMatch"),
    );
    let error = read(&server, &segment, &[]).await.unwrap_err();
    assert_eq!(error.kind, RemoteStorageErrorKind::Denied);
    assert_eq!(
        error.to_string(),
        format!(
            "fetch {key}.rsm-manifest: the store answered SignatureDoesNotMatch: asked for by the test; \
             check storage.aws.access.key.id and storage.aws.secret.access.key, or \
             storage.aws.credentials.*, and what they allow in the bucket"
        )
    );
    assert!(!error.to_string().contains(SECRET));

    server.fail(".log bytes=0-", 1, FaultKind::Status(404, "NoSuchKey"));
    let error = read(&server, &segment, &[]).await.unwrap_err();
    assert_eq!(error.kind, RemoteStorageErrorKind::NotFound);
    assert_eq!(error.what, format!("fetch {key}.log"));

    server.fail(".log", 100, FaultKind::Slow(Duration::from_secs(120)));
    let began = Instant::now();
    let more = [(ATTEMPT, "2000"), (CALL, "6000")];
    let error = read(&server, &segment, &more).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(60));
    assert_eq!(error.kind, RemoteStorageErrorKind::Unavailable);
    assert!(error.what.ends_with(&format!("{key}.log")), "{error}");
}

/// Its bytes would be taken for another part of the segment.
#[tokio::test]
async fn a_server_that_sends_another_range_gives_an_error() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 3_000_000);
    upload(&server, &segment).await.unwrap();
    for more in [MEMORY, &[]] {
        for kind in [FaultKind::Whole, FaultKind::Shorter] {
            server.fail(".log bytes=1000000-", 1, kind);
            let error = read(&server, &segment, more).await.unwrap_err();
            assert_eq!(error.kind, RemoteStorageErrorKind::Unavailable, "{error}");
            assert!(error.what.ends_with(".log"), "{error}");
        }
    }
    read(&server, &segment, &[]).await.unwrap();
}

#[tokio::test]
async fn an_unreachable_server_gives_an_error_in_time() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 1000);
    let mut unreachable = server;
    unreachable.endpoint = "http://127.0.0.1:1".to_owned();
    let store = open(&s3(&unreachable, &[(CALL, "1500")]));
    let began = Instant::now();
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    let error = copy.await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(error.kind, RemoteStorageErrorKind::Unavailable);
    assert!(error.what.ends_with(".log"), "{error}");
    assert!(error.cause.contains("storage.s3.endpoint.url"), "{error}");
}

#[tokio::test]
async fn connections_without_requests_are_closed_soon() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    let store = open(&s3(&server, &[]));
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    copy.await.unwrap();
    let open = server.open_connections();
    assert!(open > 0, "kept for the next request");
    let closed = async {
        while server.open_connections() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, closed).await.unwrap();
    drop(store);
}

#[tokio::test]
async fn an_upload_that_is_given_up_leaves_no_parts() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), SIZE);
    server.fail("partNumber=", 10, FaultKind::Slow(Duration::from_secs(300)));
    let begun = async |is_begun: bool| {
        while (server.open_uploads() > 0) != is_begun {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        copied = upload(&server, &segment) => panic!("{copied:?}"),
        () = begun(true) => {}
    }
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, begun(false)).await.unwrap();
    assert!(server.keys().is_empty());
}
