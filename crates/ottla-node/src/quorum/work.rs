//! The work items of the quorum thread.

use std::io;

use ottla_controller::ControllerContext;
use ottla_metadata::MetadataImage;
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::wire::WireResponse;
use ottla_raft::{Node, Request, Response, SnapshotId};
use ottla_sync::oneshot;
use ottla_types::{ErrorCode, Offset, Timestamp};

use super::served::{QuorumDescription, ServedData};
use crate::controller::requests::Facts;

pub enum Work {
    /// A controller request, decided by this node if it is the active controller.
    Decide(Decide),
    /// The outcome of a request of the quorum.
    Answered(Answered),
    /// A request of another node of the quorum, or a request that changes or describes the voters.
    PeerRequest {
        request: Request,
        respond: oneshot::Sender<(Response, ServedData)>,
    },
    /// Describe the quorum, if this node is its leader.
    Describe(oneshot::Sender<Option<QuorumDescription>>),
    /// A snapshot was written, or failed.
    SnapshotWritten(SnapshotWritten),
    /// Reply with the committed image when this node has applied everything up to the leader's high
    /// watermark.
    CatchUp(oneshot::Sender<MetadataImage>),
    /// Begin to publish the committed metadata when the record at the offset is in the image.
    /// Replied to with the end offset of the first publication.
    BeginPublishing(Offset, oneshot::Sender<Offset>),
    /// Flush everything and end. A leader first tries to resign in favour of another voter, for at
    /// most this time.
    Stop {
        timeout_ms: u64,
        stopped: oneshot::Sender<()>,
    },
}

/// Decides a request and returns its reply. Dropped if this node is not the active controller; the
/// requester then sees that the reply sender is gone.
pub type Decide = Box<dyn FnOnce(&mut ControllerContext<'_>, &Facts<'_>) -> Decided + Send>;

/// A decision whose response waits for the commit of its records.
pub struct Decided {
    /// The level to which `kraft.version` is raised before the records are appended.
    pub kraft_version: Option<i16>,
    pub records: Vec<MetadataRecord>,
    /// Called with `Ok` and the end offset of the records when they are committed. The decision
    /// takes effect on this node when the metadata up to that offset is published. 0 while nothing
    /// is published here.
    pub reply: Reply,
}

pub type Reply = Box<dyn FnOnce(Result<Offset, ErrorCode>) + Send>;

/// The outcome of writing a snapshot.
pub struct SnapshotWritten {
    pub id: SnapshotId,
    pub last_contained_log_time: Timestamp,
    /// The size of the snapshot in bytes, or the error.
    pub outcome: io::Result<u64>,
}

/// The outcome of a request to another node.
#[derive(Debug)]
pub struct Answered {
    pub from: Node,
    pub correlation_id: u64,
    pub outcome: Result<WireResponse, Failure>,
}

/// Why a request has no response.
#[derive(Debug)]
pub struct Failure {
    pub error: ErrorCode,
    /// A message for log entries that names the address.
    pub reason: String,
}
