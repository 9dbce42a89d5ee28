//! A member of a group whose coordinator assigns the partitions (KIP-848): what it says in its heartbeats,
//! and what it makes of the answers. Pure: time is an argument, in milliseconds since some beginning.
//!
//! The coordinator gives each member an epoch and a target. The member works towards the target by itself:
//! it gives up what is no longer its own, takes what is new, and says in the next heartbeat what it has.
//! Only then may the coordinator give to others what was given up. A member that the coordinator does not
//! know, or whose epoch is not the current one, has lost its partitions and joins again with epoch 0.
//!
//! Kafka has this in `org.apache.kafka.clients.consumer.internals.AbstractMembershipManager` and
//! `AbstractHeartbeatRequestManager`. One thing differs: a member that is to join again after a failure
//! waits for `retry.backoff.ms`, where Kafka's asks again at once.

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::ApiKey;
use ottla_protocol::messages::consumer_group_heartbeat_request::{
    ConsumerGroupHeartbeatRequest, TopicPartitions,
};
use ottla_protocol::messages::consumer_group_heartbeat_response::ConsumerGroupHeartbeatResponse;
use ottla_types::{ErrorCode, Uuid};

use crate::connection::Connection;
use crate::error::ClientError;
use crate::heartbeats::{Advice, GroupMember, Refusal};

/// From this version on a coordinator finds the topics that match an expression.
const FIRST_VERSION_WITH_REGEX: i16 = 1;

/// Joins, and is no member yet.
pub(in crate::consumer) const JOIN_EPOCH: i32 = 0;
/// Leaves for good.
const LEAVE_EPOCH: i32 = -1;
/// A static member leaves for a while and will take its place again.
const LEAVE_STATIC_EPOCH: i32 = -2;

/// Partitions by the ids of their topics.
pub(in crate::consumer) type Partitions = BTreeMap<Uuid, BTreeSet<i32>>;

/// Where a member stands (`org.apache.kafka.clients.consumer.internals.MemberState`; its states of leaving
/// are left at once here).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::consumer) enum State {
    /// In no group, and sends nothing.
    Unsubscribed,
    Joining,
    /// Has a target that differs from what it has.
    Reconciling,
    /// Has reached its target, as far as it could, and has not said so yet.
    Acknowledging,
    Stable,
    /// Out of the group by the coordinator's word; joins again once it has given up its partitions.
    Fenced,
    /// Out of the group because nobody polled; joins again with the next poll.
    Stale,
    /// Refused for good.
    Fatal,
}

#[derive(Clone, Debug)]
pub(in crate::consumer) struct MemberSettings {
    pub(in crate::consumer) group_id: String,
    /// Drawn by the member itself, and kept as long as it lives.
    pub(in crate::consumer) member_id: String,
    pub(in crate::consumer) instance_id: Option<String>,
    pub(in crate::consumer) rack: Option<String>,
    /// `group.remote.assignor`.
    pub(in crate::consumer) assignor: Option<String>,
    /// Both the time between two polls and the time to give partitions up in.
    pub(in crate::consumer) max_poll_interval_ms: u64,
    pub(in crate::consumer) retry_backoff_ms: u64,
    pub(in crate::consumer) retry_backoff_max_ms: u64,
}

/// What a member wants to read.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(in crate::consumer) struct Subscription {
    pub(in crate::consumer) topics: BTreeSet<String>,
    /// The coordinator finds the topics that match it, in the syntax of RE2.
    pub(in crate::consumer) regex: Option<String>,
}

/// An assignment, and how many there were before it since the member joined.
#[derive(Clone, PartialEq, Eq, Debug)]
struct LocalAssignment {
    local_epoch: u64,
    partitions: Partitions,
}

/// A target to be reached; handed back when it has been.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::consumer) struct Reconciliation {
    pub(in crate::consumer) partitions: Partitions,
    local_epoch: u64,
    joins: u64,
}

/// What the last heartbeat said; what has not changed is not said again.
#[derive(Default, Debug)]
struct Sent {
    has_timeout: bool,
    topics: Option<BTreeSet<String>>,
    regex: Option<String>,
    has_assignor: bool,
    assignment: Option<LocalAssignment>,
}

