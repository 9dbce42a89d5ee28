//! Scheduled maintenance of logs.
//!
//! Each log directory has its own task, so that a hanging disk delays only its own directory. Work
//! on a log is put into the inbox of its partition and is short; the resulting disk work and the
//! checkpoints run on the directory's threads.
//!
//! Kafka: the tasks scheduled by `LogManager.startup` and `ReplicaManager`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ottla_config::BrokerConfig;
use ottla_log::Log;
use ottla_sync::machine;
use ottla_sync::task::{JoinHandle, JoinSet};
use ottla_types::{Timestamp, TopicPartition};

use ottla_storage::log_dirs::{LogDir, LogDirs};

use crate::partition::Partition;
use crate::partition::host::PartitionHost;
use crate::partition::page_cache::AUTOMATIC;
use crate::partitions::Partitions;
use crate::tiering;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Chore {
    Retention,
    Flush,
    RecoveryPoints,
    LogStartOffsets,
    HighWatermarks,
    ProducerExpiry,
}

/// How often log files are closed that were not used since the last time. An idle log has no open
/// files after twice this.
const CLOSE_IDLE: Duration = Duration::from_secs(30);

/// How often the policy of the page cache is shown what happened, while there are appends.
const WATCH_PAGE_CACHE: Duration = Duration::from_secs(1);

impl Chore {
    const ALL: [Chore; 6] = [
        Chore::Retention,
        Chore::Flush,
        Chore::RecoveryPoints,
        Chore::LogStartOffsets,
        Chore::HighWatermarks,
        Chore::ProducerExpiry,
    ];

    fn interval_ms(self, config: &BrokerConfig) -> u64 {
        let interval_ms = match self {
            Chore::Retention => config.log_retention_check_interval_ms,
            Chore::Flush => config.log_flush_scheduler_interval_ms,
            Chore::RecoveryPoints => config.log_flush_offset_checkpoint_interval_ms.into(),
            Chore::LogStartOffsets => config.log_flush_start_offset_checkpoint_interval_ms.into(),
            Chore::HighWatermarks => config.replica_high_watermark_checkpoint_interval_ms,
            Chore::ProducerExpiry => config.producer_id_expiration_check_interval_ms.into(),
        };
        u64::try_from(interval_ms).unwrap_or(0).max(1)
    }

    /// Delay of the first run after the start.
    fn first_ms(self, config: &BrokerConfig) -> u64 {
        match self {
            // As in Kafka, these wait until the cluster has settled.
            Chore::Retention | Chore::Flush | Chore::RecoveryPoints | Chore::LogStartOffsets => {
                u64::try_from(config.log_initial_task_delay_ms).unwrap_or(0)
            }
            Chore::HighWatermarks | Chore::ProducerExpiry => self.interval_ms(config),
        }
    }
}

/// The logs with unflushed records, for `flush.ms`.
#[derive(Default)]
struct Unflushed {
    /// When each log was first seen with unflushed records, on the broker's clock.
    since_ms: BTreeMap<TopicPartition, u64>,
    /// Running flushes; on a slow disk they may outlast several schedules.
    running: BTreeMap<TopicPartition, JoinHandle<()>>,
}

impl Unflushed {
    /// Forgets flushes that have ended, and the logs that have left the directory or were deleted
    /// before they were flushed.
    fn keep_only(&mut self, here: &BTreeSet<&TopicPartition>) {
        self.running.retain(|_, flush| !flush.is_finished());
        self.since_ms
            .retain(|partition, _| here.contains(partition));
    }
}

/// Runs the maintenance schedules of a broker.
#[derive(Debug)]
pub struct Maintenance {
    host: Arc<PartitionHost>,
    partitions: Arc<Partitions>,
    log_dirs: Arc<LogDirs>,
}

impl Maintenance {
    pub fn new(
        host: Arc<PartitionHost>,
        partitions: Arc<Partitions>,
        log_dirs: Arc<LogDirs>,
    ) -> Maintenance {
        Maintenance {
            host,
            partitions,
            log_dirs,
        }
    }

