//! The request of a redrive or its preview.

use serde::Deserialize;

use crate::records::filter::FilterQuery;
use crate::records::ranges::PartitionRange;
use crate::records::selection::SelectionQuery;

#[derive(Deserialize)]
pub(in crate::api) struct Redrive {
    pub(super) to: String,
    pub(super) records: Option<Vec<NamedRecord>>,
    pub(super) matching: Option<Matching>,
    /// As a preview, or a redrive that broke off, has answered them.
    pub(super) ranges: Option<Vec<PartitionRange>>,
    /// Of the preview. Not without it, if there are ranges.
    pub(super) topic_id: Option<String>,
    /// Of the preview, or of the redrive that broke off. Not for a preview.
    pub(super) token: Option<String>,
    /// Send to the partition with the same number, instead of the key's.
    #[serde(default)]
    pub(super) keep_partition: bool,
    #[serde(default = "yes")]
    pub(super) keep_timestamp: bool,
    #[serde(default)]
    pub(super) preview: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
pub(super) struct NamedRecord {
    pub(super) partition: i32,
    pub(super) offset: i64,
}

#[derive(Deserialize)]
pub(super) struct Matching {
    #[serde(flatten)]
    pub(super) selection: SelectionQuery,
    #[serde(flatten)]
    pub(super) filter: FilterQuery,
    pub(super) limit: Option<u64>,
}
