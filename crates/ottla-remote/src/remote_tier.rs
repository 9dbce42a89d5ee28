//! The shared state of the tasks, the reads and the followers of a broker's tiered storage: the
//! store, the metadata topic, the quotas, and the partitions of this broker.

use std::sync::Arc;
use std::time::Duration;

use ottla_context::NodeContext;
use ottla_net::{BrokerPeers, RequestMemory};
use ottla_node::Node;
use ottla_partition::{Partition, PartitionHost, Partitions};
use ottla_sync::atomic::AtomicUsize;
use ottla_sync::task::Handle;
use ottla_sync::{Mutex, Semaphore};
use ottla_tiered::{RemotePartition, RemoteQuota};
use ottla_tiered_storage::Permit;

use crate::metadata_topic::MetadataTopic;
use crate::settings::{Quota, RemoteSettings};
use crate::stores::Stores;
use crate::throttle_times::{ThrottleTime, ThrottleTimes};
use crate::tier_metrics::TierMetrics;
use crate::turns::Turns;

/// Followers that fetch state from remote storage at the same time. In Kafka a fetcher thread does
/// this; there are `num.replica.fetchers` threads per leader.
pub const STATE_BUILDERS: usize = 10;

pub struct RemoteTier {
    pub context: Arc<NodeContext>,
    pub host: Arc<PartitionHost>,
    pub partitions: Arc<Partitions>,
    pub settings: RemoteSettings,
    pub metadata: Arc<MetadataTopic>,
    pub stores: Arc<Stores>,
    /// For what followers ask their leaders.
    pub peers: BrokerPeers,
    copiers: Arc<Turns>,
    deleters: Arc<Turns>,
    readers: Arc<Turns>,
    pub state_builders: Semaphore,
    /// Running and waiting reads.
    pub pending_reads: Arc<AtomicUsize>,
    /// Records that were read, or are being read, and have not left in a response.
    pub memory: RequestMemory,
    pub metrics: TierMetrics,
    copy_quota: Mutex<RemoteQuota>,
    fetch_quota: Mutex<RemoteQuota>,
    /// How long they hold back.
    copy_throttle_times: Mutex<ThrottleTimes>,
    fetch_throttle_times: Mutex<ThrottleTimes>,
}

impl RemoteTier {
    /// Opens the store that the broker's settings name, for work on these threads. Sends no request to
    /// it. The error names the setting.
    pub fn open(
        context: Arc<NodeContext>,
        node: Arc<Node>,
        host: Arc<PartitionHost>,
        partitions: Arc<Partitions>,
        store_threads: Handle,
    ) -> Result<RemoteTier, String> {
        let config = context.config().clone();
        let settings = RemoteSettings::of(&config)?;
        let environment = |name: &str| std::env::var(name).ok();
        let store = ottla_tiered_storage::open(config.static_settings(), &environment)
            .map_err(|error| error.to_string())?;
        tracing::info!(
            "closed segments of tiered topics are kept in {}",
            store.location()
        );
        let quota = |of: Quota| {
            let (windows, seconds) = (of.windows, of.window_size_seconds);
            Mutex::new(RemoteQuota::new(of.bytes_per_second, windows, seconds))
        };
        Ok(RemoteTier {
            metadata: Arc::new(MetadataTopic::new(
                Arc::clone(&context),
                node,
                settings.metadata.clone(),
            )),
            stores: Stores::new(store, &settings, store_threads),
            copiers: Turns::new(),
            deleters: Turns::new(),
            readers: Turns::new(),
            state_builders: Semaphore::new(STATE_BUILDERS),
            pending_reads: Arc::new(AtomicUsize::new(0)),
            memory: RequestMemory::new(context.budgets().remote_read_bytes),
            metrics: TierMetrics::default(),
            copy_quota: quota(settings.copy_quota),
            fetch_quota: quota(settings.fetch_quota),
            copy_throttle_times: Mutex::default(),
            fetch_throttle_times: Mutex::default(),
            peers: BrokerPeers::default(),
            context,
            host,
            partitions,
            settings,
        })
    }

