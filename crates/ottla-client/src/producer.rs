//! Producing records.
//!
//! Records are collected into one batch a partition. A batch leaves when it is full, when it is older
//! than `linger`, or when somebody waits for everything to be sent. Each partition has one batch under
//! way at a time, which keeps its records in order through retries and makes sequence numbers trivially
//! right; while it travels the next one fills, so that load makes batches larger.
//!
//! One task sends for all partitions; each request to a broker is a task of its own.

mod batches;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_protocol::messages::InitProducerIdRequest;
use ottla_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use ottla_records::{Compression, CompressionType, RecordHeader};
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, Timestamp, Uuid};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::client::{Client, Retry};
use crate::config::milliseconds;
use crate::error::ClientError;
use crate::metadata::Metadata;
use crate::partitioner::partition_for_key;
use batches::{Accumulator, ReadyBatch};

/// Settings of a producer. The defaults are Kafka's, but for idempotence, which is asked for.
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// 0, 1, or -1 for all replicas in sync.
    pub acks: i16,
    pub compression: Compression,
    /// The size at which a batch leaves, before compression.
    pub batch_size: usize,
    pub linger: Duration,
    /// How many bytes of records may wait before `send` waits too.
    pub buffer_memory: usize,
    pub max_request_size: usize,
    /// How long a record may take, retries included.
    pub delivery_timeout: Duration,
    pub retries: u32,
    pub idempotence: bool,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        ProducerConfig {
            acks: -1,
            compression: Compression::None,
            batch_size: 16_384,
            linger: Duration::from_millis(5),
            buffer_memory: 32 * 1024 * 1024,
            max_request_size: 1024 * 1024,
            delivery_timeout: Duration::from_secs(120),
            retries: u32::MAX,
            idempotence: false,
        }
    }
}

impl ProducerConfig {
    /// Takes the settings of Kafka's producer that apply here out of a properties file; returns those
    /// that this producer does not know.
    pub fn apply(
        &mut self,
        settings: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, ClientError> {
        let mut unknown = Vec::new();
        let mut level = None;
        for (key, value) in settings {
            let value = value.trim();
            let wrong = |accepted: &str| {
                ClientError::Config(format!("{key}={value}: not accepted; give {accepted}"))
            };
            let bytes = || {
                value
                    .parse::<usize>()
                    .map_err(|_| wrong("a number of bytes"))
            };
            match key.as_str() {
                "acks" => {
                    self.acks = match value {
                        "all" | "-1" => -1,
                        "0" => 0,
                        "1" => 1,
                        _ => return Err(wrong("0, 1 or all")),
                    };
                }
                "compression.type" => {
                    let codec = CompressionType::from_name(value)
                        .ok_or_else(|| wrong("none, gzip, snappy, lz4 or zstd"))?;
                    self.compression = codec.into();
                }
                "compression.gzip.level" | "compression.lz4.level" | "compression.zstd.level" => {
                    let number = value.parse().map_err(|_| wrong("a compression level"))?;
                    level = Some((key.clone(), number))
                        .filter(|_| settings.contains_key("compression.type"));
                }
                "batch.size" => self.batch_size = bytes()?.max(1),
                "linger.ms" => self.linger = milliseconds(key, value)?,
                "buffer.memory" => self.buffer_memory = bytes()?.max(1),
                "max.request.size" => self.max_request_size = bytes()?,
                "delivery.timeout.ms" => self.delivery_timeout = milliseconds(key, value)?,
                "retries" => self.retries = value.parse().map_err(|_| wrong("a number"))?,
                "enable.idempotence" => {
                    self.idempotence = value.parse().map_err(|_| wrong("true or false"))?;
                }
                _ => unknown.push(key.clone()),
            }
        }
        if let Some((key, level)) = level
            && key.contains(self.compression.codec().name())
        {
            self.compression = Compression::with_level(self.compression.codec(), level)
                .map_err(|error| ClientError::Config(format!("{key}={level}: {error}")))?;
        }
        Ok(unknown)
    }
}

/// A record to be sent.
#[derive(Clone, Default, Debug)]
pub struct ProducerRecord {
    pub topic: String,
    /// Nothing leaves it to the key, or to chance.
    pub partition: Option<i32>,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<RecordHeader>,
    /// Milliseconds since 1970; nothing stands for now.
    pub timestamp: Option<i64>,
}

/// Where a record has gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordMetadata {
    pub partition: i32,
    /// -1 with acks=0.
    pub offset: i64,
    pub timestamp: i64,
}

/// What becomes of a record: wait for it, or drop it.
pub struct Delivery(oneshot::Receiver<Result<RecordMetadata, ClientError>>);

impl Delivery {
    pub async fn wait(self) -> Result<RecordMetadata, ClientError> {
        self.0.await.unwrap_or(Err(ClientError::ClientClosed))
    }
}

