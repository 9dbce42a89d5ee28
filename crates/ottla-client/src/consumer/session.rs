//! The state of a fetch session (KIP-227).

use ottla_protocol::fetch_session::client;

use super::Partition;

pub(super) type FetchSession = client::FetchSession<Partition, Wanted>;

/// The fields of a partition in a fetch request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
}
