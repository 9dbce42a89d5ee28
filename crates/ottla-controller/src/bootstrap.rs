//! The first records of a cluster.
//!
//! Formatting writes them to `bootstrap.checkpoint`. The first active controller appends them to
//! the empty log in one metadata transaction, so that a crash leaves all or none of them.
//!
//! In Kafka: `BootstrapMetadata`, `ActivationRecordsGenerator`.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_metadata::feature::{ELIGIBLE_LEADER_REPLICAS_VERSION, FEATURES, KRAFT_VERSION};
use ottla_metadata::{Feature, MetadataVersion};
use ottla_protocol::metadata_records::{
    AbortTransactionRecord, BeginTransactionRecord, ConfigRecord, EndTransactionRecord,
    FeatureLevelRecord, MetadataRecord,
};

use crate::alter_configs::static_min_insync_replicas;
use crate::decision::ControllerContext;

/// The feature levels with which a directory is formatted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BootstrapOptions {
    pub metadata_version: MetadataVersion,
    /// The requested levels by name. Other features get their default.
    pub feature_levels: BTreeMap<String, i16>,
    /// Whether the voters are stored in the log, that is, whether `kraft.version` is at level 1.
    pub has_dynamic_quorum: bool,
}

impl BootstrapOptions {
    /// The levels of all features by name, including `metadata.version` and `kraft.version`. A
    /// feature that was not requested gets Kafka's default, limited to the levels that this broker
    /// supports. The error is a message for the operator.
    pub fn effective_levels(&self) -> Result<BTreeMap<String, i16>, String> {
        let mut levels = BTreeMap::new();
        for (name, level) in &self.feature_levels {
            let is_metadata_version = name == MetadataVersion::FEATURE_NAME;
            if !is_metadata_version && Feature::from_name(name).is_none() {
                let mut names: Vec<_> = FEATURES.iter().map(|feature| feature.name).collect();
                names.sort_unstable();
                return Err(format!(
                    "Unsupported feature: {name}. Supported features are: {}",
                    names.join(", ")
                ));
            }
            levels.insert(name.clone(), *level);
        }
        levels.insert(
            MetadataVersion::FEATURE_NAME.to_owned(),
            self.metadata_version.feature_level(),
        );
        for feature in FEATURES {
            let given = levels.get(feature.name).copied();
            let level = if feature.name == KRAFT_VERSION.name {
                self.kraft_version_level(given)?
            } else {
                given.unwrap_or_else(|| feature.default_level(self.metadata_version))
            };
            levels.insert(feature.name.to_owned(), level);
        }
        for feature in FEATURES {
            let level = levels.get(feature.name).copied().unwrap_or_default();
            if feature.level(level).is_none() {
                return Err(format!(
                    "No feature:{} with feature level {level}",
                    feature.name
                ));
            }
            feature.validate(level, &levels)?;
        }
        Ok(levels)
    }

    fn kraft_version_level(&self, given: Option<i16>) -> Result<i16, String> {
        match given {
            None => Ok(i16::from(self.has_dynamic_quorum)),
            Some(0) if self.has_dynamic_quorum => Err(
                "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags \
                 --standalone, --initial-controllers, or --no-initial-controllers is used. For dynamic \
                 controllers support, try removing the --feature flag for kraft.version."
                    .to_owned(),
            ),
            Some(level) if level > 0 && !self.has_dynamic_quorum => Err(format!(
                "Cannot set kraft.version to {level} unless controller.quorum.voters is empty and one of \
                 the flags --standalone, --initial-controllers, or --no-initial-controllers is used. For \
                 dynamic controllers support, try using one of --standalone, --initial-controllers, or \
                 --no-initial-controllers and removing controller.quorum.voters."
            )),
            Some(level) => Ok(level),
        }
    }
}

/// The records of `bootstrap.checkpoint`: `metadata.version` first, then the others by name.
/// Features at level 0 have no record.
pub fn bootstrap_records(effective_levels: &BTreeMap<String, i16>) -> Vec<MetadataRecord> {
    let record = |name: &str, feature_level: i16| {
        MetadataRecord::FeatureLevel(FeatureLevelRecord {
            name: ByteString::from(name),
            feature_level,
            ..Default::default()
        })
    };
    let metadata_version = effective_levels
        .get(MetadataVersion::FEATURE_NAME)
        .map(|&level| record(MetadataVersion::FEATURE_NAME, level));
    let others = effective_levels
        .iter()
        .filter(|(name, level)| {
            **level > 0 && *name != MetadataVersion::FEATURE_NAME && *name != KRAFT_VERSION.name
        })
        .map(|(name, &level)| record(name, level));
    metadata_version.into_iter().chain(others).collect()
}