    /// `follower.fetch.last.tiered.offset.enable` (KIP-1023).
    pub fn is_last_tiered_enabled(&self) -> bool {
        self.context
            .config()
            .follower_fetch_last_tiered_offset_enable
    }

    /// `remote.log.manager.copier.thread.pool.size`: uploads at the same time.
    pub async fn turn_to_copy(&self) -> Permit {
        let limit = self
            .context
            .config()
            .remote_log_manager_copier_thread_pool_size;
        Permit::new(self.copiers.take(limit).await)
    }

    /// `remote.log.manager.expiration.thread.pool.size`: deletions at the same time.
    pub async fn turn_to_delete(&self) -> Permit {
        let limit = self
            .context
            .config()
            .remote_log_manager_expiration_thread_pool_size;
        Permit::new(self.deleters.take(limit).await)
    }

    /// `remote.log.reader.threads`: reads and searches by time at the same time.
    pub async fn turn_to_read(&self) -> Permit {
        let limit = self.context.config().remote_log_reader_threads;
        Permit::new(self.readers.take(limit).await)
    }

    /// How many reads run at the same time, and how many more wait for their turn.
    pub fn read_limits(&self) -> (usize, usize) {
        let config = self.context.config();
        let count = |setting: i32| usize::try_from(setting).unwrap_or(0);
        (
            count(config.remote_log_reader_threads),
            count(config.remote_log_reader_max_pending_tasks),
        )
    }

    /// The part of `remote.log.reader.threads` that reads nothing at the moment.
    pub fn idle_readers(&self) -> f64 {
        let (most, _) = self.read_limits();
        let idle = 1.0 - self.readers.taken() as f64 / most.max(1) as f64;
        // The setting may have been lowered.
        idle.max(0.0)
    }

    /// The part of `remote.log.manager.copier.thread.pool.size` that copies nothing at the moment.
    pub fn idle_copiers(&self) -> f64 {
        let config = self.context.config();
        let most = config.remote_log_manager_copier_thread_pool_size.max(1);
        let idle = 1.0 - self.copiers.taken() as f64 / f64::from(most);
        idle.max(0.0)
    }

    /// Waits until the copy quota allows another segment, and counts it.
    pub async fn await_copy_quota(&self, bytes: u64) {
        loop {
            let now_ms = self.context.now_ms() as i64;
            let wait_ms = {
                let mut quota = self.copy_quota.lock();
                quota.set_quota(
                    self.context
                        .config()
                        .remote_log_manager_copy_max_bytes_per_second,
                );
                let wait_ms = quota.throttle_time_ms(now_ms);
                if wait_ms == 0 {
                    quota.record(bytes, now_ms);
                    return;
                }
                wait_ms
            };
            self.copy_throttle_times
                .lock()
                .record(wait_ms, self.context.now_ms());
            ottla_sync::time::sleep(Duration::from_millis(wait_ms.min(1000))).await;
        }
    }

    /// How long the quota holds reads back, 0 if it does not.
    pub fn fetch_throttle_ms(&self) -> u64 {
        let mut quota = self.fetch_quota.lock();
        quota.set_quota(
            self.context
                .config()
                .remote_log_manager_fetch_max_bytes_per_second,
        );
        quota.throttle_time_ms(self.context.now_ms() as i64)
    }

    pub fn on_fetch_throttled(&self, throttle_ms: u64) {
        let mut times = self.fetch_throttle_times.lock();
        times.record(throttle_ms, self.context.now_ms());
    }

    /// Of copies and of reads.
    pub fn throttle_times(&self) -> [ThrottleTime; 2] {
        let now_ms = self.context.now_ms();
        [&self.copy_throttle_times, &self.fetch_throttle_times].map(|it| it.lock().read(now_ms))
    }

    pub fn count_fetched(&self, bytes: u64) {
        let now_ms = self.context.now_ms() as i64;
        self.fetch_quota.lock().record(bytes, now_ms);
    }
}

pub fn remote_partition(partition: &Partition) -> RemotePartition {
    RemotePartition {
        topic_id: partition.topic_id,
        topic: partition.topic_partition.topic.clone(),
        partition: partition.topic_partition.partition,
    }
}
