//! The interface of the controller for the rest of the broker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ottla_controller::{ControllerContext, Decision};
use ottla_sync::time::{sleep, timeout};
use ottla_sync::{Semaphore, oneshot};
use ottla_types::{BrokerId, ErrorCode, Offset};

use super::channel::ControllerChannel;
use super::requests::{ControllerRequest, Facts};
use crate::quorum::status::QuorumStatus;
use crate::quorum::work::{Decide, Decided, Work};
use crate::quorum_handle::QuorumHandle;
use ottla_net::RequestContext;

/// The capacity of the request channel; further senders wait.
const MAX_PENDING: usize = 1024;
/// How long a request is retried while this node is leader without being active yet, or has just
/// lost the leadership.
const LEAD_CHANGE: Duration = Duration::from_secs(60);
const LEAD_CHANGE_BACKOFF: Duration = Duration::from_millis(20);
/// How long the answer to a client waits for the metadata to be published on this node. Shorter
/// than the request timeouts of clients.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(10);

/// Sends requests to the active controller, whether that is in this process or in another. Cheap to
/// clone.
#[derive(Clone)]
pub struct ControllerHandle {
    quorum: QuorumHandle,
    /// The channel to a remote leader; `None` if this node only decides its own requests.
    channel: Option<Arc<ControllerChannel>>,
    own_id: BrokerId,
    pending: Arc<Semaphore>,
}

impl ControllerHandle {
    pub fn new(
        quorum: QuorumHandle,
        channel: Option<Arc<ControllerChannel>>,
        own_id: BrokerId,
    ) -> ControllerHandle {
        ControllerHandle {
            quorum,
            channel,
            own_id,
            pending: Arc::new(Semaphore::new(MAX_PENDING)),
        }
    }

    /// Sends a request of this broker to the active controller. An error can mean that the
    /// controller is gone or has not answered in time; whether the request was executed is unknown
    /// then.
    pub async fn submit<R: ControllerRequest>(&self, request: R) -> Result<R::Response, ErrorCode> {
        self.find_leader(Arc::new(request), None).await
    }

    /// As [`submit`](Self::submit), on behalf of a client: a remote controller receives the
    /// client's principal and address.
    pub async fn forward<R: ControllerRequest>(
        &self,
        context: &RequestContext,
        request: R,
    ) -> Result<R::Response, ErrorCode> {
        self.find_leader(Arc::new(request), Some(context)).await
    }

    /// Decides a request on this node, for clients that look for the active controller themselves.
    /// Returns `NOT_CONTROLLER` if this node is not the active controller. Returns when the
    /// decision is committed and, for a client's request, published on this node as well, because
    /// the client expects its next request to see the change.
    ///
    /// A change by a client counts toward its controller mutation quota.
    pub async fn decide_here<R: ControllerRequest>(
        &self,
        request: Arc<R>,
        client: Option<&RequestContext>,
    ) -> Result<R::Response, ErrorCode> {
        let principal = client.map(|client| client.principal().as_str().into());
        let mutation_quota = client.and_then(|client| client.mutation_quota.clone());
        let decide = move |context: &mut ControllerContext<'_>, facts: &Facts<'_>| {
            context.client = principal.unwrap_or_default();
            context.mutation_quota = mutation_quota;
            request.decide(context, facts)
        };
        let (response, end) = self.commit(decide).await?;
        if !R::IS_CLUSTER_ACTION {
            self.published(end).await;
        }
        Ok(response)
    }

    /// Sends a request to the active controller, which may change to this or another node before
    /// the answer. `context` is the client's context, if a client made the request.
    async fn find_leader<R: ControllerRequest>(
        &self,
        request: Arc<R>,
        client: Option<&RequestContext>,
    ) -> Result<R::Response, ErrorCode> {
        let begun = ottla_sync::time::now();
        loop {
            let answer = match (self.channel_to_leader(), client) {
                (Some(channel), Some(context)) => channel.forward(context, &*request).await,
                (Some(channel), None) => channel.send(&*request).await,
                (None, client) => self.decide_here(Arc::clone(&request), client).await,
            };
            let is_led_elsewhere = matches!(answer, Err(ErrorCode::NotController));
            if !is_led_elsewhere || self.channel.is_none() || self.quorum.has_ended() {
                return answer;
            }
            if ottla_sync::time::now() - begun >= LEAD_CHANGE {
                return answer;
            }
            sleep(LEAD_CHANGE_BACKOFF).await;
        }
    }

    /// The channel to the active controller, unless that is this node.
    pub fn channel_to_leader(&self) -> Option<&ControllerChannel> {
        self.channel
            .as_deref()
            .filter(|_| self.quorum.status().leader != Some(self.own_id))
    }

    /// Why this broker's heartbeats do not reach the controller, if they do not.
    pub fn trouble(&self) -> Option<String> {
        self.channel.as_ref()?.trouble()
    }

    /// The thread of the metadata quorum.
    pub fn quorum(&self) -> &QuorumHandle {
        &self.quorum
    }

    /// As [`submit`](Self::submit) for the controller of this process, with a closure that decides.
    /// Returns when the decision is published on this node.
    pub async fn decide<T: Send + 'static>(
        &self,
        decide: impl FnOnce(&mut ControllerContext<'_>, &Facts<'_>) -> Decision<T> + Send + 'static,
    ) -> Result<T, ErrorCode> {
        let (response, end) = self.commit(decide).await?;
        self.published(end).await;
        Ok(response)
    }

    /// Waits until the committed metadata up to `end` is published on this node. A hung disk can
    /// delay that indefinitely, so the wait is limited: the change is committed, and the client can
    /// be answered.
    async fn published(&self, end: Option<Offset>) {
        if let Some(end) = end {
            let _ = timeout(PUBLISHED_WITHIN, self.quorum.published(end)).await;
        }
    }

    /// Runs a decision on the controller of this process. Returns when it is committed, with the
    /// end offset of its records in the metadata log; `None` if it has no records.
    async fn commit<T: Send + 'static>(
        &self,
        decide: impl FnOnce(&mut ControllerContext<'_>, &Facts<'_>) -> Decision<T> + Send + 'static,
    ) -> Result<(T, Option<Offset>), ErrorCode> {
        let Ok(permit) = Arc::clone(&self.pending).acquire_owned().await else {
            return Err(ErrorCode::NotController);
        };
        let (sender, receiver) = oneshot::channel();
        let decide: Decide = Box::new(move |context, facts| {
            let decision = decide(context, facts);
            let has_records = !decision.records.is_empty();
            Decided {
                kraft_version: decision.kraft_version,
                records: decision.records,
                reply: Box::new(move |outcome| {
                    drop(permit);
                    // The caller may be gone.
                    let _ = sender.send(outcome.map(|end| {
                        let end = has_records.then_some(end);
                        (decision.response, end)
                    }));
                }),
            }
        });
        if self.quorum.send(Work::Decide(decide)).is_err() {
            return Err(ErrorCode::NotController);
        }
        receiver.await.unwrap_or(Err(ErrorCode::NotController))
    }

    /// The quorum as of the last commit.
    pub fn status(&self) -> Arc<QuorumStatus> {
        self.quorum.status()
    }

    /// Stops this node's quorum thread; returns when its log is closed.
    pub async fn stop(&self, timeout: Duration) {
        self.quorum.stop(timeout).await;
    }
}

impl fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerHandle")
            .field("quorum", &self.quorum)
            .finish_non_exhaustive()
    }
}
