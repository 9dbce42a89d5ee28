//! Runs the tasks of one tiered partition on this broker.
//!
//! Gives the decisions a view of the log when a run is due, and carries out their effects: records go to the topic,
//! segments to the store, offsets to the log. Each effect with a result runs as a separate task, which sends the result
//! through a channel. When the partition gets another role, the decisions ignore late answers.
//!
//! A decision based on a view of the log is not carried out after a truncation. Between two checks of the roles, a
//! leader may have followed another one and lead again, and a follower truncates at any time:
//!
//! - the highest remote offset is set only without a truncation since the view;
//! - an upload fails if the log is truncated during it (`uploading`);
//! - the tasks start again with the next view.
//!
//! They also start again if `__remote_log_metadata` has lost records that were read: segments that counted as copied
//! may have to be copied again. Until this is known, no local segment counts as copied.
//!
//! Kafka: `RemoteLogManager.RLMTask` and its subclasses.

use std::sync::Arc;
use std::time::Duration;

use ottla_context::NodeContext;
use ottla_log::Log;
use ottla_partition::Partition;
use ottla_partition::tiering::{copy_delay_of, local_retention_bytes_of, log_view, retention_of};
use ottla_storage::random_uuid;
use ottla_sync::{mpsc, watch};
use ottla_tiered::{
    CopyDelay, CopyLag, LeaderEpochs, LogView, Operation, Origin, PartitionTasks, RemotePartition,
    Retention, RunOutcome, StoreFailure, TaskEffect, TaskEvent, TaskKind, TaskTime, TierRole,
    Upload,
};
use ottla_types::Offset;

use crate::remote_tier::RemoteTier;
use crate::stores::failure_of;
use crate::tier_metrics::{RetentionUse, TierCounter, TierGauges};
use crate::uploading::{self, Source};

/// How long a partition waits that has nothing due, or whose metadata is not read yet.
const IDLE: Duration = Duration::from_secs(1);
/// One unanswered effect of each task, and late ones of earlier roles.
const ANSWERS: usize = 16;

type Answer = (TaskKind, Operation, TaskEvent);

pub struct PartitionTask {
    remote: Arc<RemoteTier>,
    partition: RemotePartition,
    /// An upload ends when it does not copy any more.
    roles: watch::Receiver<TierRole>,
    answers: mpsc::Sender<Answer>,
    /// Of the log when it was last looked at ([`ottla_log::LogReader::truncations`]). None before that.
    truncations: Option<u64>,
    /// As it was then.
    copy_lag: CopyLag,
    retention: RetentionUse,
    /// How long the last run of the decisions took.
    decided_in: Duration,
    /// Of the metadata that the decisions are from ([`crate::metadata_topic::MetadataTopic::reloads`]).
    reloads: u64,
}

/// The input of a run's decisions.
struct View {
    log: LogView,
    retention: Retention,
    local_retention_bytes: i64,
    copy_delay: CopyDelay,
    /// None if the log is no longer here.
    truncations: Option<u64>,
}

/// The view of a log that is no longer here.
fn no_log() -> LogView {
    LogView {
        log_start_offset: Offset::ZERO,
        local_log_start_offset: Offset::ZERO,
        log_end_offset: Offset::ZERO,
        high_watermark: Offset::ZERO,
        last_stable_offset: Offset::ZERO,
        highest_remote_offset: Offset::UNKNOWN,
        leader_epochs: LeaderEpochs::default(),
        segments: Vec::new(),
    }
}

fn time_of(context: &NodeContext) -> TaskTime {
    TaskTime {
        timestamp: context.timestamp(),
        now_ms: context.now_ms(),
    }
}

