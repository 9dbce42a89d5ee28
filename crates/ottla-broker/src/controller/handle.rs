//! How the rest of the broker asks the controller.

use std::fmt;
use std::sync::Arc;

use ottla_controller::{ControllerContext, Decision};
use ottla_types::ErrorCode;
use tokio::sync::{Semaphore, oneshot};

use super::channel::ControllerChannel;
use super::requests::{ControllerRequest, Facts};
use crate::quorum::work::{Decide, Decided, Work};
use crate::quorum::{QuorumHandle, QuorumStatus};

/// Requests that may wait for the controller; more wait in their senders.
const MAX_PENDING: usize = 1024;

/// Sends requests to the controller, in this process or in another: whoever asks does not see the difference. Cheap to
/// clone.
#[derive(Clone)]
pub struct ControllerHandle {
    quorum: QuorumHandle,
    /// The way to a leader elsewhere; `None` where nobody but this node can lead.
    channel: Option<Arc<ControllerChannel>>,
    pending: Arc<Semaphore>,
}

impl ControllerHandle {
    pub(crate) fn new(
        quorum: QuorumHandle,
        channel: Option<Arc<ControllerChannel>>,
    ) -> ControllerHandle {
        ControllerHandle {
            quorum,
            channel,
            pending: Arc::new(Semaphore::new(MAX_PENDING)),
        }
    }

    /// Has a request decided. Returns when what was decided is committed, and this broker acts by it. The
    /// error is for a controller that is not there any more, or has not answered in time: nothing is known of
    /// the request's fate.
    pub async fn submit<R: ControllerRequest>(&self, request: R) -> Result<R::Response, ErrorCode>
    where
        R::Response: Send + 'static,
    {
        match self.channel_to_leader() {
            Some(channel) => channel.send(&request).await,
            None => {
                self.decide(move |context, facts| request.decide(context, facts))
                    .await
            }
        }
    }

    /// The way to the active controller, where that is another process.
    pub(crate) fn channel_to_leader(&self) -> Option<&ControllerChannel> {
        self.channel
            .as_deref()
            .filter(|_| !self.quorum.status().is_active)
    }

    /// The thread that takes part in the quorum.
    pub(crate) fn quorum(&self) -> &QuorumHandle {
        &self.quorum
    }

    /// As [`submit`](Self::submit) at the controller of this process, with the decision itself.
    pub(crate) async fn decide<T: Send + 'static>(
        &self,
        decide: impl FnOnce(&mut ControllerContext<'_>, &Facts<'_>) -> Decision<T> + Send + 'static,
    ) -> Result<T, ErrorCode> {
        let Ok(permit) = Arc::clone(&self.pending).acquire_owned().await else {
            return Err(ErrorCode::NotController);
        };
        let (sender, receiver) = oneshot::channel();
        let decide: Decide = Box::new(move |context, facts| {
            let decision = decide(context, facts);
            Decided {
                records: decision.records,
                reply: Box::new(move |outcome| {
                    drop(permit);
                    // Whoever asked may have gone.
                    let _ = sender.send(outcome.map(|()| decision.response));
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

    /// Ends the controller; returns when its log is closed.
    pub(crate) async fn stop(&self) {
        self.quorum.stop().await;
    }
}

impl fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerHandle")
            .field("quorum", &self.quorum)
            .finish_non_exhaustive()
    }
}