#[derive(Debug)]
pub(in crate::consumer) struct Member {
    settings: MemberSettings,
    subscription: Subscription,
    state: State,
    /// 0 until the coordinator has given one.
    epoch: i32,
    /// What it has; nothing since it joined.
    current: Option<LocalAssignment>,
    target: Option<LocalAssignment>,
    /// It holds partitions that others may have already.
    has_lost: bool,
    /// How often it has joined.
    joins: u64,
    sent: Sent,
    /// As the coordinator said; 0 before it has.
    heartbeat_interval_ms: u64,
    next_heartbeat_at: u64,
    /// There is something to say that does not wait for the interval.
    is_urgent: bool,
    is_in_flight: bool,
    failures: u32,
    /// By then the owner has to poll.
    poll_by: u64,
}

impl Member {
    pub(in crate::consumer) fn new(settings: MemberSettings) -> Member {
        Member {
            settings,
            subscription: Subscription::default(),
            state: State::Unsubscribed,
            epoch: JOIN_EPOCH,
            current: None,
            target: None,
            has_lost: false,
            joins: 0,
            sent: Sent::default(),
            heartbeat_interval_ms: 0,
            next_heartbeat_at: 0,
            is_urgent: false,
            is_in_flight: false,
            failures: 0,
            poll_by: u64::MAX,
        }
    }

    pub(in crate::consumer) fn id(&self) -> &str {
        &self.settings.member_id
    }

    /// 0 while it is no member.
    pub(in crate::consumer) fn epoch(&self) -> i32 {
        self.epoch
    }

    pub(in crate::consumer) fn instance_id(&self) -> Option<&str> {
        self.settings.instance_id.as_deref()
    }

    /// Changes what it wants; joins with the next poll if it is in no group.
    pub(in crate::consumer) fn subscribe(&mut self, subscription: Subscription) {
        self.subscription = subscription;
    }

    fn join(&mut self) {
        self.state = State::Joining;
        self.epoch = JOIN_EPOCH;
        self.current = None;
        self.target = None;
        self.joins += 1;
        self.is_urgent = true;
    }

    fn is_active(&self) -> bool {
        match self.state {
            State::Joining | State::Reconciling | State::Acknowledging | State::Stable => true,
            State::Unsubscribed | State::Fenced | State::Stale | State::Fatal => false,
        }
    }

    fn request(&mut self) -> ConsumerGroupHeartbeatRequest {
        let says_all = self.state == State::Joining;
        let Member {
            settings,
            subscription,
            sent,
            ..
        } = self;
        let mut request = ConsumerGroupHeartbeatRequest {
            group_id: settings.group_id.clone().into(),
            member_id: settings.member_id.clone().into(),
            member_epoch: self.epoch,
            instance_id: settings.instance_id.clone().map(Into::into),
            ..Default::default()
        };
        if says_all {
            request.rack_id = settings.rack.clone().map(Into::into);
        }
        if says_all || !sent.has_timeout {
            let timeout = i32::try_from(settings.max_poll_interval_ms);
            request.rebalance_timeout_ms = timeout.unwrap_or(i32::MAX);
            sent.has_timeout = true;
        }
        if says_all || sent.topics.as_ref() != Some(&subscription.topics) {
            let topics = subscription.topics.iter();
            request.subscribed_topic_names =
                Some(topics.map(|topic| topic.clone().into()).collect());
            sent.topics = Some(subscription.topics.clone());
        }
        if sent.regex != subscription.regex || says_all && subscription.regex.is_some() {
            // An empty one takes the last one away.
            let regex = subscription.regex.clone().unwrap_or_default();
            request.subscribed_topic_regex = Some(regex.into());
            sent.regex.clone_from(&subscription.regex);
        }
        if let Some(assignor) = &settings.assignor
            && (says_all || !sent.has_assignor)
        {
            request.server_assignor = Some(assignor.clone().into());
            sent.has_assignor = true;
        }
        if says_all || sent.assignment != self.current {
            let has = self.current.as_ref().map(|current| &current.partitions);
            let topics = has.into_iter().flatten();
            let partitions = topics.map(|(topic_id, partitions)| TopicPartitions {
                topic_id: *topic_id,
                partitions: partitions.iter().copied().collect(),
                ..Default::default()
            });
            request.topic_partitions = Some(partitions.collect());
            sent.assignment.clone_from(&self.current);
        }
        request
    }

