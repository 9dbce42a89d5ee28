//! The tiered storage of one broker: the store, the metadata topic, and the task of each tiered
//! partition, which gets its role from the metadata of the cluster.
//!
//! Kafka: `RemoteLogManager.onLeadershipChange`, `RemoteLogManager.stopPartitions`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ottla_context::NodeContext;
use ottla_net::BrokerPeers;
use ottla_node::Node;
use ottla_partition::tiering::tiering_of;
use ottla_partition::{PartitionHost, Partitions};
use ottla_sync::atomic::AtomicUsize;
use ottla_sync::{Mutex, Notify, Semaphore, watch};
use ottla_tiered::{RemotePartition, RemoteQuota, TierRole};
use ottla_types::TopicIdPartition;

use crate::metadata_topic::MetadataTopic;
use crate::partition_task::PartitionTask;
use crate::reading::{READERS, remote_partition};
use crate::settings::{Quota, RemoteSettings, bytes_per_second};
use crate::stores::Stores;

/// How often roles are compared with the metadata even if nobody says that it changed.
const LOOK: Duration = Duration::from_secs(5);

pub struct RemoteLogs {
    pub(crate) context: Arc<NodeContext>,
    pub(crate) host: Arc<PartitionHost>,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) settings: RemoteSettings,
    pub(crate) metadata: Arc<MetadataTopic>,
    pub(crate) stores: Stores,
    /// For what followers ask their leaders.
    pub(crate) peers: BrokerPeers,
    pub(crate) readers: Semaphore,
    pub(crate) pending_reads: AtomicUsize,
    copy_quota: Mutex<RemoteQuota>,
    fetch_quota: Mutex<RemoteQuota>,
    tasks: Mutex<BTreeMap<TopicIdPartition, Task>>,
    changed: Notify,
}

/// A partition that has a role.
struct Task {
    partition: RemotePartition,
    role: watch::Sender<TierRole>,
}

impl std::fmt::Debug for RemoteLogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteLogs").finish_non_exhaustive()
    }
}

impl RemoteLogs {
    /// Opens the store that the broker's settings name. Asks nothing of it. The error names the
    /// setting.
    pub fn open(
        context: Arc<NodeContext>,
        node: Arc<Node>,
        host: Arc<PartitionHost>,
        partitions: Arc<Partitions>,
    ) -> Result<Arc<RemoteLogs>, String> {
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
        Ok(Arc::new(RemoteLogs {
            metadata: Arc::new(MetadataTopic::new(
                Arc::clone(&context),
                node,
                settings.metadata.clone(),
            )),
            stores: Stores::new(store, &settings),
            readers: Semaphore::new(READERS),
            pending_reads: AtomicUsize::new(0),
            copy_quota: quota(settings.copy_quota),
            fetch_quota: quota(settings.fetch_quota),
            peers: BrokerPeers::default(),
            tasks: Mutex::default(),
            changed: Notify::new(),
            context,
            host,
            partitions,
            settings,
        }))
    }

    /// The metadata of the cluster has changed.
    pub fn on_metadata_changed(&self) {
        self.changed.notify_one();
    }

    /// Gives partitions their roles until the broker stops.
    pub async fn run(self: Arc<Self>) {
        ottla_sync::task::spawn(Arc::clone(&self.metadata).run());
        loop {
            self.assign_roles();
            ottla_sync::select! {
                () = self.changed.notified() => {}
                () = ottla_sync::time::sleep(LOOK) => {}
                () = self.context.stopping() => return,
            }
        }
    }

    fn assign_roles(self: &Arc<Self>) {
        let image = self.context.metadata().clone();
        let broker_id = self.context.broker_id();
        let mut tasks = self.tasks.lock();
        let mut here = BTreeMap::new();
        for partition in self.partitions.load().iter() {
            let topic = image.topics.by_id(partition.topic_id);
            let index = partition.topic_partition.partition;
            let Some(registration) = topic.and_then(|topic| topic.partition(index)) else {
                continue;
            };
            let is_leader = registration.leader == broker_id;
            let tiering = tiering_of(&partition.reader().config());
            let key = partition.topic_id_partition();
            let role = match tiering.role(is_leader) {
                // Tiering was disabled while this broker ran.
                TierRole::Stopped if is_leader && tasks.contains_key(&key) => TierRole::Deleting,
                role => role,
            };
            here.insert(key, (role, remote_partition(partition)));
        }
        for (key, task) in tasks.iter() {
            if here.contains_key(key) {
                continue;
            }
            let was_leader = matches!(
                *task.role.borrow(),
                TierRole::Leader { .. } | TierRole::Deleting
            );
            let is_topic_deleted = image.topics.by_id(key.topic_id).is_none();
            let role = match was_leader && is_topic_deleted {
                true => TierRole::Deleting,
                false => TierRole::Stopped,
            };
            here.insert(*key, (role, task.partition.clone()));
        }
        for (key, (role, partition)) in here {
            if let Some(task) = tasks.get(&key) {
                task.role
                    .send_if_modified(|given| std::mem::replace(given, role) != role);
            } else if role != TierRole::Stopped {
                let (sender, receiver) = watch::channel(role);
                self.metadata.assign(key);
                let task = Task {
                    partition: partition.clone(),
                    role: sender,
                };
                tasks.insert(key, task);
                let remote = Arc::clone(self);
                ottla_sync::task::spawn(async move {
                    PartitionTask::run(Arc::clone(&remote), partition, receiver).await;
                    remote.on_task_ended(key);
                });
            }
        }
    }

    fn on_task_ended(&self, key: TopicIdPartition) {
        {
            let mut tasks = self.tasks.lock();
            tasks.remove(&key);
            self.metadata.unassign(key);
        }
        // It may have been given a role again meanwhile.
        self.changed.notify_one();
    }

    /// `follower.fetch.last.tiered.offset.enable` (KIP-1023).
    pub(crate) fn is_last_tiered_enabled(&self) -> bool {
        self.context
            .config()
            .follower_fetch_last_tiered_offset_enable
    }

    /// Waits until the copy quota allows another segment, and counts it.
    pub(crate) async fn await_copy_quota(&self, bytes: u64) {
        loop {
            let now_ms = self.context.now_ms() as i64;
            let wait_ms = {
                let mut quota = self.copy_quota.lock();
                quota.set_quota(bytes_per_second(&self.context.config(), "copy"));
                let wait_ms = quota.throttle_time_ms(now_ms);
                if wait_ms == 0 {
                    quota.record(bytes, now_ms);
                    return;
                }
                wait_ms
            };
            ottla_sync::time::sleep(Duration::from_millis(wait_ms.min(1000))).await;
        }
    }

    pub(crate) fn is_fetch_quota_exceeded(&self) -> bool {
        let mut quota = self.fetch_quota.lock();
        quota.set_quota(bytes_per_second(&self.context.config(), "fetch"));
        quota.throttle_time_ms(self.context.now_ms() as i64) > 0
    }

    pub(crate) fn count_fetched(&self, bytes: u64) {
        let now_ms = self.context.now_ms() as i64;
        self.fetch_quota.lock().record(bytes, now_ms);
    }
}
