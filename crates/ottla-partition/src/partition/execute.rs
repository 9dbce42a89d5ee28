//! Executes the effects of a replica's steps and returns the results as events.
//!
//! Appends are not written one by one: `WriteLog` collects them. They are written with one call
//! when the inbox is empty or before an event that must see them written.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread::LocalKey;
use std::time::Duration;

use ottla_log::{
    AppendErrorReason, AppendOrigin, Job, JobOutcome, Log, LogReader, StorageError, WrittenPages,
};
use ottla_records::RecordBatch;
use ottla_records::legacy::LegacyMessage;
use ottla_replica::{AckOutcome, Append, Effect, Event, ProducerVerdict};
use ottla_tiered::REMOTE_LOG_METADATA_TOPIC;
use ottla_types::{ErrorCode, Offset};

use super::append::{Ack, OfTransaction, PendingAppend};
use super::append_pace::AppendTime;
use super::event::{PartitionEvent, Truncation};
use super::host::PartitionHost;
use super::log_location::LogLocation;
use super::{FlushState, Partition, PartitionState, TopicIdFile};
use ottla_metrics::Metric;
use ottla_metrics::stalls;

mod replicating;
#[cfg(test)]
mod tests;
mod topic_id_file;
mod transactions;

use replicating::fetch_remote_state;

/// Pause before retrying a flush that found the disk full or no file handle.
const FLUSH_RETRY: Duration = Duration::from_secs(1);

thread_local! {
    /// Empty lists for the next step and the next write, kept for their capacity. One of each a
    /// thread and not a partition: nearly all partitions are idle.
    static EFFECTS: RefCell<Vec<Effect<Ack>>> = const { RefCell::new(Vec::new()) };
    static BATCHES: RefCell<Vec<RecordBatch>> = const { RefCell::new(Vec::new()) };
}

/// A thread keeps no longer lists, so that the memory of a burst is given back.
const MOST_KEPT: usize = 1024;

/// Keeps an empty list for the next use on this thread.
fn keep<T>(list: &'static LocalKey<RefCell<Vec<T>>>, empty: Vec<T>) {
    if (1..=MOST_KEPT).contains(&empty.capacity()) {
        list.set(empty);
    }
}

impl PartitionState {
    pub(super) fn defer(&mut self, event: PartitionEvent) {
        self.deferred = Some(Box::new(event));
    }

    pub(super) fn is_log_open_without_waiting(&self) -> bool {
        self.log.is_open_without_waiting()
    }

    pub(super) fn take_deferred(&mut self) -> Option<PartitionEvent> {
        self.deferred.take().map(|event| *event)
    }

    /// The next append that is no longer held. A lost replica releases them all, to answer them.
    pub(super) fn take_let_go(&mut self) -> Option<PartitionEvent> {
        if self.replica.is_lost() {
            self.held.let_all_go();
        }
        self.held.pop()
    }

