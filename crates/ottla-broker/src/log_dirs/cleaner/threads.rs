//! The threads of the cleaner: each looks for the log that needs cleaning most, cleans it, and looks again.
//!
//! After each cleaning, and where there is nothing to clean, old segments of compacted logs are deleted,
//! which no other thread does.
//!
//! Kafka: `LogCleaner.CleanerThread`, `LogCleanerManager.grabFilthiestCompactedLog`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ottla_config::BrokerConfig;
use ottla_log::{CleanError, CleanerParams, CleanerStats, Log, LogAccess, LogToClean, clean};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::Taken;
use super::pace::Pace;
use crate::Broker;
use crate::log_dirs::LogDirs;
use crate::metrics::CleanerGauge;
use crate::partition::Partition;

/// How often the number of threads is compared with the setting.
const THREADS_CHECK: Duration = Duration::from_secs(1);
/// A thread that waits looks this often whether it is to stop.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Threads(Vec<CleanerThread>);

#[derive(Debug)]
struct CleanerThread {
    handle: JoinHandle<()>,
    shared: Arc<ThreadState>,
}

/// What a thread tells of itself.
#[derive(Debug, Default)]
struct ThreadState {
    is_to_end: AtomicBool,
    last: Mutex<Last>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Last {
    stats: CleanerStats,
    compaction_delay_ms: i64,
}

impl Threads {
    pub(super) fn join(self) {
        for thread in self.0 {
            thread.shared.is_to_end.store(true, Ordering::Release);
            // A panic has been reported where it happened.
            let _ = thread.handle.join();
        }
    }
}

impl LogDirs {
    /// Keeps as many threads as `log.cleaner.threads` says until the broker stops.
    pub(crate) async fn keep_cleaning(self: Arc<Self>, broker: Arc<Broker>) {
        if !broker.config().log_cleaner_enable {
            return;
        }
        loop {
            self.adjust_threads(&broker);
            tokio::select! {
                () = tokio::time::sleep(THREADS_CHECK) => {}
                () = broker.stopping() => return,
            }
        }
    }

    /// Breaks off what is being cleaned. Blocks.
    pub(crate) fn stop_cleaner(&self) {
        self.cleaner.stop();
    }

    fn adjust_threads(self: &Arc<Self>, broker: &Arc<Broker>) {
        let wanted = broker.config().log_cleaner_threads.max(0) as usize;
        let mut threads = self.cleaner.threads.lock();
        if self.cleaner.is_stopping() {
            return;
        }
        let kept = wanted.min(threads.0.len());
        for surplus in threads.0.split_off(kept) {
            surplus.shared.is_to_end.store(true, Ordering::Release);
        }
        while threads.0.len() < wanted {
            let shared = Arc::new(ThreadState::default());
            let (dirs, broker, state) = (Arc::clone(self), Arc::downgrade(broker), shared.clone());
            let runtime = Handle::current();
            let name = format!("log-cleaner-{}", threads.0.len());
            let run = move || dirs.clean_until_stopped(&broker, &runtime, &state);
            match std::thread::Builder::new().name(name).spawn(run) {
                Ok(handle) => threads.0.push(CleanerThread { handle, shared }),
                Err(error) => {
                    tracing::warn!(%error, "the cleaner has too few threads; trying again");
                    break;
                }
            }
        }
        let dead = threads
            .0
            .iter()
            .filter(|thread| thread.handle.is_finished());
        let metrics = &broker.metrics.cleaner;
        metrics.set(CleanerGauge::DeadThreadCount, dead.count() as u64);
    }

    fn clean_until_stopped(
        self: Arc<Self>,
        broker: &Weak<Broker>,
        runtime: &Handle,
        state: &ThreadState,
    ) {
        let is_to_end = || self.cleaner.is_stopping() || state.is_to_end.load(Ordering::Acquire);
        let hash_key = rand::random();
        while let Some(broker) = broker.upgrade().filter(|_| !is_to_end()) {
            let has_cleaned = self.clean_filthiest(&broker, runtime, state, hash_key);
            self.delete_old_segments_of_compacted(&broker, runtime);
            if has_cleaned {
                continue;
            }
            let backoff_ms = u64::try_from(broker.config().log_cleaner_backoff_ms).unwrap_or(0);
            drop(broker);
            let until = Instant::now() + Duration::from_millis(backoff_ms.max(1));
            while !is_to_end() && Instant::now() < until {
                let left = until.saturating_duration_since(Instant::now());
                std::thread::sleep(left.min(LONGEST_SLEEP));
            }
        }
    }

