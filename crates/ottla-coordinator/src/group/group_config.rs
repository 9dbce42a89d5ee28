//! The settings of individual groups, which are in the cluster metadata like those of topics.
//!
//! They are read when they are needed. A value outside the broker's bounds is replaced by the
//! nearest bound, because the bounds may have changed after it was set. Source:
//! `GroupConfigManager`, `GroupConfig.evaluate`.

use bytestring::ByteString;
use ottla_metadata::ConfigResource;

use super::config::BoundedSetting;
use super::coordinator::GroupCoordinator;

/// A method for each setting with bounds: its name, the broker's setting and the group's.
macro_rules! bounded_settings {
    ($($name:ident: $broker:ident, $own:literal;)+) => {
        impl GroupCoordinator {
            $(
                pub(super) fn $name(&self, group_id: &ByteString) -> i32 {
                    self.setting_of(group_id, $own, self.config.$broker)
                }
            )+
        }
    };
}

bounded_settings! {
    consumer_session_timeout_ms: group_consumer_session_timeout_ms, "consumer.session.timeout.ms";
    consumer_heartbeat_interval_ms: group_consumer_heartbeat_interval_ms, "consumer.heartbeat.interval.ms";
    consumer_assignment_interval_ms: group_consumer_assignment_interval_ms, "consumer.assignment.interval.ms";
    share_session_timeout_ms: group_share_session_timeout_ms, "share.session.timeout.ms";
    share_heartbeat_interval_ms: group_share_heartbeat_interval_ms, "share.heartbeat.interval.ms";
    share_assignment_interval_ms: group_share_assignment_interval_ms, "share.assignment.interval.ms";
    streams_session_timeout_ms: group_streams_session_timeout_ms, "streams.session.timeout.ms";
    streams_heartbeat_interval_ms: group_streams_heartbeat_interval_ms, "streams.heartbeat.interval.ms";
    streams_assignment_interval_ms: group_streams_assignment_interval_ms, "streams.assignment.interval.ms";
    streams_task_offset_interval_ms: group_streams_task_offset_interval_ms, "streams.task.offset.interval.ms";
}

impl GroupCoordinator {
    pub(super) fn consumer_assignor_offload(&self, group_id: &ByteString) -> bool {
        let configs = &self.metadata.image().configs;
        let resource = ConfigResource::group(group_id.clone());
        match configs.value(&resource, "consumer.assignor.offload.enable") {
            Some(text) => text.trim().eq_ignore_ascii_case("true"),
            None => self.config.group_consumer_assignor_offload_enable,
        }
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
