//! The tasks of one partition on one broker: which run in its role, and when.
//!
//! A leader copies and expires segments. A follower only reads how far the leader has copied. If the
//! topic is deleted, or no longer tiered, all remote segments are deleted. A run begins
//! `remote.log.manager.task.interval.ms` after the previous one ended.
//!
//! Kafka: `RemoteLogManager.onLeadershipChange`, `stopPartitions`, `stopLeaderCopyRLMTasks`,
//! `RLMFollowerTask`; `TopicConfigHandler.maybeUpdateRemoteLogComponents`.

use crate::copy_task::{CopyDelay, CopyTask};
use crate::expiration_task::ExpirationTask;
use crate::expiry::{Leading, Retention};
use crate::lineage::highest_remote_offset;
use crate::log_view::LogView;
use crate::metadata_cache::RemoteLogMetadataCache;
use crate::partition_deletion::PartitionDeletion;
use crate::task::{Operation, Origin, RunOutcome, TaskEffect, TaskEvent, TaskTime};

/// The settings of the broker and of the topic that tasks depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskSettings {
    /// `remote.log.manager.task.interval.ms`.
    pub interval_ms: i64,
    /// `remote.log.metadata.custom.metadata.max.bytes`.
    pub custom_metadata_max_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TaskKind {
    Copy,
    Expiration,
    Follower,
    Deletion,
}

/// The role of a replica in tiered storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TierRole {
    /// Nothing: it is not tiered, or not on this broker.
    Stopped,
    Leader {
        is_copy_disabled: bool,
    },
    Follower,
    /// Everything is deleted, until nothing is left.
    Deleting,
}

#[derive(Debug)]
pub struct PartitionTasks {
    settings: TaskSettings,
    role: TierRole,
    copy: CopyTask,
    expiration: ExpirationTask,
    deletion: PartitionDeletion,
    /// In milliseconds of the clock that does not go back, as all times at which runs are due.
    copy_due: u64,
    expiration_due: u64,
    /// When the replica became the leader, if it is.
    leads_since: u64,
    /// Of the follower or of the deletion, whichever the role has.
    other_due: u64,
}

impl PartitionTasks {
    pub fn new(origin: Origin, settings: TaskSettings) -> PartitionTasks {
        let custom_metadata_max_bytes = settings.custom_metadata_max_bytes;
        PartitionTasks {
            settings,
            role: TierRole::Stopped,
            copy: CopyTask::new(origin.clone(), custom_metadata_max_bytes),
            expiration: ExpirationTask::new(origin.clone()),
            deletion: PartitionDeletion::new(origin),
            copy_due: 0,
            expiration_due: 0,
            leads_since: 0,
            other_due: 0,
        }
    }

    pub fn role(&self) -> TierRole {
        self.role
    }

    pub fn copy(&self) -> &CopyTask {
        &self.copy
    }

    pub fn expiration(&self) -> &ExpirationTask {
        &self.expiration
    }

    /// The settings of the topic, for the copying that begins from now on.
    pub fn set_copy_delay(&mut self, delay: CopyDelay) {
        self.copy.set_delay(delay);
    }

    /// Gives the partition a role. A leader that stays leader keeps its runs; if copying is
    /// disabled, only that ends. New tasks run at once.
    pub fn set_role(&mut self, role: TierRole, now_ms: u64) {
        let had = (self.has(TaskKind::Copy), self.has(TaskKind::Expiration));
        let had_deletion = self.has(TaskKind::Deletion);
        let had_follower = self.has(TaskKind::Follower);
        self.role = role;
        if had.0 != self.has(TaskKind::Copy) {
            self.copy.cancel();
            self.copy_due = now_ms;
        }
        if had.1 != self.has(TaskKind::Expiration) {
            self.expiration.cancel();
            self.expiration_due = now_ms;
            self.leads_since = now_ms;
        }
        if had_deletion != self.has(TaskKind::Deletion) {
            self.deletion.cancel();
            self.other_due = now_ms;
        }
        if had_follower != self.has(TaskKind::Follower) {
            self.other_due = now_ms;
        }
    }