    /// Returns whether there was a log to be cleaned.
    fn clean_filthiest(
        &self,
        broker: &Arc<Broker>,
        runtime: &Handle,
        state: &ThreadState,
        hash_key: [u64; 2],
    ) -> bool {
        let metrics = &broker.metrics.cleaner;
        metrics.on_run(broker.now_ms());
        let mut last = *state.last.lock();
        let chosen = self.grab_filthiest(broker, &mut last);
        let Some((partition, to_clean, taken)) = chosen else {
            return false;
        };
        let reader = &partition.reader();
        let owner = Owner {
            partition: &partition,
            broker,
            runtime,
        };
        let pace = Pace {
            broker,
            taken: &taken,
            space: self.space_of(reader),
        };
        let params = params(&broker.config(), broker, hash_key);
        let files = self.dir_of(reader).cloned();
        let cleaned = clean(reader, &to_clean, &owner, &pace, &params, |job| {
            if let Some(dir) = &files {
                let delay_ms = u64::try_from(job.delay_ms()).unwrap_or(0);
                dir.files.submit(Duration::from_millis(delay_ms), move || {
                    if let Err(error) = job.run() {
                        tracing::warn!("a segment that was cleaned could not be removed: {error}");
                    }
                });
            }
        });
        let topic_partition = &partition.topic_partition;
        match cleaned {
            Ok((end, stats)) => {
                self.set_clean_offset(reader, end);
                last.stats = stats;
                *state.last.lock() = last;
                self.show(broker);
                tracing::info!(
                    partition = %topic_partition, from = %to_clean.first_dirty_offset, to = %end, ?stats,
                    "the log was cleaned"
                );
                true
            }
            Err(CleanError::Stopped) => {
                tracing::info!(partition = %topic_partition, "the cleaning of the log was broken off");
                false
            }
            Err(CleanError::Storage(error)) => {
                self.on_partition_error(reader, &error);
                false
            }
            Err(CleanError::Uncleanable(reason)) => {
                self.give_up(&partition, &reason);
                false
            }
        }
    }

    fn give_up(&self, partition: &Partition, reason: &str) {
        self.cleaner.mark_uncleanable(&partition.topic_partition);
        tracing::warn!(
            partition = %partition.topic_partition, reason,
            "the log cannot be cleaned and will grow; cleaning is retried after the next start"
        );
    }

    /// Chooses the log of which the largest part is dirty, among those that are due, and takes it.
    fn grab_filthiest(
        &self,
        broker: &Arc<Broker>,
        last: &mut Last,
    ) -> Option<(Arc<Partition>, LogToClean, Taken<'_>)> {
        let now = broker.timestamp();
        let mut dirtiest: f64 = 0.0;
        last.compaction_delay_ms = 0;
        let mut due = Vec::new();
        for partition in compacted(broker) {
            let (reader, topic_partition) = (&partition.reader(), &partition.topic_partition);
            if !self.cleaner.is_free(topic_partition) || !self.is_online(reader) {
                continue;
            }
            let examined = LogToClean::examine(reader, self.clean_offset(reader), now);
            let to_clean = match examined {
                Ok(to_clean) => to_clean,
                // The log was deleted meanwhile.
                Err(_) if !self.is_hosted(reader) => continue,
                Err(error) => {
                    self.give_up(&partition, &error.to_string());
                    continue;
                }
            };
            if to_clean.is_checkpoint_invalid {
                self.set_clean_offset(reader, to_clean.first_dirty_offset);
            }
            last.compaction_delay_ms = last.compaction_delay_ms.max(to_clean.compaction_delay_ms);
            dirtiest = dirtiest.max(to_clean.cleanable_ratio());
            // On a disk that is full up to its reserve, there is no room for what would be written anew.
            let is_room = self.space_of(reader).is_open();
            if is_room && to_clean.is_due(reader.config().min_cleanable_dirty_ratio) {
                due.push((partition, to_clean));
            }
        }
        let percent = (dirtiest * 100.0) as u64;
        broker
            .metrics
            .cleaner
            .set(CleanerGauge::MaxDirtyPercent, percent);
        due.sort_by(|(_, a), (_, b)| b.cleanable_ratio().total_cmp(&a.cleanable_ratio()));
        due.into_iter().find_map(|(partition, _)| {
            let taken = self.cleaner.take(&partition.topic_partition)?;
            let reader = &partition.reader();
            // Whoever deletes it takes it off the list first and then waits for the cleaner.
            if !self.is_hosted(reader) {
                return None;
            }
            // Until now another thread may have cleaned it, or another log may have taken its place, of which
            // other segments can be cleaned.
            let to_clean = LogToClean::examine(reader, self.clean_offset(reader), now).ok()?;
            let is_due = to_clean.is_due(reader.config().min_cleanable_dirty_ratio);
            is_due.then_some((partition, to_clean, taken))
        })
    }