/// The records that a controller appends when it becomes active, before it serves any request: the
/// bootstrap records if the log is empty, and the abort of a transaction that an earlier controller
/// left open.
pub fn activation_records(
    context: &ControllerContext<'_>,
    bootstrap: &[MetadataRecord],
    is_in_transaction: bool,
) -> Vec<MetadataRecord> {
    let mut records = Vec::new();
    if is_in_transaction {
        records.push(MetadataRecord::AbortTransaction(AbortTransactionRecord {
            reason: Some(ByteString::from_static("Controller failover")),
            ..Default::default()
        }));
    }
    if context.image.features.metadata_version().is_some() {
        return records;
    }
    let level = |feature: &str| {
        bootstrap.iter().find_map(|record| match record {
            MetadataRecord::FeatureLevel(record) if &*record.name == feature => {
                Some(record.feature_level)
            }
            _ => None,
        })
    };
    let is_transactional = level(MetadataVersion::FEATURE_NAME)
        .and_then(MetadataVersion::from_feature_level)
        .is_some_and(MetadataVersion::is_metadata_transaction_supported);
    if is_transactional {
        records.push(MetadataRecord::BeginTransaction(BeginTransactionRecord {
            name: Some(ByteString::from_static("Bootstrap records")),
            ..Default::default()
        }));
    }
    records.extend_from_slice(bootstrap);
    if level(ELIGIBLE_LEADER_REPLICAS_VERSION.name).is_some_and(|level| level > 0) {
        records.push(MetadataRecord::Config(ConfigRecord {
            resource_type: ottla_metadata::ConfigResourceType::Broker.code(),
            name: ByteString::from_static("min.insync.replicas"),
            value: Some(ByteString::from(static_min_insync_replicas(context))),
            ..Default::default()
        }));
    }
    if is_transactional {
        records.push(MetadataRecord::EndTransaction(
            EndTransactionRecord::default(),
        ));
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::Cluster;

    fn options(feature_levels: &[(&str, i16)], has_dynamic_quorum: bool) -> BootstrapOptions {
        BootstrapOptions {
            metadata_version: MetadataVersion::DEFAULT,
            feature_levels: feature_levels
                .iter()
                .map(|(name, level)| (name.to_string(), *level))
                .collect(),
            has_dynamic_quorum,
        }
    }

    fn feature(name: &'static str, feature_level: i16) -> MetadataRecord {
        MetadataRecord::FeatureLevel(FeatureLevelRecord {
            name: name.into(),
            feature_level,
            ..Default::default()
        })
    }

    #[test]
    fn a_fresh_directory_gets_the_newest_supported_levels() {
        let levels = options(&[], true).effective_levels().unwrap();
        assert_eq!(levels["metadata.version"], 30);
        assert_eq!(levels["kraft.version"], 1);
        for known in FEATURES {
            let newest = match known.name {
                "share.version" => 1,
                _ => known.latest_production(),
            };
            assert_eq!(levels[known.name], newest, "{}", known.name);
        }
        assert_eq!(
            options(&[], false).effective_levels().unwrap()["kraft.version"],
            0
        );
    }

    #[test]
    fn requested_levels_are_written() {
        let levels = options(&[("group.version", 1)], true)
            .effective_levels()
            .unwrap();
        let records = bootstrap_records(&levels);
        assert_eq!(records[0], feature("metadata.version", 30));
        assert!(records.contains(&feature("group.version", 1)));
        assert!(
            !records
                .iter()
                .any(|record| *record == feature("kraft.version", 1))
        );
    }

    #[test]
    fn invalid_requested_levels_are_refused() {
        let error = |levels: &[(&str, i16)], dynamic| {
            options(levels, dynamic).effective_levels().unwrap_err()
        };
        assert!(
            error(&[("no.such.version", 1)], true)
                .starts_with("Unsupported feature: no.such.version.")
        );
        assert!(
            error(&[("kraft.version", 0)], true).starts_with("Cannot set kraft.version to 0 if")
        );
        assert!(
            error(&[("kraft.version", 1)], false)
                .starts_with("Cannot set kraft.version to 1 unless")
        );
        assert_eq!(
            error(&[("group.version", 2)], true),
            "No feature:group.version with feature level 2"
        );
    }

    #[test]
    fn bootstrap_records_are_one_transaction() {
        let mut empty = Cluster::empty();
        let bootstrap = [
            feature("metadata.version", 30),
            feature("eligible.leader.replicas.version", 1),
        ];
        let records = activation_records(&empty.context(), &bootstrap, false);
        let names: Vec<_> = records.iter().map(MetadataRecord::name).collect();
        assert_eq!(
            names,
            [
                "BeginTransactionRecord",
                "FeatureLevelRecord",
                "FeatureLevelRecord",
                "ConfigRecord",
                "EndTransactionRecord"
            ]
        );
        let names_of = |records: Vec<MetadataRecord>| -> Vec<&str> {
            records.iter().map(MetadataRecord::name).collect()
        };
        let again = activation_records(&empty.context(), &bootstrap[..1], true);
        assert_eq!(
            names_of(again),
            [
                "AbortTransactionRecord",
                "BeginTransactionRecord",
                "FeatureLevelRecord",
                "EndTransactionRecord"
            ]
        );
        let old = activation_records(&empty.context(), &[feature("metadata.version", 12)], false);
        assert_eq!(names_of(old), ["FeatureLevelRecord"]);

        let mut running = Cluster::single_node();
        assert_eq!(
            activation_records(&running.context(), &bootstrap, false),
            []
        );
        assert_eq!(
            names_of(activation_records(&running.context(), &bootstrap, true)),
            ["AbortTransactionRecord"]
        );
    }
}
