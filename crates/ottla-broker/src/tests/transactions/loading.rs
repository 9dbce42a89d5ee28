//! What a coordinator of transactions answers while it reads its log, which takes as long as that is not committed.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_told_that_the_coordinator_loads() {
    // One replica is too few for the log to be committed.
    let settings = [
        ("transaction.state.log.min.isr", "2"),
        ("request.timeout.ms", "1000"),
    ];
    let (broker, mut client) = broker(&settings).await;
    let request = InitProducerIdRequest {
        transactional_id: Some(ID.into()),
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    let deadline = Instant::now() + PATIENCE;
    // Its record is written and waits.
    while code(client.ask(5, &request).await.error_code) != ErrorCode::CoordinatorNotAvailable {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    elect_other_coordinators(&broker).await;
    while state(&mut client).await.0 != ErrorCode::CoordinatorLoadInProgress {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    let loading = ErrorCode::CoordinatorLoadInProgress;
    let producer = Producer { id: 5, epoch: 0 };
    assert_eq!(code(client.ask(5, &request).await.error_code), loading);
    assert_eq!(add(&mut client, producer, &[0, 1]).await, [loading; 2]);
    for verify_only in [false, true] {
        let request = AddPartitionsToTxnRequest {
            transactions: vec![AddPartitionsToTxnTransaction {
                transactional_id: ID.into(),
                producer_id: producer.id,
                producer_epoch: producer.epoch,
                verify_only,
                topics: vec![AddPartitionsToTxnTopic {
                    name: "t".into(),
                    partitions: vec![0],
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let response = client.ask(5, &request).await;
        let topic = &response.results_by_transaction[0].topic_results[0];
        let error = topic.results_by_partition[0].partition_error_code;
        assert_eq!(code(error), loading, "verify only: {verify_only}");
    }
    let offsets = AddOffsetsToTxnRequest {
        transactional_id: ID.into(),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        group_id: "g".into(),
        ..Default::default()
    };
    assert_eq!(code(client.ask(4, &offsets).await.error_code), loading);
    for version in [OLD_END, 5] {
        let request = EndTxnRequest {
            transactional_id: ID.into(),
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            committed: true,
            ..Default::default()
        };
        let error = client.ask(version, &request).await.error_code;
        assert_eq!(code(error), loading, "EndTxn {version}");
    }
    // The coordinator of the group is there, and asks that of the transaction first.
    for version in [4, 5] {
        let error = commit_offsets(&mut client, producer, 5, version).await;
        assert_eq!(error, loading, "TxnOffsetCommit {version}");
    }
    // Producers know no such error when they write.
    for version in [OLD_PRODUCE, 12] {
        let error = produce(&mut client, producer, 0, 0, "a", version).await;
        assert_eq!(error, ErrorCode::NotEnoughReplicas, "Produce {version}");
    }
    assert_eq!(state(&mut client).await.0, loading);
    let listed = client.ask(2, &ListTransactionsRequest::default()).await;
    assert_eq!(code(listed.error_code), loading);
}
