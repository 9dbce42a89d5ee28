//! What this node gives to the others of the quorum beside its answers: batches of its log and parts of its
//! snapshots, as regions of their files.

use ottla_protocol::Records;

/// What goes with an answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) enum ServedData {
    #[default]
    None,
    /// Whole batches; the last may be cut off, which whoever asked leaves out.
    Records(Records),
}
