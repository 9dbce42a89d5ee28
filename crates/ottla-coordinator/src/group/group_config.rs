//! The settings of individual groups, which are in the cluster metadata like those of topics.
//!
//! They are read when they are needed. A value outside the broker's bounds is replaced by the
//! nearest bound, because the bounds may have changed after it was set. Source:
//! `GroupConfigManager`, `GroupConfig.evaluate`.

use bytestring::ByteString;
use ottla_metadata::ConfigResource;

use super::config::BoundedSetting;
use super::coordinator::GroupCoordinator;

impl GroupCoordinator {
    pub(super) fn consumer_session_timeout_ms(&self, group_id: &ByteString) -> i32 {
        let setting = self.config.group_consumer_session_timeout_ms;
        self.setting_of(group_id, "consumer.session.timeout.ms", setting)
    }

    pub(super) fn consumer_heartbeat_interval_ms(&self, group_id: &ByteString) -> i32 {
        let setting = self.config.group_consumer_heartbeat_interval_ms;
        self.setting_of(group_id, "consumer.heartbeat.interval.ms", setting)
    }

    pub(super) fn consumer_assignment_interval_ms(&self, group_id: &ByteString) -> i32 {
        let setting = self.config.group_consumer_assignment_interval_ms;
        self.setting_of(group_id, "consumer.assignment.interval.ms", setting)
    }

    pub(super) fn consumer_assignor_offload(&self, group_id: &ByteString) -> bool {
        let configs = &self.metadata.image().configs;
        let resource = ConfigResource::group(group_id.clone());
        match configs.value(&resource, "consumer.assignor.offload.enable") {
            Some(text) => text.trim().eq_ignore_ascii_case("true"),
            None => self.config.group_consumer_assignor_offload_enable,
        }
    }

    pub(super) fn share_session_timeout_ms(&self, group_id: &ByteString) -> i32 {
        let setting = self.config.group_share_session_timeout_ms;
        self.setting_of(group_id, "share.session.timeout.ms", setting)
    }

    pub(super) fn share_heartbeat_interval_ms(&self, group_id: &ByteString) -> i32 {
        let setting = self.config.group_share_heartbeat_interval_ms;
        self.setting_of(group_id, "share.heartbeat.interval.ms", setting)
    }

    pub(super) fn share_assignment_interval_ms(&self, group_id: &ByteString) -> i32 {
        let setting = self.config.group_share_assignment_interval_ms;
        self.setting_of(group_id, "share.assignment.interval.ms", setting)
    }

    /// The group's own value, limited to the bounds, or the broker's value.
    pub(super) fn setting_of(
        &self,
        group_id: &ByteString,
        key: &str,
        setting: BoundedSetting,
    ) -> i32 {
        let configs = &self.metadata.image().configs;
        let own = configs.value(&ConfigResource::group(group_id.clone()), key);
        let own = own.and_then(|text| text.trim().parse::<i32>().ok());
        match own {
            Some(value) => value.min(setting.max).max(setting.min),
            None => setting.value,
        }
    }
}
