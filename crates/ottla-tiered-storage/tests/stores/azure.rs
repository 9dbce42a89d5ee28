//! Answers of Azure that its client cannot handle. What a real server answers is tested with Azurite.

use ottla_testkit::fault_server::{FaultKind, FaultServer};
use ottla_tiered_storage::RemoteStorageErrorKind;

use crate::segments::{open, segment, settings};

/// The request had one deletion, with the index 0.
const ANSWER_WITH_A_WRONG_INDEX: &str = "HTTP/1.1 202 X\r\nContent-Type: multipart/mixed; boundary=b\r\n\
    Content-Length: 90\r\n\r\n\
    --b\r\nContent-Type: application/http\r\nContent-ID: 99\r\n\r\nHTTP/1.1 404 Not Found\r\n\r\n\r\n--b--\r\n";

#[tokio::test]
async fn an_answer_with_a_wrong_index_fails_the_deletion_and_not_its_caller() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 1_000);
    let endpoint = format!("{}/test", server.endpoint);
    let store = open(&settings(&[
        (
            "remote.log.storage.manager.class.name",
            "io.aiven.kafka.tieredstorage.RemoteStorageManager",
        ),
        (
            "rsm.config.storage.backend.class",
            "io.aiven.kafka.tieredstorage.storage.azure.AzureBlobStorage",
        ),
        ("rsm.config.storage.azure.account.name", "test"),
        ("rsm.config.storage.azure.account.key", "dGVzdHNlY3JldA=="),
        ("rsm.config.storage.azure.container.name", "segments"),
        ("rsm.config.storage.azure.endpoint.url", &endpoint),
        ("rsm.config.chunk.size", "1000000"),
    ]));
    let answer = FaultKind::Answer(ANSWER_WITH_A_WRONG_INDEX);
    server.fail("comp=batch", usize::MAX, answer);
    let deleted = store.delete_log_segment_data(&segment.metadata).await;
    let error = deleted.unwrap_err();
    assert_eq!(error.kind, RemoteStorageErrorKind::Unavailable, "{error}");
    let object = "access azure://test/segments/orders-";
    assert!(error.what.starts_with(object), "{error}");
    assert!(error.cause.contains("index is 99"), "{error}");
}
