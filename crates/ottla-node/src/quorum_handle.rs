//! The interface of the quorum thread for the rest of the node.

use ottla_sync::atomic::{AtomicBool, Ordering};
use ottla_sync::thread;
use ottla_sync::thread_channel;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_net::PeerSecurity;
use ottla_raft::wire::{AnswerParts, QuorumApi};
use ottla_raft::{Request, Response};
use ottla_sync::ArcSwap;
use ottla_sync::{oneshot, watch};
use ottla_types::{ErrorCode, Offset};

use crate::controller_thread::{Controller, Publish, Unpublished};
use crate::quorum::served::{QuorumDescription, ServedData};
use crate::quorum::status::QuorumStatus;
use crate::quorum::work::Work;

/// No request waits for a change that takes longer.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(1);

/// Sends work to the thread. Cheap to clone. The thread ends when the last handle is dropped.
#[derive(Clone)]
pub struct QuorumHandle {
    work: Arc<thread_channel::Sender<Work>>,
    status: Arc<ArcSwap<QuorumStatus>>,
    cluster_id: ByteString,
    /// The end offset of the metadata that is published on this node.
    published: watch::Receiver<Offset>,
    /// The committed changes that are not published on this node.
    unpublished: Arc<Unpublished>,
    /// Checked by the thread while it waits for something other than work.
    stop_requested: Arc<AtomicBool>,
    /// Set when the thread has ended.
    has_ended: Arc<AtomicBool>,
}

/// The quorum thread has ended.
#[derive(Debug)]
pub struct ThreadEnded;

/// Starts the thread. Must be called within the runtime. Nothing is published before
/// [`QuorumHandle::begin_publishing`]. `security` is for the controller listener.
/// `on_failure` is called with the reason when the log cannot be used any more; the node must stop
/// then.
pub fn start(
    mut controller: Controller,
    security: PeerSecurity,
    publish: Publish,
    on_failure: impl FnOnce(String) + Send + 'static,
) -> Result<QuorumHandle, String> {
    let runtime = ottla_sync::task::Handle::current();
    let (sender, receiver) = thread_channel::channel();
    let work = Arc::new(sender);
    let handle = QuorumHandle {
        work: Arc::clone(&work),
        status: controller.status(),
        cluster_id: ByteString::from(controller.cluster_id()),
        published: controller.published(),
        unpublished: controller.unpublished(),
        stop_requested: controller.stop_requested(),
        has_ended: Arc::default(),
    };
    let has_ended = Arc::clone(&handle.has_ended);
    controller.connect(security, &work);
    drop(work);
    thread::Builder::new()
        .name("controller".to_owned())
        .spawn(move || {
            // Publishing spawns tasks: coordinators load, partitions are flushed.
            let _runtime = runtime.enter();
            controller.run(&receiver, publish, on_failure);
            has_ended.store(true, Ordering::Release);
        })
        .map_err(|error| format!("cannot start the thread of the controller: {error}"))?;
    Ok(handle)
}

impl QuorumHandle {
    /// The status as of the last commit or leader change.
    pub fn status(&self) -> Arc<QuorumStatus> {
        self.status.load_full()
    }

    /// The id of the quorum's cluster.
    pub fn cluster_id(&self) -> &ByteString {
        &self.cluster_id
    }

    /// Whether the thread has ended, which means that the node stops.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Sends work, which is dropped if the thread has ended.
    pub fn send(&self, work: Work) -> Result<(), ThreadEnded> {
        self.work.send(work).map_err(|_| ThreadEnded)
    }

    /// Sends a request of another node and waits for the response; `None` if the thread has ended.
    pub async fn ask(&self, request: Request) -> Option<(Response, ServedData)> {
        let (respond, answer) = oneshot::channel();
        self.send(Work::PeerRequest { request, respond }).ok()?;
        answer.await.ok()
    }

    /// The quorum as its leader sees it; `None` if this node is not the leader.
    pub async fn describe(&self) -> Option<QuorumDescription> {
        let (sender, description) = oneshot::channel();
        self.send(Work::Describe(sender)).ok()?;
        description.await.ok()?
    }

