//! The responses of a transaction coordinator while its log has fewer replicas in sync than
//! `min.insync.replicas`.

use super::*;

/// Each partition of the log is led here, and has these replicas. The other replicas are on brokers
/// that do not run.
async fn place_log_on(broker: &TestBroker, replicas: &[i32]) {
    let image = broker.broker().metadata().clone();
    let topic = image.topics.by_name(LOG).expect("made");
    let log_dirs = broker.broker().log_dirs().expect("the broker runs");
    let directory = log_dirs.online_directory_ids()[0];
    let changes = (0..3).map(|partition_id| {
        MetadataRecord::PartitionChange(PartitionChangeRecord {
            partition_id,
            topic_id: topic.id,
            replicas: Some(replicas.to_vec()),
            isr: Some(vec![1]),
            directories: Some(vec![directory; replicas.len()]),
            ..Default::default()
        })
    });
    broker.write(changes.collect()).await;
}

fn written(broker: &TestBroker) -> i64 {
    let ends = (0..3).map(|index| broker.partition(LOG, index).reader().log_end_offset().0);
    ends.sum()
}

/// `TransactionLog.ENFORCED_REQUIRED_ACKS`: if the record were accepted nevertheless, the
/// transactional ID would be pending until the replicas return, and all clients would get
/// `CONCURRENT_TRANSACTIONS`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_below_min_isr_is_refused_at_once() {
    let (broker, mut client) = broker(&[("transaction.state.log.min.isr", "2")]).await;
    let producer = init(&mut client, 60_000).await;
    place_log_on(&broker, &[1, 2]).await;
    let before = written(&broker);
    let refused = ErrorCode::CoordinatorNotAvailable;
    let request = InitProducerIdRequest {
        transactional_id: Some(ID.into()),
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    for _ in 0..2 {
        assert_eq!(add(&mut client, producer, &[0]).await, [refused]);
        let response = client.ask(5, &request).await;
        assert_eq!(code(response.error_code), refused);
    }
    assert_eq!(written(&broker), before);
    place_log_on(&broker, &[1]).await;
    assert_eq!(add(&mut client, producer, &[0]).await, [ErrorCode::None]);
}