    /// Steps the replica with one event. Appends may stay unwritten until `finish`.
    pub(super) fn take(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        event: PartitionEvent,
    ) {
        if self.topic_id_file.is_missing() && event.brings_records() {
            self.get_topic_id(partition, host);
        }
        match event {
            _ if self.is_held(&event) => {
                partition.inbox.count(event.bytes());
                self.held.push(event);
            }
            PartitionEvent::Append(append) => self.on_append(partition, host, append),
            PartitionEvent::HoldAppends(in_force) => {
                self.write(partition, host);
                self.held.hold();
                // If the receiver is gone, the hold ends soon.
                let _ = in_force.send(());
            }
            PartitionEvent::LetAppendsGo => self.held.let_go(),
            PartitionEvent::TopicId(event) => self.on_topic_id(partition, host, event),
            PartitionEvent::Replica(event) => {
                self.write(partition, host);
                self.note_answer(host, &event);
                self.step(partition, host, event);
            }
            PartitionEvent::FollowerFetch(fetch, turn) => {
                self.write(partition, host);
                self.on_follower_fetch(partition, host, fetch, turn);
            }
            PartitionEvent::LeaderAnswered(answer) => {
                self.write(partition, host);
                self.on_leader_answered(partition, host, answer);
            }
            PartitionEvent::RemoteStateFetched(leader_epoch, result) => {
                self.write(partition, host);
                self.on_remote_state_fetched(partition, host, leader_epoch, result);
            }
            PartitionEvent::Truncate(truncation) => self.truncate(partition, host, truncation),
            PartitionEvent::BeginVerification(begin) => self.on_begin_verification(host, begin),
            PartitionEvent::TransactionVerified(verified) => self.on_verified(verified),
            PartitionEvent::Look(look) => {
                self.write(partition, host);
                look(&self.replica, &self.log);
            }
            PartitionEvent::Work(work) => {
                self.write(partition, host);
                let watched = stalls::watch();
                work(&mut self.log);
                watched.end("work on the log", &partition.topic_partition);
            }
            PartitionEvent::Replace(replace) => {
                self.write(partition, host);
                if !self.replica.is_lost()
                    && let Some(log_location) = replace(&mut self.log)
                {
                    self.on_replaced(partition, host, log_location);
                }
            }
            PartitionEvent::JobDone(log, outcome) => {
                if log.is_of_same_log(&partition.reader()) {
                    self.log.on_job_done(outcome);
                }
            }
            PartitionEvent::FlushEnded { log, up_to, result } => {
                self.write(partition, host);
                if log.is_of_same_log(&partition.reader()) {
                    self.on_flush_ended(partition, host, up_to, result);
                } else if let Err(error) = result {
                    // The log was moved during the flush, and its replacement is flushed. Other
                    // logs may still use the old directory.
                    report(host, &log, &error);
                }
            }
            PartitionEvent::Flushed => {
                self.write(partition, host);
                self.tell_flushed(partition, host);
            }
            PartitionEvent::FlushDue => {
                self.write(partition, host);
                self.on_flush_due(partition, host);
            }
            PartitionEvent::JobFailed(log, error) => {
                self.write(partition, host);
                if log.is_of_same_log(&partition.reader()) {
                    self.on_job_failed(partition, host, &error);
                } else {
                    report(host, &log, &error);
                }
            }
        }
    }

    /// Whether an active hold on appends concerns the event. While a new log waits for its topic ID,
    /// a response of the leader without records passes: otherwise the next fetch, which may wait at
    /// the leader, would not contain the partition. It does not pass if a directory move holds as well:
    /// it may truncate the log, or move its start, and the copy that replaces the log would not follow.
    fn is_held(&self, event: &PartitionEvent) -> bool {
        let is_topic_id_underway = matches!(self.topic_id_file, TopicIdFile::Underway(_));
        let is_only_for_topic_id = is_topic_id_underway && self.held.holds() == 1;
        let is_concerned = match event {
            PartitionEvent::Append(_) => true,
            PartitionEvent::LeaderAnswered(_) => !is_only_for_topic_id || event.brings_records(),
            _ => false,
        };
        is_concerned && self.held.is_holding()
    }

    /// Writes the collected batches and publishes the replica's state.
    pub(super) fn finish(&mut self, partition: &Arc<Partition>, host: &Arc<PartitionHost>) {
        self.write(partition, host);
        partition.publish(&self.replica);
        if self.log.has_jobs() {
            for job in self.log.take_jobs() {
                start_job(partition, host, job);
            }
        }
        if let Some(deadline_ms) = self.replica.next_deadline_ms() {
            partition.set_timer(host, deadline_ms);
        }
    }

