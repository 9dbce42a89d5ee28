//! The finalized feature levels.
//!
//! `kraft.version` is never in here: it is stored in control records of the log (KAFKA-18979).
//!
//! In Kafka: `FeaturesImage`.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_protocol::metadata_records::{FeatureLevelRecord, MetadataRecord};

use crate::feature::{ELIGIBLE_LEADER_REPLICAS_VERSION, KRAFT_VERSION};
use crate::{MetadataVersion, ReplayError};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FeaturesImage {
    /// `None` before the first record of a new log is applied.
    metadata_version: Option<MetadataVersion>,
    /// Without `metadata.version`, and without features at level 0.
    levels: BTreeMap<ByteString, i16>,
}

impl FeaturesImage {
    pub fn is_empty(&self) -> bool {
        self.metadata_version.is_none() && self.levels.is_empty()
    }

    pub fn metadata_version(&self) -> Option<MetadataVersion> {
        self.metadata_version
    }

    /// The finalized level of a feature other than `metadata.version`; 0 where none was finalized.
    pub fn level(&self, feature: &str) -> i16 {
        self.levels.get(feature).copied().unwrap_or(0)
    }

    /// All finalized features other than `metadata.version`, by name.
    pub fn levels(&self) -> impl Iterator<Item = (&ByteString, i16)> {
        self.levels.iter().map(|(name, &level)| (name, level))
    }

    pub fn is_elr_enabled(&self) -> bool {
        self.level(ELIGIBLE_LEADER_REPLICAS_VERSION.name) >= 1
    }

    pub(crate) fn change(&mut self, record: &FeatureLevelRecord) -> Result<(), ReplayError> {
        if &*record.name == MetadataVersion::FEATURE_NAME {
            let version = MetadataVersion::from_feature_level(record.feature_level)
                .ok_or(ReplayError::UnknownMetadataVersion(record.feature_level))?;
            self.metadata_version = Some(version);
        } else if &*record.name == KRAFT_VERSION.name {
            // Some 4.0 releases wrote this record by mistake. The level in the control records
            // counts.
        } else if record.feature_level == 0 {
            self.levels.remove(&record.name);
        } else {
            self.levels
                .insert(record.name.clone(), record.feature_level);
        }
        Ok(())
    }

    /// `metadata.version` comes first, because it determines how the following records are read.
    pub(crate) fn write(
        &self,
        metadata_version: MetadataVersion,
        records: &mut Vec<MetadataRecord>,
    ) {
        let record = |name: ByteString, feature_level| {
            MetadataRecord::FeatureLevel(FeatureLevelRecord {
                name,
                feature_level,
                ..Default::default()
            })
        };
        records.push(record(
            ByteString::from_static(MetadataVersion::FEATURE_NAME),
            metadata_version.feature_level(),
        ));
        for (name, level) in self.levels() {
            records.push(record(name.clone(), level));
        }
    }
}
