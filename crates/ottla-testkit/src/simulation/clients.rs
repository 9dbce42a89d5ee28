//! The clients of a run: idempotent producers with `acks=all` that send again until they are told that it is stored, and
//! consumers that read to the high watermark, from leaders and from followers.
//!
//! Kafka: `Sender`, `TransactionManager`, `Fetcher`.

use std::collections::VecDeque;

use bytes::Bytes;
use ottla_records::{BatchHeader, RecordBatch};
use ottla_types::{
    BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence,
    Timestamp, TopicIdPartition,
};

use super::checkers::Checkers;
use super::group_clients::INPUT_TOPIC;
use super::message::{ClientRequest, ClientResponse, LedPartition};
use super::random::Random;

/// `max.in.flight.requests.per.connection`, and what a leader remembers of a producer.
const MAX_IN_FLIGHT: u64 = 5;
const REQUEST_TIMEOUT_MS: u64 = 1_500;
const RETRY_BACKOFF_MS: u64 = 100;

/// A request of a client's, and over which of its connections it goes: a new one after each trouble.
pub(crate) struct Asked {
    pub to: i32,
    pub connection: u64,
    pub correlation_id: u64,
    pub request: ClientRequest,
}

pub(crate) struct Client {
    id: i32,
    brokers: Vec<i32>,
    partition: PartitionIndex,
    /// What the client knows of its partition.
    led: Option<LedPartition>,
    /// A request for metadata or a producer id that is under way.
    question: Option<(u64, u64)>,
    next_correlation_id: u64,
    connection: u64,
    not_before_ms: u64,
    pub role: Role,
}

pub(crate) enum Role {
    Producer(Producer),
    Consumer(Consumer),
}

#[derive(Default)]
pub(crate) struct Producer {
    producer_id: Option<ProducerId>,
    next_sequence: i32,
    next_batch: u64,
    /// In the order of their sequence numbers.
    pending: VecDeque<Pending>,
    pub acknowledged: u64,
}

struct Pending {
    number: u64,
    sequence: i32,
    records: i32,
    /// The request that it went with.
    sent: Option<(u64, u64)>,
}

#[derive(Default)]
pub(crate) struct Consumer {
    pub position: Offset,
    under_way: Option<(u64, u64)>,
}

impl Client {
    pub(crate) fn new(id: i32, brokers: Vec<i32>, partition: i32, role: Role) -> Client {
        Client {
            id,
            brokers,
            partition: PartitionIndex(partition),
            led: None,
            question: None,
            next_correlation_id: 0,
            connection: 0,
            not_before_ms: 0,
            role,
        }
    }

    pub(crate) fn key(&self) -> Option<TopicIdPartition> {
        self.led.as_ref().map(|led| led.partition)
    }

    /// Whether a producer has been told of all that it sent.
    pub(crate) fn is_done(&self) -> bool {
        match &self.role {
            Role::Producer(producer) => producer.pending.is_empty(),
            Role::Consumer(_) => true,
        }
    }

    /// What is due. `writes` is in how many of a thousand cases a producer has something to write.
    pub(crate) fn tick(&mut self, now_ms: u64, writes: u64, random: &mut Random) -> Vec<Asked> {
        let is_late = |sent_ms: u64| now_ms >= sent_ms + REQUEST_TIMEOUT_MS;
        if self.question.is_some_and(|(_, sent_ms)| is_late(sent_ms)) {
            self.question = None;
            self.connection += 1;
        }
        if now_ms < self.not_before_ms {
            return Vec::new();
        }
        let Some(led) = self.led.clone() else {
            return self.ask(now_ms, ClientRequest::Metadata, random);
        };
        let mut asked = Vec::new();
        match &mut self.role {
            Role::Producer(producer) => {
                if producer.producer_id.is_none() {
                    return self.ask(now_ms, ClientRequest::InitProducerId, random);
                }
                if producer.pending.len() < 8 && random.per_mille(writes) {
                    producer.add(1 + random.below(3) as i32);
                }
                let mut sent = producer.pending.iter().filter_map(|it| it.sent);
                if sent.any(|(_, sent_ms)| is_late(sent_ms)) {
                    self.on_trouble(now_ms);
                    return Vec::new();
                }
                let first = producer.pending.front().map_or(0, |first| first.number);
                let producer_id = producer.producer_id;
                // A leader that knows nothing of a producer takes any sequence number from it, in Kafka too: what comes
                // behind a first batch that was refused would take its place.
                let in_flight = match producer.acknowledged {
                    0 => 1,
                    _ => MAX_IN_FLIGHT,
                };
                for pending in &mut producer.pending {
                    if pending.sent.is_some() || pending.number >= first + in_flight {
                        continue;
                    }
                    self.next_correlation_id += 1;
                    let correlation_id = self.next_correlation_id;
                    pending.sent = Some((correlation_id, now_ms));
                    let request = ClientRequest::Produce {
                        partition: led.partition,
                        batch: batch(self.id, producer_id.unwrap_or(ProducerId::NONE), pending),
                        transactional_id: None,
                        timeout_ms: REQUEST_TIMEOUT_MS,
                    };
                    asked.push(Asked {
                        to: led.leader.value(),
                        connection: self.connection,
                        correlation_id,
                        request,
                    });
                }
            }
            Role::Consumer(consumer) => {
                if consumer.under_way.is_some_and(|(_, sent)| is_late(sent)) {
                    consumer.under_way = None;
                    self.on_trouble(now_ms);
                    return Vec::new();
                }
                if consumer.under_way.is_none() {
                    self.next_correlation_id += 1;
                    let correlation_id = self.next_correlation_id;
                    consumer.under_way = Some((correlation_id, now_ms));
                    let (broker, leader_epoch) = match random.below(3) {
                        0 => (random.pick(&led.replicas).unwrap_or(led.leader), None),
                        _ => (led.leader, Some(led.leader_epoch)),
                    };
                    let request = ClientRequest::Fetch {
                        partition: led.partition,
                        offset: consumer.position,
                        leader_epoch: leader_epoch.filter(|_| random.per_mille(500)),
                    };
                    asked.push(Asked {
                        to: broker.value(),
                        connection: self.connection,
                        correlation_id,
                        request,
                    });
                }
            }
        }
        asked
    }

