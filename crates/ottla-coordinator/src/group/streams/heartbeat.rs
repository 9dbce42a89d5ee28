//! StreamsGroupHeartbeat: a member joins, reports changes and receives its tasks, or leaves.
//!
//! A heartbeat is one decision. Changes of the member, or of the topology together with the
//! existing topics, may raise the group epoch. If the group epoch is newer than the target
//! assignment, a new one is computed (`target.rs`). Then the member is reconciled with its target
//! (`reconcile.rs`). Source: `GroupMetadataManager.streamsGroupHeartbeat` and its callees.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::streams_group_heartbeat_request as request;
use ottla_protocol::messages::streams_group_heartbeat_response::TaskIds;
use ottla_protocol::messages::{StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse};
use ottla_types::{ErrorCode, Timestamp};

use super::configured_topology::{ConfiguredSubtopology, ConfiguredTopology};
use super::endpoints::endpoints_to_partitions;
use super::group::StreamsGroup;
use super::member::{Endpoint, LEAVE_GROUP_EPOCH, LEAVE_GROUP_STATIC_EPOCH, StreamsGroupMember};
use super::reconcile::Reconciliation;
use super::record;
use super::settings::missing_tags;
use super::target::Target;
use super::task_offsets::check_reported;
use super::tasks::{self, Tasks, TasksTuple};
use super::topology::{StreamsTopology, to_record};
use super::topology_error::StreamsStatus;
use super::unwritten::Unwritten;
use crate::group::CoordinatorRecord;
use crate::group::classic_group::ClassicGroupState;
use crate::group::coordinator::{Deferred, Effects, GroupCoordinator};
use crate::group::member::owned;
use crate::group::membership::{
    change_revocation_timer, check_instance, check_member_epoch, check_room, unknown_member,
    unreleased_instance,
};
use crate::group::modern::GroupError;
use crate::group::outcome::{Outcome, ReplyTo, StreamsHeartbeat, TimerKey};
use crate::group::recorded::{Decision, RecordedMember};

/// The inputs of a heartbeat besides its body.
#[derive(Clone, Debug)]
pub struct StreamsHeartbeatContext {
    pub client_id: ByteString,
    /// The peer's address as Java prints it: `/192.0.2.1`.
    pub client_host: ByteString,
    /// The client is of Kafka 4.4: it reports offsets of tasks, and knows the status of missing
    /// client tags.
    pub knows_offsets_and_tags: bool,
}

/// The tasks that the member reports to own. A kind of task that it does not report is `None`.
struct OwnedTasks {
    active: Option<Tasks>,
    standby: Option<Tasks>,
    warmup: Option<Tasks>,
}

impl GroupCoordinator {
    /// `request` must have passed `validate_streams_heartbeat`, and its topology must contain only
    /// topic names that are valid for clients.
    pub fn handle_streams_group_heartbeat(
        &mut self,
        to: ReplyTo<StreamsHeartbeat>,
        request: StreamsGroupHeartbeatRequest,
        context: StreamsHeartbeatContext,
        now: Timestamp,
    ) -> Outcome {
        self.answer(to, |groups, effects| match request.member_epoch {
            LEAVE_GROUP_EPOCH | LEAVE_GROUP_STATIC_EPOCH => {
                groups.streams_leave(to, &request, now, effects)
            }
            _ => groups.streams_heartbeat(to, &request, &context, now, effects),
        })
    }