impl PartitionTask {
    /// Runs the tasks of the roles that the partition gets, until it has none, or everything is
    /// deleted, or the broker stops. Returns whether everything is deleted.
    pub async fn run(
        remote: Arc<RemoteTier>,
        partition: RemotePartition,
        mut roles: watch::Receiver<TierRole>,
    ) -> bool {
        let (answers, mut answered) = mpsc::channel(ANSWERS);
        let context = Arc::clone(&remote.context);
        let origin = Origin {
            partition: partition.clone(),
            broker_id: context.broker_id(),
        };
        let mut machine = PartitionTasks::new(origin, remote.settings.tasks);
        let mut task = PartitionTask {
            reloads: remote.metadata.reloads(),
            remote,
            partition,
            roles: roles.clone(),
            answers,
            truncations: None,
            copy_lag: CopyLag::default(),
            retention: RetentionUse::default(),
            decided_in: Duration::ZERO,
        };
        let mut given = TierRole::Stopped;
        loop {
            let role = *roles.borrow_and_update();
            if role != given {
                machine.set_role(role, context.now_ms());
                given = role;
            }
            if machine.role() == TierRole::Stopped {
                return given == TierRole::Deleting;
            }
            task.run_due(&mut machine).await;
            task.report(&machine);
            let wait = task.wait(&machine);
            ottla_sync::select! {
                changed = roles.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                }
                Some((kind, operation, event)) = answered.recv() => {
                    let mut effects = Vec::new();
                    machine.step(kind, operation, event, time_of(&context), &mut effects);
                    task.execute(effects).await;
                }
                () = ottla_sync::time::sleep(wait) => {}
                () = context.stopping() => return false,
            }
        }
    }

    /// Reports the lag of the tasks. A follower copies nothing.
    fn report(&self, machine: &PartitionTasks) {
        let gauges = match machine.role() {
            TierRole::Leader { is_copy_disabled } => TierGauges {
                copy_lag: match is_copy_disabled {
                    true => CopyLag::default(),
                    false => self.copy_lag,
                },
                delete_lag: machine.expiration().delete_lag(),
                log: machine.expiration().stats(),
                size_computation_ms: self.decided_in.as_millis() as u64,
            },
            TierRole::Stopped | TierRole::Follower | TierRole::Deleting => TierGauges::default(),
        };
        let leads = matches!(machine.role(), TierRole::Leader { .. });
        let retention = leads.then_some(self.retention);
        let key = self.partition.topic_id_partition();
        self.remote.metrics.set_gauges(key, gauges, retention);
    }

    fn count(&self, counter: TierCounter, count: u64) {
        let topic = &self.partition.topic;
        self.remote.metrics.add(topic, counter, count);
    }

    fn wait(&self, machine: &PartitionTasks) -> Duration {
        let now_ms = self.remote.context.now_ms();
        match machine.next_run() {
            // It is due and did not begin: the metadata is being read.
            Some(due) if due <= now_ms => IDLE / 10,
            Some(due) => Duration::from_millis(due - now_ms).min(IDLE),
            None => IDLE,
        }
    }

    /// The local replica of this very topic.
    fn local(&self) -> Option<Arc<Partition>> {
        let found = self
            .remote
            .partitions
            .find(&self.partition.topic_partition());
        found.filter(|found| found.topic_id == self.partition.topic_id)
    }

    async fn run_due(&mut self, machine: &mut PartitionTasks) {
        let now = time_of(&self.remote.context);
        let reloads = self.remote.metadata.reloads();
        if std::mem::replace(&mut self.reloads, reloads) != reloads {
            let mut effects = Vec::new();
            machine.on_metadata_lost(now.now_ms, &mut effects);
            self.execute(effects).await;
        }
        if machine.next_run().is_none_or(|due| due > now.now_ms) {
            return;
        }
        let role = machine.role();
        let Some(mut view) = self.view(role).await else {
            return;
        };
        let is_truncated = self.truncations.is_some()
            && view.truncations.is_some()
            && self.truncations != view.truncations;
        if is_truncated {
            machine.begin_anew(now.now_ms);
        }
        self.truncations = view.truncations.or(self.truncations);
        let mut effects = Vec::new();
        let key = self.partition.topic_id_partition();
        machine.set_copy_delay(view.copy_delay);
        let began = ottla_sync::time::now();
        self.remote.metadata.with_cache(key, |cache| {
            machine.run_due(&view.log, cache, view.retention, now, &mut effects);
        });
        self.decided_in = ottla_sync::time::elapsed(began);
        self.retention = RetentionUse::of(
            machine.expiration().retained_bytes(),
            view.retention.retention_bytes,
            view.log.size_bytes(),
            view.local_retention_bytes,
        );
        self.execute(effects).await;
        // A leader's first run finds the segments that were copied before.
        if let Some(partition) = self.local() {
            view.log.highest_remote_offset = partition.reader().highest_remote_offset();
        }
        self.copy_lag = CopyLag::of(&view.log);
    }

    async fn view(&self, role: TierRole) -> Option<View> {
        let Some(partition) = self.local() else {
            let forever = Retention {
                retention_ms: -1,
                retention_bytes: -1,
            };
            return (role == TierRole::Deleting).then(|| View {
                log: no_log(),
                retention: forever,
                local_retention_bytes: -1,
                copy_delay: CopyDelay::default(),
                truncations: None,
            });
        };
        let config = partition.reader().config();
        let retention = retention_of(&config);
        let local_retention_bytes = local_retention_bytes_of(&config);
        let copy_delay = copy_delay_of(&config);
        let look = |log: &mut Log| (log_view(log), log.reader().truncations());
        match partition.with_log(&self.remote.host, look).await? {
            (Ok(log), truncations) => Some(View {
                log,
                retention,
                local_retention_bytes,
                copy_delay,
                truncations: Some(truncations),
            }),
            (Err(error), _) => {
                if let Some(log_dirs) = self.remote.host.log_dirs() {
                    log_dirs.on_partition_error(&partition.reader(), &error);
                }
                None
            }
        }
    }

    async fn execute(&self, effects: Vec<(TaskKind, TaskEffect)>) {
        for (kind, effect) in effects {
            match effect {
                TaskEffect::AwaitCopyQuota { operation, bytes } => {
                    let remote = Arc::clone(&self.remote);
                    self.answer(kind, operation, async move {
                        remote.await_copy_quota(bytes).await;
                        let segment_id = random_uuid();
                        TaskEvent::CopyPermitted { segment_id }
                    });
                }
                TaskEffect::Publish {
                    operation,
                    metadata,
                } => {
                    let remote = Arc::clone(&self.remote);
                    self.answer(kind, operation, async move {
                        TaskEvent::Published(remote.metadata.publish(&metadata).await)
                    });
                }
                TaskEffect::Upload { operation, upload } => self.upload(kind, operation, upload),
                TaskEffect::DeleteData {
                    operation,
                    metadata,
                } => {
                    let remote = Arc::clone(&self.remote);
                    self.count(TierCounter::DeleteRequests, 1);
                    self.answer(kind, operation, async move {
                        let permit = remote.turn_to_delete().await;
                        let deleted = remote.stores.delete(&permit, &metadata).await;
                        TaskEvent::DataDeleted(deleted.map_err(|error| {
                            let topic = &metadata.partition.topic;
                            remote.metrics.add(topic, TierCounter::DeleteErrors, 1);
                            tracing::warn!(
                                partition = %metadata.partition,
                                "remote segment {} is not deleted: {error}", metadata.segment.id
                            );
                            failure_of(&error)
                        }))
                    });
                }
                TaskEffect::IncrementLogStartOffset { log_start_offset } => {
                    self.increment_log_start_offset(log_start_offset).await;
                }
                TaskEffect::SetHighestRemoteOffset { offset } => {
                    if let Some(partition) = self.local() {
                        let truncations = self.truncations;
                        let set = move |log: &mut Log| {
                            // That nothing is known to be copied holds for every log.
                            let is_none = offset == Offset::UNKNOWN;
                            if is_none || truncations == Some(log.reader().truncations()) {
                                log.set_highest_remote_offset(offset);
                            }
                        };
                        partition.with_log(&self.remote.host, set).await;
                    }
                }
                TaskEffect::RunEnded(RunOutcome::Done) => {}
                TaskEffect::RunEnded(outcome) => {
                    tracing::warn!(
                        partition = %self.partition.topic_partition(),
                        "{kind:?} of tiered storage ended early: {outcome}"
                    );
                }
            }
        }
    }

    /// Runs the work of an effect and hands its answer back.
    fn answer(
        &self,
        kind: TaskKind,
        operation: Operation,
        work: impl Future<Output = TaskEvent> + Send + 'static,
    ) {
        let answers = self.answers.clone();
        let context = Arc::clone(&self.remote.context);
        ottla_sync::task::spawn(async move {
            ottla_sync::select! {
                event = work => {
                    // The partition may have no role any more.
                    let _ = answers.send((kind, operation, event)).await;
                }
                () = context.stopping() => {}
            }
        });
    }

    fn upload(&self, kind: TaskKind, operation: Operation, upload: Upload) {
        let remote = Arc::clone(&self.remote);
        let source = self.local().map(|partition| Source {
            partition,
            truncations: self.truncations,
        });
        let roles = self.roles.clone();
        self.answer(kind, operation, async move {
            TaskEvent::Uploaded(match source {
                Some(source) => uploading::upload(&remote, source, &upload, roles).await,
                None => Err(StoreFailure::Permanent),
            })
        });
    }

    async fn increment_log_start_offset(&self, offset: Offset) {
        let Some(partition) = self.local() else {
            return;
        };
        let increment = move |log: &mut Log| log.increment_log_start_offset(offset);
        match partition.with_log(&self.remote.host, increment).await {
            Some(Ok(true)) => {
                // As after DeleteRecords, readers and followers see the new start.
                partition.wake_all();
                tracing::info!(
                    partition = %partition.topic_partition,
                    "the log starts at offset {offset} after expiry in remote storage"
                );
            }
            Some(Ok(false)) | None => {}
            Some(Err(error)) => tracing::warn!(
                partition = %partition.topic_partition,
                "the start of the log cannot be moved: {error}"
            ),
        }
    }
}