/// Sends records. Cloning is cheap and shares everything.
#[derive(Clone)]
pub struct Producer {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    config: ProducerConfig,
    accumulator: Mutex<Accumulator>,
    memory: Arc<Semaphore>,
    /// Something may be ready to be sent.
    wake_sender: Notify,
    /// A batch has come to its end.
    finished: Notify,
    closed: AtomicBool,
}

impl Producer {
    pub fn new(client: Client, config: ProducerConfig) -> Producer {
        let memory = config.buffer_memory.min(Semaphore::MAX_PERMITS);
        let shared = Arc::new(Shared {
            accumulator: Mutex::new(Accumulator::new(config.batch_size, config.compression)),
            memory: Arc::new(Semaphore::new(memory)),
            client,
            config,
            wake_sender: Notify::new(),
            finished: Notify::new(),
            closed: AtomicBool::new(false),
        });
        tokio::spawn(run_sender(Arc::downgrade(&shared)));
        Producer { shared }
    }

    /// Adds a record to the batch of its partition, waiting while too many bytes are under way. What
    /// comes back tells what became of the record.
    pub async fn send(&self, record: ProducerRecord) -> Result<Delivery, ClientError> {
        let shared = &self.shared;
        let size = record_size(&record);
        if size > shared.config.max_request_size {
            return Err(ClientError::Unsendable(format!(
                "the record has {size} bytes, more than max.request.size={}",
                shared.config.max_request_size
            )));
        }
        let partitions = self.partitions(&record.topic).await?;
        let permits = size.min(shared.config.buffer_memory) as u32;
        let permit = match shared.memory.clone().try_acquire_many_owned(permits) {
            Ok(permit) => permit,
            Err(_) => {
                shared.accumulator.lock().release_lingering();
                shared.wake_sender.notify_one();
                let acquired = shared.memory.clone().acquire_many_owned(permits).await;
                acquired.map_err(|_| ClientError::ClientClosed)?
            }
        };
        if shared.closed.load(Ordering::Acquire) {
            return Err(ClientError::ClientClosed);
        }
        let timestamp = Timestamp(record.timestamp.unwrap_or_else(now_ms));
        let (reply, delivery) = oneshot::channel();
        let became_ready = {
            let mut accumulator = shared.accumulator.lock();
            let partition = match (record.partition, &record.key) {
                (Some(partition), _) if (0..partitions as i32).contains(&partition) => partition,
                (Some(partition), _) => {
                    return Err(ClientError::Unsendable(format!(
                        "topic {} has no partition {partition}; it has {partitions}",
                        record.topic
                    )));
                }
                (None, Some(key)) => partition_for_key(key, partitions) as i32,
                (None, None) => accumulator.sticky_partition(&record.topic, partitions, size),
            };
            accumulator.append(
                &record,
                partition,
                timestamp,
                Waiting {
                    reply,
                    _permit: permit,
                },
            )
        };
        if became_ready {
            shared.wake_sender.notify_one();
        }
        Ok(Delivery(delivery))
    }

    /// Waits until every record sent so far has come to its end.
    pub async fn flush(&self) {
        loop {
            let finished = self.shared.finished.notified();
            tokio::pin!(finished);
            finished.as_mut().enable();
            {
                let mut accumulator = self.shared.accumulator.lock();
                if accumulator.is_idle() {
                    return;
                }
                accumulator.release_lingering();
            }
            self.shared.wake_sender.notify_one();
            finished.await;
        }
    }

    /// Sends what there is and refuses more.
    pub async fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        self.flush().await;
        self.shared.wake_sender.notify_one();
    }

    /// How many partitions a topic has; a topic that does not exist is created if the broker does that.
    async fn partitions(&self, topic: &str) -> Result<usize, ClientError> {
        let client = &self.shared.client;
        let count = |metadata: &Metadata| {
            metadata
                .topics
                .get(topic)
                .map(|topic| topic.partitions.len())
                .filter(|count| *count > 0)
        };
        if let Some(count) = count(&client.metadata()) {
            return Ok(count);
        }
        let names = [topic.to_owned()];
        client
            .retrying("metadata", async || {
                let metadata = client.refresh_metadata(Some(&names), true).await?;
                if let Some(found) = metadata.topics.get(topic)
                    && !found.error.is_retriable()
                {
                    ClientError::check(format!("topic {topic}"), found.error.code(), None::<&str>)?;
                }
                count(&metadata).ok_or_else(|| {
                    ClientError::broker(
                        format!("topic {topic}"),
                        ErrorCode::UnknownTopicOrPartition.code(),
                        Some("it does not exist, and the broker has not created it"),
                    )
                })
            })
            .await
    }
}

