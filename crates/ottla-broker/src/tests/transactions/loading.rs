//! The responses of a transaction coordinator while it loads its log, which takes until the log is
//! committed.

use super::*;

/// A replica in the ISR, without which nothing is committed, on a broker that does not run.
async fn add_a_replica_that_never_fetches(broker: &TestBroker) {
    let image = broker.broker().metadata().clone();
    let topic = image.topics.by_name(LOG).expect("made");
    let log_dirs = broker.broker().log_dirs().expect("the broker runs");
    let directory = log_dirs.online_directory_ids()[0];
    let changes = (0..3).map(|partition_id| {
        MetadataRecord::PartitionChange(PartitionChangeRecord {
            partition_id,
            topic_id: topic.id,
            replicas: Some(vec![1, 2]),
            isr: Some(vec![1, 2]),
            directories: Some(vec![directory, directory]),
            leader: 1,
            ..Default::default()
        })
    });
    broker.write(changes.collect()).await;
}

fn is_anything_written(broker: &TestBroker) -> bool {
    (0..3).any(|index| broker.partition(LOG, index).reader().log_end_offset().0 > 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_gets_coordinator_load_in_progress() {
    let (broker, mut client) = broker(&[]).await;
    add_a_replica_that_never_fetches(&broker).await;
    let request = InitProducerIdRequest {
        transactional_id: Some(ID.into()),
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    let deadline = Instant::now() + PATIENCE;
    // Its record is written and waits for the other replica, and so does the next coordinator.
    let mut waiting = broker.connect().await;
    while !is_anything_written(&broker) {
        assert!(Instant::now() < deadline);
        waiting.send(5, &request).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
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
    // The group coordinator is ready, and asks the transaction coordinator first.
    for version in [4, 5] {
        let error = commit_offsets(&mut client, producer, 5, version).await;
        assert_eq!(error, loading, "TxnOffsetCommit {version}");
    }
    // Producers do not know this error of a write.
    for version in [OLD_PRODUCE, 12] {
        let error = produce(&mut client, producer, 0, 0, "a", version).await;
        assert_eq!(error, ErrorCode::NotEnoughReplicas, "Produce {version}");
    }
    assert_eq!(state(&mut client).await.0, loading);
    let listed = client.ask(2, &ListTransactionsRequest::default()).await;
    assert_eq!(code(listed.error_code), loading);
}
