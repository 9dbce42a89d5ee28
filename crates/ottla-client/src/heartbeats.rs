//! A membership in a group, kept alive by heartbeats: the shell around a member, which is a pure
//! state machine. A task sends the member's heartbeats and passes the responses to it. The owner
//! reports its polls, and receives errors.
//!
//! There is one kind of member for groups whose coordinator assigns the partitions (KIP-848), and
//! one for share groups (KIP-932).

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::ApiRequest;
use ottla_sync::Notify;
use ottla_sync::task::JoinHandle;
use ottla_sync::{Mutex, MutexGuard};
use ottla_types::{ErrorCode, Uuid};

use crate::client::{Client, CoordinatorKind, Owner};
use crate::connection::Connection;
use crate::error::ClientError;

/// A member of a group with heartbeats. Times are milliseconds since an arbitrary start.
pub(crate) trait GroupMember: Send + 'static {
    /// The heartbeat request.
    type Request: ApiRequest<Response: Send> + Send + Sync;

    /// The heartbeat to send now, if any. Its response or its failure must be reported before the
    /// next one.
    fn next_heartbeat(&mut self, now: u64) -> Option<Self::Request>;

    /// When [`GroupMember::next_heartbeat`] must be called again; `None` if only an event can
    /// change its result.
    fn wakes_at(&self) -> Option<u64>;

    /// The owner has polled.
    fn on_polled(&mut self, now: u64);

    /// The coordinator has answered.
    fn on_answered(
        &mut self,
        now: u64,
        response: &<Self::Request as ApiRequest>::Response,
    ) -> Advice;

    /// The heartbeat got no response.
    fn on_failed(&mut self, now: u64);

    /// The heartbeat failed with an error that is not retriable.
    fn on_refused(&mut self);

    /// Whether the member has failed permanently.
    fn is_refused(&self) -> bool;

    /// Leaves the group. Returns the request to send, unless the coordinator does not know the
    /// member.
    fn leave(&mut self) -> Option<Self::Request>;

    /// An error with a remedy if the coordinator does not support the request.
    fn check_served(connection: &Connection, request: &Self::Request) -> Result<(), ClientError>;

    /// The error for the owner, for a refusal of the coordinator.
    fn refused(group: &str, refusal: &Refusal) -> ClientError;
}

/// The next action of the heartbeat task after a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Advice {
    Nothing,
    /// Look up the coordinator, which has changed.
    FindCoordinator,
    /// Report an error to the owner. The error is permanent, or the owner may have to fix its
    /// cause.
    Tell(Refusal),
}

/// An error of the coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

/// The metrics of heartbeats.
pub(crate) trait HeartbeatSensors: Send + Sync {
    fn on_heartbeat_sent(&self);

    fn on_heartbeat_answered(&self, latency: Duration);
}

/// A random id, generated like topic ids.
pub(crate) fn new_member_id() -> String {
    loop {
        if let Some(id) = Uuid::from_random(ottla_sync::random::random("member ids")) {
            return id.to_string();
        }
    }
}

/// Keeps a membership alive until it is dropped.
pub(crate) struct Heartbeats<M: GroupMember> {
    session: Arc<GroupSession<M>>,
    task: JoinHandle<()>,
}

/// The state that the heartbeat task and the owner share: the member, and the connection to its
/// coordinator.
pub(crate) struct GroupSession<M> {
    client: Client,
    /// The owner of the connection to the coordinator.
    owner: Owner,
    group: String,
    /// The origin of the member's times.
    beginning: Instant,
    member: Mutex<M>,
    /// Notified when there may be a heartbeat to send.
    wake: Notify,
    /// Notified when the owner may have something to do.
    news: Arc<Notify>,
    /// An error for the owner's next poll.
    error: Mutex<Option<ClientError>>,
    sensors: Option<Arc<dyn HeartbeatSensors>>,
}

impl<M: GroupMember> Heartbeats<M> {
    /// Starts to send the heartbeats of `member` in `group`.
    pub(crate) fn start(
        client: Client,
        group: String,
        member: M,
        sensors: Option<Arc<dyn HeartbeatSensors>>,
    ) -> Heartbeats<M> {
        let session = Arc::new(GroupSession {
            owner: client.new_owner(),
            client,
            group,
            beginning: ottla_sync::time::now(),
            member: Mutex::new(member),
            wake: Notify::new(),
            news: Arc::default(),
            error: Mutex::default(),
            sensors,
        });
        Heartbeats {
            task: ottla_sync::task::spawn(send_heartbeats(session.clone())),
            session,
        }
    }

