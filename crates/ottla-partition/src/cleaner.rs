//! The cleaner threads: each repeatedly picks the log that needs cleaning most and cleans it.
//!
//! After each cleaning, and when nothing needs cleaning, a thread deletes old segments of compacted
//! logs; no other thread does that.
//!
//! Kafka: `LogCleaner.CleanerThread`, `LogCleanerManager.grabFilthiestCompactedLog`.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ottla_config::BrokerConfig;
use ottla_log::{
    CleanError, CleanerParams, CleanerStats, Log, LogAccess, LogReader, LogToClean, clean,
};
use ottla_sync::Mutex;
use ottla_sync::atomic::{AtomicBool, Ordering};
use ottla_sync::task::Handle;
use ottla_sync::thread::JoinHandle;
use ottla_types::Timestamp;

use ottla_metrics::cleaner::CleanerGauge;
use ottla_storage::log_dirs::{CleaningClaim, LogCleaner, LogDirs};

use crate::maintenance::delete_old_segments_of;
use crate::partition::Partition;
use crate::partition::host::PartitionHost;
use crate::partitions::{LocalTopic, Partitions};
use pace::{Pace, Throttle};

mod pace;

/// How often the number of threads is compared with `log.cleaner.threads`.
const THREADS_CHECK: Duration = Duration::from_secs(1);
/// How often a sleeping thread checks whether it should stop.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// The threads that clean the compacted logs of a broker.
#[derive(Debug)]
pub struct Cleaner {
    host: Arc<PartitionHost>,
    partitions: Arc<Partitions>,
    log_dirs: Arc<LogDirs>,
    threads: Mutex<Vec<CleanerThread>>,
    throttle: Throttle,
}

#[derive(Debug)]
struct CleanerThread {
    handle: JoinHandle<()>,
    shared: Arc<ThreadState>,
}

/// Shared state of a thread.
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

impl Cleaner {
    pub fn new(
        host: Arc<PartitionHost>,
        partitions: Arc<Partitions>,
        log_dirs: Arc<LogDirs>,
    ) -> Cleaner {
        Cleaner {
            host,
            partitions,
            log_dirs,
            threads: Mutex::default(),
            throttle: Throttle::default(),
        }
    }

    fn states(&self) -> &LogCleaner {
        self.log_dirs.cleaner()
    }

    /// Runs as many threads as `log.cleaner.threads` requires until the broker stops.
    pub async fn keep_cleaning(self: Arc<Self>) {
        let context = Arc::clone(&self.host.context);
        if !context.config().log_cleaner_enable {
            return;
        }
        loop {
            self.adjust_threads();
            ottla_sync::select! {
                () = ottla_sync::time::sleep(THREADS_CHECK) => {}
                () = context.stopping() => return,
            }
        }
    }

    /// Interrupts running cleanings and ends the threads. Blocks.
    pub fn stop(&self) {
        self.states().stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in &threads {
            thread.shared.is_to_end.store(true, Ordering::Release);
        }
        for thread in threads {
            // A panic was reported where it happened.
            let _ = thread.handle.join();
        }
    }

    fn adjust_threads(self: &Arc<Self>) {
        let wanted = self.host.context.config().log_cleaner_threads.max(0) as usize;
        let mut threads = self.threads.lock();
        if self.states().is_stopping() {
            return;
        }
        let kept = wanted.min(threads.len());
        for surplus in threads.split_off(kept) {
            surplus.shared.is_to_end.store(true, Ordering::Release);
        }
        while threads.len() < wanted {
            let shared = Arc::new(ThreadState::default());
            let (cleaner, state) = (Arc::downgrade(self), shared.clone());
            let runtime = Handle::current();
            let name = format!("log-cleaner-{}", threads.len());
            let run = move || clean_until_stopped(&cleaner, &runtime, &state);
            match ottla_sync::thread::Builder::new().name(name).spawn(run) {
                Ok(handle) => threads.push(CleanerThread { handle, shared }),
                Err(error) => {
                    tracing::warn!(%error, "the cleaner has too few threads; trying again");
                    break;
                }
            }
        }
        let dead = threads.iter().filter(|thread| thread.handle.is_finished());
        let metrics = &self.host.context.metrics.cleaner;
        metrics.set(CleanerGauge::DeadThreadCount, dead.count() as u64);
    }