    /// Runs the schedules until the broker stops.
    pub async fn maintain(self: Arc<Self>) {
        let mut schedules = JoinSet::new();
        for dir in self.log_dirs.dirs() {
            schedules.spawn(Arc::clone(&self).maintain_dir(Arc::clone(dir)));
        }
        schedules.spawn(Arc::clone(&self).close_idle_logs());
        // Unknown on some systems, and in a simulation.
        if machine::memory().is_some() {
            schedules.spawn(Arc::clone(&self).watch_page_cache());
        }
        while schedules.join_next().await.is_some() {}
    }

    /// Runs the schedule of a directory until it fails or the broker stops.
    async fn maintain_dir(self: Arc<Self>, dir: Arc<LogDir>) {
        let context = Arc::clone(&self.host.context);
        let mut unflushed = Unflushed::default();
        let started = context.now_ms();
        let mut due = Chore::ALL.map(|chore| {
            let first_ms = chore.first_ms(&context.config());
            (started.saturating_add(first_ms), chore)
        });
        loop {
            let next = due.iter_mut().min_by_key(|(due_ms, _)| *due_ms);
            let (due_ms, chore) = next.expect("there are chores");
            let wait = Duration::from_millis(due_ms.saturating_sub(context.now_ms()));
            ottla_sync::select! {
                () = ottla_sync::time::sleep(wait) => {}
                () = context.stopping() => return,
            }
            if !dir.is_online() {
                return;
            }
            match chore {
                Chore::Retention => self.delete_old_segments(&dir).await,
                Chore::Flush => self.flush_overdue(&dir, &mut unflushed).await,
                Chore::RecoveryPoints => {
                    self.write(&dir, LogDirs::checkpoint_recovery_points).await;
                }
                Chore::LogStartOffsets => {
                    self.write(&dir, LogDirs::checkpoint_log_start_offsets)
                        .await;
                }
                Chore::HighWatermarks => {
                    self.write(&dir, LogDirs::checkpoint_high_watermarks).await;
                }
                Chore::ProducerExpiry => self.expire_producers(&dir).await,
            }
            *due_ms = context
                .now_ms()
                .saturating_add(chore.interval_ms(&context.config()));
        }
    }

    /// Closes the files of idle logs, until the broker stops.
    async fn close_idle_logs(self: Arc<Self>) {
        let context = &self.host.context;
        loop {
            ottla_sync::select! {
                () = ottla_sync::time::sleep(CLOSE_IDLE) => {}
                () = context.stopping() => return,
            }
            let log_dirs = Arc::clone(&self.log_dirs);
            let close = move || log_dirs.on_write_back_failed(log_dirs.handles().close_idle());
            // A panic was reported where it happened; the next round may succeed.
            let _ = ottla_sync::task::spawn_blocking(close).await;
        }
    }

    /// Shows the policy of the page cache what appends cost, until the broker stops.
    async fn watch_page_cache(self: Arc<Self>) {
        let context = &self.host.context;
        let page_cache = &self.host.page_cache;
        loop {
            ottla_sync::select! {
                () = ottla_sync::time::sleep(WATCH_PAGE_CACHE) => {}
                () = context.stopping() => return,
            }
            if context.config().ottla_page_cache_max_bytes != AUTOMATIC {
                page_cache.forget_policy();
            } else if page_cache.has_grown() {
                // A panic was reported where it happened; the next round may succeed.
                let memory = ottla_sync::task::spawn_blocking(machine::memory).await;
                if let Ok(Some(memory)) = memory {
                    page_cache.sample(&memory, &context.metrics, context.now_ms());
                }
            }
        }
    }

    async fn write(&self, dir: &Arc<LogDir>, checkpoint: fn(&LogDirs, &Arc<LogDir>)) {
        let (dirs, written) = (Arc::clone(&self.log_dirs), Arc::clone(dir));
        // A panic was reported where it happened; the schedule continues.
        let _ = dir
            .threads
            .jobs
            .run(move || checkpoint(&dirs, &written))
            .await;
    }

    /// A snapshot of the partitions in a directory, so that the map is not held during the work.
    fn partitions_in(&self, dir: &Arc<LogDir>) -> Vec<Arc<Partition>> {
        let partitions = self.partitions.load();
        let is_in = |partition: &&Arc<Partition>| {
            let of = self.log_dirs.dir_of(&partition.reader());
            of.is_some_and(|of| Arc::ptr_eq(of, dir))
        };
        partitions.iter().filter(is_in).map(Arc::clone).collect()
    }