    /// The committed image, as soon as this node has applied everything up to the leader's high
    /// watermark. `None` if the thread has ended.
    pub async fn caught_up(&self) -> Option<MetadataImage> {
        let (sender, image) = oneshot::channel();
        self.send(Work::CatchUp(sender)).ok()?;
        image.await.ok()
    }

    /// Publishes everything that is committed as one change, as soon as the record at `offset` is
    /// in the image, and each later change after that. Returns true when the first change is
    /// published, and false when nothing will be because the thread has ended.
    #[must_use]
    pub async fn begin_publishing(&self, offset: Offset) -> bool {
        let (sender, published) = oneshot::channel();
        if self.send(Work::BeginPublishing(offset, sender)).is_err() {
            return false;
        }
        match published.await {
            Ok(end) => self.published(end).await,
            Err(_) => false,
        }
    }

    /// Waits until the metadata up to `end`, exclusive, is published on this node. Returns false
    /// when nothing is published any more because the thread has ended.
    pub async fn published(&self, end: Offset) -> bool {
        let mut published = self.published.clone();
        published
            .wait_for(|published| *published >= end)
            .await
            .is_ok()
    }

    /// The end offset, exclusive, of the committed changes that this node is publishing. `None` if all
    /// are published, or if it has been publishing one for a second: requests that wait for it delay
    /// those after them, and a disk that hangs can delay it for any time.
    pub fn unpublished(&self) -> Option<Offset> {
        self.unpublished.end(PUBLISHED_WITHIN)
    }

    /// Waits until `is_there` returns true after a published change. Returns false when nothing is
    /// published any more.
    #[must_use]
    pub async fn published_when(&self, is_there: impl Fn() -> bool) -> bool {
        let mut published = self.published.clone();
        loop {
            if is_there() {
                return true;
            }
            if published.changed().await.is_err() {
                return is_there();
            }
        }
    }

    /// Ends the thread; returns when its log is closed and the publisher has been dropped. A leader
    /// tries to resign for at most `timeout`. Can be called again with a shorter timeout while a
    /// stop is in progress.
    pub async fn stop(&self, timeout: Duration) {
        let (sender, stopped) = oneshot::channel();
        self.stop_requested.store(true, Ordering::Release);
        let work = Work::Stop {
            timeout_ms: timeout.as_millis() as u64,
            stopped: sender,
        };
        if self.send(work).is_ok() {
            // An error means that the thread has ended already.
            let _ = stopped.await;
        }
    }
}

/// Answers a quorum request of another node. `has_endpoints` says whether the version of the
/// request supports the leader's endpoint at the listener that received it.
pub async fn answer<R: QuorumApi>(
    quorum: Option<&QuorumHandle>,
    request: R,
    listener_name: &str,
    has_endpoints: bool,
) -> R::Answer {
    let Some(quorum) = quorum else {
        return R::refuse(ErrorCode::BrokerNotAvailable);
    };
    let request = match request.read(quorum.cluster_id()) {
        Ok(request) => request,
        Err(refusal) => return refusal,
    };
    let answered = quorum.ask(request).await;
    let answer = answered.and_then(|(response, data)| {
        let parts = AnswerParts {
            listener_name,
            has_endpoints,
            records: data.into_records(),
        };
        R::answer(response, parts)
    });
    answer.unwrap_or_else(|| R::refuse(ErrorCode::BrokerNotAvailable))
}

impl fmt::Debug for QuorumHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumHandle")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl QuorumHandle {
    /// The handle of a node without a quorum.
    pub fn without_quorum() -> QuorumHandle {
        let (work, _) = thread_channel::channel();
        QuorumHandle {
            work: Arc::new(work),
            status: Arc::new(ArcSwap::from_pointee(QuorumStatus::without_quorum())),
            cluster_id: ByteString::new(),
            published: watch::channel(Offset::ZERO).1,
            unpublished: Arc::default(),
            stop_requested: Arc::default(),
            has_ended: Arc::default(),
        }
    }
}
