//! The tiered storage of one broker: the task of each tiered partition, which gets its role from the
//! metadata of the cluster, and the way in for reads.
//!
//! Kafka: `RemoteLogManager.onLeadershipChange`, `RemoteLogManager.stopPartitions`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ottla_context::NodeContext;
use ottla_log::TimestampLookup;
use ottla_node::Node;
use ottla_partition::partition::host::FetchRemoteState;
use ottla_partition::tiering::tiering_of;
use ottla_partition::{Partition, PartitionHost, Partitions};
use ottla_sync::atomic::Ordering;
use ottla_sync::task::Handle;
use ottla_sync::{Mutex, Notify, watch};
use ottla_tiered::{RemotePartition, TierRole};
use ottla_types::{Offset, Timestamp, TopicIdPartition, TopicName, TopicPartition};

use crate::partition_task::PartitionTask;
use crate::reading::{AdmittedRead, RemoteReadError, RemoteRecords, RemoteRequest};
use crate::remote_tier::{RemoteTier, remote_partition};
use crate::throttle_times::ThrottleTime;
use crate::tier_metrics::{RetentionUse, TierNumbers};

/// How often roles are compared with the metadata even without a change notification.
const LOOK: Duration = Duration::from_secs(5);

pub struct RemoteLogs {
    tier: Arc<RemoteTier>,
    tasks: Mutex<BTreeMap<TopicIdPartition, Task>>,
    /// Partitions that this broker leads, whose topic is no longer tiered, and that have no remote
    /// segments. Locked after `tasks`.
    deleted: Mutex<BTreeSet<TopicIdPartition>>,
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
    /// Opens the store that the broker's settings name, for work on these threads. Sends no request to
    /// it. The error names the setting.
    pub fn open(
        context: Arc<NodeContext>,
        node: Arc<Node>,
        host: Arc<PartitionHost>,
        partitions: Arc<Partitions>,
        store_threads: Handle,
    ) -> Result<Arc<RemoteLogs>, String> {
        let tier = RemoteTier::open(context, node, host, partitions, store_threads)?;
        Ok(Arc::new(RemoteLogs {
            tier: Arc::new(tier),
            tasks: Mutex::default(),
            deleted: Mutex::default(),
            changed: Notify::new(),
        }))
    }

    /// What fetches the state of followers. It lives as long as this.
    pub fn remote_states(&self) -> Weak<dyn FetchRemoteState> {
        let tier: Weak<RemoteTier> = Arc::downgrade(&self.tier);
        tier
    }

    /// Waits until the quota allows a read and there is memory for it. The response that it is for must
    /// hold no memory of other reads.
    pub async fn admit(
        &self,
        partition: &Arc<Partition>,
        request: RemoteRequest,
    ) -> Result<AdmittedRead, RemoteReadError> {
        self.tier.admit(partition, request).await
    }

    /// The same for another read of a response that holds memory. `None` if it would have to wait.
    pub fn admit_at_once(
        &self,
        partition: &Arc<Partition>,
        request: RemoteRequest,
    ) -> Option<AdmittedRead> {
        self.tier.admit_at_once(partition, request)
    }

    /// Reads from an offset below the local log start. Dropping the future cancels it.
    pub async fn read(&self, admitted: AdmittedRead) -> Result<RemoteRecords, RemoteReadError> {
        self.tier.read(admitted).await
    }

    /// How many bytes of the budget a read with this limit takes, unless its first batch is larger.
    pub fn read_bytes(&self, max_bytes: usize) -> usize {
        self.tier.read_bytes(max_bytes)
    }

    /// How many bytes of the budget the reads of one response may take together.
    pub fn response_bytes(&self) -> usize {
        self.tier.response_bytes()
    }

    /// The first record at or after `from` with at least the timestamp, if remote storage may have
    /// one. `None`: the local log is to be searched.
    pub async fn find_by_time(
        &self,
        partition: &Arc<Partition>,
        timestamp: Timestamp,
        from: Offset,
    ) -> Result<Option<TimestampLookup>, RemoteReadError> {
        self.tier.find_by_time(partition, timestamp, from).await
    }

    /// The counters of copies, reads and deletions, and the lag, of all topics together and of each
    /// tiered topic.
    pub fn numbers(&self) -> (TierNumbers, BTreeMap<TopicName, TierNumbers>) {
        self.tier.metrics.numbers()
    }

    /// How much of their limits the partitions take that this broker leads.
    pub fn retention(&self) -> Vec<(TopicPartition, RetentionUse)> {
        self.tier.metrics.retention()
    }

    /// How long the quotas held copies and reads back.
    pub fn throttle_times(&self) -> [ThrottleTime; 2] {
        self.tier.throttle_times()
    }

