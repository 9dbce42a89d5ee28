//! Expiry: offsets past their retention, groups with neither members nor offsets, and offsets of
//! deleted topics. Source: `GroupCoordinatorShard.cleanupGroupMetadata`,
//! `OffsetMetadataManager.cleanupExpiredOffsets` and `onTopicsDeleted`,
//! `ClassicGroup.offsetExpirationCondition`; KIP-211, KIP-496.

use std::collections::BTreeMap;
use std::ops::Bound;

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

/// The number of groups and offsets that one step of the expiration looks at.
const EXPIRATION_STEP: usize = 5_000;

/// Between the steps of a tick, for the requests that wait. Counts from the beginning of a step, and
/// a request fires the timers that it finds due: with a pause that is not much longer than a step, one
/// request would go through many steps before it is answered.
const PAUSE_AFTER_STEP_MS: i64 = 20;

impl GroupCoordinator {
    pub(super) fn schedule_expiration(&self, effects: &mut Effects) {
        let interval_ms = self.config.offsets_retention_check_interval_ms;
        effects.set_long_timer(TimerKey::Expiration, interval_ms);
    }

    /// A tick of `offsets.retention.check.interval.ms`, or the next step of one.
    pub(super) fn expire(&mut self, now: Timestamp, effects: &mut Effects) {
        let begin = match self.expired_through.take() {
            Some(last) => Bound::Excluded(last),
            None => Bound::Unbounded,
        };
        let mut records = Vec::new();
        let (mut seen, mut last) = (0, None);
        for (group_id, slot) in self.groups.range((begin, Bound::Unbounded)) {
            if let Some(group) = slot.latest() {
                self.expire_group(group_id, group, now.value(), &mut records);
            }
            seen += 1 + self.offsets.count_of_group(group_id);
            if seen >= EXPIRATION_STEP {
                last = Some(group_id.clone());
                break;
            }
        }
        self.write_tombstones(records, now, effects);
        match &last {
            Some(_) => effects.set_long_timer(TimerKey::Expiration, PAUSE_AFTER_STEP_MS),
            None => self.schedule_expiration(effects),
        }
        self.expired_through = last;
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
        let mut deleted: BTreeMap<&TopicName, Vec<TopicId>> = BTreeMap::new();
        for (topic, id) in topics {
            deleted.entry(topic).or_default().push(*id);
        }
        let (mut latest, mut pending) = (Vec::new(), Vec::new());
        for (topic, ids) in deleted {
            let is_deleted = |offset: &OffsetAndMetadata| {
                offset.topic_id.is_zero() || ids.contains(&offset.topic_id)
            };
            for (group_id, partition, offset) in self.offsets.latest_of_topic(topic) {
                if is_deleted(offset) {
                    latest.push((group_id.clone(), partition.clone()));
                }
            }
            for (producer_id, group_id, partition, offset) in self.offsets.pending_of_topic(topic) {
                if is_deleted(offset) {
                    pending.push((producer_id, group_id.clone(), partition.clone()));
                }
            }
        }
        // In the order of the groups, and of the producers.
        latest.sort_unstable();
        pending.sort_unstable();
        let pending = pending
            .into_iter()
            .map(|(_, group_id, partition)| (group_id, partition));
        let tombstone = |(group_id, (topic, partition)): (ByteString, (ByteString, i32))| {
            CoordinatorRecord::offset_tombstone(&group_id, &topic, partition)
        };
        let records = latest.into_iter().chain(pending).map(tombstone).collect();
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