/// A record whose sender may wait for it; its memory comes free when this is dropped.
struct Waiting {
    reply: oneshot::Sender<Result<RecordMetadata, ClientError>>,
    _permit: OwnedSemaphorePermit,
}

/// What a record takes in a batch, at most.
fn record_size(record: &ProducerRecord) -> usize {
    let bytes = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    let headers = record
        .headers
        .iter()
        .map(|header| header.key.len() + bytes(&header.value) + 10);
    bytes(&record.key) + bytes(&record.value) + headers.sum::<usize>() + 40
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as i64)
}

/// Takes batches that are ready to their leaders until the producer is gone.
async fn run_sender(shared: std::sync::Weak<Shared>) {
    let mut requests = JoinSet::new();
    loop {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        while requests.try_join_next().is_some() {}
        if shared.config.idempotence && !become_idempotent(&shared).await {
            continue;
        }
        let (ready, next_linger) = {
            let mut accumulator = shared.accumulator.lock();
            accumulator.take_ready(shared.config.linger, Instant::now())
        };
        if ready.is_empty() {
            if shared.closed.load(Ordering::Acquire) && shared.accumulator.lock().is_idle() {
                return;
            }
            let pause = next_linger
                .unwrap_or(Duration::from_secs(1))
                .min(Duration::from_secs(1));
            let _ = tokio::time::timeout(pause, shared.wake_sender.notified()).await;
            continue;
        }
        let metadata = shared.client.metadata();
        let mut by_leader: BTreeMap<i32, Vec<ReadyBatch>> = BTreeMap::new();
        for mut batch in ready {
            batch.seal();
            let leader = metadata
                .partition(&batch.topic, batch.partition)
                .map_or(-1, |it| it.leader);
            by_leader.entry(leader).or_default().push(batch);
        }
        for (leader, batches) in by_leader {
            for request in into_requests(batches, shared.config.max_request_size) {
                requests.spawn(deliver(shared.clone(), leader, request));
            }
        }
    }
}

/// Gets a producer id where one is needed; what waits is refused if there is none to be had.
async fn become_idempotent(shared: &Shared) -> bool {
    {
        let accumulator = shared.accumulator.lock();
        if accumulator.producer.is_some() || accumulator.is_empty() {
            return true;
        }
    }
    match init_producer_id(&shared.client).await {
        Ok(producer) => {
            shared.accumulator.lock().producer = Some(producer);
            true
        }
        Err(error) => {
            let refused = shared.accumulator.lock().take_all();
            for waiting in refused {
                let _ = waiting.reply.send(Err(error.clone()));
            }
            shared.finished.notify_waiters();
            false
        }
    }
}

/// Splits the batches of one leader so that no request is larger than allowed.
fn into_requests(batches: Vec<ReadyBatch>, max_bytes: usize) -> Vec<Vec<ReadyBatch>> {
    let mut requests: Vec<Vec<ReadyBatch>> = Vec::new();
    let mut bytes = 0;
    for batch in batches {
        let size = batch.records.len();
        match requests.last_mut() {
            Some(request) if bytes + size <= max_bytes => request.push(batch),
            _ => {
                requests.push(vec![batch]);
                bytes = 0;
            }
        }
        bytes += size;
    }
    requests
}

/// Sends batches to a leader, again and elsewhere where that can help, until each has come to its end.
async fn deliver(shared: Arc<Shared>, mut leader: i32, mut batches: Vec<ReadyBatch>) {
    let mut retry = Retry::new(shared.client.config());
    let started = Instant::now();
    let mut attempts = 0;
    loop {
        let answer = produce(&shared, leader, &batches).await;
        let mut again = Vec::new();
        let mut last = None;
        for batch in batches {
            let result = match &answer {
                Ok(results) => results
                    .get(&(batch.topic.clone(), batch.partition))
                    .cloned()
                    .unwrap_or_else(|| {
                        Err(ClientError::broker(
                            "produce",
                            -1,
                            Some("there was no answer"),
                        ))
                    }),
                Err(error) => Err(error.clone()),
            };
            match result {
                // The batch is there already: an earlier attempt was written, its answer lost.
                Err(error) if error.code() == Some(ErrorCode::DuplicateSequenceNumber) => {
                    finish(&shared, batch, Ok((-1, -1)));
                }
                Err(error)
                    if error.is_retriable()
                        && attempts < shared.config.retries
                        && started.elapsed() < shared.config.delivery_timeout =>
                {
                    last = Some(error);
                    again.push(batch);
                }
                result => finish(&shared, batch, result),
            }
        }
        let Some(error) = last else { return };
        batches = again;
        attempts += 1;
        if let Err(error) = retry.wait("produce", error).await {
            for batch in batches {
                finish(&shared, batch, Err(error.clone()));
            }
            return;
        }
        let mut topics: Vec<String> = batches.iter().map(|batch| batch.topic.clone()).collect();
        topics.dedup();
        if let Ok(metadata) = shared.client.refresh_metadata(Some(&topics), false).await {
            // Batches that travel together stay together unless their leaders part.
            let first = &batches[0];
            leader = metadata
                .partition(&first.topic, first.partition)
                .map_or(-1, |it| it.leader);
            let elsewhere = |batch: &ReadyBatch| {
                metadata
                    .partition(&batch.topic, batch.partition)
                    .map_or(-1, |it| it.leader)
                    != leader
            };
            let (moved, stay): (Vec<_>, Vec<_>) = batches.into_iter().partition(elsewhere);
            batches = stay;
            for batch in moved {
                let leader = metadata
                    .partition(&batch.topic, batch.partition)
                    .map_or(-1, |it| it.leader);
                tokio::spawn(deliver_elsewhere(shared.clone(), leader, vec![batch]));
            }
        }
    }
}

