//! The shell around [`Member`]: a task sends the heartbeats and tells the member of the answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::ApiKey;
use ottla_protocol::messages::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use ottla_types::ErrorCode;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::ShareConsumerConfig;
use super::member::{Advice, Member, MemberSettings, Partitions};
use crate::client::{Client, CoordinatorKind, Owner};
use crate::error::ClientError;

/// A place in a share group, kept by heartbeats.
pub(super) struct ShareMembership {
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
    /// What the coordinator has refused.
    error: Mutex<Option<ClientError>>,
}

impl ShareMembership {
    pub(super) fn new(
        client: Client,
        config: &ShareConsumerConfig,
        member_id: String,
    ) -> ShareMembership {
        let backoff = client.config();
        let settings = MemberSettings {
            group_id: config.group_id.clone(),
            member_id,
            rack: config.client_rack.clone(),
            max_poll_interval_ms: config.max_poll_interval.as_millis() as u64,
            retry_backoff_ms: backoff.retry_backoff.as_millis() as u64,
            retry_backoff_max_ms: backoff.retry_backoff_max.as_millis() as u64,
        };
        let shared = Arc::new(Shared {
            owner: client.new_owner(),
            client,
            group: config.group_id.clone(),
            beginning: Instant::now(),
            member: Mutex::new(Member::new(settings)),
            wake_heartbeats: Notify::new(),
            news: Arc::default(),
            error: Mutex::default(),
        });
        ShareMembership {
            heartbeats: tokio::spawn(send_heartbeats(shared.clone())),
            shared,
        }
    }

    pub(super) fn subscribe(&self, topics: BTreeSet<String>) {
        self.shared.member.lock().subscribe(topics);
        self.shared.wake_heartbeats.notify_one();
    }

    /// Notified when there may be something to do.
    pub(super) fn news(&self) -> Arc<Notify> {
        self.shared.news.clone()
    }

    /// The owner is there. Fails with what the coordinator has refused: every time, if that is for good.
    pub(super) fn on_polled(&self) -> Result<(), ClientError> {
        let is_refused = {
            let mut member = self.shared.member.lock();
            member.on_polled(self.shared.now());
            member.is_refused()
        };
        self.shared.wake_heartbeats.notify_one();
        let mut error = self.shared.error.lock();
        let told = match is_refused {
            true => error.clone(),
            false => error.take(),
        };
        told.map_or(Ok(()), Err)
    }

    pub(super) fn assignment(&self) -> Partitions {
        self.shared.member.lock().assignment().clone()
    }

    /// Leaves the group, so that the others need not wait for the place to expire.
    pub(super) async fn leave(self) {
        self.heartbeats.abort();
        let request = self.shared.member.lock().leave();
        if let Some(request) = request
            && let Err(error) = self.shared.send_heartbeat(&request).await
        {
            tracing::debug!(%error, "leaving the share group failed; the place expires by itself");
        }
    }
}

impl Drop for ShareMembership {
    fn drop(&mut self) {
        self.heartbeats.abort();
        self.shared.client.disown(self.shared.owner);
    }
}

impl Shared {
    fn now(&self) -> u64 {
        self.beginning.elapsed().as_millis() as u64
    }

    async fn send_heartbeat(
        &self,
        request: &ShareGroupHeartbeatRequest,
    ) -> Result<ShareGroupHeartbeatResponse, ClientError> {
        let connection = self.client.group_connection_of(&self.group, self.owner);
        let connection = connection.await?;
        let version = connection.version(ApiKey::ShareGroupHeartbeat);
        version.map_err(|error| {
            ClientError::Config(format!(
                "share groups: {error}; the cluster has them from share.version=1 on"
            ))
        })?;
        connection.send(request).await
    }

    fn on_answered(&self, answer: Result<ShareGroupHeartbeatResponse, ClientError>) {
        let now = self.now();
        let mut member = self.member.lock();
        let advice = match answer {
            Ok(response) => member.on_answered(now, &response),
            Err(error) if error.is_retriable() => {
                tracing::debug!(%error, "a heartbeat failed");
                member.on_failed(now);
                Advice::FindCoordinator
            }
            Err(error) => {
                member.on_refused();
                *self.error.lock() = Some(error);
                Advice::Nothing
            }
        };
        drop(member);
        match advice {
            Advice::Nothing => {}
            Advice::FindCoordinator => self
                .client
                .forget_coordinator(CoordinatorKind::Group, &self.group),
            Advice::Tell { code, message } => {
                *self.error.lock() = Some(self.refused(code, &message));
            }
        }
        self.news.notify_one();
    }

    fn refused(&self, code: ErrorCode, message: &str) -> ClientError {
        let what = format!("joining share group {}", self.group);
        ClientError::broker(what, code.code(), Some(message))
    }
}

async fn send_heartbeats(shared: Arc<Shared>) {
    loop {
        let (request, wakes_at) = {
            let mut member = shared.member.lock();
            (member.next_heartbeat(shared.now()), member.wakes_at())
        };
        if let Some(request) = request {
            let answer = shared.send_heartbeat(&request).await;
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