    fn on_append(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        append: PendingAppend,
    ) {
        let Some(mut append) = self.admit(partition, host, append) else {
            return;
        };
        let of_transaction = append.of_transaction.clone();
        let origin = match append.ack {
            Ack::Request { .. } => AppendOrigin::Client,
            Ack::Internal(_) => AppendOrigin::Coordinator,
        };
        let batch = &mut append.batch;
        batch.assign_offset(self.replica.next_offset(), self.replica.leader_epoch());
        let is_of_producer = batch.header.has_producer_id();
        let segment_bytes = partition.reader().config().effective_segment_bytes();
        let verdict = match is_of_producer {
            // The log would refuse it together with everything in the same write. Its size was
            // checked before, but the setting may have changed since.
            _ if batch.size_in_bytes() as i64 > i64::from(segment_bytes) => {
                ProducerVerdict::Refused(ErrorCode::RecordListTooLarge)
            }
            true if self.lacks_memory(host, &batch.header, origin) => {
                ProducerVerdict::Refused(ErrorCode::KafkaStorageError)
            }
            true => self.verdict(batch, origin, &of_transaction),
            false => ProducerVerdict::InSequence,
        };
        let unwritten = self.unwritten.len();
        let append = Append {
            batch: append.batch,
            required_acks: append.required_acks,
            expected_leader_epoch: append.expected_leader_epoch,
            deadline_ms: append.deadline_ms,
            verdict,
            ack: append.ack,
        };
        self.step(partition, host, Event::Append(append));
        // The stage assumed that the batch would be written. If the replica refused it for another
        // reason, the stage is cleared, after the batches before it are written.
        if is_of_producer
            && verdict == ProducerVerdict::InSequence
            && self.unwritten.len() == unwritten
        {
            self.write(partition, host);
            self.stage.clear();
        }
    }

    fn verdict(
        &mut self,
        batch: &RecordBatch,
        origin: AppendOrigin,
        of_transaction: &OfTransaction,
    ) -> ProducerVerdict {
        if let Err(error) = self.check_verified(&batch.header, of_transaction, origin) {
            return ProducerVerdict::Refused(error);
        }
        let version = of_transaction.version_of_marker();
        let checked = self
            .log
            .check_producer(&mut self.stage, batch, origin, version);
        match checked {
            Ok(ottla_log::ProducerVerdict::InSequence) => ProducerVerdict::InSequence,
            Ok(ottla_log::ProducerVerdict::Duplicate(duplicate)) => ProducerVerdict::Duplicate {
                base_offset: duplicate.first_offset(),
                last_offset: duplicate.last_offset,
                log_append_time: duplicate.timestamp,
            },
            Err(error) => {
                tracing::info!(partition = %self.log.topic_partition(), "append refused: {error}");
                ProducerVerdict::Refused(error.error_code())
            }
        }
    }

    fn step(&mut self, partition: &Arc<Partition>, host: &Arc<PartitionHost>, event: Event<Ack>) {
        // A step within this one finds none, and its own is replaced at the end of this one.
        let mut effects = EFFECTS.take();
        self.replica.step(event, &mut effects);
        self.execute_all(partition, host, &mut effects);
        keep(&EFFECTS, effects);
    }

    /// A step that is caused by an effect follows after all of them: its own effects are newer.
    fn execute_all(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        for effect in effects.drain(..) {
            self.execute(partition, host, effect);
        }
        if std::mem::take(&mut self.is_flushed_already) {
            self.tell_flushed(partition, host);
        }
    }

    fn execute(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        effect: Effect<Ack>,
    ) {
        match effect {
            Effect::AssignLeaderEpoch {
                leader_epoch,
                start_offset,
            } => self.log.assign_leader_epoch(leader_epoch, start_offset),
            Effect::WriteLog { batch } => {
                // Only for batches that the replica accepted: a refused batch does not end the
                // verification.
                self.verifications.on_appended(&batch.header);
                if self.unwritten.capacity() == 0 {
                    self.unwritten = BATCHES.take();
                }
                self.unwritten.push(batch);
            }
            Effect::WriteLegacy { message } => {
                self.unwritten_legacy
                    .get_or_insert_default()
                    .0
                    .push(message);
            }
            Effect::Flush { up_to } => {
                self.is_flushed_already |= self.flush(partition, host, up_to);
            }
            Effect::AdvanceHighWatermark { high_watermark }
            | Effect::FollowHighWatermark { high_watermark } => {
                self.log.set_high_watermark(high_watermark);
                partition.waiters.on_end_moved(high_watermark);
            }
            Effect::ReleaseAck { ack, outcome } => ack.release(outcome),
            Effect::TruncateLog { to } => self.put_truncation_off(Truncation::To(to)),
            Effect::TruncateLogFully { start_at } => {
                self.put_truncation_off(Truncation::FullyAndStartAt(start_at));
            }
            Effect::FetchRemoteState {
                leader,
                leader_epoch,
            } => fetch_remote_state(partition, host, leader, leader_epoch),
            Effect::StartAfterRemoteLog => self.put_truncation_off(Truncation::StartAfterRemoteLog),
            Effect::IncrementLogStartOffset { log_start_offset } => {
                if let Err(error) = self.log.increment_log_start_offset(log_start_offset) {
                    tracing::warn!(partition = %partition.topic_partition, "{error}");
                }
            }
            Effect::Fetch(position) => self.order_fetch(partition, host, position),
            Effect::StopFetching => self.stop_fetching(partition),
            Effect::ListLeaderOffsets {
                leader,
                leader_epoch,
            } => self.list_leader_offsets(partition, host, leader, leader_epoch),
            Effect::AlterPartition(proposal) => self.propose(partition, host, proposal),
            Effect::MoveLowWatermark { .. } => partition.changes.notify_waiters(),
        }
    }

