//! The invariants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ottla_log::LogReader;
use ottla_log::checkpoint::{
    CLEANER_OFFSET_CHECKPOINT, OffsetCheckpoint, RECOVERY_POINT_CHECKPOINT,
};
use ottla_records::RecordBatch;
use ottla_records::control::ControlRecordType;
use ottla_sync::simulation::stream;
use ottla_sync::task::Handle;
use ottla_sync::{thread, time};
use ottla_types::Offset;

use super::cluster::{Cluster, PEER, State, Values};
use super::running::{DATA, PATIENCE, Running};
use crate::partition::Partition;
use crate::test_host::TOPIC;

/// The partition's offset in a checkpoint of the directory.
fn written(file: &str) -> Option<i64> {
    let path = std::path::Path::new(DATA).join(file);
    let checkpoint = OffsetCheckpoint::read(&path).ok()?;
    let offset = checkpoint
        .offsets
        .get(&ottla_types::TopicPartition::new(TOPIC, 0))?;
    Some(offset.0)
}

pub(super) fn written_recovery_point() -> i64 {
    written(RECOVERY_POINT_CHECKPOINT).unwrap_or(0)
}

/// The whole log. `None` if the disk fails or the log was truncated during the read.
fn batches(reader: &LogReader) -> Option<Vec<RecordBatch>> {
    let mut found = Vec::new();
    let (mut next, end) = (reader.log_start_offset(), reader.log_end_offset());
    while next < end {
        let Some(region) = reader.read(next, 1 << 20, end, true).ok()?.region else {
            break;
        };
        for batch in RecordBatch::read_all(region.read().ok()?) {
            let batch = batch.expect("a read returns whole batches");
            batch.verify_crc().expect("a read returns whole batches");
            assert!(
                batch.header.base_offset >= next,
                "offsets go back at {next}"
            );
            next = batch.header.next_offset();
            found.push(batch);
        }
    }
    Some(found)
}

/// Checks the log after a start. Returns its truncation count; `None` if the disk fails.
pub(super) fn on_start(
    cluster: &Cluster,
    partition: &Arc<Partition>,
    recovery_point: i64,
) -> Option<u64> {
    let reader = partition.reader();
    let truncations = reader.truncations();
    let (end, bases) = (reader.log_end_offset(), reader.segment_base_offsets());
    let found = batches(&reader)?;
    tell!(
        "starts with {} batches, up to {end}, recovery point {recovery_point}",
        found.len()
    );
    cluster.with(|state| {
        state.on_kept(found.clone(), end.0);
        let has_lost_power = std::mem::take(&mut state.has_lost_power);
        // The last records that a truncation keeps may have been cleaned away; they are fetched
        // again.
        if state.setup.is_compacted {
            check_transaction_index(&reader, &found, state);
            return;
        }
        // A truncation right behind a hole leaves no record between the hole and the end.
        let is_hole = |hole: &(i64, i64)| hole.0 <= end.0 && recovery_point <= hole.1;
        assert!(
            end.0 >= recovery_point || state.holes.iter().any(is_hole),
            "the log ends at {end}, before the recovery point {recovery_point}, with the holes {:?}",
            state.holes
        );
        let mut gaps = Vec::new();
        let mut next = 0;
        let starts = found
            .iter()
            .map(|it| (it.header.base_offset.0, it.header.next_offset().0));
        for (first, after) in starts.chain([(end.0, end.0)]) {
            if next < first {
                gaps.push((next, first));
            }
            next = after;
        }
        tell!("segments {bases:?}, missing {gaps:?}");
        for (from, to) in &gaps {
            // A known hole may have grown: the log was truncated at its end, and what came after is
            // lost.
            let known = state
                .holes
                .iter()
                .find(|hole| hole.0 <= *from && *from < hole.1);
            let lost_from = known.map_or(*from, |hole| hole.1);
            let is_known = *to <= lost_from;
            // A segment and the next one lost their ends: like Kafka, recovery keeps the next.
            let is_lost =
                has_lost_power && lost_from >= recovery_point && bases.contains(&Offset(*to));
            assert!(
                is_known || is_lost,
                "{from} to {to} are missing, with the recovery point {recovery_point} and the holes {:?}",
                state.holes
            );
            state.tally.holes += u64::from(!is_known);
        }
        state.holes = gaps;
        check_transaction_index(&reader, &found, state);
    });
    Some(truncations)
}

