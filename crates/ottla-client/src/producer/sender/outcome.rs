//! The result of an attempt to send a batch: written, retried, split or failed.

use std::time::Duration;

use ottla_records::RecordBatch;
use ottla_types::ErrorCode;

use super::{Sender, is_about_metadata};
use crate::error::ClientError;
use crate::producer::batch::{BatchReport, ProducerBatch};
use crate::producer::delivery::{DeliveredBatch, Outcome, Written};
use crate::producer::sequences::Refusal;
use crate::producer::topics::PartitionQueue;

/// The first pause before a batch is sent again to a broker that does not know of its election yet. It
/// doubles with each early repeat, up to `retry.backoff.ms`.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

impl Sender {
    /// Handles the result of an attempt.
    pub(super) fn settle(
        &mut self,
        queue: &PartitionQueue,
        mut batch: ProducerBatch,
        result: Result<Written, ClientError>,
    ) {
        let now = ottla_sync::time::now();
        queue.state.lock().on_wire -= 1;
        let error = match result {
            Ok(written) => return self.succeed(queue, batch, written),
            Err(error) => error,
        };
        let code = error.code().unwrap_or(ErrorCode::NetworkException);
        if code == ErrorCode::DuplicateSequenceNumber {
            // An earlier attempt was written, and its response was lost.
            let written = Written {
                base_offset: -1,
                log_append_time: -1,
            };
            return self.succeed(queue, batch, written);
        }
        if code == ErrorCode::MessageTooLarge && !batch.is_told {
            let shared = self.shared.clone();
            let identity = *shared.identity.lock();
            if shared
                .accumulator
                .put_back_split(queue, &mut batch, identity, now)
            {
                shared.sensors.on_split();
                shared.accumulator.on_completed(&batch.completion);
                batch.release();
                return;
            }
        }
        let refusal = batch.ticket.map(|ticket| {
            let is_transactional = self.shared.transaction.is_some();
            queue
                .state
                .lock()
                .sequences
                .judge(ticket, code, is_transactional)
        });
        let is_about_sequences = matches!(refusal, Some(Refusal::Early | Refusal::NewEpoch));
        let may_repeat = (error.is_retriable() || is_about_sequences)
            && batch.attempts.saturating_sub(batch.early_repeats) <= self.shared.config.retries
            && batch.age(now) < self.shared.delivery_timeout()
            && !batch.is_told
            && self.shared.may_repeat_batches();
        if !may_repeat {
            self.wants_metadata |= error.is_retriable() && is_about_metadata(&error);
            return self.fail(queue, batch, error);
        }
        if refusal == Some(Refusal::NewEpoch) {
            queue.state.lock().sequences.mark_broken();
            self.wants_new_epoch = true;
        }
        self.wants_metadata |= is_about_metadata(&error);
        self.shared
            .sensors
            .on_retry(&queue.topic, batch.record_count);
        let position = |ticket| queue.state.lock().sequences.position(ticket);
        let is_behind_others =
            refusal == Some(Refusal::Early) && batch.ticket.and_then(position) > Some(0);
        let pause = self.pause_before_repeating(&mut batch, is_behind_others);
        tracing::debug!(
            %error, topic = %queue.topic, partition = queue.partition, leader_epoch = batch.leader_epoch,
            attempts = batch.attempts, ?pause, "a batch goes again"
        );
        batch.waits_until =
            now + pause.mul_f64(ottla_sync::random::random_range("backoff", 0.8..1.2));
        batch.last_error = Some(error);
        self.shared.accumulator.put_back(queue, batch);
    }

    /// The backoff of a refused batch. Short at first if the broker does not know yet that it leads: it
    /// will within milliseconds, and all later records of the partition wait for this batch. Java's
    /// producer waits for the whole backoff.
    ///
    /// A batch that is behind others has no backoff: it is sent again when they are written. It may have
    /// been refused because it reached a new leader before a batch that the old one was yet to refuse.
    fn pause_before_repeating(
        &self,
        batch: &mut ProducerBatch,
        is_behind_others: bool,
    ) -> Duration {
        if is_behind_others {
            batch.early_repeats += 1;
            return Duration::ZERO;
        }
        let config = self.shared.client.config();
        let grown = |first: Duration, repeats: u32| first * 2u32.saturating_pow(repeats.min(16));
        let early = grown(FIRST_PAUSE, batch.early_repeats);
        if std::mem::take(&mut batch.is_broker_behind) && early < config.retry_backoff {
            batch.early_repeats += 1;
            return early;
        }
        let earlier = (batch.attempts - 1).saturating_sub(batch.early_repeats);
        grown(config.retry_backoff, earlier).min(config.retry_backoff_max)
    }

