//! A snapshot being fetched from the leader.

use std::path::PathBuf;

use ottla_raft::SnapshotId;
use ottla_sync::fs::File;

/// Its first `size_bytes` are in the file, whose name a start deletes.
pub(super) struct PartialSnapshot {
    pub(super) id: SnapshotId,
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) size_bytes: u64,
}