    /// The tasks drop their state and start again.
    pub fn begin_anew(&mut self, now_ms: u64) {
        let role = self.role;
        self.set_role(TierRole::Stopped, now_ms);
        self.set_role(role, now_ms);
    }

    /// Records of the metadata that decisions were made from were lost. Everything is decided anew, and
    /// until then no local segment counts as copied: local retention would delete it, and the metadata
    /// of its copy may be gone.
    pub fn on_metadata_lost(&mut self, now_ms: u64, effects: &mut Vec<(TaskKind, TaskEffect)>) {
        self.begin_anew(now_ms);
        let offset = ottla_types::Offset::UNKNOWN;
        let forget = TaskEffect::SetHighestRemoteOffset { offset };
        effects.push((TaskKind::Copy, forget));
    }

    fn has(&self, kind: TaskKind) -> bool {
        match (kind, self.role) {
            (TaskKind::Copy, TierRole::Leader { is_copy_disabled }) => !is_copy_disabled,
            (TaskKind::Expiration, TierRole::Leader { .. }) => true,
            (TaskKind::Follower, role) => role == TierRole::Follower,
            (TaskKind::Deletion, role) => role == TierRole::Deleting,
            (_, TierRole::Stopped | TierRole::Follower | TierRole::Deleting) => false,
        }
    }

    /// When `run_due` is needed next, in milliseconds ([`TaskTime::now_ms`]); not while a run is
    /// going on.
    pub fn next_run(&self) -> Option<u64> {
        let due = [
            (TaskKind::Copy, self.copy.is_running(), self.copy_due),
            (
                TaskKind::Expiration,
                self.expiration.is_running(),
                self.expiration_due,
            ),
            (TaskKind::Follower, false, self.other_due),
            (
                TaskKind::Deletion,
                self.deletion.is_running(),
                self.other_due,
            ),
        ];
        let due = due.into_iter();
        due.filter(|(kind, is_running, _)| self.has(*kind) && !is_running)
            .map(|(_, _, due)| due)
            .min()
    }

    /// Begins the runs that are due. Without the metadata, which is read at first, none begins.
    pub fn run_due(
        &mut self,
        log: &LogView,
        cache: Option<&RemoteLogMetadataCache>,
        retention: Retention,
        now: TaskTime,
        effects: &mut Vec<(TaskKind, TaskEffect)>,
    ) {
        let Some(cache) = cache else {
            return;
        };
        let TaskTime { timestamp, now_ms } = now;
        if self.has(TaskKind::Copy) && !self.copy.is_running() && self.copy_due <= now_ms {
            let mut out = Vec::new();
            self.copy.begin_run(log, cache, timestamp, &mut out);
            self.forward(TaskKind::Copy, out, now_ms, effects);
        }
        let expires = self.has(TaskKind::Expiration) && !self.expiration.is_running();
        if expires && self.expiration_due <= now_ms {
            let mut out = Vec::new();
            let leading = Leading {
                being_copied: self.copy.being_copied(),
                for_ms: now_ms.saturating_sub(self.leads_since),
            };
            self.expiration
                .begin_run(log, cache, retention, leading, timestamp, &mut out);
            self.forward(TaskKind::Expiration, out, now_ms, effects);
        }
        if self.has(TaskKind::Follower) && self.other_due <= now_ms {
            let offset = highest_remote_offset(cache, log);
            let out = vec![
                TaskEffect::SetHighestRemoteOffset { offset },
                TaskEffect::RunEnded(RunOutcome::Done),
            ];
            self.forward(TaskKind::Follower, out, now_ms, effects);
        }
        if self.has(TaskKind::Deletion) && !self.deletion.is_running() && self.other_due <= now_ms {
            let mut out = Vec::new();
            self.deletion.begin_run(cache, timestamp, &mut out);
            self.forward(TaskKind::Deletion, out, now_ms, effects);
        }
    }

    /// Processes the answer to an effect of a task.
    pub fn step(
        &mut self,
        kind: TaskKind,
        operation: Operation,
        event: TaskEvent,
        now: TaskTime,
        effects: &mut Vec<(TaskKind, TaskEffect)>,
    ) {
        let mut out = Vec::new();
        let TaskTime { timestamp, now_ms } = now;
        match kind {
            TaskKind::Copy => self.copy.step(operation, event, timestamp, &mut out),
            TaskKind::Expiration => self.expiration.step(operation, event, timestamp, &mut out),
            TaskKind::Deletion => self.deletion.step(operation, event, timestamp, &mut out),
            TaskKind::Follower => {}
        }
        self.forward(kind, out, now_ms, effects);
    }

