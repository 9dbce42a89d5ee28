//! The records of `__remote_log_metadata` that this broker has read.
//!
//! Owns the metadata caches and the positions of the reader. No clock, no network: the reader
//! passes in the fetched records.
//!
//! A partition of the topic is read from its beginning when a user's partition is assigned. Records
//! that were applied before are skipped for partitions that were assigned earlier.
//!
//! Kafka: `ConsumerTask`.

use std::collections::BTreeMap;

use bytes::Bytes;
use ottla_records::legacy::AnyBatch;
use ottla_tiered::{
    RemoteLogMetadata, RemoteLogMetadataCache, RemoteLogSegmentState, RemotePartitionMetadataStore,
};
use ottla_types::{LeaderEpoch, Offset, TopicIdPartition};

/// Limit for decompressing one batch, in bytes.
const MAX_DECOMPRESSED_BYTES: usize = 64 << 20;

#[derive(Default)]
pub struct MetadataPartitions {
    store: RemotePartitionMetadataStore,
    partitions: BTreeMap<i32, Progress>,
    /// How often a partition of the topic was read again because its end was lost.
    reloads: u64,
}

/// One partition of the topic.
struct Progress {
    /// The next offset to read.
    position: Offset,
    /// Of the record before it, if that was read. By it the leader sees that it has another record.
    last_epoch: LeaderEpoch,
    /// Where reading was when it began again for a later assignment.
    seen: Option<Seen>,
    assigned: BTreeMap<TopicIdPartition, Assigned>,
}

/// Records that were read and applied. Their leader cannot see a loss of them while they are read
/// again, because the position is before them.
#[derive(Clone, Copy)]
struct Seen {
    end: Offset,
    /// Of the last one.
    epoch: LeaderEpoch,
}

/// A user's partition.
struct Assigned {
    /// Records below it were applied.
    applied: Offset,
    /// The end of the topic's partition after the assignment; not known at first.
    target: Option<Offset>,
}

impl Progress {
    /// Records before the position are skipped by partitions that were assigned earlier.
    fn read_again(&mut self) {
        if self.seen.is_none_or(|seen| seen.end < self.position) {
            self.seen = Some(Seen {
                end: self.position,
                epoch: self.last_epoch,
            });
        }
        self.read_from(Offset::ZERO);
    }

    /// Whether the batch at the end of what was read before has another epoch than then: the records
    /// were lost, and others were written.
    fn has_other_history(&mut self, base_offset: Offset, next: Offset, epoch: LeaderEpoch) -> bool {
        let Some(seen) = self.seen.filter(|seen| next >= seen.end) else {
            return false;
        };
        self.seen = None;
        let is_known = epoch != LeaderEpoch::UNKNOWN && seen.epoch != LeaderEpoch::UNKNOWN;
        base_offset < seen.end && is_known && epoch != seen.epoch
    }

    fn read_from(&mut self, position: Offset) {
        self.position = position;
        self.last_epoch = LeaderEpoch::UNKNOWN;
    }
}

impl MetadataPartitions {
    /// Begins to keep the metadata of `partition`, whose records are in `metadata_partition`.
    pub fn assign(&mut self, partition: TopicIdPartition, metadata_partition: i32) {
        let progress = self.partitions.entry(metadata_partition);
        let progress = progress.or_insert_with(|| Progress {
            position: Offset::ZERO,
            last_epoch: LeaderEpoch::UNKNOWN,
            seen: None,
            assigned: BTreeMap::new(),
        });
        if progress.assigned.contains_key(&partition) {
            return;
        }
        self.store.load(partition);
        progress.read_again();
        let assigned = Assigned {
            applied: Offset::ZERO,
            target: None,
        };
        progress.assigned.insert(partition, assigned);
    }

    pub fn unassign(&mut self, partition: TopicIdPartition, metadata_partition: i32) {
        self.store.clear(partition);
        let Some(progress) = self.partitions.get_mut(&metadata_partition) else {
            return;
        };
        progress.assigned.remove(&partition);
        if progress.assigned.is_empty() {
            self.partitions.remove(&metadata_partition);
        }
    }

