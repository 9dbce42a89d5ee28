//! The group coordinators, as far as they differ from other coordinators; the rest is in
//! `runtime.rs`.

mod coordinator_config;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_coordinator::group::{
    Command, ComputeTarget, GroupCoordinator, GroupCoordinatorConfig, InitializeShareState,
    Outcome, ResolveRegexes, resolve,
};
use ottla_coordinator::persister::{InitializeState, SharePartitionKey};
use ottla_metadata::feature::{Feature, GROUP_VERSION, STREAMS_VERSION};
use ottla_metadata::{ConfigResourceType, MetadataDelta, MetadataImage};
use ottla_records::Compression;
use ottla_sync::Semaphore;
use ottla_sync::task::JoinError;
use ottla_types::{LeaderEpoch, Offset, TopicId, TopicName};

use crate::runtime::{Coordinators, Shard, ShardedCoordinator, compression_of};
use crate::share_groups::{ShareCoordinators, persister};
use crate::surroundings::Surroundings;
use ottla_net::{Operation, RequestContext, ResourceType};

/// The topic whose partitions hold the groups; created on the first lookup of a group.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The group coordinators of this broker.
#[derive(Debug)]
pub struct Groups {
    /// Store the state of share groups.
    share_coordinators: Arc<ShareCoordinators>,
    /// `group.coordinator.background.threads` permits, so that after a restart the computations of
    /// all large groups do not take all processors and their memory at once.
    background: Semaphore,
    coordinators: Coordinators<GroupCoordinator>,
}

impl std::ops::Deref for Groups {
    type Target = Coordinators<GroupCoordinator>;

    fn deref(&self) -> &Self::Target {
        &self.coordinators
    }
}

impl Groups {
    pub fn new(
        surroundings: Arc<Surroundings>,
        share_coordinators: Arc<ShareCoordinators>,
    ) -> Groups {
        let threads = surroundings
            .context
            .config()
            .group_coordinator_background_threads;
        Groups {
            share_coordinators,
            background: Semaphore::new(usize::try_from(threads).unwrap_or(1)),
            coordinators: Coordinators::new(surroundings),
        }
    }

    /// The groups by the partition that holds them; each group once, in the given order.
    pub fn by_partition(
        &self,
        group_ids: impl IntoIterator<Item = ByteString>,
    ) -> Vec<(i32, Vec<ByteString>)> {
        let mut by_partition: Vec<(i32, Vec<ByteString>)> = Vec::new();
        let mut index_of: HashMap<i32, usize> = HashMap::new();
        for group_id in group_ids {
            let partition = self.partition_of(&group_id);
            let index = *index_of.entry(partition).or_insert_with(|| {
                by_partition.push((partition, Vec::new()));
                by_partition.len() - 1
            });
            by_partition[index].1.push(group_id);
        }
        by_partition
    }

    /// Whether groups of the consumer protocol (KIP-848) are served: both the broker's
    /// configuration and the cluster's feature level must allow it.
    pub fn serves_consumer_protocol(&self) -> bool {
        is_enabled(self, "consumer", &GROUP_VERSION)
    }

    /// Whether streams groups (KIP-1071) are served, by the same rule.
    pub fn serves_streams_protocol(&self) -> bool {
        is_enabled(self, "streams", &STREAMS_VERSION)
    }

