//! The settings of individual streams groups (`group_config.rs`).
//! Source: `GroupConfig`, `GroupMetadataManager.streamsGroupAssignmentConfigs`.

use std::collections::BTreeMap;

use bytestring::ByteString;

use super::target::NUM_STANDBY_REPLICAS;
use crate::group::config::BoundedSetting;
use crate::group::coordinator::GroupCoordinator;

impl GroupCoordinator {
    pub(in crate::group) fn streams_session_timeout_ms(&self, group_id: &ByteString) -> i32 {
        let setting = self.config.group_streams_session_timeout_ms;
        self.setting_of(group_id, "streams.session.timeout.ms", setting)
    }

    pub(in crate::group) fn streams_heartbeat_interval_ms(&self, group_id: &ByteString) -> i32 {
        let setting = self.config.group_streams_heartbeat_interval_ms;
        self.setting_of(group_id, "streams.heartbeat.interval.ms", setting)
    }

    pub(in crate::group) fn streams_assignment_interval_ms(&self, group_id: &ByteString) -> i32 {
        let setting = self.config.group_streams_assignment_interval_ms;
        self.setting_of(group_id, "streams.assignment.interval.ms", setting)
    }

    /// The broker has no bounds for this setting.
    pub(super) fn streams_initial_rebalance_delay_ms(&self, group_id: &ByteString) -> i32 {
        let setting = BoundedSetting {
            value: self.config.group_streams_initial_rebalance_delay_ms,
            min: 0,
            max: i32::MAX,
        };
        self.setting_of(group_id, "streams.initial.rebalance.delay.ms", setting)
    }

    /// The settings that assignments depend on, as they are in records.
    pub(super) fn streams_assignment_configs(
        &self,
        group_id: &ByteString,
    ) -> BTreeMap<ByteString, ByteString> {
        let setting = self.config.group_streams_num_standby_replicas;
        let number = self.setting_of(group_id, "streams.num.standby.replicas", setting);
        BTreeMap::from([(NUM_STANDBY_REPLICAS.into(), number.to_string().into())])
    }
}
