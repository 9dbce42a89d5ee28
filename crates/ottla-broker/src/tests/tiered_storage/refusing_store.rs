//! A store in S3 that refuses requests for a while: it is overloaded, does not take the credentials, does
//! not answer, or cannot be reached.

use std::time::Duration;

use ottla_remote::TierCounter;
use ottla_testkit::fault_server::{FaultKind, FaultServer};
use ottla_testkit::said::Said;

use super::super::TestBroker;
use super::super::produce_and_fetch::fetch_from;
use super::{
    FIRST_TIMESTAMP, SETTINGS, assert_uploaded_once, expected, list, listed, produce, read_all,
    settings_with, wait_for_local_start, wait_until,
};

/// Any request.
const ANY: &str = "";

#[tokio::test]
async fn a_store_that_throttles_delays_copies_and_fails_remote_reads() {
    refuses_for_a_while(&[], ANY, FaultKind::Status(503, "SlowDown"), "SlowDown").await;
}

#[tokio::test]
async fn a_store_that_refuses_the_credentials_delays_copies_and_fails_remote_reads() {
    let refused = FaultKind::Status(403, "InvalidAccessKeyId");
    refuses_for_a_while(&[], ANY, refused, "check storage.aws.access.key.id").await;
}

#[tokio::test]
async fn a_store_that_closes_connections_delays_copies_and_fails_remote_reads() {
    refuses_for_a_while(&[], ANY, FaultKind::Close, "check storage.s3.endpoint.url").await;
}

#[tokio::test]
async fn a_store_that_does_not_answer_delays_copies_and_fails_remote_reads() {
    let never = FaultKind::Slow(Duration::from_secs(3600));
    let sooner = [
        ("rsm.config.storage.s3.api.call.timeout", "6000"),
        ("rsm.config.storage.s3.api.call.attempt.timeout", "3000"),
    ];
    refuses_for_a_while(&sooner, ANY, never, "check storage.s3.endpoint.url").await;
}

/// The other objects of a segment are uploaded before.
#[tokio::test]
async fn half_uploads_leave_nothing_in_the_store() {
    let fault = FaultKind::Status(503, "SlowDown");
    refuses_for_a_while(&[], ".rsm-manifest", fault, "SlowDown").await;
}

async fn refuses_for_a_while(
    more: &[(&'static str, &'static str)],
    request: &'static str,
    fault: FaultKind,
    reported: &str,
) {
    let server = FaultServer::start().await;
    let said = Said::listen();
    let mut settings = settings_with(&server.s3_settings());
    settings.extend_from_slice(more);
    let broker = TestBroker::start_with(&settings).await;
    broker.create_topic("tiered", 1, &SETTINGS).await;
    let mut client = broker.connect().await;
    produce(&mut client, 0, 20).await;
    wait_for_local_start(&broker, 150).await;
    let reader = broker.partition("tiered", 0).reader().clone();
    let local = reader.local_log_start_offset();
    let count = |counter: TierCounter| {
        let remote_logs = broker.broker().remote_logs().expect("it is tiered");
        remote_logs.numbers().0.counts[counter as usize]
    };

    server.fail(request, usize::MAX, fault);
    produce(&mut client, 200, 20).await;
    wait_until("copies do not fail", || count(TierCounter::CopyErrors) > 0).await;
    // Some more checks of the retention.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(reader.number_of_segments() > 1);
    assert_eq!(reader.local_log_start_offset(), local);
    assert_eq!(
        read_all(&mut client, local.0, 400).await,
        expected(local.0, 400)
    );
    let response = client.ask(12, &fetch_from("tiered", 0, 0)).await;
    let partition = &response.responses[0].partitions[0];
    let has_records = partition.records.as_ref().is_some_and(|it| !it.is_empty());
    // KAFKA_STORAGE_ERROR, after which clients try again.
    assert_eq!((partition.error_code, has_records), (56, false));
    assert!(count(TierCounter::FetchErrors) > 0);
    let by_time = listed(&mut client, FIRST_TIMESTAMP + 77).await;
    assert_eq!(by_time.error_code, 56);
    let text = said.text();
    let mut lines = text.lines();
    let line = lines.find(|line| line.contains("cannot be read from remote storage"));
    let line = line.expect("the failed read is logged");
    let object = "/0/00000000000000000000-";
    for part in [
        "tiered-0",
        "offset=0",
        "s3://bucket/tiered-",
        object,
        reported,
    ] {
        assert!(line.contains(part), "{part} is not in {line}");
    }

    server.heal();
    wait_for_local_start(&broker, 350).await;
    assert_eq!(read_all(&mut client, 0, 400).await, expected(0, 400));
    assert_eq!(list(&mut client, FIRST_TIMESTAMP + 77).await.0, 77);
    assert_uploaded_once(&server.keys());
    wait_until("objects of failed copies stay", || {
        let keys = server.keys();
        let logs = keys.iter().filter(|key| key.ends_with(".log")).count();
        keys.len() == 3 * logs
    })
    .await;
}