    /// Returns whether a log was cleaned.
    fn clean_filthiest(&self, runtime: &Handle, state: &ThreadState, hash_key: [u64; 2]) -> bool {
        let (host, context) = (&self.host, &self.host.context);
        context.metrics.cleaner.on_run(context.now_ms());
        let mut last = *state.last.lock();
        let chosen = self.grab_filthiest(&mut last);
        let Some((partition, to_clean, claim)) = chosen else {
            return false;
        };
        let reader = &partition.reader();
        let owner = Owner {
            partition: &partition,
            host,
            runtime,
        };
        let pace = Pace {
            context,
            throttle: &self.throttle,
            claim: &claim,
            space: self.log_dirs.space_of(reader),
        };
        let params = params(&context.config(), context.timestamp(), hash_key);
        let cleaned = clean(reader, &to_clean, &owner, &pace, &params, |job| {
            let delay_ms = u64::try_from(job.delay_ms()).unwrap_or(0);
            let delay = Duration::from_millis(delay_ms);
            self.log_dirs.submit_file_work(reader, delay, move || {
                if let Err(error) = job.run() {
                    tracing::warn!("a segment that was cleaned could not be removed: {error}");
                }
            });
        });
        let topic_partition = &partition.topic_partition;
        match cleaned {
            Ok((end, stats)) => {
                self.log_dirs
                    .set_clean_offset(reader, end, to_clean.truncations);
                last.stats = stats;
                *state.last.lock() = last;
                self.show();
                tracing::info!(
                    partition = %topic_partition, from = %to_clean.first_dirty_offset, to = %end, ?stats,
                    "the log was cleaned"
                );
                true
            }
            Err(CleanError::Stopped) => {
                tracing::info!(partition = %topic_partition, "the cleaning of the log was aborted");
                false
            }
            Err(CleanError::Storage(error)) => {
                self.log_dirs.on_partition_error(reader, &error);
                false
            }
            Err(CleanError::Uncleanable(reason)) => {
                self.give_up(&partition, &reason);
                false
            }
        }
    }

    fn give_up(&self, partition: &Partition, reason: &str) {
        self.states().mark_uncleanable(&partition.topic_partition);
        tracing::warn!(
            partition = %partition.topic_partition, reason,
            "the log cannot be cleaned and will grow; cleaning is retried after the next start"
        );
    }

    /// Examines a log with a clean offset that no truncation has made stale: it could be above the
    /// new end of the log, and records that are appended there are not clean.
    fn examine(&self, reader: &LogReader, now: Timestamp) -> io::Result<LogToClean> {
        loop {
            let truncations = reader.truncations();
            let to_clean = LogToClean::examine(reader, self.log_dirs.clean_offset(reader), now)?;
            if to_clean.truncations == truncations {
                return Ok(to_clean);
            }
        }
    }

    /// Picks the due log with the largest dirty share, and claims it for cleaning.
    fn grab_filthiest(
        &self,
        last: &mut Last,
    ) -> Option<(Arc<Partition>, LogToClean, CleaningClaim<'_>)> {
        let now = self.host.context.timestamp();
        let mut dirtiest: f64 = 0.0;
        last.compaction_delay_ms = 0;
        let mut due = Vec::new();
        for partition in compacted(&self.partitions) {
            let (reader, topic_partition) = (&partition.reader(), &partition.topic_partition);
            if !self.states().is_free(topic_partition) || !self.log_dirs.is_online(reader) {
                continue;
            }
            let to_clean = match self.examine(reader, now) {
                Ok(to_clean) => to_clean,
                // The log was deleted concurrently.
                Err(_) if !self.log_dirs.is_hosted(reader) => continue,
                Err(error) => {
                    self.give_up(&partition, &error.to_string());
                    continue;
                }
            };
            if to_clean.is_checkpoint_invalid {
                let offset = to_clean.first_dirty_offset;
                self.log_dirs
                    .set_clean_offset(reader, offset, to_clean.truncations);
            }
            last.compaction_delay_ms = last.compaction_delay_ms.max(to_clean.compaction_delay_ms);
            dirtiest = dirtiest.max(to_clean.cleanable_ratio());
            // A disk that is full up to its reserve has no room for cleaned segments.
            let is_room = self.log_dirs.space_of(reader).is_open();
            if is_room && to_clean.is_due(reader.config().min_cleanable_dirty_ratio) {
                due.push((partition, to_clean));
            }
        }
        let percent = (dirtiest * 100.0) as u64;
        self.host
            .context
            .metrics
            .cleaner
            .set(CleanerGauge::MaxDirtyPercent, percent);
        due.sort_by(|(_, a), (_, b)| b.cleanable_ratio().total_cmp(&a.cleanable_ratio()));
        due.into_iter().find_map(|(partition, _)| {
            let claim = self.states().take(&partition.topic_partition)?;
            let reader = &partition.reader();
            // A deletion first removes the log from the list and then waits for the cleaner.
            if !self.log_dirs.is_hosted(reader) {
                return None;
            }
            // Another thread may have cleaned the log since the check above, or the log may have
            // been replaced by one with different cleanable segments.
            let to_clean = self.examine(reader, now).ok()?;
            let is_due = to_clean.is_due(reader.config().min_cleanable_dirty_ratio);
            is_due.then_some((partition, to_clean, claim))
        })
    }

    fn delete_old_segments_of_compacted(&self, runtime: &Handle) {
        let now = self.host.context.timestamp();
        for partition in compacted(&self.partitions) {
            if self.states().is_stopping() {
                return;
            }
            let Some(_claim) = self.states().take(&partition.topic_partition) else {
                continue;
            };
            runtime.block_on(delete_old_segments_of(
                &self.host,
                &self.log_dirs,
                &partition,
                now,
            ));
        }
    }

