//! Committed offsets by group, topic and partition, and pending offsets of open transactions.
//!
//! This module does not decide whether an offset can be committed or has expired. Invariants: an
//! offset of an uncommitted write is in the coordinator's `journal`, so that it can be rolled back;
//! a group without offsets has no entry; `open_transactions` contains exactly the producers with a
//! pending offset for a partition; `with_offsets` and `with_pending` contain exactly the topics of
//! `by_group` and `open_transactions`, so that the deletion of a topic looks at its offsets only.
//! Source: `OffsetMetadataManager.Offsets` and `OpenTransactions`,
//! `OffsetAndMetadata`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;

use bytestring::ByteString;
use ottla_protocol::coordinator_records::OffsetCommitValue;
use ottla_types::TopicId;

use super::member::owned;
use crate::runtime::{Timeline, WriteId};

/// A committed offset and its metadata.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct OffsetAndMetadata {
    pub(crate) committed_offset: i64,
    /// -1 if the client did not send it.
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: ByteString,
    pub(crate) commit_timestamp_ms: i64,
    /// Set by clients from before OffsetCommit lost its retention time. Overrides the broker's
    /// setting.
    pub(crate) expire_timestamp_ms: Option<i64>,
    /// Zero if the client, or the broker that wrote the record, did not know it.
    pub(crate) topic_id: TopicId,
    /// The offset of the commit's record in the log. Of two commits, the one with the higher offset
    /// counts.
    pub(crate) record_offset: i64,
}

impl OffsetAndMetadata {
    pub(crate) fn from_record(record_offset: i64, value: &OffsetCommitValue) -> Self {
        Self {
            committed_offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: owned(&value.metadata),
            commit_timestamp_ms: value.commit_timestamp,
            expire_timestamp_ms: (value.expire_timestamp != -1).then_some(value.expire_timestamp),
            topic_id: value.topic_id,
            record_offset,
        }
    }
}

/// A topic name and a partition.
pub(crate) type TopicAndPartition = (ByteString, i32);

type GroupOffsets = BTreeMap<TopicAndPartition, Timeline<OffsetAndMetadata>>;
/// The producers with a pending offset, by group and partition.
type OpenTransactions = HashMap<ByteString, BTreeMap<TopicAndPartition, BTreeSet<i64>>>;

/// The key of a pending offset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PendingOffset {
    pub(crate) producer_id: i64,
    pub(crate) group_id: ByteString,
    pub(crate) partition: TopicAndPartition,
}

/// The pending offsets of one producer's transaction, by group.
#[derive(Debug, Default)]
pub(crate) struct PendingOffsets(
    BTreeMap<ByteString, BTreeMap<TopicAndPartition, OffsetAndMetadata>>,
);

