//! Markers that an administrator writes.

use ottla_protocol::messages::WriteTxnMarkersRequest;
use ottla_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_aborts_a_hanging_transaction() {
    let (_broker, mut client) =
        broker(&[("transaction.partition.verification.enable", "false")]).await;
    let producer = init(&mut client, 60_000).await;
    // The coordinator does not know this record.
    let error = produce(&mut client, producer, 0, 0, "a", OLD_PRODUCE).await;
    assert_eq!(error, ErrorCode::None);
    assert_eq!(fetch(&mut client, 0, 1).await.last_stable_offset, 0);
    let request = WriteTxnMarkersRequest {
        markers: vec![WritableTxnMarker {
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            transaction_result: false,
            topics: vec![WritableTxnMarkerTopic {
                name: "t".into(),
                partition_indexes: vec![0, 9],
                ..Default::default()
            }],
            coordinator_epoch: 0,
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = client.ask(1, &request).await;
    let mut results: Vec<_> = response.markers[0].topics[0]
        .partitions
        .iter()
        .map(|it| (it.partition_index, code(it.error_code)))
        .collect();
    results.sort_by_key(|(index, _)| *index);
    assert_eq!(
        results,
        [
            (0, ErrorCode::None),
            (9, ErrorCode::UnknownTopicOrPartition)
        ]
    );
    let data = fetch(&mut client, 0, 1).await;
    assert_eq!(data.last_stable_offset, 2);
    assert_eq!(data.aborted_transactions.map(|it| it.len()), Some(1));
    assert!(read(&mut client, 0, 1).await.is_empty());
    // A marker has a producer ID, in the coordinators' partitions too.
    for (name, partition) in [("t", 0), ("__consumer_offsets", 0)] {
        for (id, epoch, expected) in [
            (-1, 0, ErrorCode::UnknownServerError),
            (77, -1, ErrorCode::UnknownServerError),
            (77, 1, ErrorCode::None),
        ] {
            let mut request = request.clone();
            let marker = &mut request.markers[0];
            (marker.producer_id, marker.producer_epoch) = (id, epoch);
            marker.topics[0].name = name.into();
            marker.topics[0].partition_indexes = vec![partition];
            let response = client.ask(1, &request).await;
            let result = &response.markers[0].topics[0].partitions[0];
            assert_eq!(code(result.error_code), expected, "{name}: {id}, {epoch}");
        }
    }
}