    fn leaving(&self) -> ConsumerGroupHeartbeatRequest {
        ConsumerGroupHeartbeatRequest {
            group_id: self.settings.group_id.clone().into(),
            member_id: self.settings.member_id.clone().into(),
            member_epoch: match self.settings.instance_id {
                Some(_) => LEAVE_STATIC_EPOCH,
                None => LEAVE_EPOCH,
            },
            instance_id: self.settings.instance_id.clone().map(Into::into),
            ..Default::default()
        }
    }

    fn on_assigned(&mut self, partitions: Partitions) {
        let local_epoch = match &self.target {
            Some(target) if target.partitions == partitions => target.local_epoch,
            Some(target) => target.local_epoch + 1,
            None => 0,
        };
        self.target = Some(LocalAssignment {
            local_epoch,
            partitions,
        });
        if self.current != self.target {
            self.state = State::Reconciling;
        } else if matches!(self.state, State::Reconciling | State::Joining) {
            self.state = State::Stable;
        }
    }

    fn on_error(&mut self, now: u64, code: ErrorCode, message: &str) -> Advice {
        self.on_failed(now);
        let refusal = Refusal {
            code,
            message: message.to_owned(),
        };
        match code {
            ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable => {
                Advice::FindCoordinator
            }
            ErrorCode::CoordinatorLoadInProgress => Advice::Nothing,
            ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId => {
                if self.is_active() {
                    self.state = State::Fenced;
                    self.epoch = JOIN_EPOCH;
                    self.has_lost = true;
                }
                Advice::Nothing
            }
            ErrorCode::TopicAuthorizationFailed => Advice::Tell(refusal),
            _ => {
                self.on_refused();
                Advice::Tell(refusal)
            }
        }
    }

    /// What it is to have, if that differs from what it has.
    pub(in crate::consumer) fn reconciliation(&self) -> Option<Reconciliation> {
        if self.state != State::Reconciling || self.current == self.target {
            return None;
        }
        let target = self.target.as_ref()?;
        Some(Reconciliation {
            partitions: target.partitions.clone(),
            local_epoch: target.local_epoch,
            joins: self.joins,
        })
    }

    /// The owner has these partitions now: all of them, or those whose topics could be named. False if
    /// the member was put out meanwhile, and has none.
    pub(in crate::consumer) fn on_reconciled(
        &mut self,
        reconciliation: &Reconciliation,
        partitions: Partitions,
    ) -> bool {
        if self.state != State::Reconciling || reconciliation.joins != self.joins {
            return false;
        }
        let reached = LocalAssignment {
            local_epoch: reconciliation.local_epoch,
            partitions,
        };
        // Said once; what cannot be named yet is tried again in silence.
        if self.current.as_ref() == Some(&reached) {
            return true;
        }
        self.current = Some(reached);
        self.state = State::Acknowledging;
        self.is_urgent = true;
        true
    }

    /// It holds partitions that others may have by now.
    pub(in crate::consumer) fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// The owner has given up what was lost.
    pub(in crate::consumer) fn on_given_up(&mut self) {
        self.has_lost = false;
        self.current = None;
        self.target = None;
        if matches!(self.state, State::Fenced | State::Stale) {
            self.join();
        }
    }
}

impl GroupMember for Member {
    type Request = ConsumerGroupHeartbeatRequest;

    fn next_heartbeat(&mut self, now: u64) -> Option<ConsumerGroupHeartbeatRequest> {
        if !self.is_active() || self.is_in_flight {
            return None;
        }
        if now >= self.poll_by {
            self.state = State::Stale;
            self.has_lost = true;
            self.epoch = JOIN_EPOCH;
            self.sent = Sent::default();
            return Some(self.leaving());
        }
        if now < self.next_heartbeat_at && !self.is_urgent {
            return None;
        }
        let request = self.request();
        self.is_urgent = false;
        self.is_in_flight = true;
        self.next_heartbeat_at = now.saturating_add(self.heartbeat_interval_ms);
        if self.state == State::Acknowledging {
            self.state = match self.current == self.target {
                true => State::Stable,
                false => State::Reconciling,
            };
        }
        Some(request)
    }

