//! The settings of a share group: its own configuration over the broker's defaults.
//!
//! Kafka: `GroupConfig`, `ShareGroupConfigProvider`.

use ottla_context::NodeContext;
use ottla_coordinator::share_partition::SharePartitionSettings;
use ottla_metadata::ConfigResource;
use ottla_metadata::feature::SHARE_VERSION;

use ottla_partition::partition::Isolation;

/// The level of `share.version` from which groups can have dead-letter queues (KIP-1191).
const DEAD_LETTERS_LEVEL: i16 = 2;

/// The start offset of a group that has not read a partition yet (`share.auto.offset.reset`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffsetReset {
    Earliest,
    Latest,
    /// The first record at most this many milliseconds old.
    ByDuration(i64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupSettings {
    pub partition: SharePartitionSettings,
    pub isolation: Isolation,
    pub offset_reset: OffsetReset,
    /// Whether the group names a dead-letter queue, and the cluster's `share.version` is too low for
    /// it. Kafka accepts the setting as well, and ignores it.
    pub ignores_dead_letter_queue: bool,
}

impl GroupSettings {
    /// The acquisition lock timeout that members receive.
    pub fn record_lock_duration_ms(&self) -> i32 {
        i32::try_from(self.partition.record_lock_duration_ms).unwrap_or(i32::MAX)
    }

    pub fn of(context: &NodeContext, group_id: &str) -> GroupSettings {
        let config = context.config();
        let image = context.metadata();
        let group = ConfigResource::group(group_id.to_owned());
        let own = |key: &str| {
            image
                .configs
                .value(&group, key)
                .map(|value| value.to_string())
        };
        // Values were valid when they were set; the bounds may have changed since.
        let number = |key: &str, default: i32, min: i32, max: i32| match own(key)
            .and_then(|value| value.trim().parse::<i32>().ok())
        {
            Some(value) => value.min(max).max(min),
            None => default,
        };
        let lock_ms = number(
            "share.record.lock.duration.ms",
            config.group_share_record_lock_duration_ms,
            config.group_share_min_record_lock_duration_ms,
            config.group_share_max_record_lock_duration_ms,
        );
        let renews = own("share.renew.acknowledge.enable");
        let dead_letters = own("errors.deadletterqueue.topic.name");
        let names_queue = dead_letters.is_some_and(|topic| !topic.trim().is_empty());
        let may_have_dead_letters = image.features.level(SHARE_VERSION.name) >= DEAD_LETTERS_LEVEL;
        GroupSettings {
            partition: SharePartitionSettings {
                record_lock_duration_ms: lock_ms.max(0) as u64,
                delivery_count_limit: number(
                    "share.delivery.count.limit",
                    config.group_share_delivery_count_limit,
                    config.group_share_min_delivery_count_limit,
                    config.group_share_max_delivery_count_limit,
                ),
                partition_max_record_locks: number(
                    "share.partition.max.record.locks",
                    config.group_share_partition_max_record_locks,
                    config.group_share_min_partition_max_record_locks,
                    config.group_share_max_partition_max_record_locks,
                ),
                renew_acknowledge_enable: !renews
                    .is_some_and(|value| value.eq_ignore_ascii_case("false")),
                has_dead_letter_queue: may_have_dead_letters && names_queue,
            },
            isolation: match own("share.isolation.level").as_deref() {
                Some("read_committed") => Isolation::LastStableOffset,
                _ => Isolation::HighWatermark,
            },
            offset_reset: offset_reset(own("share.auto.offset.reset").as_deref()),
            ignores_dead_letter_queue: names_queue && !may_have_dead_letters,
        }
    }
}

/// `latest` if nothing is set.
fn offset_reset(value: Option<&str>) -> OffsetReset {
    match value.map(str::to_lowercase).as_deref() {
        Some("earliest") => OffsetReset::Earliest,
        Some(value) => ottla_config::share_offset_reset_duration_ms(value)
            .map_or(OffsetReset::Latest, OffsetReset::ByDuration),
        None => OffsetReset::Latest,
    }
}
