//! Membership in a group of the classic protocol: join, sync, heartbeats, commits, leave.

use ottla_sync::atomic::{AtomicBool, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use ottla_protocol::messages::consumer_protocol_assignment::{
    ConsumerProtocolAssignment, TopicPartition as AssignedTopic,
};
use ottla_protocol::messages::consumer_protocol_subscription::TopicPartition as OwnedTopic;
use ottla_protocol::messages::join_group_request::{JoinGroupRequest, JoinGroupRequestProtocol};
use ottla_protocol::messages::join_group_response::JoinGroupResponse;
use ottla_protocol::messages::leave_group_request::{LeaveGroupRequest, MemberIdentity};
use ottla_protocol::messages::offset_commit_request::OffsetCommitRequest;
use ottla_protocol::messages::sync_group_request::{SyncGroupRequest, SyncGroupRequestAssignment};
use ottla_protocol::messages::{ConsumerProtocolSubscription, HeartbeatRequest};
use ottla_protocol::{ApiRequest, Message};
use ottla_sync::Mutex;
use ottla_sync::task::JoinHandle;
use ottla_types::ErrorCode;

use super::assignors::{Assignor, Racks, Subscriber, Topics, sticky_data};
use super::metrics::ConsumerSensors;
use super::offset_commits::commit_topics;
use super::{CommitOffset, ConsumerConfig, Partition};
use crate::admin::groups::{decode_assignment, decode_versioned};
use crate::client::{Client, CoordinatorKind, Owner};
use crate::error::ClientError;
use crate::heartbeats::HeartbeatSensors;
use crate::metadata::Metadata;

const PROTOCOL_TYPE: &str = "consumer";
/// Version 1 added owned partitions, 2 the generation, 3 the rack.
const SUBSCRIPTION_VERSION: i16 = 3;

/// A membership, and the result of joining.
pub(super) type Joined = (Membership, Result<Vec<Partition>, ClientError>);

/// The connection of a member to the coordinator of its group.
#[derive(Clone)]
struct Coordinator {
    client: Client,
    /// The owner of the connection.
    owner: Owner,
    group: String,
    /// Set when a rebalance has started, or the member was removed.
    rejoin: Arc<AtomicBool>,
    /// Set when the group does not know this member any more.
    forgotten: Arc<AtomicBool>,
}

/// Commits with the member id and generation of the time when it was created.
pub(super) struct Committer {
    coordinator: Coordinator,
    generation: i32,
    member_id: String,
    instance_id: Option<String>,
}

/// A membership in a group, kept alive by heartbeats.
pub(super) struct Membership {
    coordinator: Coordinator,
    config: ConsumerConfig,
    /// Empty until the coordinator has assigned one. Shared with the [`MemberHandle`], which may
    /// have to leave the group while the join task has this membership.
    member_id: Arc<Mutex<String>>,
    /// -1 outside a group.
    generation: i32,
    heartbeats: Option<JoinHandle<()>>,
    last_poll: Arc<Mutex<Instant>>,
    /// The partition counts that the group leader used for the assignment; `None` for other
    /// members.
    assigned_counts: Option<BTreeMap<String, usize>>,
    /// The last assignment, which the sticky assignor needs although the partitions were revoked.
    last_assignment: Vec<Partition>,
    sensors: Arc<ConsumerSensors>,
}

impl Membership {
    pub(super) fn new(
        client: Client,
        group: String,
        config: ConsumerConfig,
        sensors: Arc<ConsumerSensors>,
    ) -> Membership {
        Membership {
            sensors,
            coordinator: Coordinator {
                owner: client.new_owner(),
                client,
                group,
                rejoin: Arc::new(AtomicBool::new(true)),
                forgotten: Arc::default(),
            },
            config,
            member_id: Arc::default(),
            generation: -1,
            heartbeats: None,
            last_poll: Arc::new(Mutex::new(ottla_sync::time::now())),
            assigned_counts: None,
            last_assignment: Vec::new(),
        }
    }

    /// The owner has polled: restarts `max.poll.interval.ms`.
    pub(super) fn on_polled(&self) {
        *self.last_poll.lock() = ottla_sync::time::now();
    }

    /// Rejoins with the next poll.
    pub(super) fn rejoin(&self) {
        self.coordinator.rejoin.store(true, Ordering::Release);
    }

    /// Whether the group does not know this member any more.
    pub(super) fn is_forgotten(&self) -> bool {
        self.coordinator.forgotten.load(Ordering::Acquire)
    }

    /// True only if every assignor is cooperative, as in Kafka: the members agree on one of them
    /// later.
    pub(super) fn is_cooperative(&self) -> bool {
        let strategies = &self.config.partition_assignment_strategy;
        !strategies.is_empty() && strategies.iter().all(|it| it.is_cooperative())
    }

    pub(super) fn generation_and_id(&self) -> (i32, String) {
        (self.generation, self.id())
    }

    /// The group leader starts a rebalance when partition counts have changed.
    pub(super) fn on_metadata(&self, metadata: &Metadata) {
        if let Some(assigned) = &self.assigned_counts {
            let has_changed = assigned
                .iter()
                .any(|(topic, count)| partition_count(metadata, topic) != *count);
            if has_changed {
                self.rejoin();
            }
        }
    }

    fn id(&self) -> String {
        self.member_id.lock().clone()
    }

    /// A handle with which the member can leave the group while the join task has this membership.
    pub(super) fn member_handle(&self) -> MemberHandle {
        MemberHandle {
            client: self.coordinator.client.clone(),
            group: self.coordinator.group.clone(),
            member_id: self.member_id.clone(),
            is_static: self.config.group_instance_id.is_some(),
        }
    }

    pub(super) fn must_join(&self) -> bool {
        self.coordinator.rejoin.load(Ordering::Acquire)
    }

    /// Joins the group, waiting for the other members as long as necessary. Returns the assigned
    /// partitions.
    pub(super) async fn join(
        &mut self,
        topics: &[String],
        owned: &[Partition],
    ) -> Result<Vec<Partition>, ClientError> {
        self.stop_heartbeats();
        if self.coordinator.forgotten.swap(false, Ordering::AcqRel) {
            self.member_id.lock().clear();
        }
        let began = ottla_sync::time::now();
        loop {
            match self.try_join(topics, owned).await {
                Ok(assigned) => {
                    self.sensors.on_rebalanced(ottla_sync::time::elapsed(began));
                    self.last_assignment.clone_from(&assigned);
                    return Ok(assigned);
                }
                Err(error) => {
                    self.sensors.on_rebalance_failed();
                    match error.code() {
                        // The coordinator has assigned a member id with which the member must join
                        // again (KIP-394).
                        Some(ErrorCode::MemberIdRequired) => continue,
                        Some(
                            ErrorCode::UnknownMemberId
                            | ErrorCode::IllegalGeneration
                            | ErrorCode::RebalanceInProgress,
                        ) => {
                            if error.code() != Some(ErrorCode::RebalanceInProgress) {
                                self.member_id.lock().clear();
                            }
                        }
                        _ if error.is_retriable() => {
                            self.coordinator.client.forget_coordinator(
                                CoordinatorKind::Group,
                                &self.coordinator.group,
                            );
                        }
                        _ => return Err(error),
                    }
                    tracing::debug!(%error, "joining the group failed; trying again");
                    ottla_sync::time::sleep(self.coordinator.client.config().retry_backoff).await;
                }
            }
        }
    }

    /// This member's subscription for the group leader.
    fn subscription(
        &self,
        topics: &[String],
        owned: &[Partition],
        assignor: Assignor,
    ) -> Result<Bytes, ClientError> {
        let subscription = ConsumerProtocolSubscription {
            topics: topics.iter().map(|topic| topic.clone().into()).collect(),
            user_data: sticky_data::encode(assignor, &self.last_assignment, self.generation),
            owned_partitions: by_topic(owned)
                .into_iter()
                .map(|(topic, partitions)| OwnedTopic {
                    topic: topic.into(),
                    partitions,
                })
                .collect(),
            generation_id: self.generation,
            rack_id: self.config.client_rack.clone().map(Into::into),
        };
        with_version(&subscription, SUBSCRIPTION_VERSION)
    }

    async fn try_join(
        &mut self,
        topics: &[String],
        owned: &[Partition],
    ) -> Result<Vec<Partition>, ClientError> {
        let protocols = self
            .config
            .partition_assignment_strategy
            .iter()
            .map(|assignor| {
                Ok(JoinGroupRequestProtocol {
                    name: assignor.name().into(),
                    metadata: self.subscription(topics, owned, *assignor)?,
                    ..Default::default()
                })
            })
            .collect::<Result<Vec<_>, ClientError>>()?;
        let request = JoinGroupRequest {
            group_id: self.coordinator.group.clone().into(),
            session_timeout_ms: self.config.session_timeout.as_millis() as i32,
            rebalance_timeout_ms: self.config.max_poll_interval.as_millis() as i32,
            member_id: self.id().into(),
            group_instance_id: self.config.group_instance_id.clone().map(Into::into),
            protocol_type: PROTOCOL_TYPE.into(),
            protocols,
            ..Default::default()
        };
        let asked = ottla_sync::time::now();
        let joined = self.ask(&request).await?;
        if !joined.member_id.is_empty() {
            *self.member_id.lock() = joined.member_id.to_string();
        }
        self.coordinator.check("joining", joined.error_code)?;
        self.sensors.on_joined(ottla_sync::time::elapsed(asked));
        self.generation = joined.generation_id;
        self.assigned_counts = None;
        let assignments = match joined.leader == joined.member_id {
            true => self.assign_members(&joined).await?,
            false => Vec::new(),
        };
        let request = SyncGroupRequest {
            group_id: self.coordinator.group.clone().into(),
            generation_id: self.generation,
            member_id: self.id().into(),
            group_instance_id: self.config.group_instance_id.clone().map(Into::into),
            protocol_type: Some(PROTOCOL_TYPE.into()),
            protocol_name: joined.protocol_name.clone(),
            assignments,
            ..Default::default()
        };
        let asked = ottla_sync::time::now();
        let synced = self.ask(&request).await?;
        self.coordinator.check("joining", synced.error_code)?;
        self.sensors.on_synced(ottla_sync::time::elapsed(asked));
        self.coordinator.rejoin.store(false, Ordering::Release);
        self.start_heartbeats();
        decode_assignment(&synced.assignment)
    }

    /// The group leader's part: computes the assignment.
    async fn assign_members(
        &mut self,
        joined: &JoinGroupResponse,
    ) -> Result<Vec<SyncGroupRequestAssignment>, ClientError> {
        let name = joined.protocol_name.as_deref().unwrap_or_default();
        let assignor = Assignor::from_name(name).ok_or_else(|| ClientError::Unreadable {
            address: format!("the coordinator of {}", self.coordinator.group),
            what: format!("the assignor {name:?}"),
            reason: "this member has not named it".into(),
        })?;
        let mut members = Vec::new();
        let mut names = BTreeSet::new();
        for member in &joined.members {
            let subscription: ConsumerProtocolSubscription =
                decode_versioned(&member.metadata, "a subscription")?;
            let topics: Vec<String> = subscription
                .topics
                .iter()
                .map(ToString::to_string)
                .collect();
            names.extend(topics.iter().cloned());
            let mut owned = subscription
                .owned_partitions
                .iter()
                .flat_map(|topic| {
                    let name = &topic.topic;
                    topic
                        .partitions
                        .iter()
                        .map(move |it| (name.to_string(), *it))
                })
                .collect();
            let mut generation = subscription.generation_id;
            if let Some((had, when)) = sticky_data::decode(assignor, &subscription.user_data) {
                if assignor == Assignor::Sticky {
                    owned = had;
                }
                generation = generation.max(when);
            }
            members.push(Subscriber {
                member_id: member.member_id.to_string(),
                instance_id: member.group_instance_id.as_ref().map(ToString::to_string),
                rack: subscription
                    .rack_id
                    .as_ref()
                    .map(ToString::to_string)
                    .filter(|rack| !rack.is_empty()),
                topics,
                owned,
                generation,
            });
        }
        let names: Vec<String> = names.into_iter().collect();
        let create = self.config.allow_auto_create_topics;
        let metadata = self
            .coordinator
            .client
            .refresh_metadata(Some(&names), create)
            .await?;
        let watched = names
            .iter()
            .map(|name| (name.clone(), partition_count(&metadata, name)));
        let watched: BTreeMap<String, usize> = watched.collect();
        let topics: Topics = names
            .iter()
            .map(|name| (name.clone(), partition_racks(&metadata, name)))
            .filter(|(_, partitions)| !partitions.is_empty())
            .collect();
        self.assigned_counts = Some(watched);
        if joined.skip_assignment {
            // A static leader that has returned: the assignment is unchanged, and is only
            // monitored.
            return Ok(Vec::new());
        }
        let mut assignments = Vec::new();
        for (member_id, partitions) in assignor.assign(&members, &topics) {
            let assignment = ConsumerProtocolAssignment {
                assigned_partitions: by_topic(&partitions)
                    .into_iter()
                    .map(|(topic, partitions)| AssignedTopic {
                        topic: topic.into(),
                        partitions,
                    })
                    .collect(),
                ..Default::default()
            };
            assignments.push(SyncGroupRequestAssignment {
                member_id: member_id.into(),
                assignment: with_version(&assignment, 1)?,
                ..Default::default()
            });
        }
        Ok(assignments)
    }

    /// Commits in the current generation. During a rebalance the group refuses the commit, which is
    /// retried after this member has rejoined.
    pub(super) fn committer(&self) -> Committer {
        Committer {
            coordinator: self.coordinator.clone(),
            generation: self.generation,
            member_id: self.id(),
            instance_id: self.config.group_instance_id.clone(),
        }
    }

    /// Leaves the group, so that the other members do not wait for its session timeout. A static
    /// member does not leave.
    pub(super) async fn leave(mut self) {
        self.stop_heartbeats();
        if self.generation >= 0 {
            self.member_handle().give_up(self.coordinator.owner).await;
        }
    }

    async fn ask<R: ApiRequest>(&self, request: &R) -> Result<R::Response, ClientError> {
        let held_back = Some(self.config.max_poll_interval);
        self.coordinator.ask(request, held_back).await
    }

    fn start_heartbeats(&mut self) {
        let Coordinator {
            client,
            owner,
            group,
            rejoin,
            forgotten,
        } = self.coordinator.clone();
        let request = HeartbeatRequest {
            group_id: group.clone().into(),
            generation_id: self.generation,
            member_id: self.id().into(),
            group_instance_id: self.config.group_instance_id.clone().map(Into::into),
            ..Default::default()
        };
        let interval = self.config.heartbeat_interval;
        let (last_poll, patience) = (self.last_poll.clone(), self.config.max_poll_interval);
        let (member_handle, sensors) = (self.member_handle(), self.sensors.clone());
        self.heartbeats = Some(ottla_sync::task::spawn(async move {
            loop {
                ottla_sync::time::sleep(interval).await;
                if ottla_sync::time::elapsed(*last_poll.lock()) >= patience {
                    // The owner does not poll, so other members may own its partitions.
                    tracing::warn!(
                        group,
                        "no poll within max.poll.interval.ms={}; leaving the group",
                        patience.as_millis()
                    );
                    forgotten.store(true, Ordering::Release);
                    rejoin.store(true, Ordering::Release);
                    member_handle.give_up(owner).await;
                    return;
                }
                let sent = ottla_sync::time::now();
                sensors.on_heartbeat_sent();
                let answer = async {
                    let connection = client.group_connection_of(&group, owner).await?;
                    connection.send(&request).await
                }
                .await;
                let code = match answer {
                    Ok(response) => {
                        sensors.on_heartbeat_answered(ottla_sync::time::elapsed(sent));
                        ErrorCode::from_code(response.error_code)
                    }
                    Err(error) => {
                        tracing::debug!(%error, "a heartbeat failed");
                        client.forget_coordinator(CoordinatorKind::Group, &group);
                        continue;
                    }
                };
                match code {
                    ErrorCode::None => {}
                    ErrorCode::NotCoordinator
                    | ErrorCode::CoordinatorNotAvailable
                    | ErrorCode::CoordinatorLoadInProgress => {
                        client.forget_coordinator(CoordinatorKind::Group, &group);
                    }
                    // Heartbeats continue until the member rejoins, so that it does not expire
                    // while its owner is busy.
                    ErrorCode::RebalanceInProgress => rejoin.store(true, Ordering::Release),
                    _ => {
                        forgotten.store(true, Ordering::Release);
                        rejoin.store(true, Ordering::Release);
                        return;
                    }
                }
            }
        }));
    }

    fn stop_heartbeats(&mut self) {
        if let Some(heartbeats) = self.heartbeats.take() {
            heartbeats.abort();
        }
    }
}

impl Coordinator {
    async fn ask<R: ApiRequest>(
        &self,
        request: &R,
        held_back: Option<Duration>,
    ) -> Result<R::Response, ClientError> {
        let connection = self.client.group_connection_of(&self.group, self.owner);
        let connection = connection.await?;
        match held_back {
            // The coordinator waits for the other members.
            Some(held_back) => connection.send_waiting(request, held_back).await,
            None => connection.send(request).await,
        }
    }

    fn check(&self, what: &str, code: i16) -> Result<(), ClientError> {
        let code = ErrorCode::from_code(code);
        match code {
            ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable => {
                self.client
                    .forget_coordinator(CoordinatorKind::Group, &self.group);
            }
            ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration => {
                self.forgotten.store(true, Ordering::Release);
                self.rejoin.store(true, Ordering::Release);
            }
            ErrorCode::RebalanceInProgress => self.rejoin.store(true, Ordering::Release),
            _ => {}
        }
        ClientError::check_code(format!("{what} of group {}", self.group), code.code())
    }
}

impl Committer {
    pub(super) async fn commit(
        &self,
        offsets: &BTreeMap<Partition, CommitOffset>,
    ) -> Result<(), ClientError> {
        if offsets.is_empty() || self.generation < 0 {
            return Ok(());
        }
        let request = OffsetCommitRequest {
            group_id: self.coordinator.group.clone().into(),
            generation_id_or_member_epoch: self.generation,
            member_id: self.member_id.clone().into(),
            group_instance_id: self.instance_id.clone().map(Into::into),
            topics: commit_topics(&self.coordinator.client.metadata(), offsets),
            ..Default::default()
        };
        let response = self.coordinator.ask(&request, None).await?;
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        for partition in partitions {
            self.coordinator
                .check("committing offsets", partition.error_code)?;
        }
        Ok(())
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.stop_heartbeats();
        self.coordinator.client.disown(self.coordinator.owner);
    }
}

/// Identifies a member so that it can leave its group.
pub(super) struct MemberHandle {
    client: Client,
    group: String,
    member_id: Arc<Mutex<String>>,
    is_static: bool,
}

impl MemberHandle {
    /// Leaves the group while the member is joining. Uses a separate connection, because the
    /// pending JoinGroup blocks the member's.
    pub(super) async fn give_up_while_joining(self) {
        let owner = self.client.new_owner();
        self.give_up(owner).await;
        self.client.disown(owner);
    }

    async fn give_up(&self, owner: Owner) {
        let member_id = self.member_id.lock().clone();
        if self.is_static || member_id.is_empty() {
            return;
        }
        let left = async {
            let connection = self.client.group_connection_of(&self.group, owner).await?;
            connection
                .send_with(|version| {
                    let mut request = LeaveGroupRequest {
                        group_id: self.group.clone().into(),
                        ..Default::default()
                    };
                    // Newer versions support several members (KIP-345).
                    if version >= 3 {
                        request.members = vec![MemberIdentity {
                            member_id: member_id.clone().into(),
                            reason: Some("the consumer is being closed".into()),
                            ..Default::default()
                        }];
                    } else {
                        request.member_id = member_id.clone().into();
                    }
                    request
                })
                .await
        };
        if let Err(error) = left.await {
            tracing::debug!(%error, "leaving the group failed; the place expires by itself");
        }
    }
}

/// Encodes a message of the consumer protocol with its version as prefix.
fn with_version<M: Message>(message: &M, version: i16) -> Result<Bytes, ClientError> {
    let body = message.encode_to_bytes(version)?;
    let mut bytes = BytesMut::with_capacity(2 + body.len());
    bytes.put_i16(version);
    bytes.put(body);
    Ok(bytes.freeze())
}

fn by_topic(partitions: &[Partition]) -> BTreeMap<String, Vec<i32>> {
    let mut by_topic: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in partitions {
        by_topic.entry(topic.clone()).or_default().push(*partition);
    }
    by_topic
}

fn partition_count(metadata: &Metadata, topic: &str) -> usize {
    let topic = metadata.topics.get(topic);
    topic.map_or(0, |topic| topic.partitions.len())
}

/// The racks of each partition's replicas, as far as they are known.
fn partition_racks(metadata: &Metadata, topic: &str) -> Vec<Racks> {
    let topic = metadata.topics.get(topic);
    let partitions = topic.map_or(&[][..], |topic| &topic.partitions);
    let rack = |broker: &i32| metadata.brokers.get(broker)?.rack.clone();
    let racks = partitions
        .iter()
        .map(|partition| partition.replicas.iter().filter_map(rack));
    racks.map(Iterator::collect).collect()
}