    pub(crate) fn session(&self) -> &Arc<GroupSession<M>> {
        &self.session
    }

    /// Changes the member, and wakes up the heartbeat task.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut M) -> T) -> T {
        let changed = change(&mut self.session.member());
        self.session.wake.notify_one();
        changed
    }

    /// Notified when the owner may have something to do.
    pub(crate) fn news(&self) -> Arc<Notify> {
        self.session.news.clone()
    }

    /// Reports a poll of the owner. Returns an error of the coordinator, once, or every time if it
    /// is permanent.
    pub(crate) fn on_polled(&self) -> Result<(), ClientError> {
        let now = self.session.now();
        let is_refused = self.change(|member| {
            member.on_polled(now);
            member.is_refused()
        });
        let mut error = self.session.error.lock();
        let told = match is_refused {
            true => error.clone(),
            false => error.take(),
        };
        told.map_or(Ok(()), Err)
    }

    /// Leaves the group, so that the other members do not wait for its session timeout.
    pub(crate) async fn leave(self) {
        self.task.abort();
        let request = self.session.member().leave();
        if let Some(request) = request
            && let Err(error) = self.session.ask(&request).await
        {
            let group = &self.session.group;
            tracing::debug!(%error, group, "leaving the group failed; the place expires by itself");
        }
    }
}

impl<M: GroupMember> Drop for Heartbeats<M> {
    fn drop(&mut self) {
        self.task.abort();
        self.session.client.disown(self.session.owner);
    }
}

impl<M: GroupMember> GroupSession<M> {
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// Locks the member. The lock must only be held briefly.
    pub(crate) fn member(&self) -> MutexGuard<'_, M> {
        self.member.lock()
    }

    pub(crate) fn forget_coordinator(&self) {
        self.client
            .forget_coordinator(CoordinatorKind::Group, &self.group);
    }

    /// Sends a request to the coordinator over the member's own connection.
    pub(crate) async fn ask<R: ApiRequest>(&self, request: &R) -> Result<R::Response, ClientError> {
        self.connection().await?.send(request).await
    }

    async fn connection(&self) -> Result<Arc<Connection>, ClientError> {
        self.client
            .group_connection_of(&self.group, self.owner)
            .await
    }

    fn now(&self) -> u64 {
        ottla_sync::time::elapsed(self.beginning).as_millis() as u64
    }

    async fn send_heartbeat(
        &self,
        request: &M::Request,
    ) -> Result<<M::Request as ApiRequest>::Response, ClientError> {
        let connection = self.connection().await?;
        M::check_served(&connection, request)?;
        connection.send(request).await
    }

    fn on_answered(&self, answer: Result<<M::Request as ApiRequest>::Response, ClientError>) {
        let now = self.now();
        let mut member = self.member();
        let (advice, mut told) = match answer {
            Ok(response) => (member.on_answered(now, &response), None),
            Err(error) if error.is_retriable() => {
                tracing::debug!(%error, "a heartbeat failed");
                member.on_failed(now);
                (Advice::FindCoordinator, None)
            }
            Err(error) => {
                member.on_refused();
                (Advice::Nothing, Some(error))
            }
        };
        drop(member);
        match advice {
            Advice::Nothing => {}
            Advice::FindCoordinator => self.forget_coordinator(),
            Advice::Tell(refusal) => told = Some(M::refused(&self.group, &refusal)),
        }
        if told.is_some() {
            *self.error.lock() = told;
        }
        self.news.notify_one();
    }
}

async fn send_heartbeats<M: GroupMember>(session: Arc<GroupSession<M>>) {
    loop {
        let (request, wakes_at) = {
            let mut member = session.member();
            (member.next_heartbeat(session.now()), member.wakes_at())
        };
        if let Some(request) = request {
            let sent = ottla_sync::time::now();
            if let Some(sensors) = &session.sensors {
                sensors.on_heartbeat_sent();
            }
            let answer = session.send_heartbeat(&request).await;
            if let (Some(sensors), true) = (&session.sensors, answer.is_ok()) {
                sensors.on_heartbeat_answered(ottla_sync::time::elapsed(sent));
            }
            session.on_answered(answer);
            continue;
        }
        let woken = session.wake.notified();
        match wakes_at {
            Some(at) => {
                let at = session.beginning + Duration::from_millis(at);
                let _ = ottla_sync::time::timeout_at(at, woken).await;
            }
            None => woken.await,
        }
    }
}