    /// Passes a metadata change to the coordinators and removes the offsets of deleted topics.
    /// Called when lookups no longer find these topics; otherwise an offset committed in between
    /// would stay.
    pub fn follow_metadata(self: &Arc<Self>, delta: &MetadataDelta) {
        if delta.topics.is_empty() && delta.brokers.is_empty() && delta.configs.is_empty() {
            return;
        }
        let image: Arc<MetadataImage> = Arc::clone(&self.surroundings.context.metadata());
        let deleted: Vec<(TopicName, TopicId)> = delta
            .topics
            .deleted
            .values()
            .map(|topic| (topic.name.clone(), topic.id))
            .collect();
        let has_new_settings = delta
            .configs
            .iter()
            .any(|resource| resource.kind == ConfigResourceType::Broker);
        let config = has_new_settings.then(|| settings(self));
        for shard in self.all_shards() {
            // A closed shard needs no update. A shard that is loading starts with a later image;
            // the offsets it has read of deleted topics expire.
            let _ = shard.tell(self, |groups, now| {
                if let Some(config) = &config {
                    groups.set_config(Arc::clone(config));
                }
                groups.on_metadata_changed(Arc::clone(&image), delta);
                if deleted.is_empty() {
                    Outcome::default()
                } else {
                    groups.on_topics_deleted(&deleted, now)
                }
            });
            if !deleted.is_empty() {
                let topics: Vec<TopicId> = deleted.iter().map(|(_, id)| *id).collect();
                let _ = shard.tell(self, |groups, now| {
                    groups.on_topics_of_share_groups_deleted(&topics, now)
                });
            }
        }
    }
}

fn is_enabled(groups: &Groups, protocol: &str, feature: &Feature) -> bool {
    let protocols = &groups
        .surroundings
        .context
        .config()
        .group_coordinator_rebalance_protocols;
    protocols.iter().any(|enabled| enabled == protocol)
        && groups
            .surroundings
            .context
            .metadata()
            .features
            .level(feature.name)
            > 0
}

fn settings(groups: &Groups) -> Arc<GroupCoordinatorConfig> {
    Arc::new(coordinator_config::from_broker_config(
        &groups.surroundings.context.config(),
    ))
}

impl ShardedCoordinator for GroupCoordinator {
    type Host = Groups;
    const TOPIC: &'static str = OFFSETS_TOPIC;
    const WHAT: &'static str = "groups";

    fn configured_partitions(config: &BrokerConfig) -> i32 {
        config.offsets_topic_num_partitions
    }

    fn new(groups: &Groups, _leader_epoch: LeaderEpoch) -> Self {
        GroupCoordinator::new(settings(groups))
    }

    /// `offsets.topic.compression.codec`, at the codec's default level.
    fn compression(groups: &Groups) -> Compression {
        let config = groups.surroundings.context.config();
        compression_of(config.offsets_topic_compression_codec)
    }

    fn commit_timeout(groups: &Groups) -> Duration {
        let timeout_ms = groups
            .surroundings
            .context
            .config()
            .offsets_commit_timeout_ms;
        Duration::from_millis(u64::try_from(timeout_ms).map_or(1, |ms| ms.max(1)))
    }

    fn begin(&mut self, groups: &Groups) {
        // Settings and metadata may have changed during the load.
        self.set_config(settings(groups));
        self.begin(Arc::clone(&groups.surroundings.context.metadata()));
    }

    fn execute(shard: &Arc<Shard<Self>>, groups: &Arc<Groups>, command: Command) {
        let (shard, groups) = (Arc::clone(shard), Arc::clone(groups));
        match command {
            Command::ResolveRegexes(command) => {
                ottla_sync::task::spawn(async move {
                    let group_id = command.group_id.clone();
                    let resolving = run_in_background(&shard, &groups, move |shard, groups| {
                        resolve_regexes(shard, groups, command);
                    });
                    if resolving.await.is_err() {
                        let _ = shard.tell(&groups, |groups, now| {
                            groups.on_regexes_resolved(&group_id, BTreeMap::new(), now)
                        });
                    }
                });
            }
            Command::ComputeTarget(command) => {
                ottla_sync::task::spawn(async move {
                    let order = command.order();
                    let computing = run_in_background(&shard, &groups, move |shard, groups| {
                        compute_target(shard, groups, *command);
                    });
                    if computing.await.is_err() {
                        let _ =
                            shard.tell(&groups, |groups, _| groups.on_target_not_computed(&order));
                    }
                });
            }
            Command::InitializeShareState(command) => {
                ottla_sync::task::spawn(async move {
                    initialize_share_state(&shard, &groups, command).await
                });
            }
        }
    }
}

