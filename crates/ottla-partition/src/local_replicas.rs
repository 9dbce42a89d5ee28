//! Applies metadata changes: the partitions of this broker, their roles and settings.
//!
//! Called by the publisher of images, one change after the other. New partitions can be found
//! before the image that names them is published, so that a client that learns of a partition finds
//! it.
//!
//! Kafka: `BrokerMetadataPublisher`, `ReplicaManager.applyDelta`.

mod in_parts;
mod leaderships;

use std::sync::Arc;
use std::time::Duration;

use ottla_config::TopicConfig;
use ottla_log::Log;
use ottla_metadata::{
    ConfigResource, ConfigResourceType, LocalReplica, LocalReplicaChanges, MetadataDelta,
    MetadataImage, PartitionRegistration,
};
use ottla_node::dir_assignments::DirAssignments;
use ottla_replica::{Event, Leadership, ReplicaBroker, ReplicaConfig};
use ottla_storage::log_dirs::OpenSettings;
use ottla_sync::atomic::Ordering;
use ottla_sync::collections::HashSet;
use ottla_sync::{Mutex, MutexGuard};
use ottla_types::{BrokerId, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicId, TopicPartition};

use self::in_parts::in_parts;
use self::leaderships::Leaderships;
use crate::partition::host::PartitionHost;
use crate::partition::{Ack, Partition, PartitionSettings};
use crate::partitions::{ChangedMap, LocalTopic, PartitionMap, Partitions};
use crate::replication::Replication;
use crate::tiering;

/// How long changes of the metadata wait for logs that are opened late, plus one log.
const OPENING_TURN: Duration = Duration::from_millis(100);

/// Threads that take up very many replicas. A larger setting need not be possible here.
const MOST_THREADS: i32 = 16;

/// Opens, changes and deletes the partitions of this broker.
#[derive(Debug)]
pub struct LocalReplicas {
    host: Arc<PartitionHost>,
    partitions: Arc<Partitions>,
    replication: Arc<Replication>,
    dir_assignments: Arc<DirAssignments>,
    /// Shared by the topics without settings of their own.
    defaults: Mutex<Arc<TopicConfig>>,
    /// Shared by the replicas.
    replica_config: Mutex<Arc<ReplicaConfig>>,
    /// As of the last change.
    leaderships: Mutex<Leaderships>,
}

/// A metadata change being applied. While it is held, no other change is applied and no move is
/// started.
pub struct Change<'a> {
    replicas: &'a LocalReplicas,
    _changing: MutexGuard<'a, ()>,
    changes: LocalReplicaChanges,
    /// Followers get their roles after the image is published, because fetchers look up the
    /// leaders' addresses in it.
    followers: Vec<Following>,
    removed: Vec<Arc<Partition>>,
    /// Logs of replicas that have moved to other brokers. Deleted after everything else, so that
    /// clients learn of the new leaders first.
    unassigned: Vec<TopicPartition>,
}

/// The partition of a replica.
struct Opened<'a> {
    partition: Arc<Partition>,
    replica: &'a LocalReplica,
    is_leader: bool,
    /// It is in the map.
    is_known: bool,
}

/// The role of a follower.
struct Following {
    partition: Arc<Partition>,
    leader: BrokerId,
    leader_epoch: LeaderEpoch,
    partition_epoch: PartitionEpoch,
}

/// The result of making leaders.
#[derive(Default)]
struct Roles {
    followers: Vec<Following>,
    /// This broker leads a partition that it did not lead before, or with other replicas.
    is_newly_leading: bool,
}

/// State shared by the partitions of a topic.
struct TopicState {
    topic_id: TopicId,
    config: Arc<TopicConfig>,
    settings: Arc<PartitionSettings>,
}

impl LocalReplicas {
    pub fn new(
        host: Arc<PartitionHost>,
        partitions: Arc<Partitions>,
        replication: Arc<Replication>,
        dir_assignments: Arc<DirAssignments>,
    ) -> LocalReplicas {
        let replica_config = ReplicaConfig::new(host.context.broker_id());
        LocalReplicas {
            host,
            partitions,
            replication,
            dir_assignments,
            defaults: Mutex::default(),
            replica_config: Mutex::new(Arc::new(replica_config)),
            leaderships: Mutex::default(),
        }
    }