    fn forward(
        &mut self,
        kind: TaskKind,
        out: Vec<TaskEffect>,
        now_ms: u64,
        effects: &mut Vec<(TaskKind, TaskEffect)>,
    ) {
        for effect in out {
            if let TaskEffect::RunEnded(outcome) = effect {
                let due = now_ms.saturating_add_signed(self.settings.interval_ms);
                match kind {
                    TaskKind::Copy => self.copy_due = due,
                    TaskKind::Expiration => self.expiration_due = due,
                    TaskKind::Follower | TaskKind::Deletion => self.other_due = due,
                }
                if kind == TaskKind::Deletion && outcome == RunOutcome::Done {
                    self.role = TierRole::Stopped;
                }
            }
            effects.push((kind, effect));
        }
    }
}

/// The settings of a topic that decide about its tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TopicTiering {
    /// `remote.storage.enable`.
    pub is_enabled: bool,
    /// `remote.log.copy.disable`.
    pub is_copy_disabled: bool,
    /// `remote.log.delete.on.disable`.
    pub is_deleted_on_disable: bool,
}

/// The action of a partition after the settings of its topic changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TieringChange {
    Nothing,
    SetRole(TierRole),
    /// The leader's log now starts with the local log, and the remote segments are deleted.
    DeleteRemoteLog,
}

impl TopicTiering {
    /// The role of a replica of such a topic.
    pub fn role(&self, is_leader: bool) -> TierRole {
        match (self.is_enabled, is_leader) {
            (false, _) => TierRole::Stopped,
            (true, false) => TierRole::Follower,
            (true, true) => TierRole::Leader {
                is_copy_disabled: self.is_copy_disabled,
            },
        }
    }

    /// Whether a replica deletes the remaining remote segments: it leads, and tiering was disabled
    /// with deletion, which the controller requires. A new leader continues the deletion of a
    /// former one; in Kafka it does not.
    pub fn deletes_remote_log(&self, is_leader: bool) -> bool {
        !self.is_enabled && self.is_deleted_on_disable && is_leader
    }

    /// Compares the settings before and after a change.
    pub fn change(was: &TopicTiering, is: &TopicTiering, is_leader: bool) -> TieringChange {
        let role = is.role(is_leader);
        match (was.is_enabled, is.is_enabled) {
            // The controller refuses to disable a topic without deleting.
            (true, false) if is.deletes_remote_log(is_leader) => TieringChange::DeleteRemoteLog,
            _ if role == was.role(is_leader) => TieringChange::Nothing,
            _ => TieringChange::SetRole(role),
        }
    }
}

#[cfg(test)]
mod tests {
    use ottla_types::{BrokerId, Offset, Timestamp};

    use super::*;
    use crate::metadata_cache::LOOKS;
    use crate::test_segments::{cache_of, log, partition, segment};
    use crate::{LeaderEpochs, PublishFailure};

    const FOREVER: Retention = Retention {
        retention_ms: -1,
        retention_bytes: -1,
    };
    const LEADER: TierRole = TierRole::Leader {
        is_copy_disabled: false,
    };

    fn tasks() -> PartitionTasks {
        let origin = Origin {
            partition: partition(),
            broker_id: BrokerId(1),
        };
        let settings = TaskSettings {
            interval_ms: 30_000,
            custom_metadata_max_bytes: 128,
        };
        PartitionTasks::new(origin, settings)
    }

    fn at(now_ms: u64) -> TaskTime {
        TaskTime {
            timestamp: Timestamp(1_000_000 + now_ms as i64),
            now_ms,
        }
    }

    fn run(tasks: &mut PartitionTasks, now_ms: u64) -> Vec<(TaskKind, TaskEffect)> {
        run_at(tasks, at(now_ms))
    }

