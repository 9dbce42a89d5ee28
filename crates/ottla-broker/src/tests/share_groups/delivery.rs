//! Records that are acquired, acknowledged, renewed, released and delivered again.

use ottla_protocol::Records;
use ottla_protocol::metadata_records::{FeatureLevelRecord, MetadataRecord};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn records_are_acquired_and_acknowledged() {
    let (broker, mut client) = broker(&[]).await;
    produce(&mut client, &["a", "b", "c"]).await;
    produce(&mut client, &["d", "e"]).await;
    let first = fetch(&mut client, &fetching("m1", 0, &[])).await;
    assert_eq!(acquired(&first), [(0, 4, 1)]);
    let records = first.records.as_ref().map_or(0, Records::len);
    assert_eq!(
        records,
        (batch(&["a", "b", "c"]).len() + batch(&["d", "e"]).len()) as u64
    );

    // Another member receives none of it, and waits.
    let mut other = broker.connect().await;
    let waiting = tokio::spawn(async move {
        let fetched = fetch(&mut other, &fetching("m2", 0, &[])).await;
        (fetched, other)
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    assert_eq!(
        acknowledge(&mut client, "m1", 1, (0, 2, ACCEPT)).await,
        ErrorCode::None
    );
    assert_eq!(
        acknowledge(&mut client, "m1", 2, (3, 4, RELEASE)).await,
        ErrorCode::None
    );
    let (released, mut other) = waiting.await.expect("it is answered");
    assert_eq!(acquired(&released), [(3, 4, 2)]);
    // Only the acquired records are sent.
    let records = released.records.as_ref().map_or(0, Records::len);
    assert_eq!(records, batch(&["d", "e"]).len() as u64);

    let not_its_own = acknowledge(&mut client, "m1", 3, (3, 4, ACCEPT)).await;
    assert_eq!(not_its_own, ErrorCode::InvalidRecordState);
    assert_eq!(
        acknowledge(&mut other, "m2", 1, (3, 4, ACCEPT)).await,
        ErrorCode::None
    );
    // Written together with the previous change: the start offset advances.
    produce(&mut client, &["f"]).await;
    let next = fetch(&mut other, &fetching("m2", 2, &[])).await;
    assert_eq!(acquired(&next), [(5, 5, 1)]);
    assert_eq!(
        acknowledge(&mut other, "m2", 3, (5, 5, ACCEPT)).await,
        ErrorCode::None
    );
    assert_eq!(persisted_start(&mut client).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_of_a_fetch_are_applied_first() {
    let (_broker, mut client) = broker(&[]).await;
    produce(&mut client, &["a", "b"]).await;
    assert_eq!(
        acquired(&fetch(&mut client, &fetching("m1", 0, &[])).await),
        [(0, 1, 1)]
    );
    let again = fetch(
        &mut client,
        &fetching("m1", 1, &[(0, 0, RELEASE), (1, 1, ACCEPT)]),
    )
    .await;
    assert_eq!(acquired(&again), [(0, 0, 2)]);
    assert_eq!(code(again.acknowledge_error_code), ErrorCode::None);
    let mut wrong = fetching("m1", 2, &[(1, 1, ACCEPT)]);
    wrong.max_wait_ms = 0;
    let wrong = fetch(&mut client, &wrong).await;
    assert_eq!(acquired(&wrong), []);
    assert_eq!(
        code(wrong.acknowledge_error_code),
        ErrorCode::InvalidRecordState
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn acquisition_locks_expire_and_are_renewed() {
    let (broker, mut client) = broker(&[
        ("group.share.min.record.lock.duration.ms", "6000"),
        ("group.share.record.lock.duration.ms", "6000"),
    ])
    .await;
    produce(&mut client, &["a"]).await;
    produce(&mut client, &["b"]).await;
    let begun = Instant::now();
    let mut request = fetching("m1", 0, &[]);
    request.batch_size = 1;
    assert_eq!(
        acquired(&fetch(&mut client, &request).await),
        [(0, 0, 1), (1, 1, 1)]
    );
    tokio::time::sleep(Duration::from_millis(3000)).await;
    assert_eq!(
        acknowledge(&mut client, "m1", 1, (1, 1, RENEW)).await,
        ErrorCode::None
    );
    let mut other = broker.connect().await;
    let mut patient = fetching("m2", 0, &[]);
    patient.max_wait_ms = 30_000;
    let freed = fetch(&mut other, &patient).await;
    assert_eq!(acquired(&freed), [(0, 0, 2)]);
    assert!(begun.elapsed() >= Duration::from_millis(5990));
    assert_eq!(
        acknowledge(&mut client, "m1", 2, (1, 1, ACCEPT)).await,
        ErrorCode::None
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_member_that_leaves_are_released() {
    let (broker, mut client) = broker(&[]).await;
    produce(&mut client, &["a"]).await;
    let mut gone = broker.connect().await;
    assert_eq!(
        acquired(&fetch(&mut gone, &fetching("m1", 0, &[])).await),
        [(0, 0, 1)]
    );
    let waiting = tokio::spawn(async move {
        let fetched = fetch(&mut client, &fetching("m2", 0, &[])).await;
        (fetched, client)
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(gone);
    let (fetched, mut client) = waiting.await.expect("it is answered");
    assert_eq!(acquired(&fetched), [(0, 0, 2)]);
    // Ending the session does the same.
    let end = client.ask(2, &fetching("m2", -1, &[])).await;
    assert_eq!(code(end.error_code), ErrorCode::None);
    assert_eq!(
        acquired(&fetch(&mut client, &fetching("m3", 0, &[])).await),
        [(0, 0, 3)]
    );
}

/// Well before the locks of their records time out.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_connection_releases_the_records_of_all_its_members() {
    let (broker, mut client) = broker(&[]).await;
    produce(&mut client, &["a"]).await;
    produce(&mut client, &["b"]).await;
    let mut gone = broker.connect().await;
    for (member, expected) in [("m1", (0, 0, 1)), ("m2", (1, 1, 1))] {
        let mut request = fetching(member, 0, &[]);
        request.max_records = 1;
        assert_eq!(acquired(&fetch(&mut gone, &request).await), [expected]);
    }
    drop(gone);
    // The two releases may be persisted one after the other.
    let mut released = acquired(&fetch(&mut client, &fetching("m3", 0, &[])).await);
    if released.len() == 1 {
        let rest = fetch(&mut client, &fetching("m3", 1, &[])).await;
        released.extend(acquired(&rest));
    }
    released.sort_unstable();
    // Both in one range if they were released together.
    assert!(
        released == [(0, 1, 2)] || released == [(0, 0, 2), (1, 1, 2)],
        "{released:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_are_answered() {
    let (_broker, mut client) = broker(&[]).await;
    let mut error_of = async |request: ShareFetchRequest| {
        let response = client.ask(2, &request).await;
        code(response.error_code)
    };
    assert_eq!(
        error_of(fetching("m1", 1, &[])).await,
        ErrorCode::ShareSessionNotFound
    );
    assert_eq!(
        error_of(fetching("", 0, &[])).await,
        ErrorCode::InvalidRequest
    );
    assert_eq!(
        error_of(fetching("m1", 0, &[(0, 0, ACCEPT)])).await,
        ErrorCode::InvalidRequest
    );
    let nameless = ShareFetchRequest {
        group_id: None,
        ..fetching("m1", 0, &[])
    };
    assert_eq!(error_of(nameless).await, ErrorCode::InvalidRequest);
    let renewing = ShareFetchRequest {
        is_renew_ack: true,
        ..fetching("m1", 0, &[])
    };
    assert_eq!(error_of(renewing).await, ErrorCode::InvalidRequest);
    // A group that was not initialised.
    let mut unknown = fetching("m1", 0, &[]);
    unknown.group_id = Some("other".into());
    let response = client.ask(2, &unknown).await;
    let answer = partition_of(response);
    assert_eq!(code(answer.error_code), ErrorCode::UnknownServerError);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_share_groups_refuses_their_requests() {
    let broker = TestBroker::start().await;
    let level = MetadataRecord::FeatureLevel(FeatureLevelRecord {
        name: "share.version".into(),
        feature_level: 0,
        ..Default::default()
    });
    broker.write(vec![level]).await;
    let mut client = broker.connect().await;
    let response = client.ask(2, &fetching("m1", 0, &[])).await;
    assert_eq!(code(response.error_code), ErrorCode::UnsupportedVersion);
}
