//! Chooses the topic and the segments to restore, and describes them before the restore.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use anyhow::bail;
use ottla_tiered::{LeaderEpochs, RemoteLogSegmentState, RemoteSegment};
use ottla_types::Uuid;

use super::super::remote_log::{RemoteLog, RemotePartitionLog};
use super::super::verify::{epochs_of_all, outside};
use super::scan::Scan;
use crate::counted::counted;
use crate::tools::sizes;

/// The ID of the topic. Several topics had its name if it was deleted and created again.
pub fn topic_id(log: &RemoteLog, name: &str, given: Option<&str>) -> anyhow::Result<Uuid> {
    let mut newest: BTreeMap<Uuid, Option<i64>> = BTreeMap::new();
    for (partition, remote) in &log.partitions {
        if &*partition.topic != name {
            continue;
        }
        let all = remote.segments.values().chain(&remote.deleted_segments);
        let last = all.map(|segment| segment.max_timestamp.0).max();
        let of_topic = newest.entry(partition.topic_id).or_default();
        *of_topic = (*of_topic).max(last);
    }
    let known: Vec<String> = newest
        .iter()
        .map(|(id, newest)| {
            let newest = newest.map_or_else(|| "none".to_owned(), time);
            format!("{id} (newest record: {newest})")
        })
        .collect();
    let known = known.join(", ");
    if let Some(given) = given {
        return match newest.keys().find(|id| id.to_string() == given) {
            Some(id) => Ok(*id),
            None if newest.is_empty() => bail!(unknown(name)),
            None => bail!("--topic-id {given}: topic {name} had the IDs {known}"),
        };
    }
    match newest.keys().collect::<Vec<_>>()[..] {
        [] => bail!(unknown(name)),
        [id] => Ok(*id),
        _ => bail!("--topic {name}: {known} had this name; choose one with --topic-id"),
    }
}

fn unknown(name: &str) -> String {
    format!(
        "--topic {name}: remote storage never had a segment of a topic of that name; \
         ottla tier describe lists its topics"
    )
}

/// The segments that a partition had at the time, in the order in which they are read, and its leader
/// epochs. None if it had none. Segments that were deleted later may still be in the store.
pub fn segments(
    remote: &RemotePartitionLog,
    to_time: i64,
) -> Option<(Vec<RemoteSegment>, LeaderEpochs)> {
    use RemoteLogSegmentState::{CopySegmentFinished, CopySegmentStarted};
    let is_deleted = |segment: &RemoteSegment| segment.state != CopySegmentFinished;
    let all = remote.segments.values().chain(&remote.deleted_segments);
    let mut chosen: Vec<&RemoteSegment> = all
        .filter(|segment| segment.state != CopySegmentStarted)
        .filter(|segment| !remote.unfinished.contains(&segment.id))
        .filter(|segment| !is_deleted(segment) || segment.event_timestamp.0 > to_time)
        .collect();
    let history = epochs_of_all(&chosen)?;
    // A deleted segment of another history is not missing.
    chosen.retain(|segment| !is_deleted(segment) || outside(segment, &history).is_none());
    chosen.sort_by_key(|segment| {
        let end = Reverse(segment.end_offset);
        (segment.start_offset, is_deleted(segment), end)
    });
    let chosen = chosen.into_iter().cloned().collect();
    Some((chosen, history))
}

/// A line about the restored records of a partition.
pub fn summary(partition: i32, scan: &Scan) -> String {
    let Some(first) = scan.first_offset else {
        return format!("partition {partition}: no records");
    };
    let mut line = format!(
        "partition {partition}: {}, {}, offsets {first} to {}, {}{}",
        counted(scan.segments, "segment"),
        sizes::bytes(scan.bytes),
        scan.end_offset - 1,
        counted(scan.records as usize, "record"),
        span(scan.times)
    );
    if scan.aborted + scan.open > 0 {
        line += &format!(
            "; left out: {} of aborted transactions, {} of open ones",
            scan.aborted, scan.open
        );
    }
    line
}

/// A line about all partitions.
pub fn total(scans: &[&Scan]) -> String {
    let times = scans.iter().filter_map(|scan| scan.times);
    let times = times.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
    format!(
        "Total: {}, {}, {}{}",
        counted(scans.iter().map(|scan| scan.segments).sum(), "segment"),
        sizes::bytes(scans.iter().map(|scan| scan.bytes).sum()),
        counted(
            scans.iter().map(|scan| scan.records as usize).sum(),
            "record"
        ),
        span(times)
    )
}

/// Describes the records that the partition had at the time and remote storage does not have.
/// `log_end` is the end offset of the topic, if it is still there.
pub fn missing(partition: i32, scan: &Scan, log_end: Option<i64>) -> Vec<String> {
    let mut lines: Vec<String> = scan
        .missing
        .iter()
        .map(|(first, last)| {
            format!(
                "partition {partition}: offsets {first} to {last} are not in the store any more"
            )
        })
        .collect();
    let end = scan.end_offset;
    if !scan.is_cut && log_end != Some(end) {
        lines.push(format!(
            "partition {partition}: remote storage ends at offset {end}{}; what was written from there on \
             until --to-time was not copied to it, or was deleted",
            scan.times.map_or_else(String::new, |(_, newest)| {
                format!(", and its newest record is of {}", time(newest))
            })
        ));
    }
    lines
}

/// A restore to a time before every record would create an empty topic.
pub fn check_time(name: &str, scans: &[&Scan]) -> anyhow::Result<()> {
    let first = scans.iter().filter_map(|scan| scan.next_time).min();
    let has_records = scans.iter().any(|scan| scan.first_offset.is_some());
    match first.filter(|_| !has_records) {
        None => Ok(()),
        Some(first) => {
            let moment = jiff::Timestamp::from_millisecond(first);
            let moment = moment.map_or_else(
                |_| first.to_string(),
                |moment| moment.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string(),
            );
            bail!(
                "--to-time: remote storage has no record of topic {name} from then or before, so nothing was written; \
                 the earliest time with a record is {moment}"
            )
        }
    }
}

