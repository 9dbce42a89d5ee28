//! The settings of share partitions from the group's and the broker's configuration.

use super::in_flight::{DeliveryLimit, RecordState};

/// The effective values: the group's if set, otherwise the broker's. Source:
/// `ShareGroupConfigProvider`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharePartitionSettings {
    /// `share.record.lock.duration.ms`, by default `group.share.record.lock.duration.ms`.
    pub record_lock_duration_ms: u64,
    /// `share.delivery.count.limit`, by default `group.share.delivery.count.limit`.
    pub delivery_count_limit: i32,
    /// `share.partition.max.record.locks`, by default `group.share.partition.max.record.locks`.
    pub partition_max_record_locks: i32,
    /// `share.renew.acknowledge.enable` (KIP-1222).
    pub renew_acknowledge_enable: bool,
    /// Whether records that are not delivered any more are copied to a dead-letter queue first: the
    /// cluster's `share.version` allows it, and the group has `errors.deadletterqueue.topic.name`
    /// (KIP-1191).
    pub has_dead_letter_queue: bool,
}

/// Below this count, deliveries are never throttled.
const MIN_THROTTLE_DELIVERY_COUNT: i32 = 2;

impl SharePartitionSettings {
    /// The state of a record that is rejected, or has been delivered too often.
    pub(super) fn undeliverable(&self) -> RecordState {
        if self.has_dead_letter_queue {
            RecordState::Archiving
        } else {
            RecordState::Archived
        }
    }

    pub(super) fn delivery_limit(&self) -> DeliveryLimit {
        DeliveryLimit {
            count: self.delivery_count_limit,
            undeliverable: self.undeliverable(),
        }
    }

    /// From this delivery count on, a batch is delivered in ever smaller parts, so that a record
    /// that no member can process does not take the other records of its batch with it. Half of the
    /// limit, rounded up.
    pub(super) fn throttle_delivery_count(&self) -> i32 {
        let half = self.delivery_count_limit - self.delivery_count_limit / 2;
        half.max(MIN_THROTTLE_DELIVERY_COUNT)
    }
}

impl Default for SharePartitionSettings {
    fn default() -> Self {
        SharePartitionSettings {
            record_lock_duration_ms: 30_000,
            delivery_count_limit: 5,
            partition_max_record_locks: 2000,
            renew_acknowledge_enable: true,
            has_dead_letter_queue: false,
        }
    }
}