    fn ask(&mut self, now_ms: u64, request: ClientRequest, random: &mut Random) -> Vec<Asked> {
        let Some(broker) = random
            .pick(&self.brokers)
            .filter(|_| self.question.is_none())
        else {
            return Vec::new();
        };
        self.next_correlation_id += 1;
        self.question = Some((self.next_correlation_id, now_ms));
        vec![Asked {
            to: broker,
            connection: self.connection,
            correlation_id: self.next_correlation_id,
            request,
        }]
    }

    /// Everything that is not acknowledged is sent again, to whoever leads then.
    fn on_trouble(&mut self, now_ms: u64) {
        self.led = None;
        self.connection += 1;
        self.not_before_ms = now_ms + RETRY_BACKOFF_MS;
        if let Role::Producer(producer) = &mut self.role {
            for pending in &mut producer.pending {
                pending.sent = None;
            }
        }
    }

    /// A broker answered.
    pub(crate) fn receive(
        &mut self,
        from: i32,
        correlation_id: u64,
        response: ClientResponse,
        now_ms: u64,
        checkers: &mut Checkers,
    ) {
        if self
            .question
            .is_some_and(|(asked, _)| asked == correlation_id)
        {
            self.question = None;
            match response {
                ClientResponse::Metadata(partitions) => {
                    let mut partitions = partitions.into_iter();
                    self.led = partitions.find(|led| {
                        *led.topic == *INPUT_TOPIC
                            && led.partition.partition == self.partition
                            && led.leader != BrokerId::NONE
                    });
                }
                ClientResponse::ProducerId(id) => {
                    if let Role::Producer(producer) = &mut self.role {
                        checkers.idempotence.on_producer(ProducerId(id), self.id);
                        producer.producer_id = Some(ProducerId(id));
                    }
                }
                _ => self.not_before_ms = now_ms + RETRY_BACKOFF_MS,
            }
            return;
        }
        let is_trouble = match (&mut self.role, response) {
            (Role::Producer(producer), response) => {
                let is_asked =
                    |it: &Pending| it.sent.is_some_and(|(sent, _)| sent == correlation_id);
                let Some(at) = producer.pending.iter().position(is_asked) else {
                    return;
                };
                match response {
                    ClientResponse::Produced(Ok(_)) => {
                        producer.pending.remove(at);
                        producer.acknowledged += 1;
                        false
                    }
                    _ => true,
                }
            }
            (Role::Consumer(consumer), response) => {
                if consumer
                    .under_way
                    .is_none_or(|(sent, _)| sent != correlation_id)
                {
                    return;
                }
                consumer.under_way = None;
                match (response, &self.led) {
                    (ClientResponse::Fetched(Ok(batches)), Some(led)) => {
                        for batch in batches {
                            checkers.consumers.on_read(
                                self.id,
                                from,
                                led.partition,
                                consumer.position,
                                &batch,
                                &checkers.committed_records,
                            );
                            consumer.position = batch.header.next_offset();
                        }
                        false
                    }
                    // A follower may have less than the consumer has read.
                    (ClientResponse::Fetched(Err(ErrorCode::OffsetOutOfRange)), _) => false,
                    _ => true,
                }
            }
        };
        if is_trouble {
            self.on_trouble(now_ms);
        }
    }
}

impl Producer {
    fn add(&mut self, records: i32) {
        self.pending.push_back(Pending {
            number: self.next_batch,
            sequence: self.next_sequence,
            records,
            sent: None,
        });
        self.next_batch += 1;
        self.next_sequence += records;
    }
}

/// A batch without records, told from others by what stands for its checksum: nobody looks further.
fn batch(client: i32, producer_id: ProducerId, pending: &Pending) -> RecordBatch {
    let header = BatchHeader {
        base_offset: Offset(0),
        batch_length: (BatchHeader::SIZE - 12) as i32,
        partition_leader_epoch: LeaderEpoch(0),
        magic: 2,
        crc: client as u32 * 100_000 + pending.number as u32,
        attributes: Default::default(),
        last_offset_delta: pending.records - 1,
        base_timestamp: Timestamp(0),
        max_timestamp: Timestamp(0),
        producer_id,
        producer_epoch: ProducerEpoch(0),
        base_sequence: Sequence(pending.sequence),
        record_count: pending.records,
    };
    RecordBatch::new(header, Bytes::new())
}
