//! The metrics of a producer, with the names of Kafka's `SenderMetricsRegistry`,
//! `KafkaProducerMetrics` and `BufferPool`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_sync::Mutex;
use ottla_types::named_enum;

use super::batch::ProducerBatch;
use super::buffer_pool::BufferPool;
use super::topics::PartitionQueue;
use crate::client::Client;
use crate::metrics::{Clock, Metrics, Sensor, Sheet, Windows};

const GROUP: &str = "producer-metrics";
const NODE_GROUP: &str = "producer-node-metrics";
const TOPIC_GROUP: &str = "producer-topic-metrics";

/// Recorded per batch and per request, mostly on the sender's task, so that the lock is rarely
/// contended.
pub(super) struct ProducerSensors {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    batch_size: Sensor,
    /// The ratio of the compressed to the uncompressed size of records.
    compression_rate: Sensor,
    /// The time from a batch's first record to its request, in milliseconds.
    queue_time: Sensor,
    request_latency: Sensor,
    records_per_request: Sensor,
    /// The largest record of each batch. As in Kafka, the upper bound of its size in a separate
    /// batch.
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

#[derive(Default)]
struct TopicSensors {
    records: Sensor,
    bytes: Sensor,
    compression_rate: Sensor,
    retries: Sensor,
    errors: Sensor,
}

named_enum! {
    /// A call whose time is summed up, by the name of its metric.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub(super) enum Call {
        Flush => "flush-time-ns-total",
        MetadataWait => "metadata-wait-time-ns-total",
        InitTransactions => "txn-init-time-ns-total",
        BeginTransaction => "txn-begin-time-ns-total",
        SendOffsets => "txn-send-offsets-time-ns-total",
        CommitTransaction => "txn-commit-time-ns-total",
        AbortTransaction => "txn-abort-time-ns-total",
    }
}

impl State {
    fn topic(&mut self, name: &Arc<str>) -> &mut TopicSensors {
        // The name is shared and counted only for a new entry.
        self.topics.entry(name.clone()).or_default()
    }
}

impl ProducerSensors {
    pub(super) fn new(windows: Windows) -> ProducerSensors {
        ProducerSensors {
            clock: Clock::start(windows),
            state: Mutex::default(),
        }
    }

    /// These batches are sent in one request. Retries count again, as in Kafka.
    pub(super) fn on_request(
        &self,
        batches: &[(Arc<PartitionQueue>, ProducerBatch)],
        in_flight: usize,
        at: Instant,
    ) {
        let now = self.clock.at(at);
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
            state.queue_time.record_time(queued, now);
            let topic = state.topic(&queue.topic);
            topic.records.record(count, now);
            topic.bytes.record(size, now);
            topic.compression_rate.record(compression_rate, now);
        }
        state.records_per_request.record(f64::from(records), now);
    }

    /// A request was answered or has failed.
    pub(super) fn on_answered(
        &self,
        latency: Option<Duration>,
        throttle: Option<Duration>,
        in_flight: usize,
    ) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.requests_in_flight = in_flight;
        if let Some(latency) = latency {
            state.request_latency.record_time(latency, now);
        }
        if let Some(throttle) = throttle {
            state.throttle_time.record_time(throttle, now);
        }
    }

    pub(super) fn on_retry(&self, topic: &Arc<str>, records: u32) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.retries.record(f64::from(records), now);
        let topic = state.topic(topic);
        topic.retries.record(f64::from(records), now);
    }

    pub(super) fn on_error(&self, topic: &Arc<str>, records: u32) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.errors.record(f64::from(records), now);
        let topic = state.topic(topic);
        topic.errors.record(f64::from(records), now);
    }

    pub(super) fn on_split(&self) {
        let now = self.clock.now();
        self.state.lock().splits.record(1.0, now);
    }

    /// A caller has waited for memory.
    pub(super) fn on_memory_awaited(&self, waited: Duration, is_granted: bool) {
        let now = self.clock.now();
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

    /// All metrics, including the client's connections and the buffer pool.
    pub(super) fn read(&self, client: &Client, pool: &BufferPool) -> Metrics {
        let mut sheet = Sheet::new(&client.config().client_id);
        client.write_metrics(&mut sheet, GROUP, NODE_GROUP);
        let now = self.clock.now();
        let mut state = self.state.lock();
        sheet.begin(GROUP, &[]);
        sheet.put_avg_and_max("batch-size", state.batch_size.measure(now));
        let compression_rate = state.compression_rate.measure(now);
        sheet.put("compression-rate-avg", compression_rate.avg);
        sheet.put_avg_and_max("record-queue-time", state.queue_time.measure(now));
        sheet.put_avg_and_max("request-latency", state.request_latency.measure(now));
        let records = state.records_per_request.measure(now);
        sheet.put_sums("record-send", records);
        sheet.put("records-per-request-avg", records.avg);
        sheet.put_avg_and_max("record-size", state.record_size.measure(now));
        sheet.put_sums("record-retry", state.retries.measure(now));
        sheet.put_sums("record-error", state.errors.measure(now));
        sheet.put_sums("batch-split", state.splits.measure(now));
        sheet.put_avg_and_max("produce-throttle-time", state.throttle_time.measure(now));
        let age = client.metadata_age();
        sheet.put("metadata-age", age.as_secs_f64());
        sheet.put("requests-in-flight", state.requests_in_flight as f64);
        sheet.put("waiting-threads", pool.waiting() as f64);
        sheet.put("buffer-total-bytes", pool.total() as f64);
        sheet.put("buffer-available-bytes", pool.available() as f64);
        let wait = state.bufferpool_wait.measure(now);
        sheet.put("bufferpool-wait-ratio", wait.rate / 1e9);
        sheet.put("bufferpool-wait-time-ns-total", wait.total);
        sheet.put_sums("buffer-exhausted", state.exhausted.measure(now));
        for call in Call::ALL {
            let spent = state.spent.get(&call).copied().unwrap_or_default();
            sheet.put(call.name(), spent.as_nanos() as f64);
        }
        // For KIP-939, which Kafka's producer does not expose yet.
        sheet.put("txn-prepare-time-ns-total", 0.0);
        for (topic, sensors) in &mut state.topics {
            sheet.begin(TOPIC_GROUP, &[("topic", topic)]);
            sheet.put_sums("record-send", sensors.records.measure(now));
            sheet.put_sums("byte", sensors.bytes.measure(now));
            let compression_rate = sensors.compression_rate.measure(now);
            sheet.put("compression-rate", compression_rate.avg);
            sheet.put_sums("record-retry", sensors.retries.measure(now));
            sheet.put_sums("record-error", sensors.errors.measure(now));
        }
        sheet.finish()
    }
}
