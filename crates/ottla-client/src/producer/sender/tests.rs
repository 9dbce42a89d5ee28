use std::net::SocketAddr;

use ottla_protocol::messages::produce_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use ottla_types::ProducerId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::client::Client;
use crate::config::ClientConfig;
use crate::metadata::{BrokerNode, Metadata};
use crate::metrics::NetworkSensors;
use crate::producer::delivery::Delivery;
use crate::producer::record::RecordRef;
use crate::producer::transaction_state::Phase;
use crate::producer::{LastOwner, Producer, ProducerConfig};

const TOPIC: &str = "t";

/// A broker that answers ApiVersions with no APIs, and nothing else.
async fn silent_broker() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    ottla_sync::task::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        loop {
            let Ok(length) = socket.read_u32().await else {
                return;
            };
            let mut request = vec![0; length as usize];
            socket.read_exact(&mut request).await.unwrap();
            let (version, correlation_id) = (&request[2..4], &request[4..8]);
            let code = match version {
                [0, 0] => ErrorCode::None,
                _ => ErrorCode::UnsupportedVersion,
            };
            let mut answer = 10u32.to_be_bytes().to_vec();
            answer.extend(correlation_id);
            answer.extend(code.code().to_be_bytes());
            answer.extend(0u32.to_be_bytes());
            socket.write_all(&answer).await.unwrap();
        }
    });
    address
}

/// A transactional producer with a sender that a test drives.
struct Story {
    producer: Producer,
    sender: Sender,
    connection: Arc<Connection>,
}

impl Story {
    async fn in_a_transaction() -> Story {
        let config = ProducerConfig {
            transactional_id: Some("x".into()),
            ..ProducerConfig::default()
        };
        let client = Client::unconnected(ClientConfig::default());
        let network = Arc::new(NetworkSensors::new(client.config().metrics_windows()));
        let address = silent_broker().await.to_string();
        let connection = Connection::open(&address, client.config(), network, Arc::default()).await;
        let shared = Arc::new(Producer::builder(client, config).shared().unwrap());
        shared.accumulator.topics.set_partitions(TOPIC, 1);
        *shared.identity.lock() = Some(Identity {
            id: ProducerId(1),
            epoch: ProducerEpoch(0),
        });
        let story = Story {
            sender: Sender::new(shared.clone()),
            producer: Producer {
                _owner: Arc::new(LastOwner(shared.clone())),
                shared,
            },
            connection: Arc::new(connection.unwrap()),
        };
        story.begin();
        story
    }

    fn begin(&self) {
        let mut state = self.producer.shared.transaction.as_ref().unwrap().lock();
        state.phase = Phase::Ready;
        state.begin(true).unwrap();
    }

    fn phase(&self) -> Phase {
        let state = self.producer.shared.transaction.as_ref().unwrap().lock();
        state.phase.clone()
    }

    fn needs_new_epoch(&self) -> bool {
        let state = self.producer.shared.transaction.as_ref().unwrap().lock();
        state.needs_new_epoch
    }

    /// A time at which all records sent so far have exceeded `delivery.timeout.ms`.
    fn too_late(&self) -> Instant {
        ottla_sync::time::now() + self.producer.shared.delivery_timeout()
    }

    /// Sends a record as request 0, which stays in flight.
    fn send(&mut self) -> Delivery {
        let delivery = self.producer.try_send(RecordRef::new(TOPIC, b"v")).unwrap();
        self.drain();
        delivery
    }

    /// Takes the batch as request 0.
    fn drain(&mut self) {
        let now = ottla_sync::time::now();
        let shared = &self.producer.shared;
        let queues = shared.accumulator.topics.get(TOPIC).unwrap();
        let identity = *shared.identity.lock();
        let batches =
            shared
                .accumulator
                .drain(&queues.partitions, 0, usize::MAX, identity, now, |queue| {
                    shared.may_leave(queue)
                });
        assert_eq!(batches.len(), 1);
        let request = InFlight {
            node: 1,
            connection: self.connection.clone(),
            sent: now,
            version: 12,
            batches,
        };
        self.sender.in_flight.insert(0, request);
    }

    /// Answers request 0, which was sent in this leader epoch.
    fn refuse_in_epoch(&mut self, leader_epoch: i32, response: ProduceResponse) {
        let request = self.sender.in_flight.get_mut(&0).unwrap();
        for (_, batch) in &mut request.batches {
            batch.leader_epoch = leader_epoch;
        }
        self.sender.on_answered(0, Ok(Some(response)));
    }

