//! One file per API, named after it. Only here and in the protocol crate do version numbers appear.

pub(crate) mod api_versions;
pub(crate) mod fetch;
pub(crate) mod list_offsets;
pub(crate) mod offset_for_leader_epoch;
pub(crate) mod produce;
