//! Which records consumers read from replicas, and from which replica.

use ottla_protocol::messages::fetch_response::PartitionData;

use super::*;

async fn fetch(cluster: &Cluster, from: i32, version: i16, rack: &'static str) -> PartitionData {
    let mut request = fetch_from(TOPIC, 0, 0);
    request.rack_id = rack.into();
    let response = cluster.connect(from).await.ask(version, &request).await;
    response.responses[0].partitions[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_read_from_the_replica_in_their_rack() {
    let selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
    let settings = [
        ("replica.selector.class", selector),
        ("broker.rack", "rack-{id}"),
    ];
    let cluster = Cluster::start(2, &settings).await;
    cluster.create_topic(&[1, 2], &[]).await;
    cluster.produce(1, -1, &["a"]).await;
    cluster.until_the_same(&[1, 2]).await;

    let sent = fetch(&cluster, 1, 12, "rack-2").await;
    assert_eq!((sent.error_code, sent.preferred_read_replica), (0, 2));
    assert!(!has_records(&sent));
    for rack in ["rack-1", "rack-3", ""] {
        let kept = fetch(&cluster, 1, 12, rack).await;
        assert_eq!((kept.error_code, kept.preferred_read_replica), (0, -1));
        assert!(has_records(&kept), "{rack}");
    }
    let read = fetch(&cluster, 2, 12, "rack-2").await;
    assert_eq!((read.error_code, read.high_watermark), (0, 1));
    assert!(has_records(&read));
    let too_old = fetch(&cluster, 2, 10, "").await;
    assert_eq!(too_old.error_code, ErrorCode::NotLeaderOrFollower.code());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_a_high_watermark_does_not_return_an_end_offset() {
    let cluster = Cluster::start(2, &[]).await;
    cluster
        .create_topic(&[1, 2], &[("min.insync.replicas", "2")])
        .await;
    cluster.produce(1, -1, &["a"]).await;
    cluster.until_the_same(&[1, 2]).await;
    // Written by broker 1, and replicated to broker 2, which becomes leader before it learns that
    // it is committed.
    let partition = cluster.partition(2);
    cluster.produce(1, 1, &["b"]).await;
    cluster
        .until("2 has it", |_| partition.reader().log_end_offset().0 == 2)
        .await;
    cluster.write_to(2, Cluster::election(2, &[2])).await;
    let list = |version, replica_id| {
        let request = ListOffsetsRequest {
            replica_id,
            topics: vec![ListOffsetsTopic {
                name: TOPIC.into(),
                partitions: vec![ListOffsetsPartition {
                    partition_index: 0,
                    current_leader_epoch: -1,
                    timestamp: -1,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let cluster = &cluster;
        async move {
            let response = cluster.connect(2).await.ask(version, &request).await;
            let answer = &response.topics[0].partitions[0];
            (ErrorCode::from_code(answer.error_code), answer.offset)
        }
    };
    if partition.reader().high_watermark().0 == 1 {
        assert_eq!(list(5, -1).await.0, ErrorCode::OffsetNotAvailable);
        assert_eq!(list(4, -1).await.0, ErrorCode::LeaderNotAvailable);
    }
    assert_eq!(
        list(5, 1).await,
        (ErrorCode::None, 2),
        "replicas get the offset"
    );
    cluster.write_to(1, Cluster::election(2, &[2])).await;
    cluster
        .until("1 is in sync", |cluster| cluster.isr(2) == [1, 2])
        .await;
    cluster.until_the_same(&[1, 2]).await;
    assert_eq!(list(5, -1).await, (ErrorCode::None, 2));
}
