//! What Kafka 4.3.1's own classes do with random input (`kafka_cases.txt`), line by line.
//!
//! - `record`: the bytes of `RemoteLogMetadataSerde`, and the message in words.
//! - `lineage`: the epochs and the end of a segment, the end and the epochs of a log, and the answer
//!   of `RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`.
//! - `cache`: segments that leaders upload one after the other into a `RemoteLogMetadataCache` (`+`
//!   id, start, end, epochs, whether the transaction index is empty; `=` id and state), and after
//!   `>` its answers for each epoch: `h` the highest offset, `l` the segments, `s` which segment
//!   has which offsets, `t` the next one with a transaction index.

use std::fmt::Write;

use bytes::Bytes;
use ottla_types::{BrokerId, LeaderEpoch, Offset, Timestamp, Uuid};

use crate::test_segments::segment;
use crate::{
    CustomMetadata, EpochEntry, LeaderEpochs, RemoteLogMetadata, RemoteLogMetadataCache,
    RemoteLogSegmentState, RemotePartition, RemoteSegment, is_within_leader_epochs,
};

const CASES: &str = include_str!("kafka_cases.txt");

fn cases(kind: &str) -> impl Iterator<Item = &'static str> {
    let lines = CASES.lines().filter_map(move |line| {
        let rest = line.strip_prefix(kind)?;
        rest.strip_prefix(' ')
    });
    assert!(lines.clone().count() >= 60, "{kind}");
    lines
}

fn from_hex(text: &str) -> Bytes {
    let digits = (0..text.len()).step_by(2);
    digits
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect::<Vec<u8>>()
        .into()
}

fn parse_epochs(text: &str) -> LeaderEpochs {
    let entries = text.split(',').map(|entry| {
        let (epoch, offset) = entry.split_once(':').unwrap();
        EpochEntry::new(epoch.parse().unwrap(), offset.parse().unwrap())
    });
    entries.collect()
}

fn show_epochs(epochs: &LeaderEpochs) -> String {
    let entries = epochs.entries().iter();
    let shown: Vec<String> = entries
        .map(|entry| format!("{}:{}", entry.epoch, entry.start_offset))
        .collect();
    shown.join(",")
}

fn show_custom(custom_metadata: Option<&CustomMetadata>) -> String {
    custom_metadata.map_or("-".to_owned(), |CustomMetadata(bytes)| {
        let mut text = "x".to_owned();
        for byte in bytes {
            write!(text, "{byte:02x}").unwrap();
        }
        text
    })
}

fn show_partition(partition: &RemotePartition) -> String {
    let RemotePartition {
        topic_id,
        topic,
        partition,
    } = partition;
    format!("{topic_id} {topic} {partition}")
}

fn show_segment(segment: &RemoteSegment) -> String {
    format!(
        "{} {} {} {} {} {} {} {} {} {} {}",
        segment.id,
        segment.start_offset,
        segment.end_offset,
        segment.max_timestamp,
        segment.broker_id,
        segment.event_timestamp,
        segment.segment_size_bytes,
        show_custom(segment.custom_metadata.as_ref()),
        segment.state,
        segment.is_txn_index_empty,
        show_epochs(&segment.segment_leader_epochs),
    )
}

fn show(metadata: &RemoteLogMetadata) -> String {
    match metadata {
        RemoteLogMetadata::Segment(it) => {
            let (partition, segment) = (show_partition(&it.partition), show_segment(&it.segment));
            format!("segment {partition} {segment}")
        }
        RemoteLogMetadata::SegmentUpdate(it) => format!(
            "update {} {} {} {} {} {}",
            show_partition(&it.partition),
            it.update.id,
            it.update.event_timestamp,
            show_custom(it.update.custom_metadata.as_ref()),
            it.update.state,
            it.update.broker_id,
        ),
        RemoteLogMetadata::PartitionDelete(it) => format!(
            "delete {} {} {} {}",
            show_partition(&it.partition),
            it.state,
            it.event_timestamp,
            it.broker_id,
        ),
        RemoteLogMetadata::SegmentSnapshot(segment) => {
            format!("snapshot {}", show_segment(segment))
        }
    }
}

#[test]
fn records_have_kafkas_bytes_and_meaning() {
    for case in cases("record") {
        let (hex, expected) = case.split_once(' ').unwrap();
        let bytes = from_hex(hex);
        let metadata = RemoteLogMetadata::decode(&bytes).unwrap();
        assert_eq!(show(&metadata), expected);
        assert_eq!(metadata.encode().unwrap(), bytes, "{expected}");
    }
}

