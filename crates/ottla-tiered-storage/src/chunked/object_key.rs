//! The keys of a segment's objects.
//!
//! `<prefix><topic>-<topic ID>/<partition>/<20 digits>-<segment ID>.<suffix>`; nothing is put
//! between the prefix and the topic. A segment's custom metadata may name another prefix or path:
//! that holds for reads of its log and indexes, not for its manifest, nor for deletion.
//!
//! Aiven's plugin: `ObjectKeyFactory`.

use ottla_tiered::RemoteLogSegmentMetadata;

use crate::custom_metadata::CustomMetadataFields;

/// The objects of a segment, in the order of upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suffix {
    Log,
    Indexes,
    /// Written last: a segment that has it is complete.
    Manifest,
}

impl Suffix {
    pub const ALL: [Suffix; 3] = [Suffix::Log, Suffix::Indexes, Suffix::Manifest];

    pub const fn name(self) -> &'static str {
        match self {
            Suffix::Log => "log",
            Suffix::Indexes => "indexes",
            Suffix::Manifest => "rsm-manifest",
        }
    }
}

/// The key of a segment's objects without the prefix, and without the dot and the suffix.
pub fn main_path(metadata: &RemoteLogSegmentMetadata) -> String {
    let (partition, segment) = (&metadata.partition, &metadata.segment);
    format!(
        "{}-{}/{}/{:020}-{}",
        partition.topic, partition.topic_id, partition.partition, segment.start_offset, segment.id
    )
}

/// The key that the settings give.
pub fn key(prefix: &str, metadata: &RemoteLogSegmentMetadata, suffix: Suffix) -> String {
    format!("{prefix}{}.{}", main_path(metadata), suffix.name())
}

/// The key from which log and indexes are read.
pub fn key_for_reading(
    prefix: &str,
    metadata: &RemoteLogSegmentMetadata,
    fields: &CustomMetadataFields,
    suffix: Suffix,
) -> String {
    let prefix = fields.object_prefix.as_deref().unwrap_or(prefix);
    let name = suffix.name();
    match &fields.object_key {
        Some(path) => format!("{prefix}{path}.{name}"),
        None => format!("{prefix}{}.{name}", main_path(metadata)),
    }
}
