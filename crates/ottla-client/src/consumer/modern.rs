//! Membership in a group whose coordinator assigns the partitions (`group.protocol=consumer`, KIP-848).
//!
//! The shell around [`member`]: a task sends the heartbeats and tells the member of the answers; what a new
//! target asks of the consumer is done by its owner, from within `poll`.

pub(super) mod member;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::ApiKey;
use ottla_protocol::messages::ConsumerGroupHeartbeatRequest;
use ottla_protocol::messages::consumer_group_heartbeat_response::ConsumerGroupHeartbeatResponse;
use ottla_protocol::messages::offset_commit_request::OffsetCommitRequest;
use ottla_types::{ErrorCode, Uuid};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use self::member::{Advice, Member, MemberSettings, Reconciliation, State, Subscription};
use super::commits::commit_topics;
use super::metrics::ConsumerSensors;
use super::{CommitOffset, ConsumerConfig, Partition};
use crate::client::{Client, CoordinatorKind, Owner};
use crate::error::ClientError;

/// From this version on a coordinator finds the topics that match an expression.
const FIRST_VERSION_WITH_REGEX: i16 = 1;

/// A place in a group, kept by heartbeats.
pub(super) struct ModernMembership {
    shared: Arc<Shared>,
    heartbeats: JoinHandle<()>,
}

struct Shared {
    client: Client,
    /// Of the connection to the coordinator.
    owner: Owner,
    group: String,
    /// What the member's milliseconds are counted from.
    beginning: Instant,
    member: Mutex<Member>,
    /// There may be something to say.
    wake_heartbeats: Notify,
    /// There may be something for the owner to do.
    news: Arc<Notify>,
    /// To be told to the owner with the next poll.
    error: Mutex<Option<ClientError>>,
    sensors: Arc<ConsumerSensors>,
}

impl ModernMembership {
    pub(super) fn new(
        client: Client,
        group: String,
        config: &ConsumerConfig,
        sensors: Arc<ConsumerSensors>,
    ) -> ModernMembership {
        let backoff = client.config();
        let settings = MemberSettings {
            group_id: group.clone(),
            member_id: new_member_id(),
            instance_id: config.group_instance_id.clone(),
            rack: config.client_rack.clone(),
            assignor: config.group_remote_assignor.clone(),
            max_poll_interval_ms: config.max_poll_interval.as_millis() as u64,
            retry_backoff_ms: backoff.retry_backoff.as_millis() as u64,
            retry_backoff_max_ms: backoff.retry_backoff_max.as_millis() as u64,
        };
        let shared = Arc::new(Shared {
            owner: client.new_owner(),
            client,
            group,
            beginning: Instant::now(),
            member: Mutex::new(Member::new(settings)),
            wake_heartbeats: Notify::new(),
            news: Arc::default(),
            error: Mutex::default(),
            sensors,
        });
        ModernMembership {
            heartbeats: tokio::spawn(send_heartbeats(shared.clone())),
            shared,
        }
    }

    pub(super) fn subscribe(&self, subscription: Subscription) {
        self.shared.member.lock().subscribe(subscription);
    }

    /// Notified when there may be something to do.
    pub(super) fn news(&self) -> Arc<Notify> {
        self.shared.news.clone()
    }

    /// The owner is there. Fails with what the coordinator has refused.
    pub(super) fn on_polled(&self) -> Result<(), ClientError> {
        let state = {
            let mut member = self.shared.member.lock();
            member.on_polled(self.shared.now());
            member.state()
        };
        self.shared.wake_heartbeats.notify_one();
        let mut error = self.shared.error.lock();
        // What is refused for good is said every time.
        let told = match state {
            State::Fatal => error.clone(),
            _ => error.take(),
        };
        told.map_or(Ok(()), Err)
    }

    /// Others may have what this member has.
    pub(super) fn has_lost(&self) -> bool {
        self.shared.member.lock().has_lost()
    }

    pub(super) fn on_given_up(&self) {
        self.shared.member.lock().on_given_up();
        self.shared.wake_heartbeats.notify_one();
    }

    pub(super) fn reconciliation(&self) -> Option<Reconciliation> {
        self.shared.member.lock().reconciliation()
    }

    /// The owner has these partitions now.
    pub(super) fn on_reconciled(
        &self,
        reconciliation: &Reconciliation,
        partitions: member::Partitions,
    ) {
        let mut member = self.shared.member.lock();
        member.on_reconciled(reconciliation, partitions);
        drop(member);
        self.shared.wake_heartbeats.notify_one();
    }

    /// The member's epoch, -1 outside the group, and its id.
    pub(super) fn epoch_and_id(&self) -> (i32, String) {
        self.shared.epoch_and_id()
    }

    /// Commits as this member.
    pub(super) fn committer(&self) -> Committer {
        Committer(self.shared.clone())
    }

    /// Leaves the group, so that the others need not wait for the place to expire. A static member will
    /// take its own again.
    pub(super) async fn leave(self) {
        self.heartbeats.abort();
        let request = self.shared.member.lock().leave();
        if let Some(request) = request
            && let Err(error) = self.shared.ask(&request).await
        {
            tracing::debug!(%error, "leaving the group failed; the place expires by itself");
        }
    }
}

impl Drop for ModernMembership {
    fn drop(&mut self) {
        self.heartbeats.abort();
        self.shared.client.disown(self.shared.owner);
    }
}

/// Commits as a member, in the epoch that it has then.
pub(super) struct Committer(Arc<Shared>);