    /// Writes the collected batches and reports the new log end to the replica.
    fn write(&mut self, partition: &Arc<Partition>, host: &Arc<PartitionHost>) {
        if self.unwritten.is_empty() && self.unwritten_legacy.is_none() {
            return;
        }
        let mut batches = std::mem::take(&mut self.unwritten);
        let messages = self.unwritten_legacy.take();
        let messages = messages.map_or_else(Vec::new, |messages| messages.0);
        let bytes = batches.iter().map(RecordBatch::size_in_bytes);
        let bytes = bytes.chain(messages.iter().map(LegacyMessage::size_in_bytes));
        let bytes = bytes.sum::<usize>() as u64;
        let log_location = partition.log_location.load();
        if self.has_no_topic_id() || !takes_space(partition, &log_location, bytes) {
            batches.clear();
            keep(&BATCHES, batches);
            self.stage.clear();
            let log_end_offset = self.log.log_end_offset();
            return self.step(partition, host, Event::WriteRefused { log_end_offset });
        }
        let watched = stalls::watch();
        let timed = log_location.pace.begin(|| host.context.now_ms());
        let measured = match host.page_cache.needs_costs() {
            true => self.append_meter.begin(),
            false => None,
        };
        let written = match messages.is_empty() {
            true => self.log.append(&batches, host.context.timestamp()),
            false => self.log.append_legacy(&messages, host.context.timestamp()),
        };
        if let (Ok(_), Some(began)) = (&written, measured) {
            host.page_cache.count_append(bytes, began);
        }
        let has_rolled = written.as_ref().is_ok_and(|info| info.rolled);
        let operation = match has_rolled {
            true => "append with a roll",
            false => "append",
        };
        watched.end(operation, &partition.topic_partition);
        if let AppendTime::Stalled(took) = log_location.pace.end(&timed, || host.context.now_ms()) {
            host.context.metrics.add(Metric::StalledAppends, 1);
            tracing::debug!(partition = %partition.topic_partition, ?took, "an append had to wait");
        }
        batches.clear();
        keep(&BATCHES, batches);
        self.stage.clear();
        let log_end_offset = self.log.log_end_offset();
        // Followers fetch the new records while the acknowledgements are processed.
        partition.followers.on_end_moved(log_end_offset);
        match written {
            Ok(_) => self.step(partition, host, Event::LogWritten { log_end_offset }),
            Err(error) => {
                self.step(partition, host, Event::WriteRefused { log_end_offset });
                match error.reason {
                    AppendErrorReason::Storage(error) => self.lose(partition, host, &error),
                    AppendErrorReason::Temporary(error) => {
                        put_off(host, partition, "append", &error);
                    }
                    reason => tracing::warn!(
                        partition = %partition.topic_partition,
                        "append refused: {reason}"
                    ),
                }
            }
        }
    }

    /// Starts a flush. Returns whether everything is flushed already; the caller then passes that
    /// to the replica.
    fn flush(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        up_to: Offset,
    ) -> bool {
        if let FlushState::Running(_) = self.flush {
            self.flush = FlushState::Running(Some(up_to));
            return false;
        }
        let Some(job) = self.log.flush_job() else {
            return true;
        };
        self.flush = FlushState::Running(None);
        let (partition, host) = (Arc::clone(partition), Arc::clone(host));
        let log = self.log.reader();
        let threads = partition.log_location.load().threads.jobs.clone();
        threads.start(move || {
            let up_to = job.up_to();
            let result = job.run().map(|_| ());
            partition.put(&host, PartitionEvent::FlushEnded { log, up_to, result });
        });
        false
    }