/// Every transaction that the log shows as aborted is in the transaction index.
fn check_transaction_index(reader: &LogReader, found: &[RecordBatch], state: &State) {
    // The holes of a compacted log are not known.
    if state.setup.is_compacted && state.setup.has_losses {
        return;
    }
    let Ok(indexed) = reader.aborted_transactions(Offset(0), reader.log_end_offset()) else {
        return;
    };
    let mut open = BTreeMap::new();
    for batch in found {
        let header = &batch.header;
        if !header.is_transactional() {
            continue;
        }
        if !header.is_control() {
            // The cleaner keeps the last batch of a producer without its records.
            if header.record_count > 0 {
                open.entry(header.producer_id.0)
                    .or_insert(header.base_offset);
            }
            continue;
        }
        let kind = kind_of(batch);
        let Some(first) = open.remove(&header.producer_id.0) else {
            continue;
        };
        let is_known = indexed
            .iter()
            .any(|it| it.producer_id == header.producer_id && it.last_offset == header.base_offset);
        // If records are missing, the transaction may have begun in the hole.
        assert!(
            kind != Some(ControlRecordType::Abort) || is_known || !state.holes.is_empty(),
            "the transaction from {first} to {} is aborted, and the index does not know it",
            header.base_offset
        );
    }
}

/// The high watermark of a leader never decreases within an epoch. Records what truncations leave.
pub(super) fn watch(running: &Running, mut truncations: u64) {
    let mut before = (running.partition.leader_epoch(), Offset(0));
    let mut segments = 1;
    while !running.is_over() {
        let partition = &running.partition;
        if partition.reader().number_of_segments() > segments {
            segments += 1;
            running.cluster.with(|state| state.tally.rolls += 1);
        }
        if partition.reader().truncations() != truncations {
            let look = partition.look(&running.host, |_, log| {
                let reader = log.reader();
                let kept = batches(&reader)?;
                Some((reader.truncations(), kept, reader.log_end_offset().0))
            });
            if let Some(Some((seen, kept, end))) = Handle::current().block_on(look) {
                truncations = seen;
                running.cluster.with(|state| state.on_kept(kept, end));
            }
        }
        let epoch = partition.leader_epoch();
        let (is_leader, high_watermark) =
            (partition.is_leader(), partition.reader().high_watermark());
        let is_same = is_leader && partition.is_leader() && partition.leader_epoch() == epoch;
        if is_same {
            assert!(
                before.0 != epoch || high_watermark >= before.1,
                "the high watermark goes back from {} to {high_watermark} in {epoch}",
                before.1
            );
            before = (epoch, high_watermark);
        }
        thread::sleep(Duration::from_millis(3));
    }
}

/// Records outside markers, by offset: key and value.
fn values(batches: &[RecordBatch]) -> Values {
    let mut values = Values::new();
    for batch in batches.iter().filter(|batch| !batch.header.is_control()) {
        for record in batch.records(1 << 20).expect("records").iter() {
            let record = record.expect("a record");
            let (key, value) = (
                record.key.unwrap_or_default(),
                record.value.unwrap_or_default(),
            );
            values.insert(record.offset.0, (key.to_vec(), value.to_vec()));
        }
    }
    values
}

/// Without faults, the broker as a follower reaches the leader's state.
pub(super) fn at_the_end(running: &Running) {
    let Running {
        cluster, partition, ..
    } = running;
    let deadline = time::now() + PATIENCE;
    let mut random = stream("end");
    loop {
        thread::sleep(Duration::from_millis(20));
        let end = cluster.with(|state| {
            if state.leader != PEER && state.isr.contains(&PEER) {
                state.follow_peer();
            }
            let has_rolled = state.write_until_rolled(&mut random);
            (has_rolled && state.leader == PEER).then(|| state.peer_end())
        });
        let reader = partition.reader();
        let is_level = end == Some(reader.log_end_offset().0)
            && reader.high_watermark() == reader.log_end_offset();
        if is_level {
            break;
        }
        assert!(
            time::now() < deadline,
            "the follower never has all that its leader has"
        );
    }
    // The cleaner runs a little longer.
    thread::sleep(Duration::from_millis(100));
    let reader = partition.reader();
    let found = batches(&reader).expect("the disk works");
    cluster.with(|state| {
        state.tally.committed += state.committed as u64;
        match state.setup.is_compacted {
            true => check_compacted(&found, state),
            false => check_equal(&found, state),
        }
        check_transaction_index(&reader, &found, state);
    });
}

