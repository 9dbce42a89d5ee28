//! How the rest of the broker asks the controller.

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

/// Requests that may wait for the controller; more wait in their senders.
const MAX_PENDING: usize = 1024;
/// For how long a request is tried while this node has the lead and may not decide yet, or has just lost it.
const LEAD_CHANGE: Duration = Duration::from_secs(60);
const LEAD_CHANGE_BACKOFF: Duration = Duration::from_millis(20);
/// How long the answer to a client waits until this node acts by it: less than clients wait for an answer.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(10);

/// Sends requests to the controller, in this process or in another: whoever asks does not see the difference. Cheap to
/// clone.
#[derive(Clone)]
pub struct ControllerHandle {
    quorum: QuorumHandle,
    /// The way to a leader elsewhere; `None` where this node only answers for itself.
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

    /// Has what this broker asks for itself decided, wherever the active controller is. The error is for a controller that
    /// is not there any more, or has not answered in time: nothing is known of the request's fate.
    pub async fn submit<R: ControllerRequest>(&self, request: R) -> Result<R::Response, ErrorCode>
    where
        R::Response: Send + 'static,
    {
        self.find_leader(Arc::new(request), None).await
    }

    /// As [`submit`](Self::submit), for what a client asks: a controller elsewhere is told its principal and address.
    pub async fn forward<R: ControllerRequest>(
        &self,
        context: &RequestContext,
        request: R,
    ) -> Result<R::Response, ErrorCode>
    where
        R::Response: Send + 'static,
    {
        self.find_leader(Arc::new(request), Some(context)).await
    }

    /// Has a request decided by this node, for whoever looks for the active controller himself: `NOT_CONTROLLER` where
    /// that is another. Returns when what was decided is committed; and where a client asks, who looks for it with its next
    /// request, when this node acts by it.
    ///
    /// What a client changes counts to its quota.
    pub async fn decide_here<R: ControllerRequest>(
        &self,
        request: Arc<R>,
        client: Option<&RequestContext>,
    ) -> Result<R::Response, ErrorCode>
    where
        R::Response: Send + 'static,
    {
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

    /// The lead may come to this node and go from it while a request looks for it. With the context of the client who
    /// asks, if one does.
    async fn find_leader<R: ControllerRequest>(
        &self,
        request: Arc<R>,
        client: Option<&RequestContext>,
    ) -> Result<R::Response, ErrorCode>
    where
        R::Response: Send + 'static,
    {
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

    /// The way to the active controller, unless this node has the lead.
    pub fn channel_to_leader(&self) -> Option<&ControllerChannel> {
        self.channel
            .as_deref()
            .filter(|_| self.quorum.status().leader != Some(self.own_id))
    }

    /// What keeps this broker's heartbeats from the controller, where something does.
    pub fn trouble(&self) -> Option<String> {
        self.channel.as_ref()?.trouble()
    }

    /// The thread that takes part in the quorum.
    pub fn quorum(&self) -> &QuorumHandle {
        &self.quorum
    }

    /// As [`submit`](Self::submit) at the controller of this process, with the decision itself. Returns when this node acts by
    /// what was decided.
    pub async fn decide<T: Send + 'static>(
        &self,
        decide: impl FnOnce(&mut ControllerContext<'_>, &Facts<'_>) -> Decision<T> + Send + 'static,
    ) -> Result<T, ErrorCode> {
        let (response, end) = self.commit(decide).await?;
        self.published(end).await;
        Ok(response)
    }

    /// Waits until this node acts by what was committed up to there. Where a disk hangs that may be never: a client is told
    /// after a while all the same that the change is made, which it is.
    async fn published(&self, end: Option<Offset>) {
        if let Some(end) = end {
            let _ = timeout(PUBLISHED_WITHIN, self.quorum.published(end)).await;
        }
    }

    /// Has something decided by the controller of this process. Returns when it is committed, with where its records end in
    /// the log; `None` without records.
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
                    // Whoever asked may have gone.
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

    /// Ends this node's part in the quorum; returns when its log is closed.
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
