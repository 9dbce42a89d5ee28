//! The features that a cluster finalizes besides `metadata.version`: names, levels, defaults and
//! dependencies. This is Kafka 4.4.0's table, and all of its levels are supported.
//!
//! In Kafka: `org.apache.kafka.server.common.Feature` and the enums of the single features.

use std::collections::BTreeMap;

use crate::MetadataVersion;

/// One level of a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeatureLevel {
    pub level: i16,
    /// A fresh cluster of this `metadata.version` or a later one starts with the level.
    pub bootstrap_metadata_version: MetadataVersion,
    /// Other features and the lowest levels they must have.
    pub dependencies: &'static [(&'static str, i16)],
}

/// A feature of Kafka 4.4.0, levels in rising order, the first always 0.
#[derive(PartialEq, Eq, Debug)]
pub struct Feature {
    pub name: &'static str,
    pub levels: &'static [FeatureLevel],
}

const fn level(level: i16, bootstrap: MetadataVersion) -> FeatureLevel {
    FeatureLevel {
        level,
        bootstrap_metadata_version: bootstrap,
        dependencies: &[],
    }
}

/// Stored in control records of the log, not in metadata records (KIP-853).
pub const KRAFT_VERSION: Feature = Feature {
    name: "kraft.version",
    levels: &[
        level(0, MetadataVersion::MINIMUM),
        level(1, MetadataVersion::IBP_3_9_IV0),
    ],
};

/// KIP-890.
pub const TRANSACTION_VERSION: Feature = Feature {
    name: "transaction.version",
    levels: &[
        level(0, MetadataVersion::MINIMUM),
        level(1, MetadataVersion::IBP_4_0_IV2),
        level(2, MetadataVersion::IBP_4_0_IV2),
    ],
};

/// KIP-848: consumer groups with the next generation of the rebalance protocol.
pub const GROUP_VERSION: Feature = Feature {
    name: "group.version",
    levels: &[
        level(0, MetadataVersion::MINIMUM),
        level(1, MetadataVersion::IBP_4_0_IV0),
    ],
};

/// KIP-966.
pub const ELIGIBLE_LEADER_REPLICAS_VERSION: Feature = Feature {
    name: "eligible.leader.replicas.version",
    levels: &[
        level(0, MetadataVersion::MINIMUM),
        FeatureLevel {
            level: 1,
            bootstrap_metadata_version: MetadataVersion::IBP_4_1_IV0,
            dependencies: &[(MetadataVersion::FEATURE_NAME, 23)],
        },
    ],
};

/// KIP-932. Level 2 allows dead-letter queues (KIP-1191).
pub const SHARE_VERSION: Feature = Feature {
    name: "share.version",
    levels: &[
        level(0, MetadataVersion::MINIMUM),
        level(1, MetadataVersion::IBP_4_2_IV0),
        level(2, MetadataVersion::IBP_4_4_IV0),
    ],
};

/// KIP-1071.
pub const STREAMS_VERSION: Feature = Feature {
    name: "streams.version",
    levels: &[
        level(0, MetadataVersion::MINIMUM),
        level(1, MetadataVersion::IBP_4_2_IV1),
    ],
};

/// All features besides `metadata.version`, in Kafka's order.
pub const FEATURES: &[&Feature] = &[
    &KRAFT_VERSION,
    &TRANSACTION_VERSION,
    &GROUP_VERSION,
    &ELIGIBLE_LEADER_REPLICAS_VERSION,
    &SHARE_VERSION,
    &STREAMS_VERSION,
];

impl Feature {
    pub fn from_name(name: &str) -> Option<&'static Feature> {
        FEATURES
            .iter()
            .copied()
            .find(|feature| feature.name == name)
    }

    pub fn latest_production(&self) -> i16 {
        self.levels[self.levels.len() - 1].level
    }

    pub fn level(&self, level: i16) -> Option<&'static FeatureLevel> {
        self.levels.iter().find(|known| known.level == level)
    }

    /// The level with which Kafka starts a fresh cluster of this `metadata.version`.
    pub fn default_level(&self, metadata_version: MetadataVersion) -> i16 {
        self.levels
            .iter()
            .take_while(|level| level.bootstrap_metadata_version <= metadata_version)
            .last()
            .map_or(0, |level| level.level)
    }

    /// Whether `level` may be finalized together with `features` (names to levels), the levels of
    /// the cluster after the update. The error is Kafka's message.
    pub fn validate(&self, level: i16, features: &BTreeMap<String, i16>) -> Result<(), String> {
        let metadata_version = features.get(MetadataVersion::FEATURE_NAME);
        let minimum = MetadataVersion::MINIMUM;
        if level >= 1 && metadata_version.is_none_or(|&version| version < minimum.feature_level()) {
            return Err(format!(
                "{} could not be set to {level} because it depends on metadata.version={} ({minimum})",
                self.name,
                minimum.feature_level(),
            ));
        }
        let dependencies = self
            .level(level)
            .map_or(&[][..], |known| known.dependencies);
        for (dependency, required) in dependencies {
            if features
                .get(*dependency)
                .is_none_or(|finalized| finalized < required)
            {
                return Err(format!(
                    "{} could not be set to {level} because it depends on {dependency} level {required}",
                    self.name,
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_a_fresh_cluster() {
        let defaults =
            |version| -> Vec<i16> { FEATURES.iter().map(|f| f.default_level(version)).collect() };
        assert_eq!(
            defaults(MetadataVersion::LATEST_PRODUCTION),
            [1, 2, 1, 1, 2, 1]
        );
        assert_eq!(defaults(MetadataVersion::IBP_4_3_IV0), [1, 2, 1, 1, 1, 1]);
        assert_eq!(defaults(MetadataVersion::IBP_4_0_IV2), [1, 2, 1, 0, 0, 0]);
        assert_eq!(defaults(MetadataVersion::MINIMUM), [0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn dependencies_are_checked() {
        let mut features = BTreeMap::from([(MetadataVersion::FEATURE_NAME.to_owned(), 22)]);
        assert_eq!(
            ELIGIBLE_LEADER_REPLICAS_VERSION.validate(1, &features),
            Err("eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23".to_owned())
        );
        features.insert(MetadataVersion::FEATURE_NAME.to_owned(), 30);
        assert_eq!(
            ELIGIBLE_LEADER_REPLICAS_VERSION.validate(1, &features),
            Ok(())
        );
        assert!(GROUP_VERSION.validate(1, &BTreeMap::new()).is_err());
    }
}