    /// The metadata of a partition, if it has been read far enough.
    pub fn cache(&self, partition: TopicIdPartition) -> Option<&RemoteLogMetadataCache> {
        self.store.get(partition)
    }

    /// Changes when records that were read are lost, which invalidates decisions based on them.
    pub fn reloads(&self) -> u64 {
        self.reloads
    }

    /// The partitions of the topic to read, with their positions.
    pub fn positions(&self) -> impl Iterator<Item = (i32, Offset)> {
        let partitions = self.partitions.iter();
        partitions.map(|(&index, progress)| (index, progress.position))
    }

    /// What to fetch: the partitions of the topic, with their positions and the epochs of the records
    /// before these.
    pub fn fetches(&self) -> impl Iterator<Item = (i32, Offset, LeaderEpoch)> {
        let partitions = self.partitions.iter();
        partitions.map(|(&index, progress)| (index, progress.position, progress.last_epoch))
    }

    /// The user's partitions that need the end of this partition of the topic.
    pub fn need_end(&self, metadata_partition: i32) -> Vec<TopicIdPartition> {
        let progress = self.partitions.get(&metadata_partition);
        let assigned = progress.into_iter().flat_map(|it| &it.assigned);
        let without = assigned.filter(|(_, assigned)| assigned.target.is_none());
        without.map(|(&partition, _)| partition).collect()
    }

    /// The end of a partition of the topic, requested after `need_end` returned `of`. For a later
    /// assignment it may be too old: another broker may have written records in between. An end before
    /// records that were read means that they are gone.
    pub fn on_end(&mut self, metadata_partition: i32, of: &[TopicIdPartition], end: Offset) {
        let Some(progress) = self.partitions.get_mut(&metadata_partition) else {
            return;
        };
        if let Some(seen) = progress.seen.filter(|seen| end < seen.end) {
            self.reload(metadata_partition, seen.end);
            return;
        }
        for partition in of {
            if let Some(assigned) = progress.assigned.get_mut(partition) {
                assigned.target.get_or_insert(end);
            }
        }
        self.initialize(metadata_partition);
    }

    /// The first offset of a partition of the topic, where the position is out of range. A position
    /// after the end means that records which were read are gone.
    pub fn on_start(&mut self, metadata_partition: i32, read_from: Offset, start: Offset) {
        let Some(progress) = self.partitions.get_mut(&metadata_partition) else {
            return;
        };
        if progress.position != read_from {
            return;
        }
        if start > read_from {
            progress.read_from(start);
            return;
        }
        self.reload(metadata_partition, read_from);
    }

    /// The leader has another record before the position, or none: its log has grown beyond the
    /// position since it lost the records that were read.
    pub fn on_diverged(&mut self, metadata_partition: i32, read_from: Offset) {
        let progress = self.partitions.get(&metadata_partition);
        if progress.is_some_and(|progress| progress.position == read_from) {
            self.reload(metadata_partition, read_from);
        }
    }

    /// Records that were read are lost: the leader was elected uncleanly. Other records, also
    /// records of this broker, get their offsets and would count as read. So everything is read
    /// again, and no request is answered until then.
    fn reload(&mut self, metadata_partition: i32, read_from: Offset) {
        let Some(progress) = self.partitions.get_mut(&metadata_partition) else {
            return;
        };
        tracing::warn!(
            "__remote_log_metadata-{metadata_partition} has lost records before offset {read_from}, up \
             to which it was read; it is read again from its beginning"
        );
        self.reloads += 1;
        progress.seen = None;
        progress.read_from(Offset::ZERO);
        for (partition, assigned) in &mut progress.assigned {
            self.store.clear(*partition);
            self.store.load(*partition);
            *assigned = Assigned {
                applied: Offset::ZERO,
                target: None,
            };
        }
    }