    /// When the refused batch may be sent again.
    fn waits_until(&self) -> Instant {
        let topic = self.producer.shared.accumulator.topics.get(TOPIC).unwrap();
        let state = topic.partitions[0].state.lock();
        state.batches.front().unwrap().waits_until
    }

    /// How long the refused batch still waits.
    fn pause(&self) -> Duration {
        let now = ottla_sync::time::now();
        self.waits_until().saturating_duration_since(now)
    }

    /// The metadata names a leader in this epoch.
    fn end_waits_for(&self, leader_epoch: i32) {
        let topic = self.producer.shared.accumulator.topics.get(TOPIC).unwrap();
        let mut state = topic.partitions[0].state.lock();
        state.end_waits_for(leader_epoch, ottla_sync::time::now());
    }

    /// Takes the refused batch as request 0, whether or not it waits.
    fn take_again(&mut self) {
        let shared = &self.producer.shared;
        let topic = shared.accumulator.topics.get(TOPIC).unwrap();
        for queue in &topic.partitions {
            for batch in &mut queue.state.lock().batches {
                batch.waits_until = ottla_sync::time::now();
            }
        }
        self.drain();
    }
}

#[tokio::test]
async fn a_batch_that_expires_in_flight_fails_its_transaction() {
    let mut story = Story::in_a_transaction().await;
    let delivery = story.send();
    let too_late = story.too_late();
    let producer = story.producer.clone();
    let give_up = async {
        assert!(matches!(story.phase(), Phase::Committing));
        story.sender.give_up(too_late);
        assert!(matches!(story.phase(), Phase::Abortable(_)));
    };
    // In this order: the commit waits for its records when they expire.
    let (committed, ()) = tokio::join!(biased; producer.commit_transaction(), give_up);
    let error = committed
        .expect_err("its record has not arrived")
        .to_string();
    assert!(error.contains("producing to t-0"), "{error}");
    assert!(delivery.outcome().unwrap().is_err());
    assert!(story.needs_new_epoch(), "a sequence may be missing");
}

