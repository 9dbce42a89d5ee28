//! What a producer measures: the names of Kafka's `SenderMetricsRegistry`, `KafkaProducerMetrics` and
//! `BufferPool`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_sync::Mutex;

use super::batch::ProducerBatch;
use super::buffer_pool::BufferPool;
use super::topics::PartitionQueue;
use crate::client::Client;
use crate::metrics::{Beginning, Metrics, Sensor, Sheet, Windows};

const GROUP: &str = "producer-metrics";
const NODE_GROUP: &str = "producer-node-metrics";
const TOPIC_GROUP: &str = "producer-topic-metrics";

/// Recorded batch by batch and request by request, mostly on the sender's task, so that the lock is free.
pub(super) struct ProducerSensors {
    beginning: Beginning,
    windows: Windows,
    state: Mutex<State>,
}

struct State {
    batch_size: Sensor,
    /// Bytes of records after compression, for each byte before.
    compression_rate: Sensor,
    /// From a batch's first record to its request, in milliseconds.
    queue_time: Sensor,
    request_latency: Sensor,
    records_per_request: Sensor,
    /// Of the largest of each batch, and as a batch of its own would take at most, as in Kafka.
    record_size: Sensor,
    throttle_time: Sensor,
    retries: Sensor,
    errors: Sensor,
    splits: Sensor,
    /// In nanoseconds.
    bufferpool_wait: Sensor,
    exhausted: Sensor,
    requests_in_flight: usize,
    spent: BTreeMap<Call, Duration>,
    topics: BTreeMap<Arc<str>, TopicSensors>,
}

struct TopicSensors {
    records: Sensor,
    bytes: Sensor,
    compression_rate: Sensor,
    retries: Sensor,
    errors: Sensor,
}

/// A call whose time is added up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Call {
    Flush,
    MetadataWait,
    InitTransactions,
    BeginTransaction,
    SendOffsets,
    CommitTransaction,
    AbortTransaction,
}

impl Call {
    const ALL: [Call; 7] = [
        Call::Flush,
        Call::MetadataWait,
        Call::InitTransactions,
        Call::BeginTransaction,
        Call::SendOffsets,
        Call::CommitTransaction,
        Call::AbortTransaction,
    ];

    fn metric(self) -> &'static str {
        match self {
            Call::Flush => "flush-time-ns-total",
            Call::MetadataWait => "metadata-wait-time-ns-total",
            Call::InitTransactions => "txn-init-time-ns-total",
            Call::BeginTransaction => "txn-begin-time-ns-total",
            Call::SendOffsets => "txn-send-offsets-time-ns-total",
            Call::CommitTransaction => "txn-commit-time-ns-total",
            Call::AbortTransaction => "txn-abort-time-ns-total",
        }
    }
}

impl State {
    fn topic(&mut self, name: &Arc<str>, windows: Windows) -> &mut TopicSensors {
        let sensor = || Sensor::new(windows);
        // The name is shared, so that a new entry alone counts it.
        self.topics
            .entry(name.clone())
            .or_insert_with(|| TopicSensors {
                records: sensor(),
                bytes: sensor(),
                compression_rate: sensor(),
                retries: sensor(),
                errors: sensor(),
            })
    }
}

impl ProducerSensors {
    pub(super) fn new(windows: Windows) -> ProducerSensors {
        let sensor = || Sensor::new(windows);
        ProducerSensors {
            beginning: Beginning::now(),
            windows,
            state: Mutex::new(State {
                batch_size: sensor(),
                compression_rate: sensor(),
                queue_time: sensor(),
                request_latency: sensor(),
                records_per_request: sensor(),
                record_size: sensor(),
                throttle_time: sensor(),
                retries: sensor(),
                errors: sensor(),
                splits: sensor(),
                bufferpool_wait: sensor(),
                exhausted: sensor(),
                requests_in_flight: 0,
                spent: BTreeMap::new(),
                topics: BTreeMap::new(),
            }),
        }
    }

    /// These batches leave in one request. Those that were sent before count again, as in Kafka.
    pub(super) fn on_request(
        &self,
        batches: &[(Arc<PartitionQueue>, ProducerBatch)],
        in_flight: usize,
        at: Instant,
    ) {
        let now = self.beginning.at(at);
        let mut state = self.state.lock();
        state.requests_in_flight = in_flight;
        let mut records = 0;
        for (queue, batch) in batches {
            let size = batch.size() as f64;
            let compression_rate = batch.compression_rate();
            let count = f64::from(batch.record_count);
            records += batch.record_count;
            state.batch_size.record(size, now);
            state.compression_rate.record(compression_rate, now);
            state.record_size.record(batch.largest_record() as f64, now);
            let queued = at.saturating_duration_since(batch.created);
            state.queue_time.record(queued.as_secs_f64() * 1000.0, now);
            let topic = state.topic(&queue.topic, self.windows);
            topic.records.record(count, now);
            topic.bytes.record(size, now);
            topic.compression_rate.record(compression_rate, now);
        }
        state.records_per_request.record(f64::from(records), now);
    }

    /// A request has been answered, or has failed.
    pub(super) fn on_answered(
        &self,
        latency: Option<Duration>,
        throttle: Option<Duration>,
        in_flight: usize,
    ) {
        let now = self.beginning.elapsed_ms();
        let mut state = self.state.lock();
        state.requests_in_flight = in_flight;
        if let Some(latency) = latency {
            state
                .request_latency
                .record(latency.as_secs_f64() * 1000.0, now);
        }
        if let Some(throttle) = throttle {
            state
                .throttle_time
                .record(throttle.as_secs_f64() * 1000.0, now);
        }
    }

