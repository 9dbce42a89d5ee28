//! The cache against maps that are searched plainly, and its size.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;

use bytes::Bytes;
use ottla_types::{BrokerId, LeaderEpoch, Offset, Timestamp, Uuid};
use proptest::prelude::*;

use super::{LOOKS, NotApplied, RemoteLogMetadataCache, RemoteLogStats};
use crate::RemoteLogSegmentState::{self, *};
use crate::test_segments::{cache_of, segment};
use crate::{CustomMetadata, EpochEntry, LeaderEpochs, RemoteSegment, RemoteSegmentUpdate};

/// Kafka's maps, with a plain search for what covers what.
#[derive(Default)]
struct Model {
    segments: BTreeMap<Uuid, RemoteSegment>,
    epochs: BTreeMap<LeaderEpoch, ModelEpoch>,
}

#[derive(Default)]
struct ModelEpoch {
    offset_to_id: BTreeMap<Offset, Uuid>,
    unreferenced: BTreeSet<Uuid>,
    highest: Option<Offset>,
}

impl Model {
    fn add(&mut self, segment: &RemoteSegment) -> bool {
        let existing = self.segments.get(&segment.id).map(|it| it.state);
        if !RemoteLogSegmentState::is_valid_transition(existing, segment.state) {
            return false;
        }
        for entry in segment.segment_leader_epochs.entries() {
            let epoch = self.epochs.entry(entry.epoch).or_default();
            epoch.unreferenced.insert(segment.id);
        }
        self.segments.insert(segment.id, segment.clone());
        true
    }

    fn update(&mut self, update: &RemoteSegmentUpdate) -> bool {
        let Some(existing) = self.segments.get(&update.id) else {
            return false;
        };
        let is_valid =
            RemoteLogSegmentState::is_valid_transition(Some(existing.state), update.state);
        if !is_valid || update.state == CopySegmentStarted {
            return false;
        }
        let updated = existing.updated(update);
        let id = updated.id;
        for entry in updated.segment_leader_epochs.entries() {
            let epoch = self.epochs.entry(entry.epoch).or_default();
            let end = updated.end_offset_of(entry.epoch);
            match update.state {
                CopySegmentFinished => {
                    epoch.highest = epoch.highest.max(Some(end));
                    let mapped: Vec<(Offset, Offset, Uuid)> = epoch
                        .offset_to_id
                        .iter()
                        .map(|(start, id)| {
                            (*start, self.segments[id].end_offset_of(entry.epoch), *id)
                        })
                        .collect();
                    let start = entry.start_offset;
                    let is_covered = mapped
                        .iter()
                        .any(|(other, other_end, _)| *other <= start && *other_end > end);
                    if is_covered {
                        epoch.unreferenced.insert(id);
                        continue;
                    }
                    for (other, other_end, id) in mapped {
                        if other >= start && other_end <= end {
                            epoch.offset_to_id.remove(&other);
                            epoch.unreferenced.insert(id);
                        }
                    }
                    epoch.offset_to_id.insert(start, id);
                    epoch.unreferenced.remove(&id);
                }
                DeleteSegmentStarted => {
                    if epoch.offset_to_id.get(&entry.start_offset) == Some(&id) {
                        epoch.offset_to_id.remove(&entry.start_offset);
                    }
                    epoch.unreferenced.insert(id);
                }
                DeleteSegmentFinished => {
                    epoch.unreferenced.remove(&id);
                }
                CopySegmentStarted => unreachable!(),
            }
        }
        if update.state == DeleteSegmentFinished {
            self.segments.remove(&id);
        } else {
            self.segments.insert(id, updated);
        }
        true
    }

    fn segment(&self, epoch: LeaderEpoch, offset: Offset) -> Option<&RemoteSegment> {
        let (_, id) = self
            .epochs
            .get(&epoch)?
            .offset_to_id
            .range(..=offset)
            .next_back()?;
        let segment = &self.segments[id];
        (offset <= segment.end_offset_of(epoch)).then_some(segment)
    }