/// The end of a line: the oldest and the newest time, if there is a record.
fn span(times: Option<(i64, i64)>) -> String {
    match times {
        Some((oldest, newest)) => format!(", {} to {}", time(oldest), time(newest)),
        None => String::new(),
    }
}

fn time(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(moment) => moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Err(_) => "no time".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::remote_log::tests::{announced, partition, segment, update};
    use super::*;
    use RemoteLogSegmentState::*;
    use ottla_tiered::RemotePartition;

    /// Four segments: whole, deleted, being copied, and deleted while it was copied. Updates are of
    /// time 600,000.
    fn log() -> RemoteLog {
        let mut log = RemoteLog {
            keeps_deleted_of: Some("t".to_owned()),
            ..RemoteLog::default()
        };
        let [deleted, whole, copying, partial] = [(1, 0), (2, 10), (3, 20), (4, 30)]
            .map(|(id, start)| segment(id, start, start + 9, CopySegmentStarted));
        for value in [
            announced(deleted.clone()),
            update(&deleted, CopySegmentFinished),
            update(&deleted, DeleteSegmentStarted),
            update(&deleted, DeleteSegmentFinished),
            announced(whole.clone()),
            update(&whole, CopySegmentFinished),
            announced(copying),
            announced(partial.clone()),
            update(&partial, DeleteSegmentStarted),
        ] {
            log.apply(&value, "here");
        }
        log
    }

    #[test]
    fn the_segments_of_the_topic_at_the_time_are_chosen() {
        let log = log();
        let remote = &log.partitions[&partition("t")];
        let starts = |to_time| {
            let (segments, _) = segments(remote, to_time).unwrap();
            let starts = segments.iter().map(|segment| segment.start_offset.0);
            starts.collect::<Vec<_>>()
        };
        assert_eq!(starts(599_999), [0, 10]);
        assert_eq!(starts(600_000), [10]);
    }

    #[test]
    fn an_ambiguous_topic_name_needs_an_id() {
        let mut log = log();
        let first = partition("t").topic_id;
        assert_eq!(topic_id(&log, "t", None).unwrap(), first);
        let refused = topic_id(&log, "u", None).unwrap_err().to_string();
        assert!(
            refused.starts_with("--topic u: remote storage never"),
            "{refused}"
        );
        let other = RemotePartition {
            topic_id: Uuid::from_u128(10),
            ..partition("t")
        };
        log.partitions
            .insert(other.clone(), RemotePartitionLog::default());
        let refused = topic_id(&log, "t", None).unwrap_err().to_string();
        assert!(refused.ends_with("choose one with --topic-id"), "{refused}");
        assert!(refused.contains(&other.topic_id.to_string()), "{refused}");
        let given = other.topic_id.to_string();
        assert_eq!(topic_id(&log, "t", Some(&given)).unwrap(), other.topic_id);
        let refused = topic_id(&log, "t", Some("x")).unwrap_err().to_string();
        assert!(
            refused.starts_with("--topic-id x: topic t had the IDs "),
            "{refused}"
        );
    }

    #[test]
    fn one_segment_and_one_record_are_singular() {
        let scan = Scan {
            segments: 1,
            records: 1,
            first_offset: Some(0),
            end_offset: 1,
            times: Some((0, 1000)),
            ..Scan::default()
        };
        let line = summary(0, &scan);
        assert!(line.starts_with("partition 0: 1 segment, "), "{line}");
        assert!(line.contains(", offsets 0 to 0, 1 record, "), "{line}");
        let line = total(&[&scan, &scan]);
        assert!(line.starts_with("Total: 2 segments, "), "{line}");
        assert!(line.contains(", 2 records, "), "{line}");
        let line = total(&[&Scan::default()]);
        assert!(line.ends_with(", 0 records"), "{line}");
    }

    #[test]
    fn a_time_before_every_record_is_refused() {
        let early = |next_time| Scan {
            is_cut: true,
            next_time: Some(next_time),
            ..Scan::default()
        };
        let (one, two) = (early(61_001), early(60_005));
        let refused = check_time("t", &[&one, &two]).unwrap_err().to_string();
        assert!(refused.contains("of topic t from then"), "{refused}");
        assert!(refused.ends_with(" 1970-01-01T00:01:00.005Z"), "{refused}");
        let with_records = Scan {
            first_offset: Some(0),
            ..early(70_000)
        };
        assert!(check_time("t", &[&one, &with_records]).is_ok());
        // An empty topic is restored to an empty one.
        assert!(check_time("t", &[&Scan::default()]).is_ok());
    }

    #[test]
    fn missing_records_are_reported() {
        let mut scan = Scan {
            end_offset: 30,
            times: Some((0, 1000)),
            missing: vec![(3, 9)],
            ..Scan::default()
        };
        let lines = missing(2, &scan, None);
        assert_eq!(
            lines[0],
            "partition 2: offsets 3 to 9 are not in the store any more"
        );
        assert!(
            lines[1].starts_with(
                "partition 2: remote storage ends at offset 30, and its newest record is of \
                 1970-01-01T00:00:01Z; "
            ),
            "{lines:?}"
        );
        // The topic has no further records, or the next record is newer.
        assert_eq!(missing(2, &scan, Some(30)).len(), 1);
        scan.is_cut = true;
        assert_eq!(missing(2, &scan, None).len(), 1);
    }
}