    fn on_flush_ended(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        up_to: Offset,
        result: Result<(), StorageError>,
    ) {
        let wanted = match self.flush {
            FlushState::Running(wanted) => wanted,
            FlushState::Idle => None,
        };
        match result {
            Ok(()) => {
                self.flush = FlushState::Idle;
                let flushed_end = partition.reader().recovery_point();
                if let Some(up_to) = wanted.filter(|&up_to| up_to > flushed_end) {
                    self.flush(partition, host, up_to);
                }
                self.tell_flushed(partition, host);
            }
            // Acknowledgements that need the flush keep waiting until their deadlines. This was a
            // failed write that can be repeated; a failed fsync loses the log instead.
            Err(error) if error.is_temporary() => {
                put_off(host, partition, "flush", &error);
                self.flush = FlushState::Running(wanted.max(Some(up_to)));
                let (partition, host) = (Arc::clone(partition), Arc::clone(host));
                ottla_sync::task::spawn(async move {
                    ottla_sync::time::sleep(FLUSH_RETRY).await;
                    partition.put(&host, PartitionEvent::FlushDue);
                });
            }
            Err(error) => {
                self.flush = FlushState::Idle;
                self.lose(partition, host, &error);
            }
        }
    }

    /// Reports the recovery point to the replica.
    fn tell_flushed(&mut self, partition: &Arc<Partition>, host: &Arc<PartitionHost>) {
        let up_to = partition.reader().recovery_point();
        self.step(partition, host, Event::Flushed { up_to });
    }

    /// The log was replaced by a copy with the same records, which is flushed to its end.
    fn on_replaced(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        log_location: LogLocation,
    ) {
        partition.log_location.store(Arc::new(log_location));
        // The pages of the copy are new.
        partition.readers.note_truncated(Offset::ZERO);
        self.on_log_replaced();
        self.stage.clear();
        let up_to = self.log.log_end_offset();
        self.flush = FlushState::Idle;
        self.step(partition, host, Event::Flushed { up_to });
    }

    fn on_flush_due(&mut self, partition: &Arc<Partition>, host: &Arc<PartitionHost>) {
        let FlushState::Running(Some(up_to)) = self.flush else {
            return;
        };
        self.flush = FlushState::Idle;
        if !self.replica.is_lost() && self.flush(partition, host, up_to) {
            self.tell_flushed(partition, host);
        }
    }

    fn on_job_failed(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        error: &StorageError,
    ) {
        if error.is_temporary() {
            // A later flush or roll does the work, or it is not needed.
            put_off(host, partition, "maintenance", error);
        } else {
            self.lose(partition, host, error);
        }
    }

    /// The log directory has failed: nothing is acknowledged any more.
    fn lose(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        error: &StorageError,
    ) {
        if let Some(log_dirs) = host.log_dirs() {
            log_dirs.on_partition_error(&partition.reader(), error);
        }
        self.step(partition, host, Event::LogLost);
        partition.wake_all();
    }
}

/// Takes the space for an append, if there is enough. While nothing can be recorded about remote
/// segments, none is copied, and no local one may be deleted: a disk that filled while the store was
/// away would stay full.
fn takes_space(partition: &Partition, log_location: &LogLocation, bytes: u64) -> bool {
    match *partition.topic_partition.topic == *REMOTE_LOG_METADATA_TOPIC {
        true => log_location.space.take_from_reserve(bytes),
        false => log_location.space.take(bytes),
    }
}

/// Logs an operation that is retried or repeated later. A lack of handles is logged once for all
/// partitions.
fn put_off(host: &PartitionHost, partition: &Partition, what: &str, error: &StorageError) {
    match host.log_dirs() {
        Some(log_dirs) if error.is_lack_of_resources() => log_dirs.on_lack(error),
        _ => tracing::warn!(partition = %partition.topic_partition, "{what} postponed: {error}"),
    }
}