    /// Removes the segments that retention allows; the partition's jobs rename and unlink them.
    async fn delete_old_segments(&self, dir: &Arc<LogDir>) {
        let now = self.host.context.timestamp();
        for partition in self.partitions_in(dir) {
            // The cleaner deletes segments of compacted logs, between two cleanings.
            if !partition.reader().config().cleanup_policy.compact {
                delete_old_segments_of(&self.host, &self.log_dirs, &partition, now).await;
            }
        }
    }

    /// Flushes logs whose records have been unflushed for `flush.ms`.
    async fn flush_overdue(&self, dir: &Arc<LogDir>, unflushed: &mut Unflushed) {
        let now_ms = self.host.context.now_ms();
        let partitions = self.partitions_in(dir);
        let here = partitions.iter().map(|it| &it.topic_partition);
        unflushed.keep_only(&here.collect());
        for partition in partitions {
            let reader = partition.reader();
            let topic_partition = &partition.topic_partition;
            if unflushed.running.contains_key(topic_partition) {
                continue;
            }
            if reader.recovery_point() >= reader.log_end_offset() {
                unflushed.since_ms.remove(topic_partition);
                continue;
            }
            let since_ms = unflushed.since_ms.entry(topic_partition.clone());
            let since_ms = *since_ms.or_insert(now_ms);
            let flush_ms = u64::try_from(reader.config().flush_ms).unwrap_or(u64::MAX);
            if now_ms - since_ms < flush_ms {
                continue;
            }
            unflushed.since_ms.remove(topic_partition);
            let topic_partition = topic_partition.clone();
            let (log_dirs, host) = (Arc::clone(&self.log_dirs), Arc::clone(&self.host));
            let flush = flush(log_dirs, host, partition.clone());
            let flush = ottla_sync::task::spawn(flush);
            unflushed.running.insert(topic_partition, flush);
        }
    }

    async fn expire_producers(&self, dir: &Arc<LogDir>) {
        let context = &self.host.context;
        let now = context.timestamp();
        let expiration_ms = context.config().producer_id_expiration_ms.into();
        for partition in self.partitions_in(dir) {
            let expire = move |log: &mut Log| {
                log.set_producer_id_expiration_ms(expiration_ms);
                log.remove_expired_producers(now)
            };
            partition.with_log(&self.host, expire).await;
        }
    }
}

/// Removes the segments that retention allows; the partition's jobs rename and unlink them.
pub(crate) async fn delete_old_segments_of(
    host: &Arc<PartitionHost>,
    log_dirs: &LogDirs,
    partition: &Arc<Partition>,
    now: Timestamp,
) {
    let work = move |log: &mut Log| match log.config().remote_storage_enable {
        true => tiering::delete_local_segments(log, now),
        false => log.delete_old_segments(now),
    };
    let topic_partition = &partition.topic_partition;
    match partition.with_log(host, work).await {
        None | Some(Ok(0)) => {}
        Some(Ok(count)) => {
            tracing::info!(%topic_partition, count, "old segments are deleted");
        }
        Some(Err(error)) => log_dirs.on_partition_log_error(&partition.reader(), &error),
    }
}

async fn flush(log_dirs: Arc<LogDirs>, host: Arc<PartitionHost>, partition: Arc<Partition>) {
    let reader = partition.reader().clone();
    let Some(Some(job)) = partition.with_log(&host, Log::flush_job).await else {
        return;
    };
    let threads = log_dirs.threads_of(&reader).jobs.clone();
    match threads.run(move || job.run()).await {
        Ok(Ok(_)) => partition.on_flushed(&host),
        Ok(Err(error)) => log_dirs.on_partition_error(&reader, &error),
        // The panic was reported where it happened.
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_log_is_not_remembered() {
        let partitions = [0, 1].map(|partition| TopicPartition::new("t", partition));
        let mut unflushed = Unflushed::default();
        for partition in &partitions {
            unflushed.since_ms.insert(partition.clone(), 7);
        }
        unflushed.keep_only(&BTreeSet::from([&partitions[1]]));
        let left: Vec<&TopicPartition> = unflushed.since_ms.keys().collect();
        assert!(left == [&partitions[1]]);
    }
}