    fn broker_id(&self) -> BrokerId {
        self.host.context.broker_id()
    }

    /// The settings for a new replica.
    fn replica_config(&self) -> Arc<ReplicaConfig> {
        let config = self.host.context.config();
        let now = ReplicaConfig {
            broker_id: self.broker_id(),
            replica_lag_time_max_ms: config.replica_lag_time_max_ms.max(0) as u64,
            replica_fetch_backoff_ms: config.replica_fetch_backoff_ms.max(0) as u64,
        };
        let mut shared = self.replica_config.lock();
        if **shared != now {
            *shared = Arc::new(now);
        }
        Arc::clone(&shared)
    }

    /// Starts to apply a new image: deletes and opens logs, and makes replicas leaders. Not for
    /// threads that serve connections. The image must be published before [`Change::finish`].
    pub fn begin_change(&self, delta: &MetadataDelta) -> Change<'_> {
        let changing = self.partitions.changing.lock();
        let changes = delta.local_changes(self.broker_id());
        let before = &delta.before;
        self.leaderships.lock().on_changed(before, &changes);
        let mut map = ChangedMap::new(&self.partitions);
        // At start, the delta contains all partitions, including existing ones.
        let is_start = delta.before.cluster.broker(self.broker_id()).is_none();
        let before = Some(&delta.before).filter(|_| !is_start);
        let missing = self.lead_known(map.get(), &changes.leaders, before, &delta.after);
        let (mut removed, mut unassigned) = (Vec::new(), Vec::new());
        for deleted in &changes.deleted {
            removed.extend(map.get_mut().remove(deleted.topic_id, deleted.partition));
            let log = TopicPartition::new(deleted.topic.clone(), deleted.partition.0);
            match delta.after.topics.by_id(deleted.topic_id) {
                Some(_) => unassigned.push(log),
                // At once, because the same change may create a topic of the same name.
                None => self.delete_log(&log),
            }
        }
        let leaders = missing.into_iter().map(|replica| (replica, true));
        let followers = changes.followers.iter().map(|replica| (replica, false));
        // At start, very many logs are there already and only have to be claimed. Later changes may
        // create logs, each in the directory that has the fewest by then.
        let threads = match is_start {
            true => self.threads(),
            false => 1,
        };
        let replicas = leaders.chain(followers);
        let followers = self.take_up(map, replicas, threads, before, &delta.after);
        Change {
            replicas: self,
            _changing: changing,
            changes,
            followers,
            removed,
            unassigned,
        }
    }

    /// The log may exist although it could not be opened.
    fn delete_log(&self, log: &TopicPartition) {
        if let Some(log_dirs) = self.host.log_dirs() {
            log_dirs.delete_log(log);
        }
    }

    /// Makes the leaders whose logs are open, and returns the others. Called before logs are opened and
    /// deleted, which takes tens of milliseconds: clients may be sent here already.
    fn lead_known<'a>(
        &self,
        known: &PartitionMap,
        leaders: &'a [LocalReplica],
        before: Option<&MetadataImage>,
        image: &MetadataImage,
    ) -> Vec<&'a LocalReplica> {
        let is_known = |replica: &&LocalReplica| {
            let found = known.partition_by_id(replica.topic_id, replica.partition);
            found.is_some()
        };
        let (here, missing): (Vec<_>, Vec<_>) = leaders.iter().partition(is_known);
        let here = here.into_iter().map(|replica| (replica, true));
        let opened = self.open_all(known, here, before, image);
        // None of them follows.
        self.give_roles(&opened, before, image);
        missing
    }

    /// How many threads take up the replicas of a start, and give very many replicas their roles:
    /// those of a start are leaders only when the broker is unfenced, which is a change of its own.
    fn threads(&self) -> usize {
        let config = self.host.context.config();
        let threads = config.num_recovery_threads_per_data_dir;
        threads.clamp(1, MOST_THREADS) as usize
    }

    /// Opens missing replicas on some threads, publishes the map and makes leaders; the flag of a
    /// replica is whether it leads. Returns the followers with their roles. Replicas that `before`
    /// does not have are new here. One thread takes the replicas one by one; several take all at
    /// once.
    fn take_up<'a>(
        &self,
        mut map: ChangedMap,
        replicas: impl Iterator<Item = (&'a LocalReplica, bool)>,
        threads: usize,
        before: Option<&MetadataImage>,
        image: &MetadataImage,
    ) -> Vec<Following> {
        let known = map.get();
        let opened: Vec<Opened<'a>> = match threads {
            1 => self.open_all(known, replicas, before, image),
            _ => {
                let all: Vec<_> = replicas.collect();
                let opened = in_parts(&all, threads, |part| {
                    self.open_all(known, part.iter().copied(), before, image)
                });
                opened.into_iter().flatten().collect()
            }
        };
        if opened.iter().any(|opened| !opened.is_known) {
            let missing = opened.iter().filter(|opened| !opened.is_known);
            let missing = missing.map(|opened| Arc::clone(&opened.partition));
            map.get_mut().insert_all(missing);
        }
        map.publish(&self.partitions);
        let followers = self.give_roles(&opened, before, image);
        // A start has more urgent work.
        if before.is_some() {
            let created = opened.iter().filter(|opened| !opened.is_known);
            let created = created.map(|opened| &opened.partition);
            Partition::write_few_topic_ids(&self.host, created);
        }
        followers
    }

    /// Makes the leaders among some replicas, very many on several threads, and returns the followers
    /// with their roles.
    fn give_roles(
        &self,
        opened: &[Opened<'_>],
        before: Option<&MetadataImage>,
        image: &MetadataImage,
    ) -> Vec<Following> {
        let given = in_parts(opened, self.threads(), |part| {
            self.make_leaders(part, before, image)
        });
        let mut followers = Vec::new();
        let mut is_newly_leading = false;
        for roles in given {
            followers.extend(roles.followers);
            is_newly_leading |= roles.is_newly_leading;
        }
        if is_newly_leading {
            self.replication.new_leaderships.note();
        }
        followers
    }

    /// The partitions of replicas, opened if they are not in the map `known`.
    fn open_all<'a>(
        &self,
        known: &PartitionMap,
        replicas: impl Iterator<Item = (&'a LocalReplica, bool)>,
        before: Option<&MetadataImage>,
        image: &MetadataImage,
    ) -> Vec<Opened<'a>> {
        let mut opened = Vec::new();
        let mut topic_state = None;
        for (replica, is_leader) in replicas {
            let found = known.partition_by_id(replica.topic_id, replica.partition);
            if let Some(partition) = found {
                opened.push(Opened {
                    partition: Arc::clone(partition),
                    replica,
                    is_leader,
                    is_known: true,
                });
                continue;
            }
            let is_new = before.is_some_and(|before| {
                let known = known_before(before, replica);
                known.is_none_or(|known| !known.is_replica(self.broker_id()))
            });
            match self.open_partition(&mut topic_state, replica, is_new, image) {
                Ok(partition) => opened.push(Opened {
                    partition,
                    replica,
                    is_leader,
                    is_known: false,
                }),
                Err(error) => {
                    let (topic, partition) = (&replica.topic, replica.partition);
                    tracing::error!("{topic}-{partition} cannot be opened: {error}");
                    let is_incomplete = &self.partitions.is_incomplete;
                    is_incomplete.store(true, Ordering::Release);
                }
            }
        }
        opened
    }

    /// Makes the leaders among some replicas, and returns the roles of the followers.
    fn make_leaders(
        &self,
        opened: &[Opened<'_>],
        before: Option<&MetadataImage>,
        image: &MetadataImage,
    ) -> Roles {
        let is_directory_reported = image.metadata_version().is_directory_assignment_supported();
        let mut roles = Roles::default();
        for opened in opened {
            let (partition, replica) = (&opened.partition, opened.replica);
            log_change(partition, &replica.registration);
            if is_directory_reported {
                self.tell_directory(partition, replica);
            }
            if opened.is_leader {
                roles.is_newly_leading |= before.is_none_or(|before| {
                    let now = &replica.registration;
                    known_before(before, replica).is_none_or(|known| {
                        known.leader_epoch != now.leader_epoch || known.replicas != now.replicas
                    })
                });
                let elected = Event::LeaderElected {
                    leadership: leadership(partition, replica, image),
                    now_ms: self.host.context.now_ms(),
                };
                self.give_role(partition, elected);
            } else {
                roles.followers.push(Following {
                    partition: Arc::clone(partition),
                    leader: replica.registration.leader,
                    leader_epoch: replica.registration.leader_epoch,
                    partition_epoch: replica.registration.partition_epoch,
                });
            }
        }
        roles
    }

    fn make_followers(&self, followers: &[Following]) {
        in_parts(followers, self.threads(), |part| {
            for following in part {
                let role = Event::FollowerOf {
                    leader: following.leader,
                    leader_epoch: following.leader_epoch,
                    partition_epoch: following.partition_epoch,
                    settings: following.partition.settings().replica,
                };
                self.give_role(&following.partition, role);
            }
        });
    }

    fn give_role(&self, partition: &Arc<Partition>, role: Event<Ack>) {
        partition.notify(&self.host, role);
        // The directory may have failed before the partition could be found and notified.
        if let Some(log_dirs) = self.host.log_dirs()
            && !log_dirs.is_online(&partition.reader())
        {
            partition.notify(&self.host, Event::LogLost);
        }
    }

    /// The partitions with followers that this broker leads according to the metadata.
    pub fn led_with_followers(&self) -> Vec<Arc<Partition>> {
        let led = self
            .leaderships
            .lock()
            .with_replicas_on([&self.broker_id()]);
        let map = self.partitions.load();
        let partitions = led.into_iter();
        partitions
            .filter_map(|(topic_id, index)| map.partition_by_id(topic_id, index).cloned())
            .collect()
    }

    /// Notifies leaders of changed registrations of their followers' brokers. Leaders whose own
    /// registration changed were notified with it.
    fn tell_brokers(&self, delta: &MetadataDelta, changes: &LocalReplicaChanges) {
        if delta.brokers.is_empty() {
            return;
        }
        let mut concerned = self.leaderships.lock().with_replicas_on(&delta.brokers);
        for leader in &changes.leaders {
            concerned.remove(&(leader.topic_id, leader.partition));
        }
        let map = self.partitions.load();
        for (topic_id, index) in concerned {
            let topic = delta.after.topics.by_id(topic_id);
            let registration = topic.and_then(|topic| topic.partition(index));
            // Not here if it could not be opened. It will learn of the brokers with its role.
            let partition = map.partition_by_id(topic_id, index);
            if let (Some(registration), Some(partition)) = (registration, partition)
                && registration.leader == self.broker_id()
            {
                let brokers = replica_brokers(registration, &delta.after);
                partition.notify(&self.host, Event::BrokersChanged(brokers));
            }
        }
    }

    /// Reports the directory of a replica to the controller, if it has a different one.
    fn tell_directory(&self, partition: &Partition, replica: &LocalReplica) {
        let known = replica.registration.directory(self.broker_id());
        let log_dirs = self.host.log_dirs();
        // A start comes here with every partition, and nearly always there is nothing to report.
        if known.is_some() && known == log_dirs.and_then(|log_dirs| log_dirs.only_directory()) {
            return;
        }
        let actual =
            log_dirs.and_then(|log_dirs| log_dirs.directory_of(&partition.topic_partition));
        // During a move, the controller knows the future directory.
        let next =
            log_dirs.and_then(|log_dirs| log_dirs.future_directory_of(&partition.topic_partition));
        if next.is_some() && next == known {
            return;
        }
        if let Some(actual) = actual.filter(|actual| known != Some(*actual)) {
            self.dir_assignments
                .assign(replica.topic_id, replica.partition, actual, None);
        }
    }

    /// Retries to open replicas that could not be opened when the metadata named them, for example
    /// on a full disk. `on_leader_opened` is called for each that this broker leads. Blocks.
    ///
    /// Opening a log may recover it, so changes of the metadata take turns with it.
    pub fn open_missing_partitions(&self, mut on_leader_opened: impl FnMut(&LocalReplica)) {
        let mut tried = HashSet::default();
        while self.open_some(&mut tried, &mut on_leader_opened) && !self.host.context.is_stopping()
        {
        }
    }

    /// Opens missing replicas for [`OPENING_TURN`], each once. Returns whether some were not tried.
    fn open_some(
        &self,
        tried: &mut HashSet<(TopicId, PartitionIndex)>,
        on_leader_opened: &mut impl FnMut(&LocalReplica),
    ) -> bool {
        let _changing = self.partitions.changing.lock();
        if !self.partitions.is_incomplete.swap(false, Ordering::AcqRel) {
            return false;
        }
        let image = self.host.context.metadata();
        let map = ChangedMap::new(&self.partitions);
        let mut missing = Vec::new();
        for topic in image.topics.iter() {
            for (partition, registration) in topic.partitions() {
                let known = map.get().topic_by_id(topic.id);
                let is_here = known.is_some_and(|known| known.partition(partition.0).is_some());
                let is_tried = tried.contains(&(topic.id, partition));
                if !is_here && !is_tried && registration.replicas.contains(&self.broker_id()) {
                    missing.push(LocalReplica {
                        topic: topic.name.clone(),
                        topic_id: topic.id,
                        partition,
                        registration: registration.clone(),
                    });
                }
            }
        }
        let leads = |replica: &LocalReplica| replica.registration.leader == self.broker_id();
        let begin = ottla_sync::time::now();
        let before = tried.len();
        let replicas = missing.iter().map(|replica| (replica, leads(replica)));
        let replicas = replicas.take_while(|(replica, _)| {
            let is_in_time = ottla_sync::time::elapsed(begin) < OPENING_TURN;
            let is_taken = is_in_time || tried.len() == before;
            is_taken && tried.insert((replica.topic_id, replica.partition))
        });
        let followers = self.take_up(map, replicas, 1, None, &image);
        self.make_followers(&followers);
        let (opened, left) = missing.split_at(tried.len() - before);
        opened
            .iter()
            .filter(|replica| leads(replica))
            .for_each(on_leader_opened);
        let is_left = !left.is_empty();
        if is_left {
            self.partitions.is_incomplete.store(true, Ordering::Release);
        }
        is_left
    }

    /// The settings of a topic: the broker's defaults with the topic's overrides.
    pub fn topic_config(&self, image: &MetadataImage, topic: &str) -> Arc<TopicConfig> {
        let resource = ConfigResource::topic(topic.to_owned());
        let mut overrides = image.configs.entries(&resource).peekable();
        let config = self.host.context.config();
        let defaults = &config.topic_defaults;
        if overrides.peek().is_none() {
            // Most topics have no overrides and share this value.
            let mut shared = self.defaults.lock();
            if **shared != *defaults {
                *shared = Arc::new(defaults.clone());
            }
            return Arc::clone(&shared);
        }
        let overrides = overrides.map(|(key, value)| (&**key, &**value));
        let (mut config, errors) = TopicConfig::resolve_leniently(defaults, overrides);
        for error in errors {
            tracing::warn!(%topic, "a setting of the topic is ignored: {error}");
        }
        // Another broker's controller may have accepted it. Nothing here would copy its segments.
        if config.remote_storage_enable
            && !self.host.context.config().remote_log_storage_system_enable
        {
            tracing::warn!(
                %topic,
                "remote.storage.enable=true is ignored, because this broker has no tiered storage; \
                 set remote.log.storage.system.enable=true"
            );
            config.remote_storage_enable = false;
        }
        tiering::correct(topic, &mut config);
        Arc::new(config)
    }

    fn apply_topic_configs(&self, delta: &MetadataDelta) {
        let map = self.partitions.load();
        for resource in &delta.configs {
            if resource.kind != ConfigResourceType::Topic {
                continue;
            }
            let Some(topic) = map.topic(&resource.name) else {
                continue;
            };
            self.apply_topic_config(topic, &delta.after);
        }
    }

    /// Applies the broker's changed topic defaults to all topics.
    pub fn apply_topic_defaults(&self) {
        let image = self.host.context.metadata();
        for topic in self.partitions.load().topics() {
            self.apply_topic_config(topic, &image);
        }
    }

    fn apply_topic_config(&self, topic: &LocalTopic, image: &MetadataImage) {
        let config = self.topic_config(image, &topic.name);
        for partition in topic.partitions() {
            partition.set_config(&self.host, Arc::clone(&config));
        }
    }

    /// The partition of a replica, whose log is opened or created.
    fn open_partition(
        &self,
        topic_state: &mut Option<TopicState>,
        replica: &LocalReplica,
        is_new: bool,
        image: &MetadataImage,
    ) -> Result<Arc<Partition>, String> {
        let topic_state = self.topic_state(topic_state, replica, image);
        let config = Arc::clone(&topic_state.config);
        let topic_partition = TopicPartition::new(replica.topic.clone(), replica.partition.0);
        let mut log = self.open_log(&topic_partition, replica, is_new, &config)?;
        log.set_writeback_bytes(self.host.context.config().ottla_writeback_bytes.max(0) as u64);
        let lacks_topic_id = !log.had_topic_id();
        let dir = self.host.dir_resources(&log.reader());
        let partition = Partition::new(
            self.replica_config(),
            topic_partition,
            replica.topic_id,
            log,
            dir,
            self.host.context.metrics.topics().of_topic(&replica.topic),
            self.settings_of(topic_state, replica),
        );
        if lacks_topic_id {
            partition.lacks_topic_id(&self.host);
        }
        Ok(partition)
    }

    /// State shared by the partitions of a topic, kept while they are opened in sequence.
    fn topic_state<'a>(
        &self,
        last: &'a mut Option<TopicState>,
        replica: &LocalReplica,
        image: &MetadataImage,
    ) -> &'a TopicState {
        let is_same = |of: &TopicState| of.topic_id == replica.topic_id;
        if !last.as_ref().is_some_and(is_same) {
            *last = None;
        }
        last.get_or_insert_with(|| {
            let config = self.topic_config(image, &replica.topic);
            TopicState {
                topic_id: replica.topic_id,
                settings: Arc::new(self.new_settings(&config, replica)),
                config,
            }
        })
    }

    fn settings_of(
        &self,
        topic_state: &TopicState,
        replica: &LocalReplica,
    ) -> Arc<PartitionSettings> {
        let config = &topic_state.config;
        let names_none = config.leader_replication_throttled_replicas.is_empty()
            && config.follower_replication_throttled_replicas.is_empty();
        match names_none {
            true => Arc::clone(&topic_state.settings),
            // Each partition has to be looked up by its number.
            false => Arc::new(self.new_settings(config, replica)),
        }
    }

    fn new_settings(&self, config: &TopicConfig, replica: &LocalReplica) -> PartitionSettings {
        PartitionSettings::new(
            config,
            self.host.context.config().socket_request_max_bytes,
            replica.partition,
            self.broker_id(),
        )
    }

    fn open_log(
        &self,
        topic_partition: &TopicPartition,
        replica: &LocalReplica,
        is_new: bool,
        config: &Arc<TopicConfig>,
    ) -> Result<Log, String> {
        let directory = replica.registration.directory(self.broker_id());
        let settings = OpenSettings {
            config: Arc::clone(config),
            producer_id_expiration_ms: self.host.context.config().producer_id_expiration_ms.into(),
            now: self.host.context.timestamp(),
            is_new,
            may_lead: may_lead(&replica.registration, self.broker_id()),
        };
        let log_dirs = self.host.log_dirs().ok_or("there are no log directories")?;
        log_dirs
            .open_log(topic_partition, replica.topic_id, directory, settings)
            .map_err(|error| error.to_string())
    }
}