    fn wakes_at(&self) -> Option<u64> {
        if !self.is_active() || self.is_in_flight {
            return None;
        }
        match self.is_urgent {
            true => Some(0),
            false => Some(self.next_heartbeat_at.min(self.poll_by)),
        }
    }

    fn on_polled(&mut self, now: u64) {
        self.poll_by = now.saturating_add(self.settings.max_poll_interval_ms);
        let is_wanted = self.subscription != Subscription::default();
        if self.state == State::Unsubscribed && is_wanted {
            self.join();
        }
    }

    fn on_answered(&mut self, now: u64, response: &ConsumerGroupHeartbeatResponse) -> Advice {
        let code = ErrorCode::from_code(response.error_code);
        if code != ErrorCode::None {
            let message = response.error_message.as_deref().unwrap_or_default();
            return self.on_error(now, code, message);
        }
        self.is_in_flight = false;
        self.failures = 0;
        let interval = u64::try_from(response.heartbeat_interval_ms).unwrap_or(0);
        if interval != self.heartbeat_interval_ms {
            self.heartbeat_interval_ms = interval;
            self.next_heartbeat_at = now.saturating_add(interval);
        }
        // An answer to what was said before the member left, or was put out.
        if !self.is_active() || response.member_epoch < 0 {
            return Advice::Nothing;
        }
        self.epoch = response.member_epoch;
        if let Some(assignment) = &response.assignment {
            let mut partitions = Partitions::new();
            for topic in &assignment.topic_partitions {
                let numbers = partitions.entry(topic.topic_id).or_default();
                numbers.extend(topic.partitions.iter().copied());
            }
            self.on_assigned(partitions);
        }
        Advice::Nothing
    }

    /// Everything is said again.
    fn on_failed(&mut self, now: u64) {
        self.is_in_flight = false;
        self.is_urgent = false;
        self.sent = Sent::default();
        let doubled = 1u64.checked_shl(self.failures).unwrap_or(u64::MAX);
        self.failures += 1;
        let backoff = self.settings.retry_backoff_ms.saturating_mul(doubled);
        let backoff = backoff.min(self.settings.retry_backoff_max_ms);
        self.next_heartbeat_at = now.saturating_add(backoff);
    }

    fn on_refused(&mut self) {
        self.is_in_flight = false;
        if self.is_active() {
            self.state = State::Fatal;
            self.epoch = JOIN_EPOCH;
            self.has_lost = true;
        }
    }

    fn is_refused(&self) -> bool {
        self.state == State::Fatal
    }

    fn leave(&mut self) -> Option<ConsumerGroupHeartbeatRequest> {
        let says_so = self.is_active();
        self.state = State::Unsubscribed;
        self.epoch = JOIN_EPOCH;
        self.current = None;
        self.target = None;
        self.has_lost = false;
        self.is_in_flight = false;
        self.sent = Sent::default();
        self.subscription = Subscription::default();
        says_so.then(|| self.leaving())
    }

    fn check_served(
        connection: &Connection,
        request: &ConsumerGroupHeartbeatRequest,
    ) -> Result<(), ClientError> {
        let version = connection.version(ApiKey::ConsumerGroupHeartbeat);
        let version = version.map_err(|error| not_served(&error))?;
        if version < FIRST_VERSION_WITH_REGEX && request.subscribed_topic_regex.is_some() {
            let address = connection.address();
            return Err(ClientError::Config(format!(
                "{address} does not find topics by a regular expression: it serves version {version} of \
                 ConsumerGroupHeartbeat, {FIRST_VERSION_WITH_REGEX} is needed; name the topics, or upgrade \
                 the cluster"
            )));
        }
        Ok(())
    }

    fn refused(group: &str, refusal: &Refusal) -> ClientError {
        let what = format!("joining group {group}");
        let code = refusal.code;
        let error = ClientError::broker(what, code.code(), Some(&refusal.message));
        match code {
            ErrorCode::UnsupportedVersion => not_served(&error),
            _ => error,
        }
    }
}

/// The cluster has no such groups: says what to set.
fn not_served(error: &ClientError) -> ClientError {
    ClientError::Config(format!(
        "group.protocol=consumer: {error}; set group.protocol=classic until the cluster is upgraded"
    ))
}

#[cfg(test)]
mod tests;