    /// Reads that wait for their turn.
    pub fn waiting_reads(&self) -> usize {
        let pending = self.tier.pending_reads.load(Ordering::Relaxed);
        pending.saturating_sub(self.tier.read_limits().0)
    }

    /// The part of `remote.log.reader.threads` that reads nothing at the moment.
    pub fn idle_readers(&self) -> f64 {
        self.tier.idle_readers()
    }

    /// The part of `remote.log.manager.copier.thread.pool.size` that copies nothing at the moment.
    pub fn idle_copiers(&self) -> f64 {
        self.tier.idle_copiers()
    }

    /// A fetch does not wait any longer for its reads.
    pub fn on_fetch_expired(&self) {
        let expired = &self.tier.metrics.expired_fetches;
        expired.fetch_add(1, Ordering::Relaxed);
    }

    pub fn expired_fetches(&self) -> u64 {
        self.tier.metrics.expired_fetches.load(Ordering::Relaxed)
    }

    /// A search by time did not end within `remote.list.offsets.request.timeout.ms`.
    pub fn on_search_expired(&self) {
        let expired = &self.tier.metrics.expired_searches;
        expired.fetch_add(1, Ordering::Relaxed);
    }

    pub fn expired_searches(&self) -> u64 {
        self.tier.metrics.expired_searches.load(Ordering::Relaxed)
    }

    /// The part of the budget for reads that is not reserved.
    pub fn available_read_bytes(&self) -> usize {
        self.tier.memory.available_bytes()
    }

    /// The metadata of the cluster has changed.
    pub fn on_metadata_changed(&self) {
        self.changed.notify_one();
    }

    /// Gives partitions their roles until the broker stops.
    pub async fn run(self: Arc<Self>) {
        let context = &self.tier.context;
        ottla_sync::task::spawn(Arc::clone(&self.tier.metadata).run());
        loop {
            self.assign_roles();
            ottla_sync::select! {
                () = self.changed.notified() => {}
                () = ottla_sync::time::sleep(LOOK) => {}
                () = context.stopping() => return,
            }
        }
    }

    /// After the tasks of the broker have ended.
    pub async fn close(&self) {
        if let Err(error) = self.tier.stores.close().await {
            tracing::warn!("the store of remote segments is not closed: {error}");
        }
    }

    fn assign_roles(self: &Arc<Self>) {
        let tier = &self.tier;
        let image = tier.context.metadata().clone();
        let broker_id = tier.context.broker_id();
        let mut tasks = self.tasks.lock();
        let mut deleted = self.deleted.lock();
        let mut disabled = BTreeSet::new();
        let mut here = BTreeMap::new();
        for partition in tier.partitions.load().iter() {
            let tiering = tiering_of(&partition.reader().config());
            let key = partition.topic_id_partition();
            // Most topics are not tiered and never were.
            let is_untiered = !tiering.is_enabled && !tiering.is_deleted_on_disable;
            if is_untiered && !tasks.contains_key(&key) {
                continue;
            }
            let topic = image.topics.by_id(partition.topic_id);
            let index = partition.topic_partition.partition;
            let Some(registration) = topic.and_then(|topic| topic.partition(index)) else {
                continue;
            };
            let is_leader = registration.leader == broker_id;
            let role = match tiering.role(is_leader) {
                // A new leader, and one that was restarted, cannot know whether the former one was
                // done before they have read the metadata.
                TierRole::Stopped if tiering.deletes_remote_log(is_leader) => {
                    disabled.insert(key);
                    match deleted.contains(&key) {
                        true => TierRole::Stopped,
                        false => TierRole::Deleting,
                    }
                }
                role => role,
            };
            here.insert(key, (role, remote_partition(partition)));
        }
        deleted.retain(|key| disabled.contains(key));
        drop(deleted);
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
                tier.metadata.assign(key);
                tier.metrics.on_begun(key, &partition.topic);
                let task = Task {
                    partition: partition.clone(),
                    role: sender,
                };
                tasks.insert(key, task);
                let remote = Arc::clone(self);
                ottla_sync::task::spawn(async move {
                    let tier = Arc::clone(&remote.tier);
                    let is_deleted = PartitionTask::run(tier, partition, receiver).await;
                    remote.on_task_ended(key, is_deleted);
                });
            }
        }
    }

    fn on_task_ended(&self, key: TopicIdPartition, is_deleted: bool) {
        {
            let mut tasks = self.tasks.lock();
            if let Some(task) = tasks.remove(&key) {
                // A task that ended for another reason may have got the role too late to see it.
                let role = *task.role.borrow();
                if is_deleted && role == TierRole::Deleting {
                    self.deleted.lock().insert(key);
                }
            }
            self.tier.metadata.unassign(key);
            self.tier.metrics.on_ended(key);
        }
        // It may have got a role again in between.
        self.changed.notify_one();
    }
}