impl Change<'_> {
    /// Called when the image is published: sets the roles of followers, applies settings, notifies
    /// leaders of broker changes, deletes the logs of moved replicas, and ends removed partitions.
    pub fn finish(&mut self, delta: &MetadataDelta) {
        let host = &self.replicas.host;
        self.replicas.make_followers(&self.followers);
        self.replicas.apply_topic_configs(delta);
        self.replicas.tell_brokers(delta, &self.changes);
        for partition in &self.removed {
            if let Some(resignation) = resignation(partition, &delta.after) {
                partition.notify(host, resignation);
            }
        }
        // Before the partitions lose their logs: a directory move that finds a partition lost leaves
        // its copy alone, as in a failed directory, and the copy could then not be deleted.
        for log in self.unassigned.drain(..) {
            self.replicas.delete_log(&log);
        }
        for partition in self.removed.drain(..) {
            partition.notify(host, Event::LogLost);
            partition.wake_all();
        }
        // Without waiting: the next change may make this broker a leader, and requests wait for it.
        if let Some(log_dirs) = host.log_dirs() {
            log_dirs.force_deletions();
        }
    }
}

/// The role of a leader whose replica has moved to another broker: its appends are refused with
/// `NOT_LEADER_OR_FOLLOWER`, and the response names the new leader. `None` for other replicas and
/// for deleted topics.
fn resignation(partition: &Partition, image: &MetadataImage) -> Option<Event<Ack>> {
    let topic = image.topics.by_id(partition.topic_id)?;
    let registration = topic.partition(partition.topic_partition.partition)?;
    partition.is_leader().then(|| Event::FollowerOf {
        leader: BrokerId::NONE,
        leader_epoch: registration.leader_epoch,
        partition_epoch: registration.partition_epoch,
        settings: partition.settings().replica,
    })
}