impl PendingOffsets {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(
        &self,
    ) -> impl Iterator<Item = (&ByteString, &TopicAndPartition, &OffsetAndMetadata)> {
        self.0.iter().flat_map(|(group_id, by_partition)| {
            by_partition
                .iter()
                .map(move |(partition, offset)| (group_id, partition, offset))
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Offsets {
    by_group: BTreeMap<ByteString, GroupOffsets>,
    with_offsets: GroupsByTopic,
    /// Pending offsets by producer id.
    pending: BTreeMap<i64, PendingOffsets>,
    open_transactions: OpenTransactions,
    with_pending: GroupsByTopic,
}

/// The groups that have partitions of a topic, and how many.
#[derive(Debug, Default)]
struct GroupsByTopic(BTreeMap<ByteString, BTreeMap<ByteString, usize>>);

impl GroupsByTopic {
    fn add_partition(&mut self, topic: &ByteString, group_id: &ByteString) {
        let groups = self.0.entry(topic.clone()).or_default();
        *groups.entry(group_id.clone()).or_default() += 1;
    }

    fn remove_partition(&mut self, topic: &ByteString, group_id: &ByteString) {
        let Some(groups) = self.0.get_mut(topic) else {
            return;
        };
        if let Some(count) = groups.get_mut(group_id) {
            *count -= 1;
            if *count == 0 {
                groups.remove(group_id);
            }
        }
        if groups.is_empty() {
            self.0.remove(topic);
        }
    }

    fn of(&self, topic: &ByteString) -> impl Iterator<Item = &ByteString> {
        self.0.get(topic).into_iter().flat_map(BTreeMap::keys)
    }
}

/// All partitions of a topic.
fn all_of(topic: &ByteString) -> RangeInclusive<TopicAndPartition> {
    (topic.clone(), i32::MIN)..=(topic.clone(), i32::MAX)
}

impl Offsets {
    /// Sets or removes an offset as part of `write`. The caller adds it to the journal.
    pub(crate) fn set(
        &mut self,
        write: WriteId,
        group_id: &ByteString,
        partition: &TopicAndPartition,
        offset: Option<OffsetAndMetadata>,
    ) {
        self.slot(group_id, partition).set(write, offset);
    }

    pub(crate) fn set_committed(
        &mut self,
        group_id: &ByteString,
        partition: &TopicAndPartition,
        offset: Option<OffsetAndMetadata>,
    ) {
        self.slot(group_id, partition).set_committed(offset);
        self.drop_vacant(group_id, partition);
    }

    pub(crate) fn commit(
        &mut self,
        write: WriteId,
        group_id: &ByteString,
        partition: &TopicAndPartition,
    ) {
        self.slot(group_id, partition).commit(write);
        self.drop_vacant(group_id, partition);
    }

    pub(crate) fn revert(
        &mut self,
        write: WriteId,
        group_id: &ByteString,
        partition: &TopicAndPartition,
    ) {
        self.slot(group_id, partition).revert(write);
        self.drop_vacant(group_id, partition);
    }

    /// The latest offset, committed or not.
    pub(crate) fn latest(
        &self,
        group_id: &str,
        partition: &TopicAndPartition,
    ) -> Option<&OffsetAndMetadata> {
        self.by_group.get(group_id)?.get(partition)?.latest()
    }

    /// The committed offset.
    pub(crate) fn committed(
        &self,
        group_id: &str,
        partition: &TopicAndPartition,
    ) -> Option<&OffsetAndMetadata> {
        self.by_group.get(group_id)?.get(partition)?.committed()
    }

    /// All latest offsets of a group, ordered by topic and partition.
    pub(crate) fn latest_of_group(
        &self,
        group_id: &str,
    ) -> impl Iterator<Item = (&TopicAndPartition, &OffsetAndMetadata)> {
        let offsets = self.by_group.get(group_id).into_iter().flatten();
        offsets.filter_map(|(partition, slot)| Some((partition, slot.latest()?)))
    }

    /// All committed offsets of a group, ordered by topic and partition.
    pub(crate) fn committed_of_group(
        &self,
        group_id: &str,
    ) -> impl Iterator<Item = (&TopicAndPartition, &OffsetAndMetadata)> {
        let offsets = self.by_group.get(group_id).into_iter().flatten();
        offsets.filter_map(|(partition, slot)| Some((partition, slot.committed()?)))
    }

    /// All latest offsets for partitions of a topic, with their groups.
    pub(crate) fn latest_of_topic<'a>(
        &'a self,
        topic: &'a ByteString,
    ) -> impl Iterator<Item = (&'a ByteString, &'a TopicAndPartition, &'a OffsetAndMetadata)> {
        self.with_offsets.of(topic).flat_map(move |group_id| {
            let offsets = self.by_group.get(group_id).into_iter();
            let of_topic = offsets.flat_map(move |offsets| offsets.range(all_of(topic)));
            of_topic.filter_map(move |(partition, slot)| {
                let latest = slot.latest()?;
                Some((group_id, partition, latest))
            })
        })
    }

    /// The number of partitions of a group that have an offset or had one in an outstanding write.
    pub(crate) fn count_of_group(&self, group_id: &str) -> usize {
        self.by_group.get(group_id).map_or(0, BTreeMap::len)
    }

    // Open transactions

    /// Keeps an offset until its producer's transaction ends. Returns the pending offset that it
    /// replaces.
    pub(crate) fn add_pending(
        &mut self,
        pending: &PendingOffset,
        offset: OffsetAndMetadata,
    ) -> Option<OffsetAndMetadata> {
        let PendingOffset {
            producer_id,
            group_id,
            partition,
        } = pending;
        let by_partition = self.open_transactions.entry(group_id.clone()).or_default();
        let producers = by_partition.entry(partition.clone()).or_default();
        if producers.is_empty() {
            self.with_pending.add_partition(&partition.0, group_id);
        }
        producers.insert(*producer_id);
        let by_group = self.pending.entry(*producer_id).or_default();
        let by_partition = by_group.0.entry(group_id.clone()).or_default();
        by_partition.insert(partition.clone(), offset)
    }

    /// Undoes `add_pending`.
    pub(crate) fn take_back_pending(
        &mut self,
        pending: &PendingOffset,
        replaced: Option<OffsetAndMetadata>,
    ) {
        if let Some(replaced) = replaced {
            self.add_pending(pending, replaced);
            return;
        }
        self.remove_pending(pending);
        self.close(&pending.group_id, &pending.partition, pending.producer_id);
    }

    /// Ends a producer's transaction. Returns its pending offsets.
    pub(crate) fn close_transaction(&mut self, producer_id: i64) -> PendingOffsets {
        let ended = self.pending.remove(&producer_id).unwrap_or_default();
        for (group_id, partition, _) in ended.iter() {
            self.close(group_id, partition, producer_id);
        }
        ended
    }

    /// Undoes `close_transaction`.
    pub(crate) fn reopen_transaction(&mut self, producer_id: i64, offsets: PendingOffsets) {
        for (group_id, partition, offset) in offsets.iter() {
            let pending = PendingOffset {
                producer_id,
                group_id: group_id.clone(),
                partition: partition.clone(),
            };
            self.add_pending(&pending, offset.clone());
        }
    }

    pub(crate) fn has_open_transaction(&self, group_id: &str) -> bool {
        self.open_transactions.contains_key(group_id)
    }

    pub(crate) fn is_pending(&self, group_id: &str, partition: &TopicAndPartition) -> bool {
        let by_partition = self.open_transactions.get(group_id);
        by_partition.is_some_and(|by_partition| by_partition.contains_key(partition))
    }

    pub(crate) fn pending_of_group(
        &self,
        group_id: &str,
    ) -> impl Iterator<Item = &TopicAndPartition> {
        let by_partition = self.open_transactions.get(group_id);
        by_partition.into_iter().flat_map(BTreeMap::keys)
    }

    /// All pending offsets for partitions of a topic, with their producers and groups.
    pub(crate) fn pending_of_topic<'a>(
        &'a self,
        topic: &'a ByteString,
    ) -> impl Iterator<
        Item = (
            i64,
            &'a ByteString,
            &'a TopicAndPartition,
            &'a OffsetAndMetadata,
        ),
    > {
        self.with_pending.of(topic).flat_map(move |group_id| {
            let partitions = self.open_transactions.get(group_id).into_iter();
            let of_topic = partitions.flat_map(move |it| it.range(all_of(topic)));
            of_topic.flat_map(move |(partition, producers)| {
                producers.iter().filter_map(move |&producer_id| {
                    let by_group = self.pending.get(&producer_id)?;
                    let offset = by_group.0.get(group_id)?.get(partition)?;
                    Some((producer_id, group_id, partition, offset))
                })
            })
        })
    }

    /// Removes the pending offsets that a tombstone covers. Returns them.
    pub(crate) fn forget_pending(
        &mut self,
        group_id: &ByteString,
        partition: &TopicAndPartition,
    ) -> Vec<(PendingOffset, OffsetAndMetadata)> {
        let Some(by_partition) = self.open_transactions.get_mut(group_id) else {
            return Vec::new();
        };
        let producers = by_partition.remove(partition).unwrap_or_default();
        if by_partition.is_empty() {
            self.open_transactions.remove(group_id);
        }
        if !producers.is_empty() {
            self.with_pending.remove_partition(&partition.0, group_id);
        }
        let mut forgotten = Vec::with_capacity(producers.len());
        for producer_id in producers {
            let pending = PendingOffset {
                producer_id,
                group_id: group_id.clone(),
                partition: partition.clone(),
            };
            if let Some(offset) = self.remove_pending(&pending) {
                forgotten.push((pending, offset));
            }
        }
        forgotten
    }

    fn remove_pending(&mut self, pending: &PendingOffset) -> Option<OffsetAndMetadata> {
        let by_group = self.pending.get_mut(&pending.producer_id)?;
        let by_partition = by_group.0.get_mut(&pending.group_id)?;
        let removed = by_partition.remove(&pending.partition);
        if by_partition.is_empty() {
            by_group.0.remove(&pending.group_id);
        }
        if by_group.is_empty() {
            self.pending.remove(&pending.producer_id);
        }
        removed
    }

    fn close(&mut self, group_id: &ByteString, partition: &TopicAndPartition, producer_id: i64) {
        let Some(by_partition) = self.open_transactions.get_mut(group_id) else {
            return;
        };
        if let Some(producers) = by_partition.get_mut(partition) {
            producers.remove(&producer_id);
            if producers.is_empty() {
                by_partition.remove(partition);
                self.with_pending.remove_partition(&partition.0, group_id);
            }
        }
        if by_partition.is_empty() {
            self.open_transactions.remove(group_id);
        }
    }

    fn slot(
        &mut self,
        group_id: &ByteString,
        partition: &TopicAndPartition,
    ) -> &mut Timeline<OffsetAndMetadata> {
        let offsets = self.by_group.entry(group_id.clone()).or_default();
        match offsets.entry(partition.clone()) {
            Entry::Occupied(slot) => slot.into_mut(),
            Entry::Vacant(slot) => {
                self.with_offsets.add_partition(&partition.0, group_id);
                slot.insert(Timeline::default())
            }
        }
    }

    fn drop_vacant(&mut self, group_id: &ByteString, partition: &TopicAndPartition) {
        let Some(offsets) = self.by_group.get_mut(group_id) else {
            return;
        };
        if offsets.get(partition).is_some_and(Timeline::is_vacant) {
            offsets.remove(partition);
            self.with_offsets.remove_partition(&partition.0, group_id);
        }
        if offsets.is_empty() {
            self.by_group.remove(group_id);
        }
    }
}
