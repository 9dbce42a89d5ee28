//! What a producer counts. The names are those of Kafka's producer metrics, with underscores.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counted batch by batch and request by request, never record by record.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) record_send: AtomicU64,
    pub(super) record_error: AtomicU64,
    pub(super) record_retry: AtomicU64,
    pub(super) batch: AtomicU64,
    pub(super) batch_split: AtomicU64,
    pub(super) outgoing_byte: AtomicU64,
    pub(super) uncompressed_byte: AtomicU64,
    pub(super) request: AtomicU64,
    pub(super) request_latency_micros: AtomicU64,
    pub(super) request_latency_max_micros: AtomicU64,
    pub(super) queue_time_micros: AtomicU64,
    pub(super) bufferpool_wait_micros: AtomicU64,
    pub(super) requests_in_flight: AtomicU64,
}

impl Counters {
    pub(super) fn on_request(&self, latency: Duration) {
        let micros = latency.as_micros() as u64;
        self.request.fetch_add(1, Relaxed);
        self.request_latency_micros.fetch_add(micros, Relaxed);
        self.request_latency_max_micros.fetch_max(micros, Relaxed);
    }

    pub(super) fn on_batch(&self, size: usize, uncompressed: usize, queued_micros: u64) {
        self.batch.fetch_add(1, Relaxed);
        self.outgoing_byte.fetch_add(size as u64, Relaxed);
        self.uncompressed_byte
            .fetch_add(uncompressed as u64, Relaxed);
        self.queue_time_micros.fetch_add(queued_micros, Relaxed);
    }

    pub(super) fn set_in_flight(&self, requests: usize) {
        self.requests_in_flight.store(requests as u64, Relaxed);
    }

    pub(super) fn snapshot(&self, available: usize, total: usize) -> ProducerMetrics {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
        let (batches, requests) = (get(&self.batch), get(&self.request));
        let (sent, unpacked) = (get(&self.outgoing_byte), get(&self.uncompressed_byte));
        ProducerMetrics {
            record_send_total: get(&self.record_send),
            record_error_total: get(&self.record_error),
            record_retry_total: get(&self.record_retry),
            batch_split_total: get(&self.batch_split),
            outgoing_byte_total: sent,
            batch_size_avg: mean(sent, batches),
            compression_rate_avg: sent as f64 / unpacked.max(1) as f64,
            records_per_batch_avg: mean(get(&self.record_send), batches),
            record_queue_time_avg_ms: mean(get(&self.queue_time_micros), batches) / 1000.0,
            request_total: requests,
            request_latency_avg_ms: mean(get(&self.request_latency_micros), requests) / 1000.0,
            request_latency_max_ms: get(&self.request_latency_max_micros) as f64 / 1000.0,
            requests_in_flight: get(&self.requests_in_flight),
            bufferpool_wait_time_ms: get(&self.bufferpool_wait_micros) as f64 / 1000.0,
            buffer_available_bytes: available,
            buffer_total_bytes: total,
        }
    }
}

/// What a producer has done since it was made.
#[derive(Clone, Debug)]
pub struct ProducerMetrics {
    pub record_send_total: u64,
    pub record_error_total: u64,
    pub record_retry_total: u64,
    pub batch_split_total: u64,
    /// Bytes of batches sent, retries included.
    pub outgoing_byte_total: u64,
    pub batch_size_avg: f64,
    /// Bytes after compression, for each byte before.
    pub compression_rate_avg: f64,
    pub records_per_batch_avg: f64,
    /// From a batch's first record to its first request.
    pub record_queue_time_avg_ms: f64,
    pub request_total: u64,
    pub request_latency_avg_ms: f64,
    pub request_latency_max_ms: f64,
    pub requests_in_flight: u64,
    pub bufferpool_wait_time_ms: f64,
    pub buffer_available_bytes: usize,
    pub buffer_total_bytes: usize,
}