/// A response with an error, the leader and its epoch for the only partition.
fn refusal(error: ErrorCode, leader_id: i32, leader_epoch: i32) -> ProduceResponse {
    let partition = PartitionProduceResponse {
        error_code: error.code(),
        current_leader: LeaderIdAndEpoch {
            leader_id,
            leader_epoch,
            ..Default::default()
        },
        ..Default::default()
    };
    ProduceResponse {
        responses: vec![TopicProduceResponse {
            name: TOPIC.into(),
            partition_responses: vec![partition],
            ..Default::default()
        }],
        node_endpoints: vec![NodeEndpoint {
            node_id: leader_id,
            host: "other".into(),
            port: 9092,
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Otherwise its records wait for `retry.backoff.ms`, and for the metadata to be asked for.
#[tokio::test]
async fn a_batch_goes_at_once_to_the_leader_that_its_refusal_names() {
    let mut story = Story::in_a_transaction().await;
    let client = story.producer.shared.client.clone();
    client.set_metadata(Metadata::of_topic(TOPIC, 1, 5));
    let now = ottla_sync::time::now();
    let ready = |story: &Story| {
        let metadata = client.metadata();
        let leader = metadata.partition(TOPIC, 0).map(|known| Leader {
            node: known.leader,
            epoch: known.leader_epoch,
        });
        let accumulator = &story.producer.shared.accumulator;
        let ready = accumulator.ready(now, true, |_, _| leader, |_| true);
        ready.nodes.into_keys().collect::<Vec<_>>()
    };
    let _delivery = story.send();
    story.refuse_in_epoch(5, refusal(ErrorCode::NotLeaderOrFollower, 1, 5));
    assert_eq!(ready(&story), [0; 0], "this leader is not ready yet");

    story.take_again();
    story.refuse_in_epoch(5, refusal(ErrorCode::NotLeaderOrFollower, 2, 6));
    assert_eq!(ready(&story), [2]);
    let leader = client.metadata().leader(TOPIC, 0).map(BrokerNode::address);
    assert_eq!(leader.as_deref(), Some("other:9092"));
}

/// The metadata of the client came from a broker that had learned of the election first. Records of the
/// partition would wait for a `retry.backoff.ms` that grows with each refusal.
#[tokio::test]
async fn a_broker_that_does_not_know_of_its_election_is_soon_asked_again() {
    let mut story = Story::in_a_transaction().await;
    let client = story.producer.shared.client.clone();
    client.set_metadata(Metadata::of_topic(TOPIC, 2, 6));
    let backoff = client.config().retry_backoff;
    let _delivery = story.send();
    // The old leader has named the new one.
    story.refuse_in_epoch(5, refusal(ErrorCode::NotLeaderOrFollower, 2, 6));
    story.end_waits_for(6);
    for pause_ms in [10, 20, 40, 80] {
        story.take_again();
        story.refuse_in_epoch(6, refusal(ErrorCode::NotLeaderOrFollower, 1, 5));
        let longest = Duration::from_millis(pause_ms).mul_f64(1.2);
        assert!(story.pause() <= longest, "{:?}", story.pause());
    }
    // It has not learned of it: the backoff of a first refusal, and of a second one.
    for times in [1, 2] {
        story.take_again();
        let before = ottla_sync::time::now();
        story.refuse_in_epoch(6, refusal(ErrorCode::NotLeaderOrFollower, 1, 5));
        let pause = story.waits_until() - before;
        assert!(pause >= (backoff * times).mul_f64(0.8), "{pause:?}");
        assert!(story.pause() <= (backoff * times).mul_f64(1.2));
    }
}

/// It may reach a new leader before an earlier batch, which the old leader is yet to refuse. All later
/// records of the partition would wait for a `retry.backoff.ms`.
#[tokio::test]
async fn a_batch_ahead_of_its_turn_goes_again_when_the_earlier_ones_are_written() {
    let mut story = Story::in_a_transaction().await;
    // Only then several batches are in flight.
    let _known = story.send();
    let written = refusal(ErrorCode::None, -1, -1);
    story.sender.on_answered(0, Ok(Some(written)));

    let _first = story.send();
    let (_, first) = story.sender.in_flight.pop_first().unwrap();
    story.sender.in_flight.insert(1, first);
    let _second = story.send();
    let early = refusal(ErrorCode::OutOfOrderSequenceNumber, -1, -1);
    story.sender.on_answered(0, Ok(Some(early)));
    assert_eq!(story.pause(), Duration::ZERO);
}

/// The metadata may change between the choice of the node and the request.
#[tokio::test]
async fn a_batch_has_the_epoch_of_the_leader_to_which_it_is_sent() {
    let mut story = Story::in_a_transaction().await;
    let client = story.producer.shared.client.clone();
    client.set_metadata(Metadata::of_topic(TOPIC, 2, 6));
    let _delivery = story.send();
    for (node, leader_epoch) in [(1, -1), (2, 6)] {
        let (_, request) = story.sender.in_flight.pop_first().unwrap();
        let (connection, now) = (request.connection, request.sent);
        story.sender.send(node, connection, request.batches, now);
        let (_, sent) = story.sender.in_flight.first_key_value().unwrap();
        assert_eq!(sent.batches[0].1.leader_epoch, leader_epoch);
    }
}

/// A batch that was refused in the same millisecond is sent again after `retry.backoff.ms` as well.
#[tokio::test]
async fn the_sender_wakes_when_it_may_ask_for_metadata_again() {
    let mut story = Story::in_a_transaction().await;
    let config = story.producer.shared.client.config().clone();
    let left = Duration::from_millis(3);
    assert!(left < config.retry_backoff);
    story.sender.wants_metadata = true;
    let now = story.sender.metadata_asked + config.retry_backoff - left;
    assert_eq!(story.sender.step(now), left);
    assert!(!story.sender.is_refreshing);
    story.sender.step(now + left);
    assert!(story.sender.is_refreshing);
}

#[tokio::test]
async fn a_late_response_does_not_fail_the_next_transaction() {
    let mut story = Story::in_a_transaction().await;
    let delivery = story.send();
    let too_late = story.too_late();
    story.sender.give_up(too_late);
    assert!(delivery.outcome().unwrap().is_err());
    story.begin();
    story
        .sender
        .on_answered(0, Err(ClientError::Unsendable("lost".into())));
    assert!(matches!(story.phase(), Phase::InTransaction));
}