    fn run_at(tasks: &mut PartitionTasks, now: TaskTime) -> Vec<(TaskKind, TaskEffect)> {
        let epochs = || LeaderEpochs::from([(0, 0)]);
        let cache = cache_of(&[segment(1, 0, 9, epochs())]);
        let log = log(&[0, 10, 20], 25, epochs());
        let mut effects = Vec::new();
        tasks.run_due(&log, Some(&cache), FOREVER, now, &mut effects);
        effects
    }

    #[test]
    fn nothing_counts_as_copied_once_metadata_was_lost() {
        let mut tasks = tasks();
        tasks.set_role(LEADER, 5);
        run(&mut tasks, 5);
        assert!(tasks.copy().is_running());
        let mut effects = Vec::new();
        tasks.on_metadata_lost(6, &mut effects);
        let offset = Offset::UNKNOWN;
        let forget = TaskEffect::SetHighestRemoteOffset { offset };
        assert_eq!(effects, [(TaskKind::Copy, forget)]);
        assert!(!tasks.copy().is_running());
        assert_eq!((tasks.role(), tasks.next_run()), (LEADER, Some(6)));
    }

    /// The clock of a former leader may be hours off, and it may still be uploading.
    #[test]
    fn a_new_leader_deletes_no_upload_of_another_for_an_hour() {
        let hour: u64 = 3_600_000;
        let epochs = || LeaderEpochs::from([(0, 0)]);
        let mut cache = cache_of(&[segment(1, 0, 9, epochs())]);
        // It began at 0.
        let uploading = segment(2, 10, 19, LeaderEpochs::from([(0, 10)]));
        cache.add(&uploading).unwrap();
        let log = log(&[0, 10, 20], 25, epochs());
        let mut tasks = tasks();
        let only_expires = TierRole::Leader {
            is_copy_disabled: true,
        };
        tasks.set_role(only_expires, 5);
        let mut deletes = |now_ms: u64| {
            let now = TaskTime {
                timestamp: Timestamp(10 * hour as i64 + now_ms as i64),
                now_ms,
            };
            let mut effects = Vec::new();
            tasks.run_due(&log, Some(&cache), FOREVER, now, &mut effects);
            let mut effects = effects.iter();
            effects.any(|(_, effect)| matches!(effect, TaskEffect::Publish { .. }))
        };
        assert!(!deletes(5));
        assert!(!deletes(5 + hour));
        assert!(deletes(5 + hour + 30_000));
    }

    /// All partitions of a broker wait for their metadata meanwhile.
    #[test]
    fn a_run_looks_at_as_many_segments_if_there_are_ten_times_as_many() {
        let looks_at = |segments: i64| {
            let end = segments * 10;
            let remote = (0..segments).map(|number| {
                let start = number * 10;
                let epochs = LeaderEpochs::from([(0, start)]);
                segment(number as u128 + 1, start, start + 9, epochs)
            });
            let cache = cache_of(&remote.collect::<Vec<_>>());
            // All of them are on the local disk too.
            let bases: Vec<i64> = (0..=segments).map(|number| number * 10).collect();
            let log = log(&bases, end + 5, LeaderEpochs::from([(0, 0)]));
            // Two segments of ten bytes are too much.
            let retention = Retention {
                retention_bytes: end + 5 - 25,
                ..FOREVER
            };
            let mut tasks = tasks();
            tasks.set_role(LEADER, 5);
            let before = LOOKS.get();
            tasks.run_due(&log, Some(&cache), retention, at(5), &mut Vec::new());
            let looks = LOOKS.get() - before;
            assert_eq!(tasks.expiration().delete_lag().segments, 2);
            looks
        };
        let (some, many) = (looks_at(1000), looks_at(10_000));
        assert!(many < 1000 && many < 2 * some, "{some} and {many}");
    }