fn check_equal(found: &[RecordBatch], state: &State) {
    let content = |batch: &RecordBatch| {
        let header = &batch.header;
        (
            header.base_offset.0,
            header.partition_leader_epoch,
            header.crc,
        )
    };
    let ours: BTreeSet<_> = found.iter().map(content).collect();
    let theirs: BTreeSet<_> = state.peer.iter().map(content).collect();
    let in_hole = |at: i64| {
        state
            .holes
            .iter()
            .any(|hole| (hole.0..hole.1).contains(&at))
    };
    let missing = theirs.difference(&ours).find(|it| !in_hole(it.0));
    let other = ours.difference(&theirs).next();
    assert!(
        missing.is_none() && other.is_none(),
        "the logs differ: {missing:?} is missing, {other:?} is not the leader's"
    );
}

fn check_compacted(found: &[RecordBatch], state: &mut State) {
    let (ours, theirs) = (values(found), values(&state.peer));
    for (offset, value) in &ours {
        assert_eq!(
            Some(value),
            theirs.get(offset),
            "another record is at {offset}"
        );
    }
    // A record cleaned before the last truncation may have had a successor that is truncated now. A
    // loss of power may have removed a marker: what counts is the broker's own log.
    let (kept, kept_end) = &state.kept;
    let since = |batch: &&RecordBatch| batch.header.base_offset.0 >= *kept_end;
    let own: Vec<RecordBatch> = kept
        .iter()
        .chain(state.peer.iter().filter(since))
        .cloned()
        .collect();
    let (own_values, aborted) = (values(&own), aborted_offsets(&own));
    let mut last = BTreeMap::new();
    for (offset, (key, _)) in &own_values {
        if !aborted.contains(offset) {
            last.insert(key, *offset);
        }
    }
    for (key, offset) in last {
        let key = String::from_utf8_lossy(key);
        assert!(
            ours.contains_key(&offset),
            "the last record of {key}, at {offset}, was cleaned away"
        );
    }
    if ours.len() < theirs.len() {
        state.tally.cleanings += 1;
    }
    // Below this offset, no key occurs twice.
    let clean = written(CLEANER_OFFSET_CHECKPOINT).unwrap_or(0);
    let mut keys = BTreeSet::new();
    for (offset, (key, _)) in ours.range(..clean) {
        let name = String::from_utf8_lossy(key);
        assert!(
            keys.insert(key) || aborted.contains(offset),
            "{name} is twice below {clean}, where the log is clean"
        );
    }
}

/// The type of a control batch.
fn kind_of(batch: &RecordBatch) -> Option<ControlRecordType> {
    let records = batch.records(1 << 20).expect("records");
    let key = records
        .iter()
        .next()
        .expect("a record")
        .expect("a record")
        .key;
    ControlRecordType::parse_key(key.expect("a key")).expect("a marker")
}

/// The records of aborted or open transactions.
fn aborted_offsets(batches: &[RecordBatch]) -> BTreeSet<i64> {
    let mut open: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let mut aborted = BTreeSet::new();
    for batch in batches.iter().filter(|it| it.header.is_transactional()) {
        let header = &batch.header;
        if !header.is_control() {
            let offsets = header.base_offset.0..header.next_offset().0;
            open.entry(header.producer_id.0)
                .or_default()
                .extend(offsets);
            continue;
        }
        let kind = kind_of(batch);
        let ended = open.remove(&header.producer_id.0).unwrap_or_default();
        if kind == Some(ControlRecordType::Abort) {
            aborted.extend(ended);
        }
    }
    aborted.extend(open.into_values().flatten());
    aborted
}