    fn streams_heartbeat(
        &mut self,
        to: ReplyTo<StreamsHeartbeat>,
        request: &StreamsGroupHeartbeatRequest,
        context: &StreamsHeartbeatContext,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), GroupError> {
        let is_joining = request.member_epoch == 0;
        let group_id = owned(&request.group_id);
        let is_made = self.streams_group(&group_id).is_none();
        let mut decision = self.streams_group_to_join(&group_id, is_joining, now)?;
        let max_size = self.config.group_streams_max_size;
        let returns = request
            .instance_id
            .as_deref()
            .is_some_and(|it| decision.group.static_member(it).is_some());
        check_room(&decision.group, max_size, !is_joining || returns)?;
        let was_empty = decision.group.is_empty();
        let mut unwritten = self.unwritten_of(&group_id, is_made);
        let owned_tasks = OwnedTasks::of(request)?;
        check_reported(request.task_offsets.as_deref())?;
        check_reported(request.task_end_offsets.as_deref())?;

        // Step 1: changes of the member.
        let member = match &request.instance_id {
            None => dynamic_member(&decision.group, &request.member_id, is_joining)?,
            Some(instance_id) => {
                let member_id = &request.member_id;
                static_member(&mut decision, member_id, instance_id, is_joining)?
            }
        };
        if is_joining && request.instance_id.is_some() {
            unwritten.task_offsets.keep_members_of(&decision.group);
        }
        let received = request.member_epoch;
        let may_be_behind = || {
            received == member.previous_member_epoch && member.assigned.covers(owned_tasks.said())
        };
        check_member_epoch::<StreamsGroup>(
            member.member_epoch,
            received,
            may_be_behind,
            String::new,
        )?;
        let updated = with_request(&member, request, context)?;
        let is_static = updated.instance_id.is_some();
        let mut bumps_epoch = updated != member;
        if bumps_epoch {
            decision.write_member(&updated);
            bumps_epoch = !is_static || needs_other_tasks(&member, &updated);
        }

        // Step 2: the topology, applied to the existing topics.
        let mut status = Vec::new();
        let had_topology = decision.group.topology.is_some();
        let topology = update_topology(&mut decision, request.topology.as_ref())?;
        if updated.topology_epoch < topology.epoch {
            status.push(StreamsStatus::StaleTopology.with(format!(
                "The member's topology epoch {} is behind the group's topology epoch {}.",
                updated.topology_epoch, topology.epoch
            )));
        }
        let former = unwritten.configured.as_ref().filter(|_| had_topology);
        let (configured, looked) = self.configure(&decision, &topology, former)?;
        let metadata_hash = looked.unwrap_or(decision.group.metadata_hash);
        bumps_epoch |= metadata_hash != decision.group.metadata_hash;
        unwritten.configured = Some(Arc::clone(&configured));
        let validated_topology_epoch = match configured.ready() {
            None => -1,
            Some(subtopologies) => {
                owned_tasks.check_exist(subtopologies)?;
                if let Some(reported) = &request.task_offsets {
                    let offsets = &mut unwritten.task_offsets;
                    offsets.put(&updated.member_id, reported, subtopologies);
                }
                topology.epoch
            }
        };
        bumps_epoch |= validated_topology_epoch != decision.group.validated_topology_epoch;
        let configs = self.streams_assignment_configs(&group_id);
        bumps_epoch |= configs != decision.group.last_assignment_configs;
        if bumps_epoch {
            let epoch = decision.group.group_epoch.saturating_add(1);
            decision.write(record::group_metadata(
                &group_id,
                epoch,
                metadata_hash,
                validated_topology_epoch,
                &configs,
            ));
        }
        let group_epoch = decision.group.group_epoch;

        // Step 3: the target assignment. A new group first waits for more members.
        let delay_ms = self.streams_initial_rebalance_delay_ms(&group_id);
        if was_empty && delay_ms > 0 {
            effects.set_timer_if_absent(TimerKey::initial_rebalance(&group_id), delay_ms);
            unwritten.delays_assignment = true;
        }
        let target = if unwritten.delays_assignment {
            let reason = "Assignment delayed due to the configured initial rebalance delay.";
            status.push(StreamsStatus::AssignmentDelayed.with(reason));
            Target::none_yet(&decision.group)
        } else {
            let offsets = &unwritten.task_offsets;
            let is_delayed = self.update_streams_target(&mut decision, &configured, offsets)?;
            if is_delayed {
                let reason = "Assignment delayed due to the configured assignment interval.";
                status.push(StreamsStatus::AssignmentDelayed.with(reason));
            }
            Target::of(&decision.group, &updated.member_id)
        };

        // Step 4: the reconciliation of the member.
        let updated =
            self.streams_reconcile(&mut decision, updated, &target, &owned_tasks, effects)?;
        effects.set_timer(
            TimerKey::session(&group_id, &updated.member_id),
            self.streams_session_timeout_ms(&group_id),
        );
        if request.shutdown_application {
            unwritten
                .shutdown_requested_by
                .get_or_insert_with(|| updated.member_id.clone());
        }
        if looked.is_some() {
            self.metadata
                .has_looked(&group_id, now.value(), group_epoch);
        }

        let mut response = StreamsGroupHeartbeatResponse {
            member_id: updated.member_id.clone(),
            member_epoch: updated.member_epoch,
            heartbeat_interval_ms: self.streams_heartbeat_interval_ms(&group_id),
            ..Default::default()
        };
        let mut has_moved = is_static && updated.user_endpoint != member.user_endpoint;
        if is_joining || updated.assigned != member.assigned {
            tell_tasks(&mut response, &updated);
            has_moved |= updated.user_endpoint.is_some();
        }
        if has_moved {
            unwritten.endpoint_information_epoch =
                unwritten.endpoint_information_epoch.wrapping_add(1);
        }
        if unwritten.endpoint_information_epoch != request.endpoint_information_epoch {
            let image = self.metadata.image();
            response.partitions_by_user_endpoint = Some(endpoints_to_partitions(
                &decision.group,
                &updated,
                &configured,
                image,
            ));
        }
        if self.group(&group_id).is_some() {
            response.endpoint_information_epoch = unwritten.endpoint_information_epoch;
        }
        let mut topics_to_create = Vec::new();
        if let Some(error) = &configured.error {
            topics_to_create.clone_from(&configured.internal_topics_to_create);
            status.push(error.status.with(error.detail.clone()));
        }
        if let Some(member_id) = &unwritten.shutdown_requested_by {
            status.push(StreamsStatus::ShutdownApplication.with(format!(
                "Streams group member {member_id} encountered a fatal error and requested a \
                 shutdown for the entire application."
            )));
        }
        if context.knows_offsets_and_tags {
            response.task_offset_interval_ms = self.streams_task_offset_interval_ms(&group_id);
            response.acceptable_recovery_lag = self.streams_acceptable_recovery_lag(&group_id);
            let missing = missing_tags(&configs, &updated);
            if !missing.is_empty() {
                status.push(StreamsStatus::MissingClientTags.with(format!(
                    "Missing required client tags for rack-aware standby assignment: [{}]. \
                     Configure them via 'client.tag.<tagKey>' in your Streams config.",
                    missing.join(", ")
                )));
            }
        }
        response.status = Some(status);

        if is_made {
            // See `unwritten.rs`.
            unwritten = Unwritten {
                delays_assignment: unwritten.delays_assignment,
                ..Default::default()
            };
        }
        self.unwritten.put(group_id, unwritten);
        let heartbeat = StreamsHeartbeat {
            response: Box::new(response),
            topics_to_create,
        };
        let reply = Deferred::Reply(to.with(heartbeat));
        self.conclude(decision, reply, effects);
        Ok(())
    }