    fn succeed(&mut self, queue: &PartitionQueue, mut batch: ProducerBatch, written: Written) {
        if let Some(ticket) = batch.ticket {
            queue.state.lock().sequences.on_written(ticket);
        }
        let report = batch.take_report();
        self.tell(queue, report, Ok(written));
        batch.release();
    }

    /// Fails a batch permanently.
    pub(super) fn fail(
        &mut self,
        queue: &PartitionQueue,
        mut batch: ProducerBatch,
        error: ClientError,
    ) {
        let report = batch.take_report();
        self.count_error(queue, &report);
        self.end_in_vain(queue, batch, report, error);
    }

    /// Fails a batch that will never be sent: its transaction was aborted, or the producer was
    /// closed by force or must not write. As in Kafka, this does not count as record errors.
    pub(super) fn abort(
        &mut self,
        queue: &PartitionQueue,
        mut batch: ProducerBatch,
        error: ClientError,
    ) {
        let report = batch.take_report();
        self.end_in_vain(queue, batch, report, error);
    }

    /// Counts the records whose result has not been reported.
    pub(super) fn count_error(&self, queue: &PartitionQueue, report: &Option<BatchReport>) {
        if let Some(report) = report {
            let sensors = &self.shared.sensors;
            sensors.on_error(&queue.topic, report.record_count);
        }
    }

    fn end_in_vain(
        &mut self,
        queue: &PartitionQueue,
        mut batch: ProducerBatch,
        report: Option<BatchReport>,
        error: ClientError,
    ) {
        if let Some(ticket) = batch.ticket {
            queue.state.lock().sequences.on_failed(ticket);
            self.wants_new_epoch = true;
        }
        // A batch that expired in flight has failed its transaction at that time. That transaction
        // may be aborted by now, and the late response does not concern the next one.
        if report.is_some() {
            self.shared.on_batch_failed(&error, batch.ticket.is_some());
        }
        self.tell(queue, report, Err(error));
        batch.release();
    }

    /// Reports the result to all waiting callers. Only the first time counts.
    pub(super) fn tell(
        &self,
        queue: &PartitionQueue,
        report: Option<BatchReport>,
        result: Result<Written, ClientError>,
    ) {
        let Some(report) = report else { return };
        let shared = &self.shared;
        if let Some(listener) = &shared.listener {
            listener.on_delivered(&DeliveredBatch {
                topic: &queue.topic,
                partition: queue.partition,
                result: result.as_ref().map(|written| written.base_offset),
                record_count: report.record_count,
                bytes: report.records.len(),
                tags: &report.tags,
            });
        }
        if !shared.interceptors.is_empty() {
            self.tell_interceptors(queue, &report, &result);
        }
        for (index, timestamp, callback) in report.callbacks {
            let metadata = result
                .clone()
                .map(|written| written.metadata(queue.partition, index, timestamp));
            callback(metadata);
        }
        report.completion.set(Outcome::Done(result));
        shared.accumulator.on_completed(&report.completion);
    }

    fn tell_interceptors(
        &self,
        queue: &PartitionQueue,
        report: &BatchReport,
        result: &Result<Written, ClientError>,
    ) {
        let mut bytes = report.records.clone();
        let records = RecordBatch::read(&mut bytes).and_then(|batch| batch.records(usize::MAX));
        let timestamps: Vec<i64> = match &records {
            Ok(records) => records.iter().flatten().map(|it| it.timestamp.0).collect(),
            // It was never sealed.
            Err(_) => vec![-1; report.record_count as usize],
        };
        for (index, timestamp) in timestamps.into_iter().enumerate() {
            let metadata = result
                .as_ref()
                .map(|written| written.metadata(queue.partition, index as u32, timestamp));
            for interceptor in &self.shared.interceptors {
                interceptor.on_acknowledgement(&queue.topic, metadata.as_ref().map_err(|it| *it));
            }
        }
    }
}