    fn show(&self) {
        let threads = self.threads.lock();
        let last: Vec<Last> = threads
            .iter()
            .map(|thread| *thread.shared.last.lock())
            .collect();
        let read: u64 = last.iter().map(|last| last.stats.bytes_read).sum();
        let written: u64 = last.iter().map(|last| last.stats.bytes_written).sum();
        let max = |of: fn(&Last) -> u64| last.iter().map(of).max().unwrap_or(0);
        let metrics = &self.host.context.metrics.cleaner;
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

pub(crate) fn params(config: &BrokerConfig, now: Timestamp, hash_key: [u64; 2]) -> CleanerParams {
    let threads = config.log_cleaner_threads.max(1);
    let dedupe = config.log_cleaner_dedupe_buffer_size / i64::from(threads);
    let buffer = config.log_cleaner_io_buffer_size / threads / 2;
    CleanerParams {
        // Kafka's map is an array, whose size is limited to an `int`.
        dedupe_buffer_bytes: u64::try_from(dedupe.min(i32::MAX.into())).unwrap_or(0),
        load_factor: config.log_cleaner_io_buffer_load_factor,
        io_buffer_bytes: usize::try_from(buffer).unwrap_or(0),
        hash_key,
        now,
    }
}

fn clean_until_stopped(cleaner: &Weak<Cleaner>, runtime: &Handle, state: &ThreadState) {
    let hash_key = ottla_sync::random::random("cleaner");
    let is_to_end = |cleaner: &Cleaner| {
        cleaner.states().is_stopping() || state.is_to_end.load(Ordering::Acquire)
    };
    loop {
        let backoff_ms = {
            let Some(cleaner) = cleaner.upgrade().filter(|cleaner| !is_to_end(cleaner)) else {
                return;
            };
            let has_cleaned = cleaner.clean_filthiest(runtime, state, hash_key);
            cleaner.delete_old_segments_of_compacted(runtime);
            if has_cleaned {
                continue;
            }
            let config = cleaner.host.context.config();
            u64::try_from(config.log_cleaner_backoff_ms).unwrap_or(0)
        };
        let until = ottla_sync::time::now() + Duration::from_millis(backoff_ms.max(1));
        while cleaner
            .upgrade()
            .is_some_and(|cleaner| !is_to_end(&cleaner))
            && ottla_sync::time::now() < until
        {
            let left = until.saturating_duration_since(ottla_sync::time::now());
            ottla_sync::thread::sleep(left.min(LONGEST_SLEEP));
        }
    }
}

/// The partitions whose logs are compacted. The partitions of a topic have the same settings, and
/// most topics are not compacted, so one of them is looked at first.
fn compacted(partitions: &Partitions) -> Vec<Arc<Partition>> {
    let partitions = partitions.load();
    let is_compacted =
        |partition: &&Arc<Partition>| partition.reader().config().cleanup_policy.compact;
    let is_topic_compacted = |topic: &&Arc<LocalTopic>| {
        // The log of a lost one does not get new settings.
        let mut partitions = topic.partitions().filter(|it| !it.is_lost());
        partitions.next().is_some_and(|first| is_compacted(&first))
    };
    let topics = partitions.topics().filter(is_topic_compacted);
    topics
        .flat_map(|topic| topic.partitions())
        .filter(is_compacted)
        .map(Arc::clone)
        .collect()
}

/// Access to a partition's log through its inbox.
struct Owner<'a> {
    partition: &'a Arc<Partition>,
    host: &'a Arc<PartitionHost>,
    runtime: &'a Handle,
}

impl LogAccess for Owner<'_> {
    fn with_log<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Log) -> R + Send + 'static,
    ) -> Option<R> {
        let with_log = self.partition.with_log(self.host, work);
        self.runtime.block_on(with_log)
    }
}

#[cfg(test)]
mod tests {
    use ottla_config::{BrokerConfig, single_node_properties};
    use ottla_types::Timestamp;

    use super::params;

    /// What Kafka's `LogCleaner` gives each of its threads: a part of the buffers, one half of it to read into.
    #[test]
    fn the_threads_share_the_memory_of_the_settings() {
        let shared = [
            ("log.cleaner.threads", "2"),
            ("log.cleaner.dedupe.buffer.size", "8388608"),
            ("log.cleaner.io.buffer.size", "1048576"),
            ("log.cleaner.io.buffer.load.factor", "0.5"),
        ];
        for (settings, expected) in [
            (&shared[..], (4_194_304, 262_144, 0.5)),
            (&[], (134_217_728, 262_144, 0.9)),
        ] {
            let mut properties = single_node_properties("data", "127.0.0.1:0", "127.0.0.1:0");
            for (key, value) in settings {
                properties.set(key, value);
            }
            let (config, _) = BrokerConfig::from_properties(&properties).unwrap();
            let params = params(&config, Timestamp(0), [0; 2]);
            let found = (
                params.dedupe_buffer_bytes,
                params.io_buffer_bytes,
                params.load_factor,
            );
            assert_eq!(found, expected);
        }
    }
}
