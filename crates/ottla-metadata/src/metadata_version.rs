//! `metadata.version`: the feature level that defines which records the metadata log may contain.
//!
//! A record is written in the version that the finalized level allows, so that every Kafka of that
//! level can read the log: only `record_version` chooses this version.
//!
//! In Kafka: `org.apache.kafka.server.common.MetadataVersion`.

use std::fmt;

use ottla_protocol::metadata_records::MetadataRecord;

/// A known level of `metadata.version`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MetadataVersion(i16);

/// Level, release and the suffix within the release, and whether log or records changed with it.
const VERSIONS: &[(i16, &str, &str, bool)] = &[
    (7, "3.3", "IV3", true),
    (8, "3.4", "IV0", true),
    (9, "3.5", "IV0", false),
    (10, "3.5", "IV1", false),
    (11, "3.5", "IV2", true),
    (12, "3.6", "IV0", false),
    (13, "3.6", "IV1", true),
    (14, "3.6", "IV2", true),
    (15, "3.7", "IV0", true),
    (16, "3.7", "IV1", false),
    (17, "3.7", "IV2", true),
    (18, "3.7", "IV3", false),
    (19, "3.7", "IV4", false),
    (20, "3.8", "IV0", false),
    (21, "3.9", "IV0", false),
    (22, "4.0", "IV0", false),
    (23, "4.0", "IV1", true),
    (24, "4.0", "IV2", false),
    (25, "4.0", "IV3", false),
    (26, "4.1", "IV0", false),
    (27, "4.1", "IV1", false),
    (28, "4.2", "IV0", false),
    (29, "4.2", "IV1", false),
    (30, "4.3", "IV0", true),
    (31, "4.4", "IV0", false),
    (32, "4.4", "IV1", true),
    (33, "4.4", "IV2", true),
];

impl MetadataVersion {
    pub const FEATURE_NAME: &'static str = "metadata.version";
    /// The oldest level that Kafka 4.4 starts with.
    pub const MINIMUM: MetadataVersion = MetadataVersion(7);
    /// The newest level of Kafka 4.4.0 that is not marked unstable: the highest that is supported.
    pub const LATEST_PRODUCTION: MetadataVersion = MetadataVersion(33);
    /// The level of a fresh directory for which none was requested. It stays at the level of Kafka
    /// 4.3, so that brokers of 4.3 can still join or take over.
    pub const DEFAULT: MetadataVersion = MetadataVersion(30);

    pub const IBP_3_4_IV0: MetadataVersion = MetadataVersion(8);
    pub const IBP_3_5_IV2: MetadataVersion = MetadataVersion(11);
    pub const IBP_3_6_IV0: MetadataVersion = MetadataVersion(12);
    pub const IBP_3_6_IV1: MetadataVersion = MetadataVersion(13);
    pub const IBP_3_6_IV2: MetadataVersion = MetadataVersion(14);
    pub const IBP_3_7_IV0: MetadataVersion = MetadataVersion(15);
    pub const IBP_3_7_IV2: MetadataVersion = MetadataVersion(17);
    pub const IBP_3_9_IV0: MetadataVersion = MetadataVersion(21);
    pub const IBP_4_0_IV0: MetadataVersion = MetadataVersion(22);
    pub const IBP_4_0_IV1: MetadataVersion = MetadataVersion(23);
    pub const IBP_4_0_IV2: MetadataVersion = MetadataVersion(24);
    pub const IBP_4_1_IV0: MetadataVersion = MetadataVersion(26);
    pub const IBP_4_2_IV0: MetadataVersion = MetadataVersion(28);
    pub const IBP_4_2_IV1: MetadataVersion = MetadataVersion(29);
    pub const IBP_4_3_IV0: MetadataVersion = MetadataVersion(30);
    pub const IBP_4_4_IV0: MetadataVersion = MetadataVersion(31);
    pub const IBP_4_4_IV1: MetadataVersion = MetadataVersion(32);
    pub const IBP_4_4_IV2: MetadataVersion = MetadataVersion(33);

    /// All known levels, oldest first.
    pub fn all() -> impl DoubleEndedIterator<Item = MetadataVersion> {
        VERSIONS.iter().map(|version| MetadataVersion(version.0))
    }

    /// `None` for a level that Kafka 4.4.0 does not know or does not serve in production.
    pub fn from_feature_level(level: i16) -> Option<MetadataVersion> {
        VERSIONS
            .iter()
            .any(|version| version.0 == level)
            .then_some(MetadataVersion(level))
    }

    /// Reads `4.3-IV0`, or a release (`4.3`, `4.3.1`), which means its last level.
    pub fn from_version_string(text: &str) -> Option<MetadataVersion> {
        let mut segments = text.splitn(3, '.');
        let key = match (segments.next(), segments.next(), segments.next()) {
            (Some(major), Some(minor), Some(_)) => &text[..major.len() + 1 + minor.len()],
            _ => text,
        };
        VERSIONS
            .iter()
            .rev()
            .find(|(_, release, suffix, _)| {
                key == *release
                    || key
                        .strip_prefix(release)
                        .and_then(|rest| rest.strip_prefix('-'))
                        == Some(suffix)
            })
            .map(|version| MetadataVersion(version.0))
    }

