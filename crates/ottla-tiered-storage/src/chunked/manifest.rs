//! The manifest of a segment: where its chunks and indexes are, and how they were transformed.
//!
//! JSON, version 1. `remoteLogSegmentMetadata` is written for people and never read.
//!
//! Aiven's plugin: `SegmentManifestV1`, `SegmentIndexesV1`, `SegmentEncryptionMetadataV1`.

use std::collections::BTreeMap;
use std::ops::Range;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ottla_tiered::RemoteLogSegmentMetadata;
use serde::{Deserialize, Serialize};

use super::chunk_index::{ChunkIndex, ChunkIndexError, ChunkIndexForm};
use super::data_key::DataKey;
use super::key_ring::{KeyRing, KeyRingError};
use crate::remote_storage::IndexType;

const VERSION: &str = "1";

/// Where an index is within the indexes object. A size of 0 is an index without content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IndexPlace {
    position: i32,
    size: i32,
}

impl IndexPlace {
    pub fn range(&self) -> Option<Range<u64>> {
        let position = u64::try_from(self.position).ok()?;
        Some(position..position + u64::try_from(self.size).ok()?)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IndexPlaces {
    offset: IndexPlace,
    timestamp: IndexPlace,
    producer_snapshot: IndexPlace,
    leader_epoch: IndexPlace,
    transaction: Option<IndexPlace>,
}

impl IndexPlaces {
    /// Places for indexes of these sizes, one after the other in the order of [`IndexType::ALL`].
    pub fn of_sizes(sizes: [u32; 4], transaction: Option<u32>) -> IndexPlaces {
        let mut position = 0;
        let mut place = |size: u32| {
            let at = position;
            position += size as i32;
            IndexPlace {
                position: at,
                size: size as i32,
            }
        };
        let [offset, timestamp, producer_snapshot, leader_epoch] = sizes.map(&mut place);
        IndexPlaces {
            offset,
            timestamp,
            producer_snapshot,
            leader_epoch,
            transaction: transaction.map(place),
        }
    }

    pub fn of(&self, index: IndexType) -> Option<IndexPlace> {
        match index {
            IndexType::Offset => Some(self.offset),
            IndexType::Timestamp => Some(self.timestamp),
            IndexType::ProducerSnapshot => Some(self.producer_snapshot),
            IndexType::LeaderEpoch => Some(self.leader_epoch),
            IndexType::Transaction => self.transaction,
        }
    }

    /// The size of the indexes object.
    pub fn end(&self) -> u64 {
        IndexType::ALL
            .into_iter()
            .filter_map(|index| self.of(index)?.range())
            .map(|range| range.end)
            .max()
            .unwrap_or_default()
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EncryptionForm {
    data_key: String,
    aad: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestForm {
    version: String,
    chunk_index: ChunkIndexForm,
    segment_indexes: IndexPlaces,
    compression: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encryption: Option<EncryptionForm>,
    #[serde(skip_deserializing)]
    remote_log_segment_metadata: Option<MetadataForm>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct MetadataForm {
    remote_log_segment_id: SegmentIdForm,
    start_offset: i64,
    end_offset: i64,
    max_timestamp_ms: i64,
    broker_id: i32,
    event_timestamp_ms: i64,
    segment_leader_epochs: BTreeMap<i32, i64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct SegmentIdForm {
    topic_id_partition: TopicIdPartitionForm,
    id: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct TopicIdPartitionForm {
    topic_id: String,
    topic_partition: TopicPartitionForm,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
struct TopicPartitionForm {
    topic: String,
    partition: i32,
}

/// How to read a segment.
#[derive(Clone, Debug)]
pub struct Manifest {
    pub chunks: ChunkIndex,
    pub indexes: IndexPlaces,
    pub is_compressed: bool,
    pub data_key: Option<DataKey>,
}

/// A manifest that cannot be read, or a data key that cannot be unwrapped.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest is not JSON of version 1: {0}")]
    Json(String),
    #[error("the manifest has version {0:?}; version \"1\" is known")]
    Version(String),
    #[error("the manifest contradicts itself: {0}")]
    Chunks(#[from] ChunkIndexError),
    #[error("the manifest gives the {0} a negative position or size")]
    Index(&'static str),
    #[error("the segment is encrypted, and encryption.enabled is not set")]
    NoKeyRing,
    #[error("the data key of the manifest cannot be unwrapped: {0}")]
    DataKey(#[from] KeyRingError),
    #[error("the manifest's aad is not base64")]
    Aad,
}

impl Manifest {
    /// What it takes in memory: eight bytes for each chunk, in most cases.
    pub fn bytes_in_memory(&self) -> u64 {
        let key = self.data_key.as_ref().map_or(0, DataKey::heap_bytes);
        std::mem::size_of::<Manifest>() as u64 + self.chunks.heap_bytes() + key
    }

    /// Whether the object has the bytes of the segment as they are.
    pub fn is_plain(&self) -> bool {
        !self.is_compressed && self.data_key.is_none()
    }

    /// Unwraps the data key, if there is one.
    pub fn read(json: &[u8], keys: Option<&KeyRing>) -> Result<Manifest, ManifestError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: String,
        }
        let broken = |error: serde_json::Error| ManifestError::Json(error.to_string());
        let Versioned { version } = serde_json::from_slice(json).map_err(broken)?;
        if version != VERSION {
            return Err(ManifestError::Version(version));
        }
        let form: ManifestForm = serde_json::from_slice(json).map_err(broken)?;
        let data_key = match form.encryption {
            None => None,
            Some(encryption) => {
                let keys = keys.ok_or(ManifestError::NoKeyRing)?;
                let key = keys.unwrap(&encryption.data_key)?;
                let aad = BASE64_STANDARD
                    .decode(encryption.aad)
                    .map_err(|_| ManifestError::Aad)?;
                Some(DataKey::new(key, aad.into()))
            }
        };
        for index in IndexType::ALL {
            let place = form.segment_indexes.of(index);
            if place.is_some_and(|place| place.range().is_none()) {
                return Err(ManifestError::Index(index.name()));
            }
        }
        Ok(Manifest {
            chunks: ChunkIndex::from_form(&form.chunk_index)?,
            indexes: form.segment_indexes,
            is_compressed: form.compression,
            data_key,
        })
    }

    /// The JSON, with the data key wrapped by the active key pair.
    pub fn write(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        keys: Option<&KeyRing>,
    ) -> Result<Vec<u8>, ManifestError> {
        let encryption = match &self.data_key {
            None => None,
            Some(key) => Some(EncryptionForm {
                data_key: keys.ok_or(ManifestError::NoKeyRing)?.wrap(key.secret())?,
                aad: BASE64_STANDARD.encode(key.aad()),
            }),
        };
        let form = ManifestForm {
            version: VERSION.to_owned(),
            chunk_index: self.chunks.to_form(!self.is_compressed),
            segment_indexes: self.indexes.clone(),
            compression: self.is_compressed,
            encryption,
            remote_log_segment_metadata: Some(metadata_form(metadata)),
        };
        serde_json::to_vec(&form).map_err(|error| ManifestError::Json(error.to_string()))
    }
}

fn metadata_form(metadata: &RemoteLogSegmentMetadata) -> MetadataForm {
    let (partition, segment) = (&metadata.partition, &metadata.segment);
    MetadataForm {
        remote_log_segment_id: SegmentIdForm {
            topic_id_partition: TopicIdPartitionForm {
                topic_id: partition.topic_id.to_string(),
                topic_partition: TopicPartitionForm {
                    topic: partition.topic.to_string(),
                    partition: partition.partition.0,
                },
            },
            id: segment.id.to_string(),
        },
        start_offset: segment.start_offset.0,
        end_offset: segment.end_offset.0,
        max_timestamp_ms: segment.max_timestamp.0,
        broker_id: segment.broker_id.0,
        event_timestamp_ms: segment.event_timestamp.0,
        segment_leader_epochs: segment
            .segment_leader_epochs
            .entries()
            .iter()
            .map(|entry| (entry.epoch.0, entry.start_offset.0))
            .collect(),
    }
}