    /// Whether a record was applied to the cache of a partition.
    pub fn is_applied(
        &self,
        partition: TopicIdPartition,
        metadata_partition: i32,
        offset: Offset,
    ) -> bool {
        let progress = self.partitions.get(&metadata_partition);
        let assigned = progress.and_then(|progress| progress.assigned.get(&partition));
        assigned.is_some_and(|assigned| assigned.applied > offset)
    }

    /// Whether an applied record has taken effect. The end of an upload has no effect if another
    /// leader has begun to delete the segment, because that leader took the upload for abandoned or
    /// expired. The uploader must not count the segment as copied, or the local segment would be
    /// deleted.
    pub fn has_effect(&self, metadata: &RemoteLogMetadata) -> bool {
        let RemoteLogMetadata::SegmentUpdate(update) = metadata else {
            return true;
        };
        if update.update.state != RemoteLogSegmentState::CopySegmentFinished {
            return true;
        }
        let cache = self.cache(update.partition.topic_id_partition());
        cache.is_some_and(|cache| cache.is_readable(update.update.id))
    }

    pub fn is_assigned(&self, partition: TopicIdPartition, metadata_partition: i32) -> bool {
        let progress = self.partitions.get(&metadata_partition);
        progress.is_some_and(|progress| progress.assigned.contains_key(&partition))
    }

    /// Applies records read from `read_from` on. Ignored if the partition is read from its
    /// beginning again. Returns whether something was read.
    pub fn on_records(
        &mut self,
        metadata_partition: i32,
        read_from: Offset,
        records: Bytes,
    ) -> bool {
        let Some(progress) = self.partitions.get_mut(&metadata_partition) else {
            return false;
        };
        if progress.position != read_from {
            return false;
        }
        let mut records = records;
        while let Ok(batch) = AnyBatch::read(&mut records) {
            let next = Offset(batch.last_offset().0.saturating_add(1));
            if next <= progress.position {
                continue;
            }
            let (is_control, epoch) = match &batch {
                AnyBatch::Current(batch) => {
                    let (base, epoch) = (
                        batch.header.base_offset,
                        batch.header.partition_leader_epoch,
                    );
                    if progress.has_other_history(base, next, epoch) {
                        self.reload(metadata_partition, next);
                        return true;
                    }
                    (batch.header.attributes.is_control(), epoch)
                }
                AnyBatch::Legacy(_) => (false, LeaderEpoch::UNKNOWN),
            };
            match batch.records(MAX_DECOMPRESSED_BYTES) {
                Ok(_) if is_control => {}
                Ok(records) => {
                    for record in records {
                        if record.offset >= progress.position
                            && let Some(value) = &record.value
                        {
                            apply(
                                &mut self.store,
                                progress,
                                metadata_partition,
                                record.offset,
                                value,
                            );
                        }
                    }
                }
                Err(error) => tracing::error!(
                    "a batch before offset {next} of __remote_log_metadata-{metadata_partition} \
                     cannot be read, and is skipped: {error}"
                ),
            }
            progress.position = next;
            progress.last_epoch = epoch;
        }
        let position = progress.position;
        let is_read = position > read_from;
        if is_read {
            for assigned in progress.assigned.values_mut() {
                assigned.applied = assigned.applied.max(position);
            }
        }
        self.initialize(metadata_partition);
        is_read
    }

    fn initialize(&mut self, metadata_partition: i32) {
        let Some(progress) = self.partitions.get(&metadata_partition) else {
            return;
        };
        for (partition, assigned) in &progress.assigned {
            let is_read = assigned.target.is_some_and(|end| progress.position >= end);
            if is_read && !self.store.is_initialized(*partition) {
                self.store.mark_initialized(*partition);
            }
        }
    }
}

