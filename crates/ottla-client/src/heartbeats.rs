//! A place in a group, kept by heartbeats: the shell around a member that is a pure state machine. A task sends what the
//! member wants to say and tells it of the answers; the member's owner tells it of polls, and is told what was refused.
//!
//! Groups whose coordinator assigns the partitions (KIP-848) and share groups (KIP-932) have members of their own.

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

/// A member of a group that says by heartbeats that it is there. Time is in milliseconds since some beginning.
pub(crate) trait GroupMember: Send + 'static {
    /// The heartbeat.
    type Request: ApiRequest<Response: Send> + Send + Sync;

    /// What there is to be said now; the answer, or that there was none, has to be told before the next.
    fn next_heartbeat(&mut self, now: u64) -> Option<Self::Request>;

    /// When [`GroupMember::next_heartbeat`] is to be asked again; nothing where only news may change what it says.
    fn wakes_at(&self) -> Option<u64>;

    /// The owner is there.
    fn on_polled(&mut self, now: u64);

    /// The coordinator has answered.
    fn on_answered(
        &mut self,
        now: u64,
        response: &<Self::Request as ApiRequest>::Response,
    ) -> Advice;

    /// There was no answer.
    fn on_failed(&mut self, now: u64);

    /// There is no use in asking again.
    fn on_refused(&mut self);

    /// It is out of the group for good.
    fn is_refused(&self) -> bool;

    /// Leaves; what is to be said, unless the coordinator does not know it.
    fn leave(&mut self) -> Option<Self::Request>;

    /// Fails where the coordinator does not serve what the request asks, with the way out.
    fn check_served(connection: &Connection, request: &Self::Request) -> Result<(), ClientError>;

    /// What the coordinator has refused, as the owner is told.
    fn refused(group: &str, refusal: &Refusal) -> ClientError;
}

/// What an answer asks of whoever sends the heartbeats.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Advice {
    Nothing,
    /// Another broker coordinates the group by now.
    FindCoordinator,
    /// To be told to the owner: what is refused for good, and what the owner may have to mend.
    Tell(Refusal),
}

/// An error of the coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

/// Measures the heartbeats.
pub(crate) trait HeartbeatSensors: Send + Sync {
    fn on_heartbeat_sent(&self);

    fn on_heartbeat_answered(&self, latency: Duration);
}

/// Ids are drawn by the members themselves, as ids of topics are by the controller.
pub(crate) fn new_member_id() -> String {
    loop {
        if let Some(id) = Uuid::from_random(ottla_sync::random::random("member ids")) {
            return id.to_string();
        }
    }
}

/// Keeps a member's place until it is dropped.
pub(crate) struct Heartbeats<M: GroupMember> {
    session: Arc<GroupSession<M>>,
    task: JoinHandle<()>,
}

/// A member's place in a group, and the way to its coordinator.
pub(crate) struct GroupSession<M> {
    client: Client,
    /// Of the connection to the coordinator.
    owner: Owner,
    group: String,
    /// What the member's milliseconds are counted from.
    beginning: Instant,
    member: Mutex<M>,
    /// There may be something to say.
    wake: Notify,
    /// There may be something for the owner to do.
    news: Arc<Notify>,
    /// To be told to the owner with the next poll.
    error: Mutex<Option<ClientError>>,
    sensors: Option<Arc<dyn HeartbeatSensors>>,
}

impl<M: GroupMember> Heartbeats<M> {
    /// Begins to say what `member` wants to say in `group`.
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

    /// Changes the member, which may have something to say then.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut M) -> T) -> T {
        let changed = change(&mut self.session.member());
        self.session.wake.notify_one();
        changed
    }

    /// Notified when there may be something to do.
    pub(crate) fn news(&self) -> Arc<Notify> {
        self.session.news.clone()
    }

    /// The owner is there. Fails with what the coordinator has refused: every time, if that is for good.
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

    /// Leaves the group, so that the others need not wait for the place to expire.
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

    /// To be held for a moment only.
    pub(crate) fn member(&self) -> MutexGuard<'_, M> {
        self.member.lock()
    }

    pub(crate) fn forget_coordinator(&self) {
        self.client
            .forget_coordinator(CoordinatorKind::Group, &self.group);
    }

    /// Asks the group's coordinator, over the member's own connection.
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
