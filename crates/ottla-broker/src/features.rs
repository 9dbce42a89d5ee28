//! The features of the cluster for ApiVersions.

use bytestring::ByteString;

use crate::broker::Broker;

/// The supported and finalized features.
#[derive(Clone, Debug)]
pub struct Features {
    pub supported: Vec<SupportedFeature>,
    /// Name and level.
    pub finalized: Vec<(ByteString, i16)>,
    /// The metadata offset of the finalized features; -1 if there is none.
    pub finalized_epoch: i64,
}

/// A feature that this broker supports, with its lowest and highest level.
#[derive(Clone, Debug)]
pub struct SupportedFeature {
    pub name: ByteString,
    pub min_level: i16,
    pub max_level: i16,
}

impl Broker {
    pub fn features(&self) -> Features {
        let image = self.metadata();
        let mut finalized: Vec<_> = image
            .features
            .levels()
            .map(|(name, level)| (name.clone(), level))
            .collect();
        finalized.extend(image.features.metadata_version().map(|version| {
            let name = ByteString::from_static(ottla_metadata::MetadataVersion::FEATURE_NAME);
            (name, version.feature_level())
        }));
        // This level is in the log's control records and not in the image.
        let kraft_version = self.node.controller().map_or(0, |controller| {
            controller.status().kraft_version.feature_level()
        });
        if kraft_version > 0 {
            let name = ByteString::from_static(ottla_metadata::feature::KRAFT_VERSION.name);
            finalized.push((name, kraft_version));
        }
        finalized.sort();
        let supported = ottla_controller::local_supported_features();
        Features {
            supported: supported
                .into_iter()
                .map(|feature| SupportedFeature {
                    name: feature.name,
                    min_level: feature.min,
                    max_level: feature.max,
                })
                .collect(),
            finalized,
            finalized_epoch: image.provenance.last_contained_offset.value(),
        }
    }
}