fn apply(
    store: &mut RemotePartitionMetadataStore,
    progress: &Progress,
    metadata_partition: i32,
    offset: Offset,
    value: &Bytes,
) {
    let place = || format!("offset {offset} of __remote_log_metadata-{metadata_partition}");
    let metadata = match RemoteLogMetadata::decode(value) {
        Ok(metadata) => metadata,
        Err(error) => {
            tracing::error!("the record at {} cannot be read: {error}", place());
            return;
        }
    };
    let Some(partition) = metadata.partition() else {
        return;
    };
    let assigned = progress.assigned.get(&partition.topic_id_partition());
    if assigned.is_none_or(|assigned| offset < assigned.applied) {
        return;
    }
    if let Err(error) = store.apply(&metadata) {
        tracing::debug!("the record at {} changes nothing: {error}", place());
    }
}

#[cfg(test)]
mod tests {
    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_tiered::{
        LeaderEpochs, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemotePartition,
        RemoteSegment,
    };
    use ottla_types::{BrokerId, PartitionIndex, Timestamp, Uuid};

    use super::*;

    fn partition(index: i32) -> RemotePartition {
        RemotePartition {
            topic_id: Uuid::from_u128(7),
            topic: "t".into(),
            partition: PartitionIndex(index),
        }
    }

    /// A segment of a partition that was copied: two records.
    fn copied(index: i32, start: i64) -> [Bytes; 2] {
        let segment = RemoteSegment {
            id: Uuid::from_u128(1000 + start as u128),
            start_offset: Offset(start),
            end_offset: Offset(start + 9),
            max_timestamp: Timestamp(1),
            broker_id: BrokerId(1),
            event_timestamp: Timestamp(1),
            segment_size_bytes: 10,
            custom_metadata: None,
            state: RemoteLogSegmentState::CopySegmentStarted,
            segment_leader_epochs: LeaderEpochs::from([(0, start)]),
            is_txn_index_empty: true,
        };
        let state = RemoteLogSegmentState::CopySegmentFinished;
        let update = segment.to_state(state, Timestamp(2), BrokerId(1));
        let partition = partition(index);
        let added = RemoteLogMetadata::Segment(RemoteLogSegmentMetadata {
            partition: partition.clone(),
            segment,
        });
        let finished =
            RemoteLogMetadata::SegmentUpdate(RemoteLogSegmentMetadataUpdate { partition, update });
        [added.encode().unwrap(), finished.encode().unwrap()]
    }

    fn batch(base_offset: i64, values: &[Bytes]) -> Bytes {
        of_epoch(base_offset, -1, values)
    }

    fn of_epoch(base_offset: i64, epoch: i32, values: &[Bytes]) -> Bytes {
        let builder = RecordBatchBuilder::new(Compression::None);
        let builder = builder.base_offset(Offset(base_offset));
        let mut builder = builder.partition_leader_epoch(LeaderEpoch(epoch));
        for value in values {
            builder.append(Timestamp(1), None, Some(value), &[]);
        }
        builder.build().to_bytes()
    }

    #[test]
    fn a_cache_answers_when_the_topic_was_read_to_its_end() {
        let mut read = MetadataPartitions::default();
        let key = partition(0).topic_id_partition();
        read.assign(key, 3);
        assert_eq!(read.need_end(3), [key]);
        let records = batch(0, &copied(0, 0));
        assert!(read.on_records(3, Offset(0), records.clone()));
        assert!(read.cache(key).is_none(), "the end is not known");
        read.on_end(3, &[key], Offset(2));
        let cache = read.cache(key).unwrap();
        assert!(cache.segment(LeaderEpoch(0), Offset(5)).is_some());
        assert!(read.is_applied(key, 3, Offset(1)));
        assert!(!read.is_applied(key, 3, Offset(2)));
        assert!(!read.on_records(3, Offset(0), records), "read already");
        assert_eq!(read.positions().collect::<Vec<_>>(), [(3, Offset(2))]);
    }