    /// Replaces a classic group without members by a streams group.
    fn streams_group_to_join(
        &self,
        group_id: &ByteString,
        creates: bool,
        now: Timestamp,
    ) -> Result<Decision<StreamsGroup>, GroupError> {
        match self.classic_group(group_id) {
            Some(group) if creates && group.is_in(ClassicGroupState::Empty) => {
                let group = StreamsGroup::new(group_id.clone());
                let mut decision = Decision::about(group, now);
                decision
                    .records
                    .push(CoordinatorRecord::group_tombstone(group_id));
                Ok(decision)
            }
            _ => Ok(Decision::about(self.group_to_join(group_id, creates)?, now)),
        }
    }

    /// The topology applied to the existing topics: the last result, unless the topics may have
    /// changed since. Returns their hash as well if they were refreshed.
    fn configure(
        &mut self,
        decision: &Decision<StreamsGroup>,
        topology: &StreamsTopology,
        former: Option<&Arc<ConfiguredTopology>>,
    ) -> Result<(Arc<ConfiguredTopology>, Option<i64>), GroupError> {
        let (group_id, group_epoch) = (decision.group_id(), decision.group.group_epoch);
        let now_ms = decision.now.value();
        let is_look_due = self.metadata.is_look_due(&group_id, now_ms, group_epoch);
        if let Some(former) = former.filter(|_| !is_look_due) {
            return Ok((Arc::clone(former), None));
        }
        let topics = topology.required_topics();
        let hash = self.metadata.look_at(&group_id, topics.iter());
        let configured = match former {
            // The last result may be based on topics of a write that failed.
            Some(former) if former.metadata_hash == hash => Arc::clone(former),
            _ => {
                let image = self.metadata.image();
                Arc::new(ConfiguredTopology::configure(topology, hash, image)?)
            }
        };
        Ok((configured, Some(hash)))
    }

    fn unwritten_of(&self, group_id: &str, is_made: bool) -> Unwritten {
        let known = self.unwritten.get(group_id);
        if is_made {
            Unwritten {
                delays_assignment: known.is_some_and(|it| it.delays_assignment),
                ..Default::default()
            }
        } else {
            known.cloned().unwrap_or_default()
        }
    }