    fn delete_old_segments_of_compacted(&self, broker: &Arc<Broker>, runtime: &Handle) {
        let now = broker.timestamp();
        for partition in compacted(broker) {
            if self.cleaner.is_stopping() {
                return;
            }
            let Some(_taken) = self.cleaner.take(&partition.topic_partition) else {
                continue;
            };
            runtime.block_on(self.delete_old_segments_of(broker, &partition, now));
        }
    }

    fn show(&self, broker: &Broker) {
        let threads = self.cleaner.threads.lock();
        let last: Vec<Last> = threads
            .0
            .iter()
            .map(|thread| *thread.shared.last.lock())
            .collect();
        let read: u64 = last.iter().map(|last| last.stats.bytes_read).sum();
        let written: u64 = last.iter().map(|last| last.stats.bytes_written).sum();
        let max = |of: fn(&Last) -> u64| last.iter().map(of).max().unwrap_or(0);
        let metrics = &broker.metrics.cleaner;
        metrics.set(
            CleanerGauge::CleanerRecopyPercent,
            100 * written / read.max(1),
        );
        metrics.set(
            CleanerGauge::MaxCleanTimeSecs,
            max(|last| last.stats.elapsed_ms / 1000),
        );
        let utilization = max(|last| (last.stats.buffer_utilization * 100.0) as u64);
        metrics.set(CleanerGauge::MaxBufferUtilizationPercent, utilization);
        let delay = max(|last| last.compaction_delay_ms as u64 / 1000);
        metrics.set(CleanerGauge::MaxCompactionDelaySecs, delay);
    }
}

pub(super) fn params(config: &BrokerConfig, broker: &Broker, hash_key: [u64; 2]) -> CleanerParams {
    let threads = config.log_cleaner_threads.max(1);
    let dedupe = config.log_cleaner_dedupe_buffer_size / i64::from(threads);
    let buffer = config.log_cleaner_io_buffer_size / threads / 2;
    CleanerParams {
        // Kafka's table is an array, which holds no more.
        dedupe_buffer_bytes: u64::try_from(dedupe.min(i32::MAX.into())).unwrap_or(0),
        load_factor: config.log_cleaner_io_buffer_load_factor,
        io_buffer_bytes: usize::try_from(buffer).unwrap_or(0),
        hash_key,
        now: broker.timestamp(),
    }
}

/// The partitions whose logs are compacted.
fn compacted(broker: &Broker) -> Vec<Arc<Partition>> {
    let partitions = broker.partitions.load();
    let is_compacted =
        |partition: &&Arc<Partition>| partition.reader().config().cleanup_policy.compact;
    partitions
        .iter()
        .filter(is_compacted)
        .map(Arc::clone)
        .collect()
}

/// The log of a partition, to which the cleaner comes through its inbox.
struct Owner<'a> {
    partition: &'a Arc<Partition>,
    broker: &'a Arc<Broker>,
    runtime: &'a Handle,
}

impl LogAccess for Owner<'_> {
    fn with_log<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Log) -> R + Send + 'static,
    ) -> Option<R> {
        let with_log = self.partition.with_log(self.broker, work);
        self.runtime.block_on(with_log)
    }
}