impl Committer {
    /// Commits, once more where the coordinator has given the member another epoch meanwhile.
    pub(super) async fn commit(
        &self,
        offsets: &BTreeMap<Partition, CommitOffset>,
    ) -> Result<(), ClientError> {
        if offsets.is_empty() {
            return Ok(());
        }
        let Committer(shared) = self;
        let instance_id = shared.member.lock().instance_id().map(str::to_owned);
        loop {
            let (epoch, member_id) = shared.epoch_and_id();
            let request = OffsetCommitRequest {
                group_id: shared.group.clone().into(),
                generation_id_or_member_epoch: epoch,
                member_id: member_id.into(),
                group_instance_id: instance_id.clone().map(Into::into),
                topics: commit_topics(&shared.client.metadata(), offsets),
                ..Default::default()
            };
            let response = shared.ask(&request).await?;
            let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
            let mut codes = partitions.map(|partition| partition.error_code);
            let code = codes.find(|code| *code != 0).unwrap_or(0);
            let now = shared.epoch_and_id().0;
            if code == ErrorCode::StaleMemberEpoch.code() && now > epoch {
                continue;
            }
            let what = format!("committing offsets of group {}", shared.group);
            let result = ClientError::check(what, code, None::<&str>);
            if result.as_ref().is_err_and(ClientError::is_retriable) {
                shared.forget_coordinator();
            }
            return result;
        }
    }
}

/// Ids are drawn by the members themselves, as ids of topics are by the controller.
pub(crate) fn new_member_id() -> String {
    loop {
        if let Some(id) = Uuid::from_random(rand::random()) {
            return id.to_string();
        }
    }
}

impl Shared {
    fn now(&self) -> u64 {
        self.beginning.elapsed().as_millis() as u64
    }

    fn epoch_and_id(&self) -> (i32, String) {
        let member = self.member.lock();
        let epoch = match member.epoch() {
            member::JOIN_EPOCH => -1,
            epoch => epoch,
        };
        (epoch, member.id().to_owned())
    }

    fn forget_coordinator(&self) {
        self.client
            .forget_coordinator(CoordinatorKind::Group, &self.group);
    }

    async fn ask<R: ottla_protocol::ApiRequest>(
        &self,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        let connection = self.client.group_connection_of(&self.group, self.owner);
        connection.await?.send(request).await
    }

    async fn send_heartbeat(
        &self,
        request: &ConsumerGroupHeartbeatRequest,
    ) -> Result<ConsumerGroupHeartbeatResponse, ClientError> {
        let coordinator = self.client.coordinator(CoordinatorKind::Group, &self.group);
        let address = coordinator.await?.address();
        let connection = self
            .client
            .connection_of(&address, Some(self.owner))
            .await?;
        let version = connection.version(ApiKey::ConsumerGroupHeartbeat);
        let version = version.map_err(|error| not_served(&error))?;
        if version < FIRST_VERSION_WITH_REGEX && request.subscribed_topic_regex.is_some() {
            return Err(ClientError::Config(format!(
                "{address} does not find topics by a regular expression: it serves version {version} of \
                 ConsumerGroupHeartbeat, {FIRST_VERSION_WITH_REGEX} is needed; name the topics, or upgrade \
                 the cluster"
            )));
        }
        connection.send(request).await
    }

    fn on_answered(&self, answer: Result<ConsumerGroupHeartbeatResponse, ClientError>) {
        let now = self.now();
        let mut member = self.member.lock();
        let advice = match &answer {
            Ok(response) => member.on_answered(now, response),
            Err(error) if error.is_retriable() => {
                member.on_failed(now);
                Advice::FindCoordinator
            }
            Err(_) => {
                member.on_fatal();
                Advice::Nothing
            }
        };
        drop(member);
        let told = match (advice, answer) {
            (Advice::Tell(refusal), _) => Some(refused(&self.group, &refusal)),
            (Advice::FindCoordinator, answer) => {
                if let Err(error) = answer {
                    tracing::debug!(%error, "a heartbeat failed");
                }
                self.forget_coordinator();
                None
            }
            (Advice::Nothing, Err(error)) => Some(error),
            (Advice::Nothing, Ok(_)) => None,
        };
        if told.is_some() {
            *self.error.lock() = told;
        }
        self.news.notify_one();
    }
}

async fn send_heartbeats(shared: Arc<Shared>) {
    loop {
        let (request, wakes_at) = {
            let mut member = shared.member.lock();
            (member.next_heartbeat(shared.now()), member.wakes_at())
        };
        if let Some(request) = request {
            // Nothing that is said after leaving is answered to the member.
            let sent = Instant::now();
            shared.sensors.on_heartbeat_sent();
            let answer = shared.send_heartbeat(&request).await;
            if answer.is_ok() {
                shared.sensors.on_heartbeat_answered(sent.elapsed());
            }
            shared.on_answered(answer);
            continue;
        }
        let woken = shared.wake_heartbeats.notified();
        match wakes_at {
            Some(at) => {
                let at = shared.beginning + Duration::from_millis(at);
                let _ = tokio::time::timeout_at(at.into(), woken).await;
            }
            None => woken.await,
        }
    }
}

/// The cluster has no such groups: says what to set.
fn not_served(error: &ClientError) -> ClientError {
    ClientError::Config(format!(
        "group.protocol=consumer: {error}; set group.protocol=classic until the cluster is upgraded"
    ))
}

fn refused(group: &str, refusal: &member::Refusal) -> ClientError {
    if refusal.code == ErrorCode::UnsupportedVersion {
        let error = ClientError::broker(
            format!("joining group {group}"),
            refusal.code.code(),
            Some(&refusal.message),
        );
        return not_served(&error);
    }
    ClientError::broker(
        format!("joining group {group}"),
        refusal.code.code(),
        Some(&refusal.message),
    )
}