/// [`deliver`] from within itself: behind a box, because a future cannot contain itself.
fn deliver_elsewhere(
    shared: Arc<Shared>,
    leader: i32,
    batches: Vec<ReadyBatch>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(deliver(shared, leader, batches))
}

type Produced = BTreeMap<(String, i32), Result<(i64, i64), ClientError>>;

/// One Produce request. The outcome of each batch is its base offset and append time.
async fn produce(
    shared: &Shared,
    leader: i32,
    batches: &[ReadyBatch],
) -> Result<Produced, ClientError> {
    let connection = shared.client.node(leader).await?;
    let metadata = shared.client.metadata();
    let mut topics: Vec<TopicProduceData> = Vec::new();
    for batch in batches {
        let data = PartitionProduceData {
            index: batch.partition,
            records: Some(batch.records.clone().into()),
            ..Default::default()
        };
        match topics.iter_mut().find(|topic| *topic.name == *batch.topic) {
            Some(topic) => topic.partition_data.push(data),
            None => topics.push(TopicProduceData {
                name: batch.topic.clone().into(),
                topic_id: metadata
                    .topics
                    .get(&batch.topic)
                    .map_or(Uuid::ZERO, |it| it.topic_id),
                partition_data: vec![data],
                ..Default::default()
            }),
        }
    }
    let request = ProduceRequest {
        acks: shared.config.acks,
        timeout_ms: shared.client.config().request_timeout.as_millis() as i32,
        topic_data: topics,
        ..Default::default()
    };
    if shared.config.acks == 0 {
        connection.send_unanswered(&request).await?;
        let sent = |batch: &ReadyBatch| ((batch.topic.clone(), batch.partition), Ok((-1, -1)));
        return Ok(batches.iter().map(sent).collect());
    }
    let response = connection.send(&request).await?;
    let mut results = Produced::new();
    for topic in &response.responses {
        let name = match metadata.topic_name(topic.topic_id) {
            Some(name) if topic.name.is_empty() => name.to_owned(),
            _ => topic.name.to_string(),
        };
        for partition in &topic.partition_responses {
            let what = format!("producing to {name}-{}", partition.index);
            let message = partition.error_message.as_ref();
            let result = ClientError::check(what, partition.error_code, message)
                .map(|()| (partition.base_offset, partition.log_append_time_ms));
            results.insert((name.clone(), partition.index), result);
        }
    }
    Ok(results)
}

/// Tells the senders of a batch's records what became of them, and lets the partition's next batch go.
fn finish(shared: &Shared, batch: ReadyBatch, result: Result<(i64, i64), ClientError>) {
    shared
        .accumulator
        .lock()
        .finished(&batch.topic, batch.partition, result.is_ok());
    for (index, (waiting, timestamp)) in batch.waiting.into_iter().enumerate() {
        let metadata = result
            .clone()
            .map(|(base_offset, append_time)| RecordMetadata {
                partition: batch.partition,
                offset: if base_offset < 0 {
                    -1
                } else {
                    base_offset + index as i64
                },
                timestamp: if append_time < 0 {
                    timestamp
                } else {
                    append_time
                },
            });
        let _ = waiting.reply.send(metadata);
    }
    shared.finished.notify_waiters();
    shared.wake_sender.notify_one();
}

async fn init_producer_id(client: &Client) -> Result<(ProducerId, ProducerEpoch), ClientError> {
    client
        .retrying("InitProducerId", async || {
            let request = InitProducerIdRequest {
                transactional_id: None,
                transaction_timeout_ms: i32::MAX,
                ..Default::default()
            };
            let response = client.any_node().await?.send(&request).await?;
            ClientError::check("a producer id", response.error_code, None::<&str>)?;
            Ok((
                ProducerId(response.producer_id),
                ProducerEpoch(response.producer_epoch),
            ))
        })
        .await
}