    fn readable_until(&self, epoch: LeaderEpoch, from: Offset) -> Option<Offset> {
        let mut end = from;
        while let Some(segment) = self.segment(epoch, end) {
            end = segment.end_offset_of(epoch).plus(1);
        }
        (end > from).then_some(end)
    }

    fn next_with_txn_index(&self, epoch: LeaderEpoch, from: Offset) -> Option<&RemoteSegment> {
        let mut segment = self.segment(epoch, from)?;
        while segment.is_txn_index_empty {
            segment = self.segment(epoch, segment.next_offset())?;
        }
        Some(segment)
    }

    fn bytes_within(&self, epoch: LeaderEpoch, start: Offset, end: Offset) -> u64 {
        let readable = self.epochs.get(&epoch).into_iter();
        let readable = readable.flat_map(|it| it.offset_to_id.values());
        let within = readable.map(|id| &self.segments[id]).filter(|segment| {
            let has_only_epoch = segment.segment_leader_epochs.entries().len() == 1;
            has_only_epoch && segment.start_offset >= start && segment.end_offset < end
        });
        within.map(RemoteSegment::size_bytes).sum()
    }

    /// The segments of an epoch, as a set for each start offset: Kafka's order among equals is that
    /// of a hash set.
    fn listed(&self, epoch: LeaderEpoch) -> Vec<(Offset, Uuid)> {
        let Some(epoch) = self.epochs.get(&epoch) else {
            return Vec::new();
        };
        let ids = epoch.offset_to_id.values().chain(&epoch.unreferenced);
        let mut listed: Vec<(Offset, Uuid)> = ids
            .map(|id| (self.segments[id].start_offset, *id))
            .collect();
        listed.sort();
        listed
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(usize),
    Update(usize, RemoteLogSegmentState),
}

const EPOCHS: i32 = 5;
const OFFSETS: i64 = 40;

fn any_segment() -> impl Strategy<Value = RemoteSegment> {
    let epochs = prop::collection::vec((0..EPOCHS, 0..4i64), 1..4);
    let custom = prop::option::of(prop::collection::vec(any::<u8>(), 0..40));
    let long = prop_oneof![9 => 0..15i64, 1 => Just(1 << 33)];
    (0..20i64, long, epochs, custom, any::<bool>()).prop_map(
        |(start, length, epochs, custom, is_txn_index_empty)| {
            let mut at = start;
            let epochs: BTreeMap<i32, i64> = epochs.into_iter().collect();
            let entries = epochs.into_iter().map(|(epoch, length)| {
                let entry = EpochEntry::new(epoch, at);
                at += length;
                entry
            });
            let segment_leader_epochs: LeaderEpochs = entries.collect();
            RemoteSegment {
                id: Uuid::ZERO,
                start_offset: Offset(start),
                end_offset: Offset(at + length),
                max_timestamp: Timestamp(length * 1000),
                broker_id: BrokerId(1),
                event_timestamp: Timestamp(start),
                segment_size_bytes: length as i32 * 100,
                custom_metadata: custom.map(|bytes| CustomMetadata(Bytes::from(bytes))),
                state: CopySegmentStarted,
                segment_leader_epochs,
                is_txn_index_empty,
            }
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    let state = prop::sample::select(RemoteLogSegmentState::ALL.to_vec());
    prop_oneof![
        2 => (0..12usize).prop_map(Step::Add),
        5 => (0..12usize, state).prop_map(|(index, state)| Step::Update(index, state)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn the_cache_equals_a_model_of_plain_maps(
        segments in prop::collection::vec(any_segment(), 12),
        steps in prop::collection::vec(any_step(), 1..120),
    ) {
        let segments: Vec<RemoteSegment> = segments
            .into_iter()
            .enumerate()
            .map(|(index, segment)| RemoteSegment {
                id: Uuid::from_u128(index as u128 * 0x0001_0000_0001),
                ..segment
            })
            .collect();
        let mut model = Model::default();
        let mut cache = RemoteLogMetadataCache::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Add(index) => {
                    let applied = cache.add(&segments[index]).is_ok();
                    prop_assert_eq!(applied, model.add(&segments[index]));
                }
                Step::Update(index, state) => {
                    let mut update =
                        segments[index].to_state(state, Timestamp(number as i64), BrokerId(2));
                    let changed = CustomMetadata(Bytes::from(vec![7; number]));
                    update.custom_metadata = (number % 3 == 0).then_some(changed);
                    prop_assert_eq!(cache.update(&update).is_ok(), model.update(&update));
                }
            }
            compare(&cache, &model);
        }
    }
}

fn compare(cache: &RemoteLogMetadataCache, model: &Model) {
    let all: BTreeMap<Uuid, RemoteSegment> = cache.segments().map(|it| (it.id, it)).collect();
    assert_eq!(all, model.segments);
    assert_eq!(cache.len(), model.segments.len());
    let bytes_in = |states: &[RemoteLogSegmentState]| {
        let of_states = all.values().filter(|it| states.contains(&it.state));
        of_states.map(RemoteSegment::size_bytes).sum::<u64>()
    };
    let stats = RemoteLogStats {
        segments: all.len(),
        size_bytes: bytes_in(&[CopySegmentFinished, DeleteSegmentStarted]),
        finished_bytes: bytes_in(&[CopySegmentFinished]),
    };
    assert_eq!(cache.stats(), stats);
    let has_several = |it: &&RemoteSegment| it.segment_leader_epochs.entries().len() > 1;
    let several: BTreeSet<Uuid> = all.values().filter(has_several).map(|it| it.id).collect();
    let found = cache.segments_of_several_epochs().map(|it| it.id);
    assert_eq!(found.collect::<BTreeSet<Uuid>>(), several);
    for id in model.segments.keys() {
        assert_eq!(cache.get(*id).as_ref(), model.segments.get(id));
    }
    for epoch in (0..EPOCHS).map(LeaderEpoch) {
        let highest = model.epochs.get(&epoch).and_then(|it| it.highest);
        assert_eq!(cache.highest_offset_for_epoch(epoch), highest);
        let listed: Vec<(Offset, Uuid)> = cache
            .segments_of(epoch)
            .map(|segment| (segment.start_offset, segment.id))
            .collect();
        assert!(listed.is_sorted_by_key(|(offset, _)| *offset));
        let mut listed = listed;
        listed.sort();
        assert_eq!(listed, model.listed(epoch));
        for start in (0..OFFSETS).step_by(7).map(Offset) {
            let end = start.plus(20);
            let bytes = cache.bytes_within(epoch, start, end);
            assert_eq!(bytes, model.bytes_within(epoch, start, end));
        }
        for offset in (0..OFFSETS).map(Offset) {
            let found = cache.segment(epoch, offset);
            assert_eq!(found.as_ref(), model.segment(epoch, offset));
            let found = cache.readable_until(epoch, offset);
            assert_eq!(found, model.readable_until(epoch, offset));
            let found = cache.next_segment_with_txn_index(epoch, offset);
            assert_eq!(found.as_ref(), model.next_with_txn_index(epoch, offset));
        }
    }
}

fn simple(number: u64) -> RemoteSegment {
    let id = u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(number);
    let start = number as i64 * 1000;
    RemoteSegment {
        id: Uuid::from_u128(id),
        start_offset: Offset(start),
        end_offset: Offset(start + 999),
        max_timestamp: Timestamp(1_700_000_000_000 + start),
        broker_id: BrokerId(1),
        event_timestamp: Timestamp(1_700_000_000_000 + start),
        segment_size_bytes: 1 << 30,
        custom_metadata: None,
        state: CopySegmentStarted,
        segment_leader_epochs: LeaderEpochs::from([(number as i32 / 100_000, start)]),
        is_txn_index_empty: true,
    }
}

fn finished(segment: &RemoteSegment) -> RemoteSegmentUpdate {
    segment.to_state(CopySegmentFinished, segment.event_timestamp, BrokerId(1))
}

fn fill(cache: &mut RemoteLogMetadataCache, segments: u64, custom: Option<&[u8]>) {
    for number in 0..segments {
        let segment = simple(number);
        cache.add(&segment).unwrap();
        let mut update = finished(&segment);
        update.custom_metadata = custom.map(|it| CustomMetadata(Bytes::copy_from_slice(it)));
        cache.update(&update).unwrap();
    }
}

/// Bytes that `segments` take in each of `partitions` caches, per segment.
fn bytes_per_segment(partitions: u64, segments: u64, custom: Option<&[u8]>) -> f64 {
    let mut caches = Vec::new();
    let used = allocation_counter::measure(|| {
        caches = (0..partitions)
            .map(|_| {
                let mut cache = RemoteLogMetadataCache::new();
                fill(&mut cache, segments, custom);
                cache
            })
            .collect();
    });
    black_box(&caches);
    used.bytes_current as f64 / (partitions * segments) as f64
}

#[test]
fn a_million_segments_take_less_than_a_hundred_bytes_each() {
    let plain = bytes_per_segment(1, 1_000_000, None);
    let custom = bytes_per_segment(1, 250_000, Some(&[7; 10]));
    let spread = bytes_per_segment(1000, 100, None);
    println!("{plain:.1} plain, {custom:.1} with custom metadata, {spread:.1} in 1000 partitions");
    assert!(plain <= 100.0, "{plain} bytes");
    assert!(custom <= 100.0, "{custom} bytes with custom metadata");
    assert!(spread <= 100.0, "{spread} bytes in many partitions");
}

#[test]
fn deleted_segments_leave_room_for_new_ones() {
    let mut cache = RemoteLogMetadataCache::new();
    let mut filled = 0;
    let used = allocation_counter::measure(|| {
        for number in 0..50_000 {
            let segment = simple(number);
            cache.add(&segment).unwrap();
            let mut update = finished(&segment);
            update.custom_metadata = Some(CustomMetadata(Bytes::from_static(b"somewhere")));
            cache.update(&update).unwrap();
            if number >= 1000 {
                let oldest = simple(number - 1000);
                for state in [DeleteSegmentStarted, DeleteSegmentFinished] {
                    let update = oldest.to_state(state, Timestamp(0), BrokerId(1));
                    cache.update(&update).unwrap();
                }
            }
        }
        filled = cache.len();
    });
    assert_eq!(filled, 1000);
    assert!(used.bytes_current < 200_000, "{} bytes", used.bytes_current);
}

#[test]
fn ignored_records_return_the_reason() {
    let mut cache = RemoteLogMetadataCache::new();
    let segment = simple(1);
    let id = segment.id;
    let to = |state| segment.to_state(state, Timestamp(0), BrokerId(1));
    assert_eq!(
        cache.update(&to(CopySegmentFinished)),
        Err(NotApplied::AlreadyRemoved { id })
    );
    cache.mark_initialized();
    assert_eq!(
        cache.update(&to(CopySegmentFinished)),
        Err(NotApplied::UnknownSegment { id })
    );
    let mut other = segment.clone();
    other.state = CopySegmentFinished;
    assert_eq!(
        cache.add(&other),
        Err(NotApplied::AddedInOtherState {
            id,
            state: CopySegmentFinished
        })
    );
    cache.add(&segment).unwrap();
    assert_eq!(
        cache.update(&to(CopySegmentStarted)),
        Err(NotApplied::UpdatedToStarted { id })
    );
    let refused = cache.update(&to(DeleteSegmentFinished)).unwrap_err();
    assert_eq!(
        refused,
        NotApplied::InvalidTransition {
            id,
            from: Some(CopySegmentStarted),
            to: DeleteSegmentFinished
        }
    );
    assert_eq!(
        refused.to_string(),
        format!(
            "remote segment {id} cannot go from COPY_SEGMENT_STARTED to DELETE_SEGMENT_FINISHED: \
             the record is dropped"
        )
    );
}

/// Kafka fails to list the epochs of the first record after such a segment is deleted.
#[test]
fn a_segment_that_is_announced_again_with_other_epochs_leaves_its_old_ones() {
    let mut cache = RemoteLogMetadataCache::new();
    let mut segment = simple(1);
    cache.add(&segment).unwrap();
    segment.segment_leader_epochs = LeaderEpochs::from([(9, 1000)]);
    cache.add(&segment).unwrap();
    assert_eq!(cache.segments_of(LeaderEpoch(0)).count(), 0);
    assert_eq!(cache.segments_of(LeaderEpoch(9)).count(), 1);
}

#[test]
fn a_transaction_index_is_not_searched_for_in_every_segment_of_a_topic_without_any() {
    let mut cache = RemoteLogMetadataCache::new();
    fill(&mut cache, 5_000, None);
    let looks = LOOKS.get();
    let find = |cache: &RemoteLogMetadataCache| {
        cache.next_segment_with_txn_index(LeaderEpoch(0), Offset(0))
    };
    assert_eq!(find(&cache), None);
    assert_eq!(LOOKS.get(), looks);
    let mut segment = simple(5_000);
    segment.is_txn_index_empty = false;
    cache.add(&segment).unwrap();
    assert_eq!(find(&cache), None, "it is being copied");
    cache.update(&finished(&segment)).unwrap();
    assert_eq!(find(&cache).map(|it| it.id), Some(segment.id));
    for state in [DeleteSegmentStarted, DeleteSegmentFinished] {
        let update = segment.to_state(state, Timestamp(0), BrokerId(1));
        cache.update(&update).unwrap();
        assert_eq!(find(&cache), None);
    }
}

/// Otherwise local segments would be deleted whose records nothing has.
#[test]
fn a_gap_remains_after_segments_with_the_same_end_until_the_last_is_deleted() {
    let epoch = LeaderEpoch(0);
    let of = |id, start| segment(id, start, 19, LeaderEpochs::from([(0, start)]));
    let mut same_end = vec![of(1, 0), of(2, 5), of(3, 10), of(4, 15)];
    let after = segment(5, 30, 39, LeaderEpochs::from([(0, 30)]));
    // Each of them is deleted first once.
    for _ in 0..same_end.len() {
        same_end.rotate_left(1);
        let mut all = same_end.clone();
        all.sort_by_key(|segment| segment.start_offset);
        all.push(after.clone());
        let mut cache = cache_of(&all);
        assert_eq!(cache.readable_until(epoch, Offset(0)), Some(Offset(20)));
        for (number, deleted) in same_end.iter().enumerate() {
            let update = deleted.to_state(DeleteSegmentStarted, Timestamp(0), BrokerId(1));
            cache.update(&update).unwrap();
            let has_left = number + 1 < same_end.len();
            let found = cache.readable_until(epoch, Offset(19));
            assert_eq!(found, has_left.then_some(Offset(20)));
        }
    }
}

/// A former leader's last record arrives before that of a shorter segment of the next leader.
#[test]
fn a_longer_segment_is_not_replaced_by_a_shorter_one() {
    let mut cache = RemoteLogMetadataCache::new();
    let epochs = || LeaderEpochs::from([(1, 16)]);
    let long = segment(1, 16, 23, epochs());
    let short = segment(2, 16, 19, epochs());
    for segment in [&long, &short] {
        cache.add(segment).unwrap();
    }
    for segment in [&long, &short] {
        cache.update(&finished(segment)).unwrap();
    }
    let found = cache.segment(LeaderEpoch(1), Offset(20)).unwrap();
    assert_eq!(found.id, long.id);
    assert_eq!(cache.segments_of(LeaderEpoch(1)).count(), 2, "both expire");
}

#[test]
fn a_segment_is_readable_until_its_deletion_begins() {
    let mut cache = RemoteLogMetadataCache::new();
    let segment = segment(1, 0, 9, LeaderEpochs::from([(0, 0)]));
    assert!(!cache.is_readable(segment.id), "unknown");
    assert!(!cache.is_being_copied(segment.id), "unknown");
    cache.add(&segment).unwrap();
    let mut readable = vec![cache.is_readable(segment.id)];
    assert!(cache.is_being_copied(segment.id));
    for state in [
        CopySegmentFinished,
        DeleteSegmentStarted,
        DeleteSegmentFinished,
    ] {
        let update = segment.to_state(state, Timestamp(1), BrokerId(1));
        cache.update(&update).unwrap();
        readable.push(cache.is_readable(segment.id));
        assert!(!cache.is_being_copied(segment.id), "{state}");
    }
    assert_eq!(readable, [false, true, false, false]);
}
