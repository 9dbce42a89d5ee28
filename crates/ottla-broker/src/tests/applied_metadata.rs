//! Requests about a topic whose creation the broker is applying. Another broker may have sent the client
//! here already, and a refusal would cost it `retry.backoff.ms`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_metadata::{MetadataDelta, MetadataImage};
use ottla_protocol::messages::metadata_request::MetadataRequestTopic;
use ottla_protocol::messages::{MetadataRequest, ProduceRequest};
use ottla_types::ErrorCode;

use super::produce_and_fetch::{batch, produce_to};
use super::{TestBroker, topic_id};
use crate::Broker;

/// A request arrives in less, and waits for longer if it has to.
const SHORT: Duration = Duration::from_millis(20);
/// For as long a request waits. If all of a try took less, none was refused for having waited for too long.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// A topic for each try.
const TOPICS: [&str; 30] = [
    "new-00", "new-01", "new-02", "new-03", "new-04", "new-05", "new-06", "new-07", "new-08",
    "new-09", "new-10", "new-11", "new-12", "new-13", "new-14", "new-15", "new-16", "new-17",
    "new-18", "new-19", "new-20", "new-21", "new-22", "new-23", "new-24", "new-25", "new-26",
    "new-27", "new-28", "new-29",
];

/// Returns when the creation of this topic is committed, and the broker cannot apply it. Returns false
/// if requests do not wait for it.
async fn applying(broker: &Arc<Broker>, topic: &str) -> bool {
    let quorum = broker.node.quorum().expect("the broker has joined");
    let end = loop {
        let image = quorum.caught_up().await.expect("the controller runs");
        if image.topics.by_name(topic).is_some() {
            break image.provenance.last_contained_offset.plus(1);
        }
        ottla_sync::time::sleep(Duration::from_millis(1)).await;
    };
    // The controller's own records, for example, may be unpublished before it.
    let began = Instant::now();
    while began.elapsed() < LONGEST_WAIT {
        if quorum
            .unpublished()
            .is_some_and(|unpublished| unpublished >= end)
        {
            return true;
        }
        ottla_sync::time::sleep(Duration::from_millis(1)).await;
    }
    false
}

/// Creates a topic, and asks about it while its creation cannot be applied; then lets it be applied.
/// Tries again with another topic if the machine took too long for the answer to tell anything.
async fn ask_early<T>(broker: &TestBroker, mut ask: impl AsyncFnMut(&'static str) -> T) -> T {
    for topic in TOPICS {
        let inner = Arc::clone(broker.broker());
        let image = MetadataImage::clone(&inner.metadata());
        // Changes are applied one after the other.
        let nothing = MetadataDelta::between(image.clone(), image);
        let change = inner.local_replicas.begin_change(&nothing);
        let asking = async {
            let is_applying = applying(broker.broker(), topic).await;
            let began = Instant::now();
            let letting_go = async {
                ottla_sync::time::sleep(SHORT).await;
                drop(change);
            };
            let (answer, ()) = tokio::join!(ask(topic), letting_go);
            (answer, is_applying && began.elapsed() < LONGEST_WAIT)
        };
        let ((answer, is_early), ()) = tokio::join!(asking, broker.create_topic(topic, 1, &[]));
        if is_early {
            return answer;
        }
    }
    panic!("no answer came within {LONGEST_WAIT:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_produce_waits_for_a_topic_that_is_being_created() {
    for version in [13, 12] {
        let (broker, mut client) = TestBroker::with_topic("known", 1).await;
        let ask = async |topic| {
            let produce = produce_to(topic, 0, -1, batch(&["a"]));
            client.ask(version, &produce).await
        };
        let answer = ask_early(&broker, ask).await;
        let partition = &answer.responses[0].partition_responses[0];
        let code = ErrorCode::from_code(partition.error_code);
        assert_eq!(
            (code, partition.base_offset),
            (ErrorCode::None, 0),
            "version {version}"
        );
        // The connection goes on.
        let produce = produce_to("known", 0, -1, batch(&["a"]));
        let answer = client.ask(13, &produce).await;
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    }
}

/// Otherwise the second of two batches would be written first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_keep_their_order_while_one_waits() {
    let (broker, mut client) = TestBroker::with_topic("known", 1).await;
    let ask = async |topic| {
        let early = produce_to(topic, 0, -1, batch(&["a"]));
        let later = produce_to(topic, 0, -1, batch(&["b", "c"]));
        let early = client.send(13, &early).await;
        let later = client.send(13, &later).await;
        let early = client.receive::<ProduceRequest>(13, early).await;
        (early, client.receive::<ProduceRequest>(13, later).await)
    };
    let (early, later) = ask_early(&broker, ask).await;
    for (answer, base_offset) in [(early, 0), (later, 1)] {
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
    let mut ask = async |name: &'static str| {
        let request = MetadataRequest {
            topics: Some(vec![MetadataRequestTopic {
                name: Some(name.into()),
                ..Default::default()
            }]),
            ..Default::default()
        };
        (name, client.ask(12, &request).await)
    };
    let (name, found) = ask_early(&broker, &mut ask).await;
    assert_eq!(
        (found.topics[0].error_code, found.topics[0].topic_id),
        (0, topic_id(name))
    );
    let (_, missing) = ask("missing").await;
    let code = ErrorCode::from_code(missing.topics[0].error_code);
    assert_eq!(code, ErrorCode::UnknownTopicOrPartition);
}