    /// Reconciles the member with its target.
    fn streams_reconcile(
        &self,
        decision: &mut Decision<StreamsGroup>,
        member: StreamsGroupMember,
        target: &Target,
        owned_tasks: &OwnedTasks,
        effects: &mut Effects,
    ) -> Result<StreamsGroupMember, GroupError> {
        if member.is_reconciled_to(target.epoch) {
            return Ok(member);
        }
        let owned = owned_tasks.all();
        let reconciliation = Reconciliation {
            group: &decision.group,
            target_epoch: target.epoch,
            target: &target.tasks,
            owned: owned.as_ref(),
        };
        let next = reconciliation.step(&member)?;
        if next == member {
            return Ok(member);
        }
        decision.write_current_assignment(&next);
        change_revocation_timer(&decision.group_id(), &member, &next, effects);
        Ok(next)
    }
}

impl OwnedTasks {
    fn of(request: &StreamsGroupHeartbeatRequest) -> Result<Self, GroupError> {
        Ok(OwnedTasks {
            active: by_subtopology(request.active_tasks.as_deref())?,
            standby: by_subtopology(request.standby_tasks.as_deref())?,
            warmup: by_subtopology(request.warmup_tasks.as_deref())?,
        })
    }

    /// Active, standby and warm-up tasks.
    fn said(&self) -> [Option<&Tasks>; 3] {
        [&self.active, &self.standby, &self.warmup].map(Option::as_ref)
    }

    /// All tasks, if the member reports every kind.
    fn all(&self) -> Option<TasksTuple> {
        let said = |tasks: &Tasks| {
            let mut said = tasks.clone();
            said.retain(|_, partitions| !partitions.is_empty());
            said
        };
        Some(TasksTuple {
            active: said(self.active.as_ref()?),
            standby: said(self.standby.as_ref()?),
            warmup: said(self.warmup.as_ref()?),
        })
    }