    #[test]
    fn the_end_of_an_upload_that_another_leader_deletes_has_no_effect() {
        let [begun, ended] = copied(0, 0);
        let end = RemoteLogMetadata::decode(&ended).unwrap();
        let RemoteLogMetadata::SegmentUpdate(mut deletion) = end.clone() else {
            panic!("{end:?} is no update");
        };
        deletion.update.state = RemoteLogSegmentState::DeleteSegmentStarted;
        let deletion = RemoteLogMetadata::SegmentUpdate(deletion);
        let deleted = deletion.encode().unwrap();
        let key = partition(0).topic_id_partition();
        for (records, has_effect) in [
            (vec![begun.clone(), ended.clone()], true),
            (vec![begun, deleted, ended], false),
        ] {
            let mut read = MetadataPartitions::default();
            read.assign(key, 3);
            read.on_end(3, &[key], Offset(2));
            assert!(read.on_records(3, Offset(0), batch(0, &records)));
            assert_eq!(read.has_effect(&end), has_effect);
            assert!(read.has_effect(&deletion));
        }
    }

    #[test]
    fn a_later_partition_is_read_from_the_beginning() {
        let mut read = MetadataPartitions::default();
        let (first, second) = (
            partition(0).topic_id_partition(),
            partition(1).topic_id_partition(),
        );
        read.assign(first, 3);
        read.on_end(3, &[first], Offset(0));
        let records = batch(0, &[copied(0, 0), copied(1, 50)].concat());
        read.on_records(3, Offset(0), records.clone());
        read.assign(second, 3);
        assert_eq!(read.need_end(3), [second]);
        assert_eq!(read.positions().collect::<Vec<_>>(), [(3, Offset(0))]);
        assert!(!read.on_records(3, Offset(4), Bytes::new()), "an old fetch");
        read.on_records(3, Offset(0), records);
        read.on_end(3, &[first], Offset(4));
        assert!(read.cache(second).is_none(), "asked for another one");
        read.on_end(3, &[second], Offset(4));
        let second = read.cache(second).unwrap();
        assert!(second.segment(LeaderEpoch(0), Offset(55)).is_some());
        assert_eq!(read.cache(first).unwrap().len(), 1);
        read.unassign(first, 3);
        assert!(read.cache(first).is_none());
        assert_eq!(read.positions().count(), 1);
    }

    #[test]
    fn a_topic_that_became_shorter_is_read_again() {
        let mut read = MetadataPartitions::default();
        let key = partition(0).topic_id_partition();
        read.assign(key, 3);
        read.on_end(3, &[key], Offset(4));
        let records = batch(0, &[copied(0, 0), copied(0, 10)].concat());
        read.on_records(3, Offset(0), records);
        assert_eq!(read.cache(key).unwrap().len(), 2);
        // Records were deleted: reading continues after them.
        read.on_start(3, Offset(4), Offset(6));
        assert_eq!(read.positions().collect::<Vec<_>>(), [(3, Offset(6))]);
        assert!(read.cache(key).is_some());
        assert_eq!(read.reloads(), 0);
        // The partition ends before offset 6, and the record written at offset 2 is not yet read.
        read.on_start(3, Offset(6), Offset(0));
        assert!(read.cache(key).is_none());
        assert_eq!(read.reloads(), 1);
        assert!(!read.is_applied(key, 3, Offset(2)));
        assert_eq!(read.need_end(3), [key]);
        read.on_end(3, &[key], Offset(4));
        let records = batch(0, &[copied(0, 0), copied(0, 20)].concat());
        read.on_records(3, Offset(0), records);
        let cache = read.cache(key).unwrap();
        assert!(cache.segment(LeaderEpoch(0), Offset(15)).is_none());
        assert!(cache.segment(LeaderEpoch(0), Offset(25)).is_some());
        assert!(read.is_applied(key, 3, Offset(2)));
    }

