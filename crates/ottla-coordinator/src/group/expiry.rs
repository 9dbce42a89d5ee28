//! Expiry: offsets past their retention, groups with neither members nor offsets, and offsets of
//! deleted topics. Source: `GroupCoordinatorShard.cleanupGroupMetadata`,
//! `OffsetMetadataManager.cleanupExpiredOffsets` and `onTopicsDeleted`,
//! `ClassicGroup.offsetExpirationCondition`; KIP-211, KIP-496.

use bytestring::ByteString;
use ottla_types::{Timestamp, TopicId, TopicName};

use super::classic_group::{ClassicGroup, ClassicGroupState};
use super::coordinator::{Deferred, Effects, Group, GroupCoordinator};
use super::delete::tombstones_of;
use super::offsets::OffsetAndMetadata;
use super::outcome::{Outcome, TimerKey};
use super::record::CoordinatorRecord;

/// Splits tombstones over several writes, so that one tick after a long stop does not produce a
/// batch that is too large for the log.
const MAX_TOMBSTONES_PER_WRITE: usize = 1000;

impl GroupCoordinator {
    pub(super) fn schedule_expiration(&self, effects: &mut Effects) {
        let interval_ms = self.config.offsets_retention_check_interval_ms;
        effects.set_long_timer(TimerKey::Expiration, interval_ms);
    }

    /// One tick of `offsets.retention.check.interval.ms`.
    pub(super) fn expire(&mut self, now: Timestamp, effects: &mut Effects) {
        let mut records = Vec::new();
        for (group_id, slot) in &self.groups {
            if let Some(group) = slot.latest() {
                self.expire_group(group_id, group, now.value(), &mut records);
            }
        }
        self.write_tombstones(records, now, effects);
        self.schedule_expiration(effects);
    }

    fn expire_group(
        &self,
        group_id: &ByteString,
        group: &Group,
        now_ms: i64,
        records: &mut Vec<CoordinatorRecord>,
    ) {
        let mut are_all_expired = true;
        if self.offsets.latest_of_group(group_id).next().is_some() {
            let Some(base) = ExpiryBase::of(group) else {
                return;
            };
            for (key, offset) in self.offsets.latest_of_group(group_id) {
                let (topic, partition) = key;
                let is_expired = !is_subscribed_to(group, topic)
                    && base.is_expired(offset, now_ms, self.config.offsets_retention_ms)
                    && !self.offsets.is_pending(group_id, key);
                if is_expired {
                    let tombstone =
                        CoordinatorRecord::offset_tombstone(group_id, topic, *partition);
                    records.push(tombstone);
                } else {
                    are_all_expired = false;
                }
            }
        }
        let is_unused =
            are_all_expired && is_empty(group) && !self.offsets.has_open_transaction(group_id);
        if is_unused {
            records.extend(tombstones_of(group));
        }
    }

    /// Removes offsets of deleted topics, including pending ones of open transactions.
    pub fn on_topics_deleted(
        &mut self,
        topics: &[(TopicName, TopicId)],
        now: Timestamp,
    ) -> Outcome {
        let is_deleted = |topic: &ByteString, offset: &OffsetAndMetadata| {
            topics.iter().any(|(name, id)| {
                name == topic && (offset.topic_id.is_zero() || offset.topic_id == *id)
            })
        };
        let mut records = Vec::new();
        for group_id in self.offsets.group_ids() {
            for ((topic, partition), offset) in self.offsets.latest_of_group(group_id) {
                if is_deleted(topic, offset) {
                    let tombstone =
                        CoordinatorRecord::offset_tombstone(group_id, topic, *partition);
                    records.push(tombstone);
                }
            }
        }
        let pending = self
            .offsets
            .pending_matching(|(topic, _), offset| is_deleted(topic, offset));
        for (group_id, (topic, partition)) in pending {
            records.push(CoordinatorRecord::offset_tombstone(
                &group_id, &topic, partition,
            ));
        }
        let mut effects = self.effects();
        self.write_tombstones(records, now, &mut effects);
        self.finish(effects)
    }

    fn write_tombstones(
        &mut self,
        mut records: Vec<CoordinatorRecord>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        while !records.is_empty() {
            let rest = records.split_off(records.len().min(MAX_TOMBSTONES_PER_WRITE));
            self.apply_and_write(records, Deferred::Nothing, now, effects);
            records = rest;
        }
    }
}

pub(super) fn is_subscribed_to(group: &Group, topic: &ByteString) -> bool {
    match group {
        Group::Classic(group) => group.is_subscribed_to(topic),
        Group::Consumer(group) => group.subscribed_topics().contains(topic),
        Group::Share(group) => group.subscribed_topics().contains(topic),
        Group::Streams(group) => group.is_subscribed_to(topic),
    }
}

fn is_empty(group: &Group) -> bool {
    match group {
        Group::Classic(group) => group.is_in(ClassicGroupState::Empty),
        Group::Consumer(group) => group.is_empty(),
        // Share groups exist until they are deleted.
        Group::Share(_) => false,
        Group::Streams(group) => group.is_empty(),
    }
}

/// The time from which the retention of a group's offsets counts.
enum ExpiryBase {
    /// The time when the last member left the group.
    GroupEmptySince(i64),
    /// The commit time of each offset.
    Commit,
}

impl ExpiryBase {
    /// `None` if no offset of the group can expire.
    fn of(group: &Group) -> Option<ExpiryBase> {
        match group {
            Group::Classic(group) => ExpiryBase::of_classic(group),
            Group::Consumer(_) | Group::Streams(_) => Some(ExpiryBase::Commit),
            Group::Share(_) => None,
        }
    }

    fn of_classic(group: &ClassicGroup) -> Option<ExpiryBase> {
        if group.protocol_type().is_none() {
            // A group that never had members: its consumers have a manual assignment.
            return Some(ExpiryBase::Commit);
        }
        match group.state() {
            ClassicGroupState::Empty => Some(match group.current_state_timestamp_ms() {
                Some(since) => ExpiryBase::GroupEmptySince(since),
                None => ExpiryBase::Commit,
            }),
            ClassicGroupState::Stable if group.subscribed_topics().is_some() => {
                Some(ExpiryBase::Commit)
            }
            _ => None,
        }
    }

    fn is_expired(&self, offset: &OffsetAndMetadata, now_ms: i64, retention_ms: i64) -> bool {
        if let Some(expire_timestamp_ms) = offset.expire_timestamp_ms {
            return now_ms >= expire_timestamp_ms;
        }
        let base = match self {
            ExpiryBase::GroupEmptySince(since) => *since,
            ExpiryBase::Commit => offset.commit_timestamp_ms,
        };
        now_ms.saturating_sub(base) >= retention_ms
    }
}
