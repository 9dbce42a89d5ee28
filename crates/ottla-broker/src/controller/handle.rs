//! How the rest of the broker asks the controller.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc;

use arc_swap::ArcSwap;
use ottla_controller::{ControllerContext, Decision};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::{KRaftVersion, VoterSet};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, Timestamp};
use tokio::sync::{Semaphore, oneshot};

use super::requests::{ControllerRequest, Facts};

/// Requests that may wait for the controller; more wait in their senders.
const MAX_PENDING: usize = 1024;

/// Sends requests to the controller. Cheap to clone.
#[derive(Clone)]
pub struct ControllerHandle {
    sender: mpsc::Sender<Work>,
    pending: Arc<Semaphore>,
    status: Arc<ArcSwap<QuorumStatus>>,
}

/// The metadata quorum as this node knows it.
#[derive(Clone, PartialEq, Debug)]
pub struct QuorumStatus {
    pub leader: Option<BrokerId>,
    pub epoch: LeaderEpoch,
    /// Exclusive.
    pub high_watermark: Offset,
    pub log_end_offset: Offset,
    pub kraft_version: KRaftVersion,
    pub voters: VoterSet,
    /// When the status was taken.
    pub updated: Timestamp,
}

/// What the thread of the controller is given.
pub(crate) enum Work {
    Decide(Decide),
    /// Write everything out and end.
    Stop(oneshot::Sender<()>),
}

/// Decides a request and says how to answer it.
pub(crate) type Decide = Box<dyn FnOnce(&mut ControllerContext<'_>, &Facts<'_>) -> Decided + Send>;

/// A decision whose response waits for its records.
pub(crate) struct Decided {
    pub records: Vec<MetadataRecord>,
    /// Called with `Ok` when the records are committed and the image is published.
    pub reply: Reply,
}

pub(crate) type Reply = Box<dyn FnOnce(Result<(), ErrorCode>) + Send>;

impl ControllerHandle {
    pub(crate) fn new(
        sender: mpsc::Sender<Work>,
        status: Arc<ArcSwap<QuorumStatus>>,
    ) -> ControllerHandle {
        ControllerHandle {
            sender,
            pending: Arc::new(Semaphore::new(MAX_PENDING)),
            status,
        }
    }

    /// Has a request decided. Returns when what was decided is committed, and this broker acts by it. The
    /// error is for a controller that is not there any more: nothing is known of the request's fate.
    pub async fn submit<R: ControllerRequest>(&self, request: R) -> Result<R::Response, ErrorCode>
    where
        R::Response: Send + 'static,
    {
        self.decide(move |context, facts| request.decide(context, facts))
            .await
    }

    /// As [`submit`](Self::submit), with the decision itself.
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
        if self.sender.send(Work::Decide(decide)).is_err() {
            return Err(ErrorCode::NotController);
        }
        receiver.await.unwrap_or(Err(ErrorCode::NotController))
    }

    /// The quorum as of the last commit.
    pub fn status(&self) -> Arc<QuorumStatus> {
        self.status.load_full()
    }

    /// Ends the controller; returns when its log is closed.
    pub(crate) async fn stop(&self) {
        let (sender, receiver) = oneshot::channel();
        if self.sender.send(Work::Stop(sender)).is_ok() {
            // An error means that the thread has ended, which is what was asked for.
            let _ = receiver.await;
        }
    }
}

impl fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerHandle")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
