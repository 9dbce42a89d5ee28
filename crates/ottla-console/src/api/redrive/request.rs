//! The request of a redrive or its preview.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::records::filter::FilterQuery;
use crate::records::ranges::PartitionRange;
use crate::records::selection::SelectionQuery;

/// The longest target and filters, as in an address.
pub(super) const MOST_BYTES: usize = 64 << 10;

#[derive(Deserialize)]
pub(in crate::api) struct Redrive {
    pub(super) to: String,
    pub(super) records: Option<Vec<NamedRecord>>,
    #[serde(default, deserialize_with = "bounded")]
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

/// Flattened structs keep all that is given, with many times the memory of its text, until each has taken its fields.
fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Matching>, D::Error> {
    let given = Option::<Box<RawValue>>::deserialize(deserializer)?;
    let parsed = given.map(|given| match given.get().len() {
        ..=MOST_BYTES => serde_json::from_str(given.get()).map_err(Error::custom),
        bytes => Err(Error::custom(too_long(bytes))),
    });
    parsed.transpose()
}

pub(super) fn too_long(bytes: usize) -> String {
    format!("the filters have {bytes} bytes; give {MOST_BYTES} at most")
}
