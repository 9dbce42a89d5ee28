use bytes::{Bytes, BytesMut};
use ottla_protocol::messages::fetch_response::{
    FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{ErrorCode, Offset, Timestamp};

use super::fetch::read_answer;
use super::fetched::HeldFetch;
use super::metrics::RequestTally;
use super::session::Wanted;
use super::*;
use crate::config::ClientConfig;
use crate::metadata::{BrokerNode, Metadata};

/// A consumer that has fetched `batches` compressed batches, each with one record of zeros.
fn consumer(batches: i64, record_bytes: usize, config: ConsumerConfig) -> Consumer {
    let client = Client::unconnected(ClientConfig::new("127.0.0.1:1").expect("an address"));
    let mut consumer = Consumer::new(client, config);
    let partition = ("t".to_owned(), 0);
    consumer.assign(std::slice::from_ref(&partition));
    let mut bytes = BytesMut::new();
    for offset in 0..batches {
        let mut builder = RecordBatchBuilder::new(Compression::Gzip { level: 6 });
        builder = builder.base_offset(Offset(offset));
        builder.append(Timestamp(1), None, Some(&vec![0; record_bytes]), &[]);
        bytes.extend_from_slice(&builder.build_in_place());
    }
    let bytes: Bytes = bytes.freeze();
    let tally = RequestTally::new(consumer.sensors.clone());
    let fetch = CompletedFetch::new("t".into(), 0, bytes, 0, Vec::new(), true);
    let held = HeldFetch {
        fetch: fetch.with_max_batch_bytes(consumer.config.max_batch_bytes),
        topic: "t".into(),
        tally,
    };
    let position = consumer.positions.get_mut(&partition).expect("assigned");
    position.next = Some(0);
    position.hold(held);
    consumer
}

#[tokio::test]
async fn a_poll_decompresses_at_most_fetch_max_bytes() {
    let config = ConsumerConfig {
        fetch_max_bytes: 250_000,
        ..ConsumerConfig::default()
    };
    let mut consumer = consumer(10, 100_000, config);
    let mut polled = Vec::new();
    loop {
        let batches = consumer.take_batches(500).expect("readable");
        if batches.is_empty() {
            break;
        }
        polled.push(batches.len());
    }
    assert_eq!(polled, [3, 3, 3, 1]);
}

#[tokio::test]
async fn a_batch_with_a_too_large_decompressed_size_is_not_read() {
    let config = ConsumerConfig {
        max_batch_bytes: 50_000,
        ..ConsumerConfig::default()
    };
    let mut consumer = consumer(2, 100_000, config);
    let partition = ("t".to_owned(), 0);
    assert_eq!(consumer.skip_unreadable_batch(&partition), None);
    assert!(matches!(
        consumer.take_batches(500),
        Err(ClientError::Records { .. })
    ));
    assert_eq!(consumer.position(&partition), Some(0));
    assert_eq!(consumer.skip_unreadable_batch(&partition), Some(0..1));
    assert_eq!(consumer.position(&partition), Some(1));
    assert_eq!(consumer.skip_unreadable_batch(&partition), None);
}

/// The response of node 1 to a fetch in leader epoch 5, with an error, the leader and its epoch.
fn refused(client: &Client, error: ErrorCode, leader_id: i32, leader_epoch: i32) -> Fetched {
    let partition = PartitionData {
        error_code: error.code(),
        current_leader: LeaderIdAndEpoch {
            leader_id,
            leader_epoch,
            ..Default::default()
        },
        ..Default::default()
    };
    let response = FetchResponse {
        responses: vec![FetchableTopicResponse {
            topic: "t".into(),
            partitions: vec![partition],
            ..Default::default()
        }],
        node_endpoints: vec![NodeEndpoint {
            node_id: leader_id,
            host: "other".into(),
            port: 9092,
            ..Default::default()
        }],
        ..Default::default()
    };
    let wanted = Wanted {
        offset: 0,
        leader_epoch: 5,
    };
    let answer = read_answer(client, response, Duration::ZERO, &BTreeMap::new());
    Fetched {
        leader: 1,
        asked: [(("t".to_owned(), 0), (wanted, 1))].into(),
        result: Ok(answer),
    }
}

/// Otherwise it waits for `retry.backoff.ms`, and for the metadata to be asked for (KIP-951).
#[tokio::test]
async fn a_partition_is_fetched_at_once_from_the_leader_that_its_refusal_names() {
    let client = Client::unconnected(ClientConfig {
        // Longer than any machine takes for what does not wait.
        retry_backoff: Duration::from_secs(120),
        ..ClientConfig::new("127.0.0.1:1").expect("an address")
    });
    let address = || client.metadata().leader("t", 0).map(BrokerNode::address);
    let mut consumer = Consumer::new(client.clone(), ConsumerConfig::default());
    let partition = ("t".to_owned(), 0);
    consumer.assign(std::slice::from_ref(&partition));
    let position = consumer.positions.get_mut(&partition).expect("assigned");
    (position.next, position.generation) = (Some(0), 1);
    for (error, leader, leader_epoch, is_news) in [
        (ErrorCode::NotLeaderOrFollower, 2, 6, true),
        (ErrorCode::FencedLeaderEpoch, 2, 6, true),
        (ErrorCode::NotLeaderOrFollower, 1, 5, false),
        (ErrorCode::NotLeaderOrFollower, -1, -1, false),
    ] {
        client.set_metadata(Metadata::of_topic("t", 1, 5));
        let refused = refused(&client, error, leader, leader_epoch);
        let expected = if is_news { "other:9092" } else { "host-1:9092" };
        assert_eq!(address().as_deref(), Some(expected));
        let limit = match is_news {
            true => client.config().retry_backoff / 2,
            false => Duration::from_millis(300),
        };
        let handled = ottla_sync::time::timeout(limit, consumer.on_fetched(refused)).await;
        assert_eq!(
            handled.is_ok(),
            is_news,
            "{error:?} in epoch {leader_epoch}"
        );
        if let Ok(handled) = handled {
            handled.expect("it goes on");
        }
    }
}