    pub(super) fn on_retry(&self, topic: &Arc<str>, records: u32) {
        let now = self.beginning.elapsed_ms();
        let mut state = self.state.lock();
        state.retries.record(f64::from(records), now);
        let topic = state.topic(topic, self.windows);
        topic.retries.record(f64::from(records), now);
    }

    pub(super) fn on_error(&self, topic: &Arc<str>, records: u32) {
        let now = self.beginning.elapsed_ms();
        let mut state = self.state.lock();
        state.errors.record(f64::from(records), now);
        let topic = state.topic(topic, self.windows);
        topic.errors.record(f64::from(records), now);
    }

    pub(super) fn on_split(&self) {
        let now = self.beginning.elapsed_ms();
        self.state.lock().splits.record(1.0, now);
    }

    /// Somebody has waited for memory, and has got it or not.
    pub(super) fn on_memory_awaited(&self, waited: Duration, is_granted: bool) {
        let now = self.beginning.elapsed_ms();
        let mut state = self.state.lock();
        state.bufferpool_wait.record(waited.as_nanos() as f64, now);
        if !is_granted {
            state.exhausted.record(1.0, now);
        }
    }

    pub(super) fn on_spent(&self, call: Call, since: Instant) {
        let spent = ottla_sync::time::elapsed(since);
        *self.state.lock().spent.entry(call).or_default() += spent;
    }

    /// All of it, with what the connections of the client and the pool of buffers have to say.
    pub(super) fn read(&self, client: &Client, pool: &BufferPool) -> Metrics {
        let mut sheet = Sheet::new(&client.config().client_id);
        client.write_metrics(&mut sheet, GROUP, NODE_GROUP);
        let now = self.beginning.elapsed_ms();
        let mut state = self.state.lock();
        sheet.begin(GROUP, &[]);
        let batch_size = state.batch_size.measure(now);
        sheet.put("batch-size-avg", batch_size.avg);
        sheet.put("batch-size-max", batch_size.max);
        let compression_rate = state.compression_rate.measure(now);
        sheet.put("compression-rate-avg", compression_rate.avg);
        let queue_time = state.queue_time.measure(now);
        sheet.put("record-queue-time-avg", queue_time.avg);
        sheet.put("record-queue-time-max", queue_time.max);
        let latency = state.request_latency.measure(now);
        sheet.put("request-latency-avg", latency.avg);
        sheet.put("request-latency-max", latency.max);
        let records = state.records_per_request.measure(now);
        sheet.put("record-send-rate", records.rate);
        sheet.put("record-send-total", records.total);
        sheet.put("records-per-request-avg", records.avg);
        let record_size = state.record_size.measure(now);
        sheet.put("record-size-avg", record_size.avg);
        sheet.put("record-size-max", record_size.max);
        let retries = state.retries.measure(now);
        sheet.put("record-retry-rate", retries.rate);
        sheet.put("record-retry-total", retries.total);
        let errors = state.errors.measure(now);
        sheet.put("record-error-rate", errors.rate);
        sheet.put("record-error-total", errors.total);
        let splits = state.splits.measure(now);
        sheet.put("batch-split-rate", splits.rate);
        sheet.put("batch-split-total", splits.total);
        let throttle = state.throttle_time.measure(now);
        sheet.put("produce-throttle-time-avg", throttle.avg);
        sheet.put("produce-throttle-time-max", throttle.max);
        let age = client.metadata_age();
        sheet.put("metadata-age", age.as_secs_f64());
        sheet.put("requests-in-flight", state.requests_in_flight as f64);
        sheet.put("waiting-threads", pool.waiting() as f64);
        sheet.put("buffer-total-bytes", pool.total() as f64);
        sheet.put("buffer-available-bytes", pool.available() as f64);
        let wait = state.bufferpool_wait.measure(now);
        sheet.put("bufferpool-wait-ratio", wait.rate / 1e9);
        sheet.put("bufferpool-wait-time-ns-total", wait.total);
        let exhausted = state.exhausted.measure(now);
        sheet.put("buffer-exhausted-rate", exhausted.rate);
        sheet.put("buffer-exhausted-total", exhausted.total);
        for call in Call::ALL {
            let spent = state.spent.get(&call).copied().unwrap_or_default();
            sheet.put(call.metric(), spent.as_nanos() as f64);
        }
        // Of KIP-939, which Kafka's producer does not let anybody call yet.
        sheet.put("txn-prepare-time-ns-total", 0.0);
        for (topic, sensors) in &mut state.topics {
            sheet.begin(TOPIC_GROUP, &[("topic", topic)]);
            let records = sensors.records.measure(now);
            sheet.put("record-send-rate", records.rate);
            sheet.put("record-send-total", records.total);
            let bytes = sensors.bytes.measure(now);
            sheet.put("byte-rate", bytes.rate);
            sheet.put("byte-total", bytes.total);
            let compression_rate = sensors.compression_rate.measure(now);
            sheet.put("compression-rate", compression_rate.avg);
            let retries = sensors.retries.measure(now);
            sheet.put("record-retry-rate", retries.rate);
            sheet.put("record-retry-total", retries.total);
            let errors = sensors.errors.measure(now);
            sheet.put("record-error-rate", errors.rate);
            sheet.put("record-error-total", errors.total);
        }
        sheet.finish()
    }
}
