//! What the thread of the quorum is given to do.

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
    /// A request to the controller, decided by this node if it is the active one.
    Decide(Decide),
    /// What became of a request of the quorum's.
    Answered(Answered),
    /// A request of another node of the quorum, or about who votes.
    Asked {
        request: Request,
        respond: oneshot::Sender<(Response, ServedData)>,
    },
    /// Describe the quorum, if this node leads it.
    Describe(oneshot::Sender<Option<QuorumDescription>>),
    /// A snapshot was written, or could not be.
    SnapshotWritten(SnapshotWritten),
    /// Answer with the committed image as soon as everything that the leader calls committed is in it.
    CatchUp(oneshot::Sender<MetadataImage>),
    /// Publish what is committed, and every change of it from now on, as soon as the record at that offset is in it. Answered
    /// with where in the log that ends which is published first.
    BeginPublishing(Offset, oneshot::Sender<Offset>),
    /// Write everything out and end. A leader gives the lead away first, for so long at most.
    Stop {
        timeout_ms: u64,
        stopped: oneshot::Sender<()>,
    },
}

/// Decides a request and says how to answer it. Dropped where this node is not the active controller: whoever
/// waits for the reply sees that it is gone.
pub type Decide = Box<dyn FnOnce(&mut ControllerContext<'_>, &Facts<'_>) -> Decided + Send>;

/// A decision whose response waits for its records.
pub struct Decided {
    /// The level to which `kraft.version` is raised before the records are appended.
    pub kraft_version: Option<i16>,
    pub records: Vec<MetadataRecord>,
    /// Called with `Ok` when the records are committed, and with where they end in the log: up to there the image has to be
    /// published for this node to act by them. 0 while nothing is published here.
    pub reply: Reply,
}

pub type Reply = Box<dyn FnOnce(Result<Offset, ErrorCode>) + Send>;

/// What became of a snapshot.
pub struct SnapshotWritten {
    pub id: SnapshotId,
    pub last_contained_log_time: Timestamp,
    /// Its size in bytes.
    pub outcome: io::Result<u64>,
}

/// What became of a request.
#[derive(Debug)]
pub struct Answered {
    pub from: Node,
    pub correlation_id: u64,
    pub outcome: Result<WireResponse, Failure>,
}

/// Why a request has no answer.
#[derive(Debug)]
pub struct Failure {
    pub error: ErrorCode,
    /// For people; names the address.
    pub reason: String,
}