    fn check_exist(
        &self,
        subtopologies: &BTreeMap<ByteString, ConfiguredSubtopology>,
    ) -> Result<(), GroupError> {
        let invalid = |message: String| GroupError::new(ErrorCode::InvalidRequest, message);
        for tasks in self.said().into_iter().flatten() {
            for (id, partitions) in tasks {
                let Some(subtopology) = subtopologies.get(id) else {
                    let message = format!("Subtopology {id} does not exist in the topology.");
                    return Err(invalid(message));
                };
                let number = subtopology.number_of_tasks;
                if let Some(index) = partitions.iter().find(|it| !(0..number).contains(*it)) {
                    return Err(invalid(format!(
                        "Task {index} for subtopology {id} is invalid. Number of tasks for this \
                         subtopology: {number}"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Subtopologies without tasks are kept if the member reports them like that.
fn by_subtopology(task_ids: Option<&[request::TaskIds]>) -> Result<Option<Tasks>, GroupError> {
    let Some(task_ids) = task_ids else {
        return Ok(None);
    };
    let mut tasks = Tasks::new();
    for task_ids in task_ids {
        let partitions = task_ids.partitions.iter().copied().collect();
        let former = tasks.insert(owned(&task_ids.subtopology_id), partitions);
        if former.is_some() {
            return Err(ErrorCode::UnknownServerError.into());
        }
    }
    Ok(Some(tasks))
}

/// A dynamic member. Source: `getOrMaybeCreateDynamicStreamsGroupMember`.
fn dynamic_member(
    group: &StreamsGroup,
    member_id: &ByteString,
    creates: bool,
) -> Result<StreamsGroupMember, GroupError> {
    match group.member(member_id) {
        Some(member) => Ok(StreamsGroupMember::clone(member)),
        None if creates => Ok(StreamsGroupMember::new(owned(member_id))),
        None => Err(unknown_member(member_id, &group.group_id)),
    }
}

/// A static member, which can replace an earlier member with the same instance id. Source:
/// `getOrMaybeCreateStaticStreamsGroupMember`.
fn static_member(
    decision: &mut Decision<StreamsGroup>,
    member_id: &ByteString,
    instance_id: &ByteString,
    creates: bool,
) -> Result<StreamsGroupMember, GroupError> {
    let group = &decision.group;
    if !creates {
        let existing = check_instance(group.static_member(instance_id), member_id, instance_id)?;
        return Ok(StreamsGroupMember::clone(existing));
    }
    let Some(existing) = group.static_member(instance_id).cloned() else {
        return dynamic_member(group, member_id, true);
    };
    if existing.member_epoch != LEAVE_GROUP_STATIC_EPOCH {
        return Err(unreleased_instance(
            &existing.member_id,
            member_id,
            instance_id,
        ));
    }
    let new = StreamsGroupMember {
        member_id: owned(member_id),
        member_epoch: 0,
        previous_member_epoch: 0,
        ..StreamsGroupMember::clone(&existing)
    };
    decision.replace_member(&existing.member_id, &new);
    Ok(new)
}

/// Whether a change of a static member can change the assignment: one that returns on another host
/// causes no rebalance. Kafka 4.4 decides so for all members, 4.3.1 for none. Source:
/// `hasEpochRelevantMemberConfigChanged`.
fn needs_other_tasks(former: &StreamsGroupMember, updated: &StreamsGroupMember) -> bool {
    former.topology_epoch != updated.topology_epoch
        || former.rack_id != updated.rack_id
        || former.client_tags != updated.client_tags
        || former.process_id != updated.process_id
}

/// The member, updated with the fields that the request contains.
fn with_request(
    member: &StreamsGroupMember,
    request: &StreamsGroupHeartbeatRequest,
    context: &StreamsHeartbeatContext,
) -> Result<StreamsGroupMember, GroupError> {
    let mut updated = StreamsGroupMember {
        client_id: context.client_id.clone(),
        client_host: context.client_host.clone(),
        ..member.clone()
    };
    if let Some(instance_id) = &request.instance_id {
        updated.instance_id = Some(owned(instance_id));
        if request.member_epoch == 0 {
            // It may have returned on another host, without an endpoint.
            updated.user_endpoint = None;
        }
    }
    if let Some(rack_id) = &request.rack_id {
        updated.rack_id = Some(owned(rack_id));
    }
    if request.rebalance_timeout_ms != -1 {
        updated.rebalance_timeout_ms = request.rebalance_timeout_ms;
    }
    if let Some(topology) = &request.topology {
        updated.topology_epoch = topology.epoch;
    }
    if let Some(process_id) = &request.process_id {
        updated.process_id = owned(process_id);
    }
    if let Some(endpoint) = &request.user_endpoint {
        updated.user_endpoint = Some(Endpoint {
            host: owned(&endpoint.host),
            port: endpoint.port,
        });
    }
    if let Some(tags) = &request.client_tags {
        updated.client_tags = BTreeMap::new();
        for tag in tags {
            let former = updated
                .client_tags
                .insert(owned(&tag.key), owned(&tag.value));
            if former.is_some() {
                return Err(ErrorCode::UnknownServerError.into());
            }
        }
    }
    Ok(updated)
}

/// The group's topology, set by the first member that joins. In 4.3.1 it does not change
/// afterwards.
fn update_topology(
    decision: &mut Decision<StreamsGroup>,
    said: Option<&request::Topology>,
) -> Result<Arc<StreamsTopology>, GroupError> {
    let known = decision.group.topology.clone();
    let Some(said) = said else {
        return known.ok_or_else(|| ErrorCode::UnknownServerError.into());
    };
    let value = to_record(said);
    let unknown = || GroupError::from(ErrorCode::UnknownServerError);
    let topology = StreamsTopology::from_record(&value).ok_or_else(unknown)?;
    if topology.epoch < 0 {
        return Err(unknown());
    }
    match known {
        None => {
            let group_id = decision.group_id();
            decision.write(record::topology(&group_id, value));
            Ok(Arc::new(topology))
        }
        Some(known) if known.epoch > topology.epoch => Ok(known),
        Some(known) if *known == topology => Ok(known),
        Some(_) => Err(GroupError::new(
            ErrorCode::InvalidRequest,
            "Topology updates are not supported yet.",
        )),
    }
}

fn tell_tasks(response: &mut StreamsGroupHeartbeatResponse, member: &StreamsGroupMember) {
    let of = |tasks: &Tasks| {
        let tasks = tasks.iter();
        let task_ids = tasks.map(|(subtopology_id, partitions)| TaskIds {
            subtopology_id: subtopology_id.clone(),
            partitions: partitions.iter().copied().collect(),
            ..Default::default()
        });
        Some(task_ids.collect())
    };
    let mut active = Tasks::new();
    for (id, partition) in tasks::each_active(&member.assigned.active) {
        tasks::insert(&mut active, id, partition);
    }
    response.active_tasks = of(&active);
    response.standby_tasks = of(&member.assigned.standby);
    response.warmup_tasks = of(&member.assigned.warmup);
}