/// Reports the failure of a log that the partition no longer uses.
fn report(host: &PartitionHost, log: &LogReader, error: &StorageError) {
    if let Some(log_dirs) = host.log_dirs() {
        log_dirs.on_partition_error(log, error);
    }
}

/// Runs a maintenance job on a thread of the log's directory and passes the result to the log.
fn start_job(partition: &Arc<Partition>, host: &Arc<PartitionHost>, job: Job) {
    let (partition, host) = (Arc::clone(partition), Arc::clone(host));
    let is_spare = matches!(job, Job::PrepareSpare(_));
    let log = partition.reader().clone();
    let threads = partition.log_location.load().threads.jobs.clone();
    ottla_sync::task::spawn(async move {
        let Ok(mut result) = threads.run(move || job.run()).await else {
            return;
        };
        if let Ok(JobOutcome::Unlink(unlink)) = result {
            ottla_sync::time::sleep(Duration::from_millis(unlink.delay_ms().max(0) as u64)).await;
            let unlinked = threads.run(move || unlink.run()).await;
            result = unlinked.unwrap_or(Ok(())).map(|()| JobOutcome::Done);
        }
        let event = match result {
            Ok(JobOutcome::Done) => return,
            Ok(JobOutcome::WrittenBack(pages)) => {
                return drop_surplus(&partition, &host, pages).await;
            }
            Ok(outcome) => PartitionEvent::JobDone(log, outcome),
            Err(error) => {
                if is_spare {
                    let refused = Box::new(Log::on_spare_refused);
                    partition.put(&host, PartitionEvent::Work(refused));
                }
                PartitionEvent::JobFailed(log, error)
            }
        };
        partition.put(&host, event);
    });
}

/// Adds written pages to the page cache queue and drops the oldest pages over the limit. A failure
/// concerns the partition that owns the pages.
async fn drop_surplus(partition: &Arc<Partition>, host: &Arc<PartitionHost>, pages: WrittenPages) {
    let max_bytes = host.context.config().ottla_page_cache_max_bytes;
    let surplus = host
        .page_cache
        .add(partition, pages, max_bytes, host.context.now_ms());
    if surplus.is_empty() {
        return;
    }
    for (partition, pages) in surplus {
        let Some(log) = pages.log() else {
            continue;
        };
        let (bytes, end_offset) = (pages.bytes(), pages.end_offset());
        let truncations = pages.truncations();
        let threads = partition.log_location.load().threads.jobs.clone();
        let dropping = Arc::clone(host);
        let dropped = threads.run(move || dropping.page_cache.drop_pages(pages));
        match dropped.await {
            Ok(Ok(())) => {
                // Otherwise the log may have other records at their offsets by now, in new pages.
                if log.truncations() == truncations {
                    note_dropped(&partition, &log, end_offset);
                }
                host.context.metrics.add(Metric::PageCacheDropped, bytes);
            }
            Ok(Err(error)) => partition.put(host, PartitionEvent::JobFailed(log, error)),
            // A panic was reported where it happened.
            Err(_) => {}
        }
    }
}

/// Notes that pages of a log were dropped whose records are below `end_offset`.
fn note_dropped(partition: &Partition, log: &LogReader, end_offset: Offset) {
    let readers = &partition.readers;
    readers.note_dropped(end_offset);
    // This is read after the note, so that a truncation or a replacement of the log at the same time
    // is not missed.
    let reader = partition.reader();
    readers.note_truncated(match reader.is_of_same_log(log) {
        true => reader.log_end_offset(),
        false => Offset::ZERO,
    });
}

/// Answers the remaining appends when the partition is dropped.
impl Drop for PartitionState {
    fn drop(&mut self) {
        let mut effects = Vec::new();
        self.replica.step(Event::LogLost, &mut effects);
        for effect in effects {
            if let Effect::ReleaseAck { ack, .. } = effect {
                ack.release(AckOutcome::NotLeader);
            }
        }
        for append in self.unverified.take_all() {
            append.ack.release(AckOutcome::NotLeader);
        }
    }
}
