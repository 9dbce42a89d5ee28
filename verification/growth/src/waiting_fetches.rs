//! Fetches that wait for records.

use std::time::Duration;

use ottla_broker::Broker;
use ottla_client::{Client, ClientConfig, Connection};
use ottla_config::{BrokerConfig, single_node_properties};
use ottla_partition::partition::{Registration, Waiter, Waiters};
use ottla_protocol::Records;
use ottla_protocol::messages::create_topics_request::CreatableTopic;
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use ottla_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use ottla_protocol::messages::{CreateTopicsRequest, FetchRequest, ProduceRequest};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{Offset, Timestamp, TopicId};
use rustix::time::{ClockId, clock_gettime};

use crate::measure::{Row, best_of};

pub const BY_WAITERS: Row = Row {
    name: "waiters",
    operation: "waiting at a partition, and the append that wakes this fetch",
    counted: "other fetches that wait at the partition for more",
    smallest: 100,
    measure: by_waiters,
};

pub const BY_PARTITIONS: Row = Row {
    name: "waiting-fetch",
    operation: "CPU time of a produce request beside a fetch that waits for more bytes, with both \
                clients",
    counted: "partitions at which the fetch waits",
    smallest: 30,
    measure: by_partitions,
};

const WAKEUPS: u32 = 1_000;
const APPENDS: u32 = 500;
const TOPIC: &str = "orders";

fn by_waiters(count: u64) -> Duration {
    let waiters = Waiters::default();
    let other = Waiter::default();
    let others = (0..count as i64).map(|n| waiters.register(Offset(1_000 + n), &other));
    let others: Vec<Registration> = others.collect();
    let waiter = Waiter::default();
    let time = best_of(WAKEUPS, || {
        for _ in 0..WAKEUPS {
            let _registered = waiters.register(Offset(0), &waiter);
            waiters.on_end_moved(Offset(1));
            assert_eq!(waiter.take_woken().len(), 1);
        }
    });
    for registered in others {
        waiters.take_out(registered);
    }
    assert!(waiters.is_empty());
    time
}

fn by_partitions(count: u64) -> Duration {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(beside_a_fetch(count as i32))
}

async fn beside_a_fetch(partitions: i32) -> Duration {
    let data = tempfile::tempdir().expect("a directory");
    let dir = data.path().to_str().expect("a path of characters");
    let properties = single_node_properties(dir, "127.0.0.1:0", "127.0.0.1:0");
    let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
    let running = Broker::format_and_start(config).await.expect("a broker");
    let mut listeners = running.listeners().iter();
    let listener = listeners.find(|listener| !listener.is_controller);
    let address = listener.expect("for clients").local_addr.to_string();

    let config = ClientConfig::new(&address).expect("an address");
    let (client, waiting) = (
        Client::unconnected(config.clone()),
        Client::unconnected(config),
    );
    let connection = client.connection(&address).await.expect("a connection");
    let topic_id = create(&connection, partitions).await;
    let fetching = {
        let connection = waiting.connection(&address).await.expect("a connection");
        tokio::spawn(async move {
            let fetch = fetch(topic_id, partitions);
            connection
                .send_waiting(&fetch, Duration::from_secs(600))
                .await
        })
    };
    let produce = produce(topic_id);
    // The fetch is there, and the connections are warm.
    for _ in 0..APPENDS {
        append(&connection, &produce).await;
    }
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let before = process_time();
        for _ in 0..APPENDS {
            append(&connection, &produce).await;
        }
        best = best.min((process_time() - before) / APPENDS);
    }
    assert!(!fetching.is_finished(), "it still waits");
    fetching.abort();
    running.stop().await;
    best
}

/// The CPU time of all threads.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

async fn create(connection: &Connection, partitions: i32) -> TopicId {
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: TOPIC.into(),
            num_partitions: partitions,
            replication_factor: 1,
            ..Default::default()
        }],
        timeout_ms: 60_000,
        ..Default::default()
    };
    let created = connection.send(&request).await.expect("a response");
    assert_eq!(created.topics[0].error_code, 0);
    created.topics[0].topic_id
}

/// For more than there will be.
fn fetch(topic_id: TopicId, partitions: i32) -> FetchRequest {
    let partitions = (0..partitions).map(|partition| FetchPartition {
        partition,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        partition_max_bytes: 50_000_000,
        ..Default::default()
    });
    FetchRequest {
        max_wait_ms: 600_000,
        min_bytes: 50_000_000,
        max_bytes: 50_000_000,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: TOPIC.into(),
            topic_id,
            partitions: partitions.collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn produce(topic_id: TopicId) -> ProduceRequest {
    let mut batch = RecordBatchBuilder::new(Compression::None);
    batch.append(Timestamp(1_700_000_000_000), None, Some(b"value"), &[]);
    ProduceRequest {
        acks: 1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: TOPIC.into(),
            topic_id,
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(Records::Bytes(batch.build().to_bytes())),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

async fn append(connection: &Connection, produce: &ProduceRequest) {
    let answer = connection.send(produce).await.expect("a response");
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
}
