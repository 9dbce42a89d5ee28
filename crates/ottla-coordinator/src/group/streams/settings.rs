//! The settings of individual streams groups (`group_config.rs`).
//! Source: `GroupConfig`, `GroupMetadataManager.streamsGroupAssignmentConfigs`.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_metadata::ConfigResource;

use super::member::StreamsGroupMember;
use super::target::{NUM_STANDBY_REPLICAS, REQUIRED_TAGS};
use crate::group::config::BoundedSetting;
use crate::group::coordinator::GroupCoordinator;

impl GroupCoordinator {
    /// The broker has no bounds for this setting.
    pub(super) fn streams_initial_rebalance_delay_ms(&self, group_id: &ByteString) -> i32 {
        let setting = BoundedSetting {
            value: self.config.group_streams_initial_rebalance_delay_ms,
            min: 0,
            max: i32::MAX,
        };
        self.setting_of(group_id, "streams.initial.rebalance.delay.ms", setting)
    }

    pub(super) fn streams_acceptable_recovery_lag(&self, group_id: &ByteString) -> i64 {
        let configs = &self.metadata.image().configs;
        let resource = ConfigResource::group(group_id.clone());
        let own = configs.value(&resource, "streams.acceptable.recovery.lag");
        own.and_then(|text| text.trim().parse().ok())
            .unwrap_or(self.config.group_streams_acceptable_recovery_lag)
    }

    /// The client tags that every member must have.
    fn streams_required_tags(&self, group_id: &ByteString) -> Vec<String> {
        let configs = &self.metadata.image().configs;
        let resource = ConfigResource::group(group_id.clone());
        match configs.value(&resource, "streams.rack.aware.assignment.tags") {
            None => self.config.group_streams_rack_aware_assignment_tags.clone(),
            Some(text) => text
                .split(',')
                .map(|tag| tag.trim().to_owned())
                .filter(|tag| !tag.is_empty())
                .collect(),
        }
    }

    /// The settings that assignments depend on, as they are in records.
    pub(super) fn streams_assignment_configs(
        &self,
        group_id: &ByteString,
    ) -> BTreeMap<ByteString, ByteString> {
        let setting = self.config.group_streams_num_standby_replicas;
        let number = self.setting_of(group_id, "streams.num.standby.replicas", setting);
        let mut configs =
            BTreeMap::from([(NUM_STANDBY_REPLICAS.into(), number.to_string().into())]);
        let tags = self.streams_required_tags(group_id);
        if !tags.is_empty() {
            configs.insert(REQUIRED_TAGS.into(), tags.join(",").into());
        }
        configs
    }
}

/// The required tags that a member does not have.
pub(super) fn missing_tags<'a>(
    configs: &'a BTreeMap<ByteString, ByteString>,
    member: &StreamsGroupMember,
) -> Vec<&'a str> {
    let required = configs.get(REQUIRED_TAGS);
    let required = required.into_iter().flat_map(|tags| tags.split(','));
    required
        .filter(|tag| !member.client_tags.contains_key(*tag))
        .collect()
}