    pub fn feature_level(self) -> i16 {
        self.0
    }

    /// The release that the level belongs to: `4.3`.
    pub fn release(self) -> &'static str {
        self.entry().1
    }

    /// Whether records that `from` can hold may be lost or unreadable at `to`.
    pub fn is_metadata_changed_between(from: MetadataVersion, to: MetadataVersion) -> bool {
        let (low, high) = if from < to { (from, to) } else { (to, from) };
        VERSIONS
            .iter()
            .any(|&(level, _, _, did_change)| did_change && level > low.0 && level <= high.0)
    }

    pub fn is_scram_supported(self) -> bool {
        self >= Self::IBP_3_5_IV2
    }

    pub fn is_leader_epoch_bump_required_on_isr_shrink(self) -> bool {
        self < Self::IBP_3_6_IV0
    }

    pub fn is_metadata_transaction_supported(self) -> bool {
        self >= Self::IBP_3_6_IV1
    }

    pub fn is_delegation_token_supported(self) -> bool {
        self >= Self::IBP_3_6_IV2
    }

    pub fn is_controller_registration_supported(self) -> bool {
        self >= Self::IBP_3_7_IV0
    }

    pub fn is_directory_assignment_supported(self) -> bool {
        self >= Self::IBP_3_7_IV2
    }

    pub fn is_elr_supported(self) -> bool {
        self >= Self::IBP_4_0_IV1
    }

    pub fn is_cordoned_log_dirs_supported(self) -> bool {
        self >= Self::IBP_4_3_IV0
    }

    /// Whether the host of an ACL may be a range of addresses.
    pub fn is_cidr_acl_supported(self) -> bool {
        self >= Self::IBP_4_4_IV1
    }

    pub fn is_controller_unregistration_supported(self) -> bool {
        self >= Self::IBP_4_4_IV2
    }

    /// The version in which a record is written at this level.
    pub fn record_version(self, record: &MetadataRecord) -> i16 {
        match record {
            MetadataRecord::RegisterBroker(_) => {
                if self.is_cordoned_log_dirs_supported() {
                    4
                } else if self.is_directory_assignment_supported() {
                    3
                } else if self >= Self::IBP_3_4_IV0 {
                    2
                } else {
                    1
                }
            }
            MetadataRecord::Partition(_) | MetadataRecord::PartitionChange(_) => {
                if self.is_elr_supported() {
                    2
                } else if self.is_directory_assignment_supported() {
                    1
                } else {
                    0
                }
            }
            // Kafka writes the lowest version that can express the change, at every level.
            MetadataRecord::BrokerRegistrationChange(change) => {
                if change.cordoned_log_dirs.is_some() {
                    3
                } else if !change.log_dirs.is_empty() {
                    2
                } else if change.in_controlled_shutdown != 0 {
                    1
                } else {
                    0
                }
            }
            _ => 0,
        }
    }

    fn entry(self) -> &'static (i16, &'static str, &'static str, bool) {
        VERSIONS
            .iter()
            .find(|version| version.0 == self.0)
            .expect("a MetadataVersion is made from the table only")
    }
}

impl fmt::Display for MetadataVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, release, suffix, _) = self.entry();
        write!(f, "{release}-{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::MetadataVersion;

    #[test]
    fn names_and_levels_round_trip() {
        for version in MetadataVersion::all() {
            assert_eq!(
                MetadataVersion::from_feature_level(version.feature_level()),
                Some(version)
            );
            assert_eq!(
                MetadataVersion::from_version_string(&version.to_string()),
                Some(version)
            );
        }
        assert_eq!(MetadataVersion::LATEST_PRODUCTION.to_string(), "4.4-IV2");
        assert_eq!(MetadataVersion::DEFAULT.to_string(), "4.3-IV0");
        assert_eq!(MetadataVersion::from_feature_level(34), None);
        assert_eq!(MetadataVersion::from_feature_level(6), None);
    }

    #[test]
    fn a_release_means_its_last_level() {
        let level = |text: &str| {
            MetadataVersion::from_version_string(text).map(MetadataVersion::feature_level)
        };
        assert_eq!(level("4.0"), Some(25));
        assert_eq!(level("4.3.1"), Some(30));
        assert_eq!(level("3.7"), Some(19));
        assert_eq!(level("3.7-IV2"), Some(17));
        assert_eq!(level("4.4"), Some(33));
        assert_eq!(level("4.5"), None);
        assert_eq!(level("4"), None);
        assert_eq!(level("4.3-"), None);
    }

    #[test]
    fn metadata_changes_are_known_between_levels() {
        let version = |level| MetadataVersion::from_feature_level(level).unwrap();
        assert!(!MetadataVersion::is_metadata_changed_between(
            version(24),
            version(29)
        ));
        assert!(MetadataVersion::is_metadata_changed_between(
            version(29),
            version(30)
        ));
        assert!(MetadataVersion::is_metadata_changed_between(
            version(30),
            version(29)
        ));
        assert!(!MetadataVersion::is_metadata_changed_between(
            version(30),
            version(30)
        ));
    }
}
