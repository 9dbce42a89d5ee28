use std::net::SocketAddr;

use ottla_types::ProducerId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::client::Client;
use crate::config::ClientConfig;
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
        let now = ottla_sync::time::now();
        let shared = &self.producer.shared;
        let delivery = self.producer.try_send(RecordRef::new(TOPIC, b"v")).unwrap();
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
        delivery
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
