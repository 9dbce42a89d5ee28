//! Requests about a topic whose creation the broker is applying. Another broker may have sent the client
//! here already, and a refusal would cost it `retry.backoff.ms`.

use std::sync::Arc;
use std::time::Duration;

use ottla_metadata::{MetadataDelta, MetadataImage};
use ottla_protocol::messages::metadata_request::MetadataRequestTopic;
use ottla_protocol::messages::{MetadataRequest, ProduceRequest};
use ottla_types::ErrorCode;

use super::produce_and_fetch::{batch, produce_to};
use super::{TestBroker, topic_id};
use crate::Broker;

/// A request arrives in less, and waits for longer if it has to.
const SHORT: Duration = Duration::from_millis(20);

/// Returns when the broker has a committed change that it cannot apply.
async fn applying(broker: &Arc<Broker>) {
    let quorum = broker.node.quorum().expect("the broker has joined");
    while quorum.unpublished().is_none() {
        ottla_sync::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Creates the topic, and asks while its creation cannot be applied; then lets it be applied.
async fn ask_early<T>(broker: &TestBroker, topic: &'static str, ask: impl Future<Output = T>) -> T {
    let inner = Arc::clone(broker.broker());
    let image = MetadataImage::clone(&inner.metadata());
    // Changes are applied one after the other.
    let nothing = MetadataDelta::between(image.clone(), image);
    let change = inner.local_replicas.begin_change(&nothing);
    let asking = async {
        applying(broker.broker()).await;
        let letting_go = async {
            ottla_sync::time::sleep(SHORT).await;
            drop(change);
        };
        tokio::join!(ask, letting_go).0
    };
    tokio::join!(asking, broker.create_topic(topic, 1, &[])).0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_produce_waits_for_a_topic_that_is_being_created() {
    let (broker, mut client) = TestBroker::with_topic("known", 1).await;
    for (version, topic) in [(13, "by-id"), (12, "by-name")] {
        let produce = produce_to(topic, 0, -1, batch(&["a"]));
        let answer = ask_early(&broker, topic, client.ask(version, &produce)).await;
        let partition = &answer.responses[0].partition_responses[0];
        let code = ErrorCode::from_code(partition.error_code);
        assert_eq!(
            (code, partition.base_offset),
            (ErrorCode::None, 0),
            "{topic}"
        );
    }
    // The connection goes on.
    let produce = produce_to("known", 0, -1, batch(&["a"]));
    let answer = client.ask(13, &produce).await;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
}

/// Otherwise the second of two batches would be written first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_keep_their_order_while_one_waits() {
    let (broker, mut client) = TestBroker::with_topic("known", 1).await;
    let early = produce_to("new", 0, -1, batch(&["a"]));
    let later = produce_to("new", 0, -1, batch(&["b", "c"]));
    let asked = async {
        let early = client.send(13, &early).await;
        let later = client.send(13, &later).await;
        (early, later)
    };
    let (early_id, later_id) = ask_early(&broker, "new", asked).await;
    for (id, base_offset) in [(early_id, 0), (later_id, 1)] {
        let answer = client.receive::<ProduceRequest>(13, id).await;
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!(
            (partition.error_code, partition.base_offset),
            (0, base_offset)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_contains_a_topic_that_is_being_created() {
    let (broker, mut client) = TestBroker::with_topic("known", 1).await;
    let request = |name: &'static str| MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(name.into()),
            ..Default::default()
        }]),
        ..Default::default()
    };
    let found = ask_early(&broker, "new", client.ask(12, &request("new"))).await;
    assert_eq!(
        (found.topics[0].error_code, found.topics[0].topic_id),
        (0, topic_id("new"))
    );
    let missing = client.ask(12, &request("missing")).await;
    let code = ErrorCode::from_code(missing.topics[0].error_code);
    assert_eq!(code, ErrorCode::UnknownTopicOrPartition);
}