fn known_before<'a>(
    before: &'a MetadataImage,
    replica: &LocalReplica,
) -> Option<&'a PartitionRegistration> {
    let topic = before.topics.by_name(&replica.topic);
    let topic = topic.filter(|topic| topic.id == replica.topic_id);
    topic.and_then(|topic| topic.partition(replica.partition))
}

/// Whether the controller may elect the broker for the records of its log.
fn may_lead(registration: &PartitionRegistration, broker: BrokerId) -> bool {
    let candidates = [
        &registration.isr[..],
        registration.elr(),
        registration.last_known_elr(),
    ];
    let has_others = registration.replicas.len() > 1;
    has_others && candidates.iter().any(|replicas| replicas.contains(&broker))
}

/// What Kafka writes to its state-change log.
fn log_change(partition: &Partition, registration: &PartitionRegistration) {
    let log = partition.reader();
    tracing::debug!(
        partition = %partition.topic_partition, leader = registration.leader.0,
        leader_epoch = registration.leader_epoch.0, partition_epoch = registration.partition_epoch.0,
        isr = ?registration.isr, replicas = ?registration.replicas,
        log_end_offset = log.log_end_offset().0, high_watermark = log.high_watermark().0,
        "the registration of a replica has changed"
    );
}

fn leadership(partition: &Partition, replica: &LocalReplica, image: &MetadataImage) -> Leadership {
    let settings = partition.settings();
    let registration = &replica.registration;
    Leadership {
        leader_epoch: registration.leader_epoch,
        partition_epoch: registration.partition_epoch,
        replicas: registration.replicas.to_vec(),
        isr: registration.isr.to_vec(),
        brokers: replica_brokers(registration, image),
        settings: settings.replica,
    }
}

/// The registrations of the brokers that hold the partition's replicas.
fn replica_brokers(
    registration: &PartitionRegistration,
    image: &MetadataImage,
) -> Vec<ReplicaBroker> {
    let brokers = registration.replicas.iter().filter_map(|&broker_id| {
        let broker = image.cluster.broker(broker_id)?;
        Some(ReplicaBroker {
            broker_id,
            broker_epoch: broker.epoch,
            is_fenced: broker.fenced,
            is_in_controlled_shutdown: broker.in_controlled_shutdown,
        })
    });
    brokers.collect()
}

#[cfg(test)]
mod tests;