#[test]
fn lineages_are_judged_as_by_kafka() {
    for case in cases("lineage") {
        let parts: Vec<&str> = case.split(' ').collect();
        let [epochs, end, log_end, log_epochs, expected] = parts[..] else {
            panic!("{case}");
        };
        let epochs = parse_epochs(epochs);
        let start = epochs.earliest().unwrap().start_offset;
        let segment = segment(1, start.0, end.parse().unwrap(), epochs);
        let found = is_within_leader_epochs(
            &segment,
            Offset(log_end.parse().unwrap()),
            &parse_epochs(log_epochs).without_empty(),
        );
        assert_eq!(found.to_string(), expected, "{case}");
    }
}

#[test]
fn caches_answer_as_kafkas() {
    for case in cases("cache") {
        let (script, expected) = case.split_once("> ").unwrap();
        let mut cache = RemoteLogMetadataCache::new();
        cache.mark_initialized();
        for step in script.split_whitespace() {
            apply(&mut cache, step);
        }
        let mut highest_epoch = expected.split(' ').filter_map(|it| it.split_once('h'));
        let last_epoch = highest_epoch.next_back().unwrap().0.parse().unwrap();
        // Kafka asked for offsets up to two after the last one, and printed where runs end.
        let ends = expected
            .split(['-', '=', ' '])
            .filter_map(|it| it.parse::<i64>().ok());
        let to = ends.max().unwrap_or(0) + 10;
        let mut found = String::new();
        for epoch in 0..=last_epoch {
            describe(&cache, LeaderEpoch(epoch), to, &mut found);
        }
        assert_eq!(found.trim(), expected, "{script}");
    }
}

fn id(number: &str) -> Uuid {
    Uuid::from_u128(number.parse().unwrap())
}

fn apply(cache: &mut RemoteLogMetadataCache, step: &str) {
    let parts: Vec<&str> = step[1..].split('/').collect();
    match parts[..] {
        [number, start, end, epochs, is_txn_index_empty] => {
            let (start, end) = (start.parse().unwrap(), end.parse().unwrap());
            let mut segment = segment(0, start, end, parse_epochs(epochs));
            segment.id = id(number);
            segment.is_txn_index_empty = is_txn_index_empty == "true";
            cache.add(&segment).unwrap();
        }
        [number, state] => {
            let segment = cache.get(id(number)).unwrap();
            let state = RemoteLogSegmentState::from_id(state.parse().unwrap()).unwrap();
            let update = segment.to_state(state, Timestamp(0), BrokerId(1));
            cache.update(&update).unwrap();
        }
        _ => panic!("{step}"),
    }
}

fn number(segment: &RemoteSegment) -> u128 {
    u128::from_be_bytes(segment.id.0)
}

fn describe(cache: &RemoteLogMetadataCache, epoch: LeaderEpoch, to: i64, out: &mut String) {
    let highest = cache.highest_offset_for_epoch(epoch);
    let highest = highest.map_or("-".to_owned(), |offset| offset.to_string());
    let mut listed: Vec<(Offset, u128)> = cache
        .segments_of(epoch)
        .map(|it| (it.start_offset, number(&it)))
        .collect();
    listed.sort();
    let listed: Vec<String> = listed.iter().map(|(_, id)| id.to_string()).collect();
    let listed = if listed.is_empty() {
        "-".to_owned()
    } else {
        listed.join(",")
    };
    write!(out, "{epoch}h{highest} {epoch}l{listed} ").unwrap();
    runs(epoch, 's', to, |at| cache.segment(epoch, at), out);
    let next = |at| cache.next_segment_with_txn_index(epoch, at);
    runs(epoch, 't', to, next, out);
}

fn runs(
    epoch: LeaderEpoch,
    kind: char,
    to: i64,
    find: impl Fn(Offset) -> Option<RemoteSegment>,
    out: &mut String,
) {
    let mut run: Option<(i64, u128)> = None;
    for offset in 0..=to {
        let found = find(Offset(offset)).as_ref().map(number);
        if run.map(|(_, id)| id) != found {
            if let Some((from, id)) = run {
                write!(out, "{epoch}{kind}{from}-{}={id} ", offset - 1).unwrap();
            }
            run = found.map(|id| (offset, id));
        }
    }
}
