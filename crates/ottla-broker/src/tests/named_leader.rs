//! The leader in the error of a partition that another broker leads (KIP-951).

use std::time::{Duration, Instant};

use ottla_protocol::metadata_records::register_broker_record::BrokerEndpoint;
use ottla_protocol::metadata_records::{
    MetadataRecord, PartitionChangeRecord, RegisterBrokerRecord,
};
use ottla_types::{ErrorCode, Uuid};

use super::produce_and_fetch::{batch, fetch_from, produce_to};
use super::share_groups::{broker, fetching};
use super::{TestBroker, topic_id};

const OTHER: i32 = 2;
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes another broker, which does not run, the leader of the topic's partition.
async fn elect_other(broker: &TestBroker) {
    let log_dirs = broker.broker().log_dirs().expect("the broker runs");
    let directory = log_dirs.online_directory_ids()[0];
    let registered = RegisterBrokerRecord {
        broker_id: OTHER,
        incarnation_id: Uuid::from_u128(50),
        end_points: vec![BrokerEndpoint {
            name: "PLAINTEXT".into(),
            host: "other".into(),
            port: 9092,
            ..Default::default()
        }],
        rack: Some("b".into()),
        fenced: true,
        ..Default::default()
    };
    let elected = PartitionChangeRecord {
        partition_id: 0,
        topic_id: topic_id("t"),
        replicas: Some(vec![1, OTHER]),
        isr: Some(vec![OTHER]),
        directories: Some(vec![directory, directory]),
        leader: OTHER,
        ..Default::default()
    };
    let records = vec![
        MetadataRecord::RegisterBroker(registered),
        MetadataRecord::PartitionChange(elected),
    ];
    broker.write(records).await;
}

/// The error of a partition, the leader and its epoch there, and the addresses in the response.
macro_rules! named {
    ($partition:expr, $response:expr) => {{
        let leader = &$partition.current_leader;
        let nodes = $response.node_endpoints.iter().map(|it| {
            let rack = it.rack.as_deref();
            format!("{} at {}:{} in {rack:?}", it.node_id, it.host, it.port)
        });
        (
            ErrorCode::from_code($partition.error_code),
            leader.leader_id,
            leader.leader_epoch,
            nodes.collect::<Vec<_>>(),
        )
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_name_the_leader_and_its_address() {
    let (broker, mut client) = broker(&[]).await;
    elect_other(&broker).await;
    let expected = |error| {
        let node = "2 at other:9092 in Some(\"b\")".to_owned();
        (error, OTHER, 1, vec![node])
    };
    let produce = produce_to("t", 0, -1, batch(&["a"]));
    let deadline = Instant::now() + PATIENCE;
    let produced = loop {
        let produced = client.ask(12, &produce).await;
        if produced.responses[0].partition_responses[0].error_code != 0 {
            break produced;
        }
        assert!(Instant::now() < deadline, "this broker still leads it");
    };
    let partition = &produced.responses[0].partition_responses[0];
    let moved = ErrorCode::NotLeaderOrFollower;
    assert_eq!(named!(partition, produced), expected(moved));

    let mut fetch = fetch_from("t", 0, 0);
    fetch.topics[0].partitions[0].current_leader_epoch = 0;
    let fetched = client.ask(16, &fetch).await;
    let partition = &fetched.responses[0].partitions[0];
    let fenced = ErrorCode::FencedLeaderEpoch;
    assert_eq!(named!(partition, fetched), expected(fenced));

    let fetched = client.ask(2, &fetching("m1", 0, &[])).await;
    let partition = &fetched.responses[0].partitions[0];
    assert_eq!(named!(partition, fetched), expected(moved));
}