    #[test]
    fn a_leader_copies_and_expires_at_intervals() {
        let mut tasks = tasks();
        assert_eq!(tasks.next_run(), None);
        tasks.set_role(LEADER, 5);
        assert_eq!(tasks.next_run(), Some(5));
        let effects = run(&mut tasks, 5);
        let (kind, waiting) = &effects[2];
        assert!(matches!(
            waiting,
            TaskEffect::AwaitCopyQuota { bytes: 10, .. }
        ));
        let ended = (TaskKind::Expiration, TaskEffect::RunEnded(RunOutcome::Done));
        assert_eq!(effects[3..], [ended]);
        assert_eq!(tasks.next_run(), Some(30_005), "expiration");

        let permitted = TaskEvent::CopyPermitted {
            segment_id: ottla_types::Uuid::from_u128(2),
        };
        let mut effects = Vec::new();
        let operation = waiting.operation().unwrap();
        tasks.step(*kind, operation, permitted, at(10), &mut effects);
        let operation = effects.pop().unwrap().1.operation().unwrap();
        let failed = TaskEvent::Published(Err(PublishFailure));
        tasks.step(*kind, operation, failed, at(20), &mut effects);
        assert!(!tasks.copy().is_running());
        assert_eq!(run(&mut tasks, 30_019).len(), 1, "only expiration is due");
        assert_eq!(run(&mut tasks, 30_020).len(), 1);
        assert!(tasks.copy().is_running());
    }

    #[test]
    fn disabling_copying_leaves_expiration() {
        let mut tasks = tasks();
        tasks.set_role(LEADER, 0);
        run(&mut tasks, 0);
        assert!(tasks.copy().is_running());
        tasks.set_role(
            TierRole::Leader {
                is_copy_disabled: true,
            },
            1,
        );
        assert!(!tasks.copy().is_running());
        let effects = run(&mut tasks, 30_000);
        assert!(
            effects
                .iter()
                .all(|(kind, _)| *kind == TaskKind::Expiration)
        );
        assert_eq!(effects.len(), 1);
    }

    #[test]
    fn a_follower_learns_the_highest_remote_offset() {
        let mut tasks = tasks();
        tasks.set_role(TierRole::Follower, 0);
        let offset = Offset(9);
        assert_eq!(
            run(&mut tasks, 0)[0],
            (
                TaskKind::Follower,
                TaskEffect::SetHighestRemoteOffset { offset }
            )
        );
        assert_eq!(tasks.next_run(), Some(30_000));
        tasks.set_role(TierRole::Stopped, 1);
        assert_eq!(tasks.next_run(), None);
    }

    #[test]
    fn a_wall_clock_that_is_set_back_delays_no_run() {
        let mut tasks = tasks();
        tasks.set_role(TierRole::Follower, 0);
        assert_eq!(run(&mut tasks, 0).len(), 2);
        assert!(run(&mut tasks, 29_999).is_empty());
        let set_back = TaskTime {
            timestamp: Timestamp(7),
            ..at(30_000)
        };
        assert_eq!(run_at(&mut tasks, set_back).len(), 2);
        assert_eq!(tasks.next_run(), Some(60_000));
    }

    #[test]
    fn changes_of_a_topic() {
        let tiered = TopicTiering {
            is_enabled: true,
            ..TopicTiering::default()
        };
        let disabled = TopicTiering {
            is_deleted_on_disable: true,
            ..TopicTiering::default()
        };
        let read_only = TopicTiering {
            is_copy_disabled: true,
            ..tiered
        };
        assert!(disabled.deletes_remote_log(true));
        assert!(!disabled.deletes_remote_log(false));
        assert!(!TopicTiering::default().deletes_remote_log(true));
        let enabled_again = TopicTiering {
            is_enabled: true,
            ..disabled
        };
        assert!(!enabled_again.deletes_remote_log(true));
        let change = TopicTiering::change;
        assert_eq!(change(&tiered, &tiered, true), TieringChange::Nothing);
        assert_eq!(
            change(&TopicTiering::default(), &tiered, true),
            TieringChange::SetRole(LEADER)
        );
        assert_eq!(
            change(&tiered, &read_only, true),
            TieringChange::SetRole(TierRole::Leader {
                is_copy_disabled: true
            })
        );
        assert_eq!(change(&tiered, &read_only, false), TieringChange::Nothing);
        assert_eq!(
            change(&tiered, &disabled, true),
            TieringChange::DeleteRemoteLog
        );
        assert_eq!(
            change(&tiered, &disabled, false),
            TieringChange::SetRole(TierRole::Stopped)
        );
    }
}