/// Runs work that can take long on a thread for blocking work, when one of the permits is free.
/// Returns an error if it panicked, which is reported where it happened: without an answer the
/// coordinator would wait for it forever.
async fn run_in_background(
    shard: &Arc<Shard<GroupCoordinator>>,
    groups: &Arc<Groups>,
    work: impl FnOnce(&Arc<Shard<GroupCoordinator>>, &Arc<Groups>) + Send + 'static,
) -> Result<(), JoinError> {
    let _permit = groups.background.acquire().await.expect("never closed");
    // A closed shard has no groups.
    if shard.is_closed() {
        return Ok(());
    }
    let (shard, groups) = (Arc::clone(shard), Arc::clone(groups));
    ottla_sync::task::spawn_blocking(move || work(&shard, &groups)).await
}

/// An assignor takes milliseconds for a thousand members.
fn compute_target(
    shard: &Arc<Shard<GroupCoordinator>>,
    groups: &Arc<Groups>,
    command: ComputeTarget,
) {
    // Each write that fails makes an order void, and the next heartbeat orders another. While the log
    // cannot be written, these would hold up the orders of all groups.
    let is_wanted = shard.read(|groups| groups.is_target_wanted(&command.order()));
    if !is_wanted.unwrap_or(false) {
        return;
    }
    let computed = command.compute();
    let _ = shard.tell(groups, |groups, now| {
        groups.on_target_computed(&computed, now)
    });
}

/// Matches every topic of the cluster.
fn resolve_regexes(
    shard: &Arc<Shard<GroupCoordinator>>,
    groups: &Arc<Groups>,
    command: ResolveRegexes,
) {
    let image = Arc::clone(&groups.surroundings.context.metadata());
    let context = command.requester.get::<RequestContext>();
    let authorizer = &groups.surroundings.authorizer;
    let is_visible = |topic: &str| match context {
        Some(context) => {
            let (operation, resource) = (Operation::Describe, ResourceType::Topic);
            authorizer.is_allowed_quietly(context, operation, resource, topic)
        }
        None => !authorizer.is_configured(),
    };
    let resolved = resolve(
        &command.regexes,
        &image,
        is_visible,
        groups.surroundings.context.timestamp(),
    );
    // A closed shard has no waiting requests.
    let _ = shard.tell(groups, |groups, now| {
        groups.on_regexes_resolved(&command.group_id, resolved, now)
    });
}

/// Initializes the state at the share coordinators and passes the results to the group.
async fn initialize_share_state(
    shard: &Arc<Shard<GroupCoordinator>>,
    groups: &Arc<Groups>,
    command: InitializeShareState,
) {
    let partitions = command.partitions.iter();
    let keys: Vec<(TopicId, i32)> = partitions
        .flat_map(|(topic_id, partitions)| partitions.iter().map(|index| (*topic_id, *index)))
        .collect();
    let requests = keys.iter().map(|(topic_id, partition)| InitializeState {
        key: SharePartitionKey {
            group_id: command.group_id.clone(),
            topic_id: *topic_id,
            partition: *partition,
        },
        state_epoch: command.state_epoch,
        start_offset: Offset::UNKNOWN,
    });
    let answers = persister::each(&groups.share_coordinators, requests.collect()).await;
    let (mut done, mut refused) = (BTreeMap::new(), BTreeMap::new());
    for ((topic_id, partition), answer) in keys.into_iter().zip(answers) {
        let failure = answer.err();
        if let Some(failure) = &failure {
            let (group, reason) = (&command.group_id, &failure.message);
            tracing::debug!("share group {group} cannot read {topic_id}-{partition}: {reason}");
        }
        let partitions: &mut BTreeMap<TopicId, BTreeSet<i32>> = match failure {
            None => &mut done,
            Some(_) => &mut refused,
        };
        partitions.entry(topic_id).or_default().insert(partition);
    }
    // A closed shard has no waiting requests.
    if !done.is_empty() {
        let _ = shard.tell(groups, |groups, now| {
            groups.on_share_state_initialized(&command.group_id, &done, now)
        });
    }
    if !refused.is_empty() {
        let _ = shard.tell(groups, |groups, now| {
            groups.on_share_state_not_initialized(&command.group_id, &refused, now)
        });
    }
}