    /// The leader that lost records may have written others before it is asked.
    #[test]
    fn a_topic_with_another_history_is_read_again() {
        let mut read = MetadataPartitions::default();
        let key = partition(0).topic_id_partition();
        read.assign(key, 3);
        let fetches = |read: &MetadataPartitions| read.fetches().collect::<Vec<_>>();
        assert_eq!(fetches(&read), [(3, Offset(0), LeaderEpoch::UNKNOWN)]);
        read.on_end(3, &[key], Offset(4));
        read.on_records(3, Offset(0), of_epoch(0, 5, &copied(0, 0)));
        read.on_records(3, Offset(2), of_epoch(2, 7, &copied(0, 10)));
        assert_eq!(fetches(&read), [(3, Offset(4), LeaderEpoch(7))]);
        read.on_diverged(3, Offset(2));
        assert_eq!(read.reloads(), 0, "the answer to an old fetch");
        read.on_diverged(3, Offset(4));
        assert_eq!(read.reloads(), 1);
        assert!(read.cache(key).is_none());
        assert_eq!(fetches(&read), [(3, Offset(0), LeaderEpoch::UNKNOWN)]);
        assert!(!read.is_applied(key, 3, Offset(2)));
        assert_eq!(read.need_end(3), [key]);
    }

    /// The leader compares only what is before the position, which is at the beginning for a later
    /// assignment.
    #[test]
    fn a_loss_is_also_seen_while_the_topic_is_read_for_another_partition() {
        let (first, second) = (
            partition(0).topic_id_partition(),
            partition(1).topic_id_partition(),
        );
        let begun = || {
            let mut read = MetadataPartitions::default();
            read.assign(first, 3);
            read.on_end(3, &[first], Offset(4));
            read.on_records(3, Offset(0), of_epoch(0, 5, &copied(0, 0)));
            read.on_records(3, Offset(2), of_epoch(2, 5, &copied(0, 10)));
            read.assign(second, 3);
            read.on_records(3, Offset(0), of_epoch(0, 5, &copied(0, 0)));
            assert!(read.cache(first).is_some());
            read
        };

        let mut read = begun();
        read.on_end(3, &[second], Offset(4));
        read.on_records(3, Offset(2), of_epoch(2, 5, &copied(0, 10)));
        read.on_records(3, Offset(4), of_epoch(4, 6, &copied(1, 0)));
        assert_eq!(read.reloads(), 0, "the same records");
        assert_eq!(read.cache(first).unwrap().len(), 2);
        assert_eq!(read.cache(second).unwrap().len(), 1);

        let mut read = begun();
        read.on_end(3, &[second], Offset(6));
        let others = of_epoch(2, 6, &[copied(0, 20), copied(1, 0)].concat());
        assert!(read.on_records(3, Offset(2), others.clone()));
        assert_eq!(read.reloads(), 1);
        assert!(read.cache(first).is_none() && read.cache(second).is_none());
        read.on_end(3, &[first, second], Offset(6));
        read.on_records(3, Offset(0), of_epoch(0, 5, &copied(0, 0)));
        read.on_records(3, Offset(2), others);
        assert_eq!(read.reloads(), 1);
        let cache = read.cache(first).unwrap();
        assert!(cache.segment(LeaderEpoch(0), Offset(15)).is_none());
        assert!(cache.segment(LeaderEpoch(0), Offset(25)).is_some());

        // Nothing was written since.
        let mut read = begun();
        read.on_end(3, &[second], Offset(2));
        assert_eq!(read.reloads(), 1);
        assert!(read.cache(first).is_none());
        assert_eq!(read.need_end(3), [first, second]);
    }

    #[test]
    fn damaged_records_are_skipped() {
        let mut read = MetadataPartitions::default();
        let key = partition(0).topic_id_partition();
        read.assign(key, 0);
        let mut values = vec![Bytes::from_static(b"\xff\xff")];
        values.extend(copied(0, 0));
        read.on_records(0, Offset(0), batch(0, &values));
        read.on_end(0, &[key], Offset(3));
        assert_eq!(read.cache(key).unwrap().len(), 1);
    }
}
